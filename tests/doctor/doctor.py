#!/usr/bin/env python3
"""Tests of `gyre doctor`: the real reading code runs on prepared machines (machines.py).

    doctor.py BENCH_DIR SOURCE_DIR [NAME...]      (NAME: of a test_* function, without "test_")
"""

import json
import os
import random
import re
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.realpath(__file__))
sys.path.insert(0, HERE)
sys.path.insert(0, os.path.join(HERE, "../bench"))
import sick
from machines import Disk
from report_schema import check_schema
from running import clean_environment, free_port

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
        return [c for c in self.checks if c["severity"] in ("warn", "fail", "unknown")]


def examine(root, *options, user=None, **variables):
    with tempfile.TemporaryDirectory() as work:
        if user is not None:
            os.chmod(work, 0o777)
        path = os.path.join(work, "report.json")
        done = subprocess.run([GYRE, "doctor", "--root", root, "--json", path, *options],
                              capture_output=True, text=True, timeout=60, user=user,
                              env={**clean_environment(), **variables})
        report = None
        if os.path.exists(path):
            with open(path, encoding="utf-8") as file:
                report = json.load(file)
    return Result(done, report)


def examine_machine(machine, *options, **variables):
    return examine(DISK.show(machine), *options, **variables)


def schema():
    """The schema with its references put in place, as check_schema() knows none."""
    with open(os.path.join(SOURCE, "bench/doctor/output/doctor.schema.json"), encoding="utf-8") as file:
        whole = json.load(file)
    matrix = whole["$defs"]["matrix"]
    whole["properties"]["matrix"]["properties"] = {"gpus": matrix, "hosts": matrix}
    return whole


def ids_of_table():
    with open(os.path.join(SOURCE, "bench/doctor/check_table.h"), encoding="utf-8") as file:
        return [f"{group}.{name}" for group, name in
                re.findall(r"^X\((\w+), (\w+),", file.read(), re.M)]


def test_every_check_has_a_section_of_the_page():
    with open(os.path.join(SOURCE, "docs/doctor.md"), encoding="utf-8") as file:
        headings = re.findall(r"^### (\S+)$", file.read(), re.M)
    assert headings == ids_of_table(), set(headings) ^ set(ids_of_table())


def test_every_check_reports():
    result = examine_machine(sick.HEALTHY["roce_server"]())
    missing = [i for i in ids_of_table() if not result.of(i)]
    assert not missing, missing
    listed = subprocess.run([GYRE, "doctor", "--list"], capture_output=True, text=True).stdout
    assert [line.split()[0] for line in listed.split("\n") if line] == ids_of_table()


def test_healthy_machines_have_no_warning():
    for name, make in sick.HEALTHY.items():
        result = examine_machine(make())
        problems = [(c["id"], c["subject"], c["evidence"]) for c in result.problems()]
        assert not problems and result.status == 0, f"{name}: {result.status} {problems}"
        check_schema(result.report, schema())


def test_causes_are_named():
    for name, cause in sick.CAUSES.items():
        result = examine_machine(cause.machine(), **cause.variables)
        found = {c["severity"] for c in result.of(cause.check)}
        assert cause.severity in found, \
            f"{name}: {cause.check} is {found}, not {cause.severity}\n{result.text}{result.errors}"
        named = [c for c in result.of(cause.check) if c["severity"] == cause.severity
                 and cause.words in c["evidence"] + c["fix"] + c["subject"]]
        assert named, f"{name}: no {cause.check} says {cause.words!r}\n{result.text}"
        assert result.status >= 1, f"{name}: exit status {result.status}"
        # One cause is not reported as several others.
        others = {c["id"] for c in result.problems()} - {cause.check} - set(cause.also)
        assert not others, f"{name}: also {others}\n{result.text}"


def test_outputs_agree():
    machine = sick.CAUSES["memlock_8_mib"].machine()
    machine["proc/sys/kernel/hostname"] = "a<b>&c|d"
    with tempfile.TemporaryDirectory() as work:
        markdown, html = os.path.join(work, "r.md"), os.path.join(work, "r.html")
        result = examine_machine(machine, "--markdown", markdown, "--html", html)
        with open(markdown, encoding="utf-8") as file:
            markdown = file.read()
        with open(html, encoding="utf-8") as file:
            html = file.read()
    check_schema(result.report, schema())
    assert result.status == result.report["exit_status"] == 2, result.status
    assert "\033" not in result.text, "colours outside a terminal"
    fix = result.of("host.memlock")[0]["fix"]
    for name, text in (("text", result.text), ("markdown", markdown)):
        assert fix in text and "docs/doctor.md#hostmemlock" in text, name
    assert "a&lt;b&gt;&amp;c|d" in html and "a<b>" not in html
    for word in ("http:", "https:", "src=", "<script", "@import", "url("):
        assert word not in html, f"the page must load nothing, but has {word}"
    for check in result.checks:
        assert f'id="{check["id"]}"' in html and f"`{check['id']}`" in markdown, check["id"]


def test_exit_status_is_the_worst():
    for name, status in (("memlock_8_mib", 2), ("shm_64_mib", 1)):
        assert examine_machine(sick.CAUSES[name].machine()).status == status, name
    machine = sick.HEALTHY["roce_server"]()
    machine["proc/mounts"] = "\0\0\0"
    assert examine_machine(machine).status == 3
    with tempfile.TemporaryDirectory() as root:
        assert examine(root, "--only", "nothing").status == 3
        assert examine(os.path.join(root, "absent")).status == 3


def test_an_unwritable_report_is_an_error():
    root = DISK.show(sick.HEALTHY["roce_server"]())
    result = examine(root, "--html", os.path.join(root, "no", "folder.html"))
    assert result.status == 3 and "folder.html" in result.errors, result.errors


GARBAGE = ["", "\0" * 40, "\xff\xfe" * 20, "-1", "99999999999999999999999", "max\nmax", "%s%n%d",
           "A" * 5000]


def test_garbage_crashes_nothing():
    """A third of all files holds garbage, each time another third."""
    chance = random.Random(26)
    for make in (sick.HEALTHY["roce_server"], sick.HEALTHY["gpu_server"]):
        for garbage in GARBAGE:
            machine = {path: garbage if type(content) is str and chance.random() < 0.3 else content
                       for path, content in make().items()}
            result = examine_machine(machine)
            assert result.report and 0 <= result.status <= 3, f"{garbage!r}: {result.status} " \
                f"{result.errors}"
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
                env={**clean_environment(), "RANK": str(rank), "LOCAL_RANK": "0",
                     "WORLD_SIZE": str(len(machines_of_ranks)), "MASTER_ADDR": "127.0.0.1",
                     "MASTER_PORT": port, "GYRE_HOSTID": f"host{rank}",
                     **(of_last or {} if rank == len(machines_of_ranks) - 1 else {})}))
        outputs = [rank.communicate(timeout=100) for rank in ranks]
        with open(path, encoding="utf-8") as file:
            report = json.load(file)
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
            assert found["severity"] == severity and words in found["evidence"], \
                f"{check}: {found}\n{result.errors}"
            assert found["ranks"] == "0-2", found


def test_variables_that_differ_are_named():
    result = examine_job([sick.roce(), sick.roce()], "--only", "job.variables_differ",
                         of_last={"NCCL_ALGO": "ring"})
    [found] = result.of("job.variables_differ")
    assert found["severity"] == "fail" and "ALGO=ring" in found["evidence"], found


def test_the_network_between_hosts_is_measured():
    result = examine_job([sick.roce() for _ in range(3)])
    check_schema(result.report, schema())
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
    for name, function in list(globals().items()):
        if name.startswith("test_") and (not wanted or name[5:] in wanted):
            function()
            print(f"ok   {name[5:].replace('_', ' ')}")


if __name__ == "__main__":
    main()
