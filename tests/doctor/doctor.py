#!/usr/bin/env python3
"""Tests of `gyre doctor`: the real reading code runs on prepared machines (machines.py).

    python3 tests/doctor/doctor.py BENCH_DIR SOURCE_DIR [NAME...]
        (NAME: of a test_* function, without "test_"; --write-example: the example of the page)
"""

import contextlib
import glob
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.realpath(__file__))
sys.path.insert(0, HERE)
sys.path.insert(0, os.path.join(HERE, "../bench"))
import machines
import sick
from machines import Disk
from report_schema import check_schema
from running import clean_environment, ephemeral_ports, free_port, read_json, read_text, write_text

GYRE = SOURCE = ""
DISK = None
STATUS = {"ok": 0, "skipped": 0, "warn": 1, "fail": 2, "unknown": 3}


class Result:
    """One run: its exit status, its text, and its JSON."""

    def __init__(self, done, report):
        self.status = done.returncode
        self.text = done.stdout
        self.errors = done.stderr
        self.report = report
        self.checks = report["checks"] if report else []

    def of(self, check):
        return [c for c in self.checks if c["id"] == check]

    def problems(self):
        """A build without CUDA rightly complains of every GPU, and is no trouble of the machine."""
        return [c for c in self.checks if c["severity"] in ("warn", "fail", "unknown")
                and "built without CUDA" not in c["evidence"]]

    def status_of_problems(self):
        worst = {STATUS[c["severity"]] for c in self.problems()}
        return 2 if 2 in worst else 1 if 1 in worst else max(worst, default=0)


def environment():
    """Without what the machine of the test has."""
    return {k: v for k, v in clean_environment().items() if not k.startswith("CUDA_")}


def examine(root, *options, user=None, **variables):
    with tempfile.TemporaryDirectory() as work:
        if user is not None:
            os.chmod(work, 0o777)
        path = os.path.join(work, "report.json")
        written = [] if "--counters" in options else ["--json", path]
        done = subprocess.run([GYRE, "doctor", "--root", root, *written, *options],
                              capture_output=True, text=True, timeout=60, user=user,
                              env={**environment(), **variables})
        report = None
        if os.path.exists(path):
            report = read_json(path)
    return Result(done, report)


def examine_machine(machine, *options, **variables):
    return examine(DISK.show(machine), *options, **variables)


def schema():
    """The schema with its references put in place, as check_schema() knows none."""
    whole = read_json(os.path.join(SOURCE, "bench/doctor/doctor.schema.json"))
    matrix = whole["$defs"]["matrix"]
    whole["properties"]["matrix"]["properties"] = {"gpus": matrix, "hosts": matrix, "rails": matrix}
    return whole


def ids_of_table():
    return [f"{group}.{name}" for group, name in
            re.findall(r"^X\((\w+), (\w+),", read_text(os.path.join(SOURCE, "bench/doctor/check_table.h")), re.M)]


def test_every_check_has_a_section_of_the_page():
    headings = re.findall(r"^### (\S+)$", read_text(os.path.join(SOURCE, "docs/doctor.md")), re.M)
    assert headings == ids_of_table(), set(headings) ^ set(ids_of_table())


def test_every_check_reports():
    result = examine_machine(sick.HEALTHY["roce_server"]())
    missing = [i for i in ids_of_table() if not result.of(i)]
    assert not missing, missing
    listed = subprocess.run([GYRE, "doctor", "--list"], capture_output=True, text=True).stdout
    assert [line.split()[0] for line in listed.split("\n") if line] == ids_of_table()


def test_healthy_machines_have_no_warning():
    machines_and_variables = {name: (make, {}) for name, make in sick.HEALTHY.items()} | sick.HEALTHY_WITH
    for name, (make, variables) in machines_and_variables.items():
        result = examine_machine(make(), **variables)
        problems = [(c["id"], c["subject"], c["evidence"]) for c in result.problems()]
        assert not problems, f"{name}: {result.status} {problems}"
        assert result.status == 0 or [c["id"] for c in result.checks if c["severity"] == "warn"] == ["gpu.build"], name
        check_schema(result.report, schema())


def test_what_is_expected_is_judged():
    everything = "gpus=8,ports=8,rate=400,mtu=4200"
    machine = machines.eight_gpus()
    [found] = examine_machine(machine, "--expect", everything).of("host.expected")
    assert found["severity"] == "ok" and "8 GPUs, 8 RDMA ports" in found["evidence"], found
    for i in (3, 4):
        machine[f"sys/class/infiniband/mlx5_{i}/ports/1/rate"] = "200 Gb/sec (4X HDR)"
    machine["sys/class/infiniband/mlx5_5/ports/1/state"] = "1: DOWN"
    machine["sys/class/net/eth1/mtu"] = "1500"
    machine = machines.without(machine, "sys/bus/pci/devices/0000:47:00.0")
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as file:
        file.write("# a node of the new hall\ngpus=8 ports=8\n\nrate=400, mtu=4200\n")
        file.flush()
        for expected in (everything, file.name):
            found = {(c["severity"], c["subject"], c["evidence"].split(";")[0])
                     for c in examine_machine(machine, "--expect", expected).of("host.expected")}
            assert found == {
                ("fail", "GPUs", "/sys/bus/pci/devices: 7 GPUs, 8 were expected"),
                ("fail", "ports", "7 RDMA ports can be used, 8 were expected"),
                ("warn", "mlx5_0:1", "/sys/class/net/eth1/mtu: 1500"),
                ("warn", "mlx5_3:1", "200 Gb/sec (4X HDR): 400 Gbit/s were expected"),
                ("warn", "mlx5_4:1", "200 Gb/sec (4X HDR): 400 Gbit/s were expected")}, found
    for wrong in ("gpus", "gpus=x", "cards=8", "rate=-1", "/nonexistent"):
        result = examine_machine(machine, "--expect", wrong)
        assert result.status == 4 and wrong.split("=")[0] in result.errors, (wrong, result.errors)
    # One port is expected and works: the other one's state is nobody's trouble. None is: RDMA is off on purpose.
    port_down = sick.CAUSES["port_down"].machine()
    assert examine_machine(port_down, "--expect", "ports=1").status == 0
    off = examine_machine(sick.roce(), "--expect", "ports=0", NCCL_IB_DISABLE="1")
    assert off.status == 0, off.text


def test_a_healthy_node_takes_few_lines():
    root = DISK.show(machines.eight_gpus())
    usual, everything = examine(root), examine(root, "--all")
    assert not usual.problems(), usual.problems()
    lines = usual.text.rstrip("\n").split("\n")
    assert len(lines) <= 40, usual.text
    # Each check that is well stands in the line of its group, and with --all in lines of its own.
    for check in {c["id"] for c in usual.checks if c["severity"] == "ok"}:
        group, name = check.split(".")
        [line] = [line for line in lines if re.match(f" +ok +{group} ", line)]
        assert name in re.split("[ ,:]+", line), (check, line)
        assert re.search(f"^ +ok +{check} ", everything.text, re.M), check
    assert len(everything.text.split("\n")) > 150, "8 ports with their GID tables"


def example():
    """What docs/examples/doctor/node.txt shows: a node with PFC, whose one port is slow, and a class that is wrong."""
    machine = sick.lossless()
    machine[f"{sick.PORT}/rate"] = "100 Gb/sec (4X EDR)"
    return os.path.join(SOURCE, "docs/examples/doctor/node.txt"), examine_machine(machine, NCCL_IB_TC="5").text


def test_the_example_of_the_page_is_what_is_printed():
    path, text = example()
    assert read_text(path) == text, f"with --write-example the test writes {path}:\n{text}"


def test_the_variables_to_set_are_printed():
    """A shell that has read them has no variable to complain of, and the ports and the interface that fit."""
    slower_port = sick.CAUSES["slower_port"].machine()
    before = {"NCCL_P2P_DISABLE": "1", "NCCL_IB_TC": "5"}
    for machine, expected in ((sick.CAUSES["slow_interface"].machine(), {"GYRE_SOCKET_IFNAME": "=eth1"}),
                              (slower_port, {"GYRE_SOCKET_IFNAME": "=eth0", "GYRE_IB_HCA": "=mlx5_1:1"})):
        result = examine_machine(machine, "--emit-env", **before)
        shell = subprocess.run(["bash", "-c", result.text + "\nenv"], capture_output=True, text=True, check=True,
                               env={**clean_environment(), **before})
        after = dict(line.split("=", 1) for line in shell.stdout.split("\n") if re.match("(GYRE|NCCL)_", line))
        assert after == expected, after
    again = examine_machine(slower_port, **after)
    assert not again.problems() and again.status == 0, again.text


def test_a_build_without_cuda_is_named():
    for make, n in ((sick.gpu, 1), (sick.roce, 0)):
        found = examine_machine(make()).of("gpu.build")
        assert [c["severity"] for c in found] == (["skipped"] if n == 0 else ["warn"] if "without" in
                                                  found[0]["evidence"] else ["ok"]), found


def test_unused_ports_are_one_line():
    result = examine_machine(machines.unused_ports())
    [folded] = [c for c in result.of("rdma.ports") if "no job uses" in c["evidence"]]
    assert folded["severity"] == "ok" and "1 of 3: mlx5_2:1" in folded["evidence"], folded
    assert not [c for c in result.checks if c["subject"] == "mlx5_2:1" and c["id"] != "rdma.devices"], result.text
    # A variable that names the port makes its state a finding again.
    named = examine_machine(machines.unused_ports(), NCCL_IB_HCA="=mlx5_0,mlx5_2")
    assert [c["subject"] for c in named.of("rdma.ports") if c["severity"] == "warn"] == ["mlx5_2:1"], named.text


def test_firmware_that_is_not_told_is_unknown():
    machine = machines.without(sick.roce(), "sys/class/infiniband/mlx5_0/fw_ver")
    [first] = [c["evidence"] for c in examine_machine(machine).of("rdma.devices") if c["subject"] == "mlx5_0:1"]
    assert ", firmware unknown, PCI " in first, first


def test_nothing_is_cut_without_a_word():
    """More ports than the library takes, and more addresses than a finding can list."""
    needed = ("/state", "/rate", "/link_layer", "/device")  # thousands of files take long to write
    machine = {path: "4: ACTIVE" if path.endswith("/state") else content
               for path, content in machines.virtual_functions(260).items()
               if not path.startswith("sys/class/infiniband/mlx5_1") or path.endswith(needed)}
    result = examine_machine(machine)
    found = [c["evidence"] for c in result.of("rdma.hca") if c["severity"] == "warn"]
    assert len(result.of("rdma.devices")) == 262 and \
        found == ["262 ports are active, and gyre takes 256 of them"], found
    machine = sick.roce()
    machines.set_addresses(machine, *[("eth0", f"10.{i >> 8}.{i & 255}.1/24") for i in range(9000)])
    [ipv4] = examine_machine(machine).of("net.ipv4")
    assert ipv4["evidence"].startswith("addresses: 9000 of IPv4"), ipv4
    [interfaces] = examine_machine(machine).of("net.interfaces")
    assert interfaces["evidence"].endswith("..."), interfaces["evidence"][-80:]


def test_checks_obey_the_limit_of_gpudirect():
    """Both adapters of the machine are behind the host bridge: PHB of their own GPU."""
    for variables, words in (({}, "beyond the default of GYRE_NET_GDR_LEVEL (PXB): bytes go through host memory"),
                             ({"NCCL_NET_GDR_LEVEL": "PIX"}, "beyond NCCL_NET_GDR_LEVEL=PIX: bytes go"),
                             ({"GYRE_NET_GDR_LEVEL": "PHB"}, "nearest RDMA port mlx5_0 (PHB)")):
        found = examine_machine(sick.gpu(), **variables).of("rdma.gpu_distance")
        assert any(words in c["evidence"] for c in found), (variables, found)
    [peermem] = examine_machine(sick.CAUSES["no_peermem"].machine(), GYRE_NET_GDR_LEVEL="LOC").of("rdma.peermem")
    assert peermem["severity"] == "skipped", peermem


def test_pages_and_findings_name_one_traffic_class():
    [value] = re.findall(r'BENCH_TRAFFIC_CLASS "(\d+) ', read_text(os.path.join(SOURCE, "bench/doctor/doctor.h")))
    assert int(value) == 26 * 4 + 2  # DSCP 26, ECT(0) of RFC 3168
    for page in ("cluster.md", "roce.md", "doctor.md"):
        named = set(re.findall(r"GYRE_IB_TC=(\d+)", read_text(os.path.join(SOURCE, "docs", page))))
        assert named <= {value}, (page, named)


def test_causes_are_named():
    assert len(sick.CAUSES) >= 40 and len(sick.HEALTHY) + len(sick.HEALTHY_WITH) >= 12
    for name, cause in sick.CAUSES.items():
        result = examine_machine(cause.machine(), **cause.variables)
        found = {c["severity"] for c in result.of(cause.check)}
        assert cause.severity in found, \
            f"{name}: {cause.check} is {found}, not {cause.severity}\n{result.text}{result.errors}"
        named = [c for c in result.of(cause.check) if c["severity"] == cause.severity
                 and cause.words in c["evidence"] + c["fix"] + c["subject"]]
        assert named, f"{name}: no {cause.check} says {cause.words!r}\n{result.text}"
        assert any(cause.remedy in c["fix"] for c in named), f"{name}: {cause.remedy!r} is not in {named}"
        assert result.status_of_problems() >= 1, f"{name}: exit status {result.status}"
        # A fix can be copied: it has the port's names in it, or says where they are found.
        for check in result.report["checks"]:
            assert "NETDEV" not in check["fix"] or "rdma link show" in check["fix"], (name, check)
            assert not re.search(r"\b(DEVICE|NAME|BELOW)\b", check["fix"]), (name, check)
        # One cause is not reported as several others.
        others = {c["id"] for c in result.problems()} - {cause.check} - set(cause.also)
        assert not others, f"{name}: also {others}\n{result.text}"


def test_a_bridge_that_comes_first_is_replaced():
    # A bridge comes first by name, and an adapter has an address.
    machine = sick.bridge_only()
    machines.set_addresses(machine, ("docker0", "172.17.0.1/16"), ("ens3", "10.0.0.5/24"))
    fixes = [c["fix"] for c in examine_machine(machine, GYRE_SOCKET_IFNAME="docker0").of("net.interfaces")]
    assert fixes == ["export GYRE_SOCKET_IFNAME=ens3"], fixes


def test_counters_that_are_not_there_are_not_zeros():
    machine = sick.HEALTHY["roce_server"]()
    [first, _] = examine_machine(machine).of("rdma.congestion")
    assert first["evidence"] == ("ethtool -S eth1: 21 pause frames, 0 thrown away; 1200 congestion notifications sent, "
                                 "900 handled"), first
    for device, netdev in (("mlx5_0", "eth1"), ("mlx5_1", "eth2")):
        port = f"sys/class/infiniband/{device}/ports/1"
        machine[f"ethtool/{netdev}"] = "NIC statistics:\n     rx_packets: 1"
        machine = machines.without(machine, f"{port}/hw_counters", f"{port}/counters")
    [without] = examine_machine(machine).of("rdma.congestion")
    assert without["severity"] == "skipped" and "no RoCE port" in without["evidence"], without
    [without] = examine_machine(machine).of("rdma.counters")
    assert without["severity"] == "skipped" and "none of the counters" in without["evidence"], without
    # A driver that does not count notifications says nothing about ECN.
    port = "sys/class/infiniband/mlx5_0/ports/1/hw_counters"
    pausing = machines.without(sick.CAUSES["no_ecn"].machine(), f"{port}/np_cnp_sent", f"{port}/rp_cnp_handled")
    [uncounted, _] = examine_machine(pausing).of("rdma.congestion")
    assert uncounted["severity"] == "ok" and uncounted["evidence"].endswith("notifications are not counted"), uncounted
    # Soft-RoCE has names of its own.
    machine["sys/class/infiniband/mlx5_0/ports/1/hw_counters/completer_retry_err"] = "127"
    [lost] = examine_machine(machine).of("rdma.counters")
    assert lost["severity"] == "warn" and "127: packets were sent again" in lost["evidence"], lost


def test_outputs_agree():
    machine = sick.CAUSES["memlock_8_mib"].machine()
    machine["proc/sys/kernel/hostname"] = "a<b>&c|d"
    with tempfile.TemporaryDirectory() as work:
        markdown, html = os.path.join(work, "r.md"), os.path.join(work, "r.html")
        result = examine_machine(machine, "--markdown", markdown, "--html", html)
        markdown = read_text(markdown)
        html = read_text(html)
    check_schema(result.report, schema())
    assert result.status == result.report["exit_status"] == 2, result.status
    assert "\033" not in result.text, "colours outside a terminal"
    fix = result.of("host.memlock")[0]["fix"]
    for name, text in (("text", result.text), ("markdown", markdown)):
        assert fix in text and "docs/doctor.md#hostmemlock" in text, name
    assert "a&lt;b&gt;&amp;c|d" in html and "a<b>" not in html
    for word in ("http:", "https:", "src=", "<script", "@import", "url("):
        assert word not in html, f"the page must load nothing, but has {word}"
    [interfaces] = result.of("net.interfaces")
    assert "\n" in interfaces["evidence"] and interfaces["evidence"] in html, "lines stay lines"
    for check in result.checks:
        assert f'id="{check["id"]}"' in html and f"`{check['id']}`" in markdown, check["id"]


def test_counters_are_listed():
    with tempfile.TemporaryDirectory() as work:
        for rank in (0, 1):
            write_text(f"{work}/metrics.{rank}", f'gyre_connection_moves_total{{rank="{rank}"}} {rank + 3}\n')
        done = examine_machine(sick.HEALTHY["roce_server"](), "--counters", "0", GYRE_METRICS_FILE=f"{work}/metrics.%r")
    assert done.status == 0, done
    lines = done.text.split("\n")
    assert any(re.match(r" *3 +\+0  mlx5_0:1 hw_counters/out_of_sequence: ", line) for line in lines), lines
    assert sum(line.endswith(('"0"} 3', '"1"} 4')) for line in lines) == 2, lines


def test_exit_status_is_the_worst():
    for name, status in (("memlock_8_mib", 2), ("shm_64_mib", 1)):
        assert examine_machine(sick.CAUSES[name].machine()).status == status, name
    machine = sick.HEALTHY["roce_server"]()
    machine["proc/mounts"] = "\0\0\0"
    assert examine_machine(machine).status == 3
    with tempfile.TemporaryDirectory() as root:
        assert examine(root, "--only", "nothing").status == 4
        assert examine(root, "--nothing").status == 4
        refused = examine(root, "--counters", "0", "--html", "page.html")
        assert refused.status == 4 and "--counters checks nothing" in refused.errors, refused.errors
        assert examine(os.path.join(root, "absent")).status == 4


def test_skipped_checks_are_one_line():
    root = DISK.show(sick.HEALTHY["roce_server"]())
    usual, everything, quiet = examine(root), examine(root, "--all"), examine(root, "--quiet")
    skipped = [c for c in usual.checks if c["severity"] == "skipped"]
    assert len(skipped) > 5, "the machine has checks that do not apply"
    lines = re.findall("^ +skipped .*$", usual.text, re.M)
    assert len(lines) == 1 and f" {len(skipped)} checks" in lines[0], lines
    assert len(re.findall("^ +skipped ", everything.text, re.M)) == len(skipped), everything.text
    assert all(c["evidence"] in everything.text for c in skipped)
    assert not re.findall("^ +(skipped|ok) ", quiet.text, re.M), quiet.text


def test_an_unwritable_report_is_an_error():
    root = DISK.show(sick.HEALTHY["roce_server"]())
    result = examine(root, "--html", os.path.join(root, "no", "folder.html"))
    assert result.status == 3 and "folder.html" in result.errors, result.errors


GARBAGE = ["", "\0" * 40, "\xff\xfe" * 20, "-1", "99999999999999999999999", "max\nmax", "%s%n%d", "A" * 5000]


def test_garbage_crashes_nothing():
    """A third of all files holds garbage, each time another third."""
    chance = random.Random(26)
    for make in (sick.HEALTHY["roce_server"], sick.HEALTHY["gpu_server"]):
        for garbage in GARBAGE:
            machine = {path: garbage if type(content) is str and chance.random() < 0.3 else content
                       for path, content in make().items()}
            result = examine_machine(machine)
            assert result.report and 0 <= result.status <= 3, f"{garbage!r}: {result.status} {result.errors}"
            check_schema(result.report, schema())


def test_garbage_is_never_ok():
    """A file that decides a check holds garbage. A port whose state is garbage is not looked at
    further, so that file is tried alone."""
    alone = [path for path in sick.DECISIVE if path.endswith("/state")]
    rest = [path for path in sick.DECISIVE if path not in alone]
    for garbage in GARBAGE[:3]:
        for paths in (alone, rest):
            result = examine_machine({**sick.HEALTHY["roce_server"](), **dict.fromkeys(paths, garbage)})
            for path in paths:
                severities = {c["severity"] for c in result.of(sick.DECISIVE[path])}
                assert severities & {"unknown", "warn", "fail"}, f"{path} {garbage!r}: {severities}"


def test_a_folder_without_files_is_not_ok():
    with tempfile.TemporaryDirectory() as root:
        result = examine(root)
    assert result.status in (1, 2, 3), result.text
    for check in sick.DECISIVE.values():
        assert "ok" not in {c["severity"] for c in result.of(check)}, check


def test_no_permission_is_not_ok():
    if os.getuid() != 0:
        print("  (not root: files of others cannot be made)")
        return
    with tempfile.TemporaryDirectory() as root:
        Disk(root).show(sick.HEALTHY["roce_server"]())
        os.chmod(root, 0o755)
        closed = [path for path in sick.DECISIVE if not path.endswith("/state")]
        for path in closed:
            os.chmod(os.path.join(root, path), 0)
        try:
            result = examine(root, user=65534)
        except PermissionError:
            print("  (another user may not start the build's programs)")
            return
    assert result.report is not None, f"the unprivileged user cannot run it: {result.errors}"
    for path in closed:
        severities = {c["severity"] for c in result.of(sick.DECISIVE[path])}
        assert severities & {"unknown", "warn", "fail"}, f"{path}: {severities}"


def test_no_other_program_is_given_the_port_of_a_job():
    """Otherwise rank 0 cannot listen, and the other ranks wait for it."""
    if len(ephemeral_ports()) < 50000:
        assert not {free_port() for _ in range(50)} & set(ephemeral_ports())


def wait_for(ranks):
    """The outputs of all ranks. No rank outlives this function."""
    try:
        return [rank.communicate(timeout=100) for rank in ranks]
    except subprocess.TimeoutExpired as late:
        for rank in ranks:
            rank.kill()
        raise AssertionError([rank.communicate() for rank in ranks]) from late
    finally:
        end(ranks)


def end(ranks):
    for rank in ranks:
        if rank.poll() is None:
            rank.kill()
            rank.communicate()


def examine_job(machines_of_ranks, *options, of_last=None):
    """One process a rank with torchrun's variables, each with a machine of its own. The last one
    may have variables that the others do not have."""
    ranks = []
    port = str(free_port())
    with tempfile.TemporaryDirectory() as work:
        path = os.path.join(work, "report.json")
        for rank, machine in enumerate(machines_of_ranks):
            root = os.path.join(work, str(rank))
            os.mkdir(root)
            Disk(root).show(machine)
            ranks.append(subprocess.Popen(
                [GYRE, "doctor", "--root", root, "--json", path, *options],
                stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                env={**environment(), "RANK": str(rank), "LOCAL_RANK": "0",
                     "WORLD_SIZE": str(len(machines_of_ranks)), "MASTER_ADDR": "127.0.0.1",
                     "MASTER_PORT": port, "GYRE_HOSTID": f"host{rank}",
                     **(of_last or {} if rank == len(machines_of_ranks) - 1 else {})}))
        outputs = wait_for(ranks)
        report = read_json(path)
    assert not any(out for out, _ in outputs[1:]), "only rank 0 prints"
    done = subprocess.CompletedProcess("gyre", ranks[0].returncode, *outputs[0])
    return Result(done, report)


def test_ranks_that_differ_are_named():
    """All differences of one kind of machine are tried in one job."""
    for make, differences in ((sick.roce, sick.ROCE_DIFFERENCES), (sick.gpu, sick.GPU_DIFFERENCES)):
        last = {**make(), **sick.SECOND_HOST}
        for changes, _, _ in differences.values():
            assert all(path in last for path in changes), changes
            last.update(changes)
        result = examine_job([make(), make(), last])
        for check, (_, severity, words) in differences.items():
            [found] = result.of(check)
            assert found["severity"] == severity and words in found["evidence"], f"{check}: {found}\n{result.errors}"
            assert found["ranks"] == "0-2", found


def test_variables_that_differ_are_named():
    result = examine_job([sick.roce(), sick.roce()], "--only", "job.variables_differ", of_last={"NCCL_ALGO": "ring"})
    [found] = result.of("job.variables_differ")
    assert found["severity"] == "fail" and "ALGO=ring" in found["evidence"], found


def test_a_check_alone_compares_what_all_checks_compare():
    """The facts are gathered whichever checks run."""
    for check, (changes, severity, words) in sick.ROCE_DIFFERENCES.items():
        result = examine_job([sick.roce(), sick.roce(), {**sick.roce(), **sick.SECOND_HOST, **changes}], "--only", check)
        [found] = result.of(check)
        assert found["severity"] == severity and words in found["evidence"], found


def test_the_network_between_hosts_is_measured():
    """A job of healthy hosts: nothing is found, but what the load of this machine does to times."""
    result = examine_job([sick.roce() for _ in range(3)])
    check_schema(result.report, schema())
    assert not [c for c in result.problems() if c["id"] != "job.network"], result.text
    assert {c["severity"] for c in result.of("job.network")} <= {"ok", "warn"}, result.text
    matrix = result.report["matrix"]["hosts"]
    assert matrix is not None, result.text + result.errors
    assert matrix["names"] == [f"node1 (rank {rank})" for rank in range(3)], matrix["names"]
    for key in ("gbytes_per_s", "latency_us"):
        for i, row in enumerate(matrix[key]):
            assert all((value is None) == (i == j) for j, value in enumerate(row)), matrix
            assert all(value is None or 0 < value < 1e6 for value in row), matrix
    rates = {(matrix["names"][i], matrix["names"][j]): value
             for i, row in enumerate(matrix["gbytes_per_s"]) for j, value in enumerate(row) if value}
    assert rates[tuple(matrix["slowest"])] == min(rates.values()), matrix
    # Equal ranks: each finding stands once.
    assert [c["ranks"] for c in result.of("host.memlock")] == ["0-2"], result.of("host.memlock")


def test_two_hosts_are_judged():
    """A pair is slow below half of the fastest rate; of two hosts that is the other direction."""
    result = examine_job([sick.roce(), sick.roce()], "--only", "job.network")
    [found] = result.of("job.network")
    rates = [rate for row in result.report["matrix"]["hosts"]["gbytes_per_s"] for rate in row if rate is not None]
    assert len(rates) == 2 and found["severity"] == ("warn" if min(rates) < max(rates) / 2 else "ok"), (rates, found)


def test_pairs_of_hosts_that_are_not_tried_are_counted():
    """17 hosts have 272 pairs, more than the 256 that a run tries."""
    for check in ("job.firewall", "job.path_mtu"):
        result = examine_job([sick.roce()] * 17, "--only", check)
        [found] = result.of(check)
        assert found["severity"] == "unknown" and \
            re.match(r"\d+ of 272 pairs of hosts were tried, then ", found["evidence"]), found


def examine_gpu(name, sickness=None, check=""):
    """A GPU machine whose NVML or CUDA driver is the stand-in of fake_nvml.c or fake_cuda.c."""
    library = {"nvml": "libnvidia-ml.so.1", "cuda": "libcuda.so.1"}[name]
    with tempfile.TemporaryDirectory() as root:
        Disk(root).show(sick.gpu())
        os.mkdir(os.path.join(root, "lib"))
        shutil.copy(os.path.join(os.path.dirname(os.path.dirname(GYRE)), f"tests/doctor/fake_{name}.so"),
                    os.path.join(root, "lib", library))
        return examine(root, "--only", "gpu." + check, **({f"FAKE_{name.upper()}": sickness} if sickness else {}))


def test_nvml_is_read():
    result = examine_gpu("nvml")
    for check, words in (("gpu.ecc", "ECC is on"), ("gpu.clocks", "345 of 1980 MHz"),
                         ("gpu.link", "generation 1 of 5, x16")):
        found = [(c["severity"], c["subject"]) for c in result.of(check) if words in c["evidence"]]
        assert found == [("ok", "0000:18:00.0"), ("ok", "0000:28:00.0")], result.text
    for sickness, check, severity, words in (
            ("uncorrected=1", "ecc", "fail", "1 memory errors that ECC could not correct"),
            ("failed=1", "ecc", "fail", "could not be replaced"),
            ("pending=1", "ecc", "warn", "at the next reset"),
            ("corrected=5000", "ecc", "warn", "5000 memory errors"),
            ("ecc_off=1", "ecc", "skipped", "ECC is off"),
            ("no_counts=1", "ecc", "unknown", "cannot be read"),
            ("no_counts=1", "link", "unknown", "? packets"),
            ("reasons=64", "clocks", "warn", "too hot (hardware)"),
            ("reasons=128", "clocks", "warn", "power brake"),
            ("reasons=4", "clocks", "ok", "at the power limit"),
            ("no_clock=1", "clocks", "unknown", "does not tell"),
            ("width=8", "link", "warn", "x8 of x16"),
            ("replays=9999", "link", "warn", "9999 packets"),
            ("no_start=1", "link", "skipped", "nvmlInit fails"),
            ("absent=1", "link", "skipped", "no GPU")):
        found = examine_gpu("nvml", sickness, check).of("gpu." + check)
        assert any(c["severity"] == severity and words in c["evidence"] for c in found), f"{sickness}: {found}"
        assert not any("-1" in c["evidence"] for c in found), f"{sickness}: {found}"


def test_cuda_is_tried():
    """A hanging call is tried in test_cuda_trial, which waits less long."""
    for sickness, check, severity, words in (
            (None, "copies", ("ok", "warn"), "32 MiB from pinned memory"),
            (None, "ipc", ("ok",), "read them right"),
            (None, "dmabuf", ("ok",), "exported as a dma-buf"),
            ("damage", "copies", ("fail",), "byte 16777216 of 33554432 is"),
            ("ipc", "ipc", ("warn",), "CUDA_ERROR_INVALID_VALUE"),
            ("dmabuf", "dmabuf", ("warn", "skipped"), "no dma-buf export"),
            ("start", "ipc", ("fail",), "CUDA_ERROR_UNKNOWN (999)"),
            ("busy", "copies", ("unknown",), "the GPU is in use"),
            ("busy", "ipc", ("unknown",), "CUDA_ERROR_OUT_OF_MEMORY (2)"),
            ("crash", "copies", ("fail",), "the process that tries CUDA has ended")):
        found = examine_gpu("cuda", sickness).of("gpu." + check)
        assert any(c["severity"] in severity and words in c["evidence"] for c in found), f"{sickness}: {found}"
    assert [c["severity"] for c in examine_machine(sick.gpu()).of("gpu.ipc")] == ["skipped"]


def files_of_device(job_name):
    return glob.glob(f"/dev/shm/verbs_wire.{os.geteuid()}.{job_name}*")


def stop_for(seconds, job_names, ranks):
    """Stops the ranks and the processes of their devices for so long, as a machine does that gets no
    processor."""
    stopped = [rank.pid for rank in ranks]
    for process in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError):
            words = read_text(f"/proc/{process}/cmdline").split("\0")
            if words[0].endswith("verbs_nic") and words[1] in job_names:
                stopped.append(int(process))
    for number in (signal.SIGSTOP, signal.SIGCONT):
        for process in stopped:
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, number)
        if number == signal.SIGSTOP:
            time.sleep(seconds)


def examine_rails(of_last=None, n_ranks=2, stops_s=0, only="job.rail", **variables):
    """One process a host over the stand-in RDMA device; the last one may have other variables. All of
    them stop for stops_s seconds once their devices are open. None: this build has no stand-in."""
    verbs = os.path.join(os.path.dirname(os.path.dirname(GYRE)), "tests/verbs")
    if not os.path.exists(os.path.join(verbs, "libibverbs.so.1")):
        print("  (built without RDMA: there is no stand-in device)")
        return None
    job = f"doctor-{os.getpid()}-{random.randrange(1 << 30)}"
    ranks, port = [], str(free_port())
    try:
        with tempfile.TemporaryDirectory() as work:
            path = os.path.join(work, "report.json")
            for rank in range(n_ranks):
                ranks.append(subprocess.Popen(
                    [GYRE, "doctor", "--only", only, "--json", path],
                    stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                    env={**environment(), "RANK": str(rank), "LOCAL_RANK": "0",
                         "WORLD_SIZE": str(n_ranks), "MASTER_ADDR": "127.0.0.1",
                         "MASTER_PORT": port, "GYRE_HOSTID": f"host{rank}",
                         "VERBS_WIRE_HOST": str(rank + 1), "VERBS_WIRE_JOB": job,
                         "LD_LIBRARY_PATH": verbs, **variables,
                         **(of_last or {} if rank == n_ranks - 1 else {})}))
            if stops_s > 0:
                names = {job, (of_last or {}).get("VERBS_WIRE_JOB", job)}
                while not all(map(files_of_device, names)) and all(r.poll() is None for r in ranks):
                    time.sleep(0.01)
                time.sleep(0.3)  # so that the pause is likely to come in a trial, where it matters
                stop_for(stops_s, names, ranks)
            outputs = wait_for(ranks)
            assert os.path.exists(path), outputs
            report = read_json(path)
    finally:
        end(ranks)
        for name in {job, (of_last or {}).get("VERBS_WIRE_JOB", job)}:
            for path in files_of_device(name):
                with contextlib.suppress(FileNotFoundError):  # the device's own process ends too
                    os.unlink(path)
    check_schema(report, schema())
    return Result(subprocess.CompletedProcess("gyre", ranks[0].returncode, *outputs[0]), report)


def test_rails_are_measured_with_queue_pairs():
    result = examine_rails(n_ranks=3)
    if result is None:
        return
    [found] = result.of("job.rails")
    matrix = result.report["matrix"]["rails"]
    assert found["severity"] in ("ok", "warn") and "24 of 24 pairs" in found["evidence"], found
    assert len(matrix["names"]) == 6 and "wire1:1" in matrix["names"][1], matrix["names"]
    for key in ("gbytes_per_s", "latency_us"):
        for i, row in enumerate(matrix[key]):
            for j, value in enumerate(row):
                assert (value is None) == (i // 2 == j // 2), f"{key} {i} {j}: {value}"
                assert value is None or 0 < value < 1e6, value
    # Host x host of each rail, each bandwidth with its share of the 100 Gbit/s of the stand-in's ports.
    assert matrix["rails"] == [0, 1] * 3 and matrix["line_gbytes_per_s"] == [100 / 8] * 6, matrix
    for rail in (0, 1):
        table = result.text.split(f"rail {rail}: GB/s (of the line)\n")[1].split("\nRDMA")[0]
        shown = re.findall(r"([\d.]+) \((\d+) %\)", table)
        rates = [matrix["gbytes_per_s"][i][j] for i in range(rail, 6, 2) for j in range(rail, 6, 2) if i != j]
        assert len(shown) == 6 and table.count(" -") == 3, table
        for (rate, share), exact in zip(shown, rates):
            assert rate == f"{exact:.4g}" and abs(int(share) - 100 * exact / 12.5) <= 0.51, (rate, share, exact)


def expect_rails(result, severity, *words):
    if result is None:
        return
    found = [c for c in result.of("job.rails") if c["severity"] == severity]
    assert any(all(word in c["evidence"] + c["subject"] for word in words) for c in found), \
        f"no {severity} with {words}: {result.text}{result.errors}"
    assert all(c["fix"] and ("NETDEV" not in c["fix"] or "rdma link show" in c["fix"]) for c in found), found


def test_the_transport_of_each_pair_is_named():
    """RDMA on one host only: sockets are a warning that says why. Off on both of them it is what was asked for."""
    for of_last, variables, severity, words in (
            ({}, {}, "ok", "1 pairs of hosts: 1 over RDMA, 0 over sockets"),
            ({"GYRE_IB_DISABLE": "1"}, {}, "warn", "over socket, although one of the two has RDMA; not over it, because: "
             "rank 1"),
            ({}, {"NCCL_IB_DISABLE": "1"}, "ok", "0 over RDMA, 1 over sockets"),
            ({}, {"GYRE_NET": "Socket"}, "ok", "0 over RDMA, 1 over sockets"),
            ({"GYRE_NET": "Socket"}, {}, "warn", "although one of the two has RDMA; not over it, because: GYRE_NET=Socket")):
        result = examine_rails(of_last=of_last, only="job.transport", **variables)
        if result is None:
            return
        [found] = result.of("job.transport")
        assert found["severity"] == severity and words in found["evidence"], (variables, found)


def test_rails_that_do_not_reach_each_other_are_named():
    """The packets of the two hosts reach nobody."""
    expect_rails(examine_rails(of_last={"VERBS_WIRE_JOB": f"apart-{os.getpid()}"},
                               GYRE_IB_HCA="=wire0"),
                 "fail", "rail 0", "(rank 0) wire0:1 does not reach", "RETRY_EXC", "10.77.0.2")


def test_a_machine_that_stops_does_not_hide_the_cause():
    """It stops for longer than a trial waits for a message."""
    expect_rails(examine_rails(of_last={"VERBS_WIRE_JOB": f"apart-{os.getpid()}"}, stops_s=6,
                               GYRE_IB_HCA="=wire0"),
                 "fail", "(rank 0) wire0:1 does not reach", "RETRY_EXC")


def test_rails_whose_gids_do_not_fit_are_named():
    """One host has no IPv4 on rail 1, the other takes nothing else; rail 0 is still measured."""
    result = examine_rails({"VERBS_WIRE_DEVICES": "wire0=10.77.0.2;wire1=fd00::2",
                            "GYRE_IB_ADDR_FAMILY": ""}, GYRE_IB_ADDR_FAMILY="AF_INET")
    expect_rails(result, "fail", "rail 1", "wire1:1 does not reach", "fd00::2", "10.77.1.1")
    if result is not None:
        assert result.report["matrix"]["rails"]["gbytes_per_s"][0][2] > 0, result.text


def test_a_host_without_rdma_is_named():
    expect_rails(examine_rails(of_last={"GYRE_IB_DISABLE": "1"}), "warn", "host offers no RDMA",
                 "(rank 1)", "GYRE_IB_DISABLE is set")
    expect_rails(examine_rails(of_last={"GYRE_IB_GID_INDEX": "9"}), "fail", "(rank 1) wire0:1",
                 "the port cannot be used", "INDEX=9")


def test_a_rank_with_another_machine_is_named():
    sick_one = sick.CAUSES["memlock_8_mib"].machine()
    result = examine_job([sick.roce(), sick_one, sick.roce()], "--only", "host")
    found = {(c["ranks"], c["severity"]) for c in result.of("host.memlock")}
    assert found == {("0,2", "ok"), ("1", "fail")}, found
    assert result.status == 2


def main():
    global GYRE, SOURCE, DISK
    GYRE, SOURCE = os.path.join(os.path.realpath(sys.argv[1]), "gyre"), sys.argv[2]
    wanted = sys.argv[3:]
    folder = tempfile.TemporaryDirectory()
    DISK = Disk(folder.name)
    result = examine(folder.name)
    if "built without json-c" in result.errors:
        print("the benches were built without json-c")
        sys.exit(77)
    if "--write-example" in wanted:
        path, text = example()
        write_text(path, text)
        return
    for name, function in list(globals().items()):
        if name.startswith("test_") and (not wanted or name[5:] in wanted):
            function()
            print(f"ok   {name[5:].replace('_', ' ')}", flush=True)


if __name__ == "__main__":
    main()
