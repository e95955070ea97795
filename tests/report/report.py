#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests of `gyre report`, as users start it: what it writes of known reports, and what it refuses.

    python3 tests/report/report.py CASE BENCH_DIR SOURCE_DIR
        (CASE: the name of a case_* function, without "case_")

Exits 77 where matplotlib or Jinja2 is missing (case "absent" runs without them).
"""
import glob
import html
import html.parser
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import xml.etree.ElementTree

HERE = os.path.dirname(os.path.realpath(__file__))
sys.path.insert(0, os.path.join(HERE, "../bench"))
sys.path.insert(0, os.path.join(HERE, "../doctor"))
import machines
from running import clean_environment, read_json, read_text, write_text

SKIPPED = 77
SYSTEM_PYTHON = "/usr/bin/python3"  # has the packages of apt-get
HEADINGS = ["Verdict", "Impact", "Transports", "Charts", "Scaling over hosts", "PyTorch DDP iterations",
            "Pairs of hosts, GPUs and rails", "Variables to export", "Before and after", "Issues", "System",
            "Network interfaces", "RDMA devices", "GID table, and why this row", "Traffic class",
            "PFC and ECN: why both", "GPUDirect RDMA", "InfiniBand", "Log evidence", "Method", "References",
            "Not measured"]
FACTOR = 1.5  # busbw / algbw of an all-reduce of 4 ranks: 2 (n - 1) / n


def start(directory, folder, *arguments, status=0, command="report", **variables):
    done = subprocess.run([os.path.join(directory, "gyre"), command, *arguments], cwd=folder, text=True,
                          capture_output=True, timeout=120, check=False,
                          env={**clean_environment(), "XDG_CACHE_HOME": folder, **variables})
    if "needed, for gyre report and gyre plot alone" in done.stderr and status != "absent":
        print("skipped: matplotlib or Jinja2 is not installed")
        sys.exit(SKIPPED)
    assert status == "absent" or done.returncode == status, (arguments, done)
    return done


def bench_report(times, transports, wrong=0, rival=None, environment=None, **settings):
    """A bench's --json: bytes -> us."""
    results = []
    for size, us in times.items():
        algbw = size / (us * 1e3)
        timing = {"time_us": us, "algbw_gbytes_per_s": algbw, "busbw_gbytes_per_s": algbw * FACTOR,
                  "wrong": wrong, "single_calls_us": {"min": us / 2, "p99": us * 2}}
        row = {"bytes": size, "count": size // 4, "type": "float", "transports": transports,
               "out_of_place": timing, "in_place": timing}
        if rival:
            row["comparison"] = {"gyre_us": us, "reference_us": rival * us, "gyre_min_us": us / 2,
                                 "gyre_p99_us": us * 2}
        results.append(row)
    return {"schema_version": 1, "collective": "all_reduce", "environment": environment or {},
            "settings": {"ranks": 4, "reference": "a rival" if rival else "", **settings},
            "places": [{"rank": 0, "host": "hostA", "words": "a device"}], "results": results}


def write(folder, name, value):
    path = os.path.join(folder, name)
    with open(path, "wb") as file:
        file.write(value if isinstance(value, bytes) else json.dumps(value).encode())
    return path


def read(folder, name):
    return read_text(os.path.join(folder, name))


def sections_of(page):
    """The Markdown page, heading -> text."""
    parts = re.split(r"^## (.*)$", page, flags=re.M)
    return dict(zip(parts[1::2], parts[2::2]))


class Page(html.parser.HTMLParser):
    """Headings, and whatever a page would load."""

    def __init__(self):
        super().__init__()
        self.headings, self.loads, self.in_heading = [], [], False

    def handle_starttag(self, tag, attrs):
        self.in_heading = tag == "h2"
        self.loads += [value for name, value in attrs if name in ("src", "href", "xlink:href")
                       and not (value or "").startswith("#")]

    def handle_data(self, data):
        if self.in_heading:
            self.headings.append(data)
            self.in_heading = False


def doctor_of(directory, folder, machine):
    """gyre doctor's own report of a prepared machine."""
    root = os.path.join(folder, "machine")
    machines.Disk(root).show(machine)
    path = os.path.join(folder, "doctor.json")
    done = subprocess.run([os.path.join(directory, "gyre"), "doctor", "--root", root, "--json", path],
                          capture_output=True, text=True, env=clean_environment(), check=False)
    if "built without json-c" in done.stderr:
        print("skipped: gyre doctor was built without json-c")
        sys.exit(SKIPPED)
    return path


def case_pages(directory, _source, folder):
    tcp = write(folder, "tcp.json", bench_report({1024: 100.0, 1 << 20: 4000.0}, "NET/Socket/0",
                                                 environment={"NCCL_IB_TC": "5"}))
    roce = write(folder, "roce.json", bench_report({1024: 10.0, 1 << 20: 250.0}, "NET/IB/0", rival=1.25,
                                                   limit="x", limit_gbytes_per_s=10.0))
    log = write(folder, "job.log", b"a:1:2 GYRE INFO NET/IB : Using [0]mlx5_0:1/RoCE\nnothing\n"
                b"a:1:2 GYRE WARN NET/IB : connection to rank 1 (b), after 8 slots to it and 9 from it: rank 1: mlx5_0/1: "
                b"its port went down. It runs again after 0.012 s, over mlx5_1/1 (1 of 2 rails)\n")
    doctor = doctor_of(directory, folder, machines.roce_server())
    done = start(directory, folder, "--json", f"before={tcp}", "--json", f"after <b>={roce}", "--doctor", doctor,
                 "--ddp", write(folder, "ddp.json", {"gloo": 150.0, "gyre": 50.0, "NCCL": "no GPU"}),
                 "--log", log, "--output", "out", "--title", "A <i>title</i>", "--step", "8M", "--compute-ms", "10",
                 "--env", write(folder, "env.sh", b"# a comment\nexport GYRE_IB_HCA==mlx5_0:1\n"))
    assert done.stdout == "wrote out.md and out.html\n", done.stdout
    page = sections_of(read(folder, "out.md"))
    assert list(page) == HEADINGS, list(page)
    # 2^20 bytes in 250 us are 4.194304 GB/s; all-reduce of 4 ranks: x 1.5; the limit is 10.
    row = next(line for line in page["Transports"].splitlines() if line.startswith("| 1 MiB |"))
    assert row == "| 1 MiB | 4000.00 | 0.393 | 250.00 | 6.291 | 62.9 | 16.00 |", row
    assert "| after &lt;b> | NET/IB/0 | off | 6.291 GB/s |" in page["Transports"], page["Transports"]
    assert "| mlx5_0:1 | 3 | 192.168.1.1 | RoCE v2 | eth1 | used |" in page["GID table, and why this row"], page["GID table, and why this row"]
    assert "row 3 is used" in page["GID table, and why this row"]
    assert "| NCCL_IB_TC | 5 | 1 | 01 |" in page["Traffic class"], page["Traffic class"]
    assert "| NCCL_IB_TC | 5 | unset |" in page["Before and after"]
    assert "Not present on this system" in page["InfiniBand"]
    assert "| gyre | 50.00 | 3.00 |" in page["PyTorch DDP iterations"], page["PyTorch DDP iterations"]
    assert "job.log:1: a:1:2 GYRE INFO NET/IB : Using [0]mlx5_0:1/RoCE" in page["Log evidence"]
    assert "nothing" not in page["Log evidence"]
    verdict = [line for line in page["Verdict"].splitlines() if line]
    assert len(verdict) == 4, verdict
    assert verdict[3].startswith("Failures: 1 move of connections in the logs, away from mlx5_0/1:"), verdict
    assert verdict[0] == ('Transport: "after &lt;b>" uses NET/IB/0 and is the fastest of 2 runs with 6.291 GB/s of busbw; '
                          "TCP reaches 0.393 GB/s.").replace("&lt;", "<"), verdict
    assert verdict[1].startswith("Distance from the bound: it reaches 63% of 10 GB/s, measured by gyre limits"), verdict
    assert verdict[2].startswith("Change first: gyre doctor found no problem; the links are not filled"), verdict
    # A step of 8 MiB is eight calls of 1 MiB; the bound lets 8 MiB x 1.5 pass at 10 GB/s.
    ideal = (8 << 20) * 1.5 / 10e6
    slow, fast = 8 * 4.0, 8 * 0.25
    expected = [f"| before | {slow:.3f} | {slow - fast:.3f} | {100 * (slow - fast) / (slow + 10):.1f} |  |  |",
                f"| after &lt;b> | {fast:.3f} | 0.000 | 0.0 | {fast - ideal:.3f} | {100 * (fast - ideal) / (fast + 10):.1f} |"]
    assert all(row in page["Impact"] for row in expected), (expected, page["Impact"])
    assert f'"before" costs {slow - fast:.3f} ms a step more than "after <b>"' in page["Impact"], page["Impact"]
    assert "    export GYRE_IB_HCA==mlx5_0:1" in page["Variables to export"], page["Variables to export"]
    assert "| transport | NET/Socket/0 | NET/IB/0 |" in page["Before and after"], page["Before and after"]
    assert "| before | " in page["Method"] and "1 KiB to 1 MiB" in page["Method"], page["Method"]
    assert "DCQCN" in page["References"] and "not measured" in page["Scaling over hosts"]
    assert "DDP iterations on NCCL | no GPU" in page["Not measured"], page["Not measured"]

    text = read(folder, "out.html")
    assert "prefers-color-scheme: dark" in text, "the page is made for dark screens"
    parser = Page()
    parser.feed(text)
    assert parser.headings == HEADINGS, parser.headings
    assert not parser.loads, parser.loads
    assert "<i>title" not in text and "after <b>" not in text
    pictures = re.findall(r"<svg.*?</svg>", text, re.S)
    assert len(pictures) == 2, len(pictures)
    for picture in pictures:
        xml.etree.ElementTree.fromstring(picture)
    for words in ("before", "after &lt;b&gt;: a rival", "limit, 10 GB/s"):
        assert words in pictures[1], words


def case_pairs(directory, _source, folder):
    """The pairs that gyre doctor measured, the slowest of them, and why others were not measured."""
    def check(name, severity, evidence):
        return {"id": name, "severity": severity, "ranks": "0-1", "subject": "", "evidence": evidence, "fix": ""}
    hosts = {"names": ["a (rank 0)", "b (rank 1)", "c | d"], "slowest": ["b (rank 1)", "c | d"],
             "gbytes_per_s": [[None, 11.5, 12.25], [11, None, 0.125], [12, None, None]],
             "latency_us": [[None, 20, 21], [20.5, None, 99.5], [19, None, None]]}
    untried = {"names": ["x", "y"], "slowest": [], "gbytes_per_s": [[None, None]] * 2, "latency_us": [[None, None]] * 2}
    checks = [check("gpu.pairs", "skipped", "no NVIDIA GPU on PCI"), check("job.network", "ok", "all well"),
              check("job.rails", "ok", "a line"), check("job.rails", "fail", "no pair is reached\nmore lines")]
    bench = write(folder, "tcp.json", bench_report({1024: 100.0}, "NET/Socket/0"))

    def section(doctor, name):
        start(directory, folder, "--json", f"one={bench}", "--doctor", write(folder, "doctor.json", doctor),
              "--output", name)
        assert "Pairs of hosts" in read(folder, f"{name}.html")
        return sections_of(read(folder, f"{name}.md"))["Pairs of hosts, GPUs and rails"]
    page = section({"checks": checks, "matrix": {"hosts": hosts, "gpus": None, "rails": untried}}, "all")
    assert "| Hosts, GB/s: from \\\\ to | a (rank 0) | b (rank 1) | c \\| d |" in page, page
    assert "| b (rank 1) | 11 |  | 0.125 |" in page and "| c \\| d | 12 | not measured |  |" in page, page
    assert "| b (rank 1) | 20.5 |  | 99.5 |" in page, page
    assert "Hosts, slowest pair: b (rank 1) to c | d, 0.125 GB/s, 99.5 us." in page, page
    assert "GPUs: not measured. gyre doctor says (gpu.pairs, skipped): no NVIDIA GPU on PCI." in page, page
    assert "Rails, slowest pair: not measured, because no pair has a rate." in page, page
    html_page = read(folder, "all.html")
    # The median of the five rates is 11.5, so that 11 is 1/23 below it: 2/23 of the way to the darkest red.
    assert "Colour: white at the median, 11.5 GB/s, or better" in page and "white at the median, 20.5 us" in page, page
    for colour, value in ((f"#ff{255 - round(105 * 2 / 23):02x}{255 - round(125 * 2 / 23):02x}", "11"),
                          ("#ff9682", "0.125"), ("#ffffff", "12.25"), ("#ff9682", "99.5")):
        assert f'<td style="background: {colour}">{value}</td>' in html_page, (colour, value)
    # The worst finding is the reason, and a report without matrices is one in which nothing was measured.
    page = section({"checks": checks[2:]}, "none")
    assert "Rails: not measured. gyre doctor says (job.rails, fail): no pair is reached." in page, page
    assert "Hosts: not measured. gyre doctor did not run job.network." in page, page


def case_ranks(directory, _source, folder):
    """The page says on which ranks gyre doctor found what; and the summary names three different checks."""
    def check(name, severity, ranks, subject="", evidence="something"):
        return {"id": name, "severity": severity, "ranks": ranks, "subject": subject, "evidence": evidence, "fix": "a fix"}
    checks = [check("host.shm", "warn", "0"), check("host.shm", "warn", "3"), check("net.mtu", "ok", "0-3", "eth0"),
              check("host.memlock", "fail", "0-1,3"), check("rdma.mtu", "warn", "2", "x:1"),
              check("rdma.gid", "ok", "0-3", "x:1", "row 0 is used\n[0] 10.0.0.1, RoCE v2, eth0: used"),
              check("rdma.rate", "warn", "2")]
    doctor = write(folder, "doctor.json", {"checks": checks, "hosts": "a (rank 0)"})
    bench = write(folder, "tcp.json", bench_report({1024: 100.0}, "NET/Socket/0"))
    start(directory, folder, "--json", f"one={bench}", "--json", f"two={bench}", "--doctor", doctor, "--output", "out")
    page = sections_of(read(folder, "out.md"))
    assert "Change first: host.memlock on ranks 0-1,3 (fail): something. What mends it: a fix." in page["Verdict"], page
    assert "All runs used NET/Socket/0, so there is no before and after" in page["Before and after"], page
    assert "| issue 3 | host.shm on rank 3 (warn) |" in page["Issues"], page["Issues"]
    assert "share a row" in page["System"], page["System"]
    assert "| net.mtu | eth0 | 0-3 | ok | something |" in page["Network interfaces"]
    assert "| x:1 | 0-3 | 0 | 10.0.0.1 | RoCE v2 | eth0 | used |" in page["GID table, and why this row"], page["GID table, and why this row"]
    assert "Limit of one, two: unknown" in page["Transports"], page["Transports"]


def case_conclusions(directory, _source, folder):
    """What the page concludes where TCP is faster than RDMA, and where there is no run over RDMA."""
    def check(name, severity, evidence):
        return {"id": name, "severity": severity, "subject": "x:1", "evidence": evidence, "fix": "another device"}
    doctor = write(folder, "doctor.json", {"checks": [check("rdma.ports", "ok", "4: ACTIVE"),
                                                      check("host.shm", "warn", "small"),
                                                      check("rdma.devices", "warn", "a slow device")]})
    def report(us, transports, way):
        return bench_report({1024: us}, transports, environment={"GYRE_TRANSPORT": way, "OMPI_COMM_WORLD_RANK": "0"})
    tcp, roce = (write(folder, *file) for file in (("tcp.json", report(30.0, "NET/Socket/0", "socket")),
                                                   ("roce.json", report(1024.0, "NET/IB/0", "ib"))))
    start(directory, folder, "--json", f"slow={roce}", "--json", f"fast={tcp}", "--doctor", doctor, "--output", "two")
    page = sections_of(read(folder, "two.md"))
    # 1024 bytes in 1024 us are 0.001 GB/s of algbw; times 1.5.
    assert "| 1 KiB | 1024.00 | 0.0015 |" in page["Transports"], page["Transports"]
    assert '"slow" reaches 0.0015 GB/s, and "fast" 0.0512.' in page["Verdict"], page["Verdict"]
    assert "rdma.devices x:1 (warn): a slow device. What mends it: another device." in page["Verdict"]
    assert "After: slow, the fastest of the other runs; fast was faster." in page["Before and after"]
    assert "| GYRE_TRANSPORT | socket | ib |" in page["Before and after"]
    assert "OMPI" not in page["Before and after"]
    # A second run over TCP may be the faster one.
    faster = write(folder, "faster.json", report(20.0, "NET/Socket/0", "socket"))
    start(directory, folder, "--json", f"one={tcp}", "--json", f"slow={roce}", "--json", f"fast={faster}", "--doctor",
          doctor, "--output", "three")
    page = sections_of(read(folder, "three.md"))
    assert '"slow" reaches 0.0015 GB/s, and "fast" 0.0768' in page["Verdict"], page["Verdict"]
    start(directory, folder, "--json", f"fast={tcp}", "--doctor", doctor, "--output", "one")
    page = sections_of(read(folder, "one.md"))
    assert "no run used RDMA, although x:1 is an active RDMA port" in page["Verdict"], page["Verdict"]
    assert "| GYRE_TRANSPORT | socket |\n" in page["Before and after"], page["Before and after"]
    # The bound is that of the ports that the job uses: its log names them, else they are active.
    ports = [{**check("rdma.devices", "ok", "Ethernet, 200 Gb/sec (4X HDR)"), "subject": name} for name in ("x:1", "y:1", "z:1")]
    ports += [{**check("rdma.ports", "ok", "4: ACTIVE"), "subject": name} for name in ("x:1", "y:1")]
    doctor = write(folder, "ports.json", {"checks": ports})
    for log, words in ((b"nothing\n", "50 GB/s, line rate of 2 RDMA ports"),
                       (b"a:1:2 GYRE INFO NET/IB : rail [0]y:1 MTU 4096\n", "25 GB/s, line rate of 1 RDMA port")):
        start(directory, folder, "--json", f"slow={roce}", "--doctor", doctor, "--log", write(folder, "job.log", log),
              "--output", "bound")
        page = sections_of(read(folder, "bound.md"))
        assert f"Limit of slow: {words} together." in page["Transports"], page["Transports"]


NCCL_TEXT = """# nccl-tests version 2.17.6 nccl-headers=22807 nccl-library=22807
# Collective test starting: {name}
# nThread 1 nGpus 1 minBytes 65536 maxBytes 1073741824 step: 4(factor) warmup iters: 5 iters: 20 agg iters: 1
#
# Using devices
#  Rank  0 Group  0 Pid   4171 on      hostA device  0 [0000:1b:00] NVIDIA H100
#  Rank  1 Group  0 Pid   4172 on      hostA device  1 [0000:43:00] NVIDIA H100
#  Rank  2 Group  0 Pid    900 on      hostB device  0 [0000:1b:00] NVIDIA H100
#  Rank  3 Group  0 Pid    901 on      hostB device  1 [0000:43:00] NVIDIA H100
hostA:4171:4171 [0] NCCL INFO NET/IB : Using [0]mlx5_0:1/RoCE [RO]; OOB eth0:10.0.0.1<0>
hostA:4171:4180 [0] NCCL INFO Channel 00/0 : 1[1] -> 2[0] [send] via NET/IB/0/GDRDMA
hostA:4171:4180 [0] NCCL INFO Channel 01/0 : 1[1] -> 2[0] [send] via NET/IB/3/GDRDMA
hostB:900:911 [0] transport/net_ib.cc:94 NCCL WARN NET/IB : mlx5_3:1 Got async event : port error
hostA:4171:4180 [0] NCCL INFO comm 0x55 rank 0 nranks 4 - Init COMPLETE
#
#                                                              out-of-place                       in-place
#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong
#        (B)    (elements)                               (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)
       65536         16384     float     sum      -1    32.77    2.00    3.00      0    30.00    2.18    3.28      0
  1073741824     268435456     float     sum      -1  8388.6  128.00  192.00    N/A   8400.0  127.83  191.74    N/A
# Out of bounds values : 0 OK
# Avg bus bandwidth    : 97.5051
"""


def case_nccl_tests(directory, source, folder):
    """Text and JSON of nccl-tests count as benches' reports, and warnings of NCCL are kept."""
    sys.path.insert(0, os.path.join(source, "bench", "python"))
    import report_sources
    half = {"time": 8388.6, "alg_bw": 128.0, "bus_bw": 192.0, "nwrong": 0.0}
    value = {"version": 3, "args": ["/opt/all_reduce_perf", "-b", "64K"], "nccl_version": 22807,
             "env": ["NCCL_IB_TC=106", "HOME=/root", "NCCL_API_KEY=secret"],
             "config": {"warmup_iters": 5, "iterations": 20, "devices": [
                 {"rank": rank, "hostname": "hostA" if rank < 2 else "hostB", "device_info": "NVIDIA H100"}
                 for rank in range(4)]},
             "results": [{"size": 1 << 30, "count": 1 << 28, "type": "float", "redop": "sum", "root": "    -1",
                          "out_of_place": half, "in_place": {**half, "nwrong": None, "time": "nan"}}]}
    text = write(folder, "run.txt", NCCL_TEXT.format(name="all_reduce_perf").encode())
    log = write(folder, "log.txt", b"h:1:1 [0] x.cc:3 NCCL WARN Call to ibv_reg_mr failed\n" * 3 + b"h:1:1 NCCL INFO no\n")
    start(directory, folder, "--json", f"text={text}", "--json", f"json={write(folder, 'run.json', value)}", "--output",
          "nccl", "--log", log, "--limit", "200")
    page = sections_of(read(folder, "nccl.md"))
    # 2^30 bytes in 8388.6 us are 128.0 GB/s, times 2 (4 - 1) / 4.
    busbw = 2 ** 30 / 8388.6e3 * 1.5
    row = next(line for line in page["Transports"].splitlines() if line.startswith("| 1 GiB |"))
    assert row == f"| 1 GiB | 8388.60 | {busbw:.3f} | {busbw / 2:.1f} | 8388.60 | {busbw:.3f} | {busbw / 2:.1f} |", row
    assert "| 64 KiB | 32.77 |" in page["Transports"], page["Transports"]
    assert f"| text | NET/IB/GDRDMA | on | {busbw:.3f} GB/s |" in page["Transports"], page["Transports"]
    assert "NCCL WARN NET/IB : mlx5_3:1 Got async event : port error" in page["Log evidence"], page["Log evidence"]
    assert page["Log evidence"].count("NCCL WARN Call to ibv_reg_mr failed") == 1, page["Log evidence"]
    assert page["Log evidence"].count("via NET/IB") == 1 + 1 and "Init COMPLETE" not in page["Log evidence"]
    assert "4 on 2" in page["Method"] and "20 after 5" in page["Method"], page["Method"]
    whole = read(folder, "nccl.md")
    assert "secret" not in whole and "/root" not in whole
    # The collective that no line names follows from busbw / algbw; wrong results are refused.
    for name, op, factor, n, expected in (("x", True, 1.5, 4, "all_reduce"), ("x", True, 0.75, 4, "reduce_scatter"),
                                          ("x", False, 0.75, 4, "unknown"), ("alltoall_perf", False, 0.75, 4, "all_to_all")):
        assert report_sources.collective_of(name, factor, n, op)[0] == expected, (name, op, factor)
    wrong = NCCL_TEXT.format(name="all_reduce_perf").replace("3.00      0", "3.00      7")
    done = start(directory, folder, "--json", write(folder, "wrong.txt", wrong.encode()), status=1)
    assert "the results of 65536 bytes were wrong" in done.stderr, done.stderr


def case_scaling(directory, _source, folder):
    """Efficiency over hosts is busbw over that of the fewest hosts; and --scale starts runs over 2, 3, ... hosts."""
    arguments = []
    for n_hosts, us in ((2, 100.0), (3, 110.0), (4, 125.0)):
        report = bench_report({1024: 9.0, 1 << 20: us}, "NET/IB/0")
        report["places"] = [{"rank": rank, "host": f"host{rank % n_hosts}", "words": ""} for rank in range(2 * n_hosts)]
        report["settings"]["ranks"] = 2 * n_hosts
        arguments += ["--json", f"{n_hosts}={write(folder, f'{n_hosts}.json', report)}"]
    start(directory, folder, *arguments, "--output", "scale")
    page = sections_of(read(folder, "scale.md"))["Scaling over hosts"]
    assert "all_reduce of 1 MiB, NET/IB/0" in page, page
    for n_hosts, us in ((2, 100.0), (3, 110.0), (4, 125.0)):
        busbw = (1 << 20) / (us * 1e3) * FACTOR
        assert f"| {n_hosts} | {2 * n_hosts} | {us:.2f} | {busbw:.3f} | {100 * 100 / us:.1f} |" in page, (n_hosts, page)
    launcher = write(folder, "launcher", b'#!/bin/sh\necho "$1 $2 $3" >> started\necho error: no; exit 3\n')
    os.chmod(launcher, 0o755)
    start(directory, folder, "--launch", f"{launcher} {{n}} {{ranks}} {{hosts}}", "--scale", "a,b,c", "--ranks", "8",
          "--transports", "socket", "--output", "none", "--ddp", write(folder, "ddp.json", {"gloo": "no"}))
    # The doctor, TCP, then 2 and 3 hosts.
    assert read(folder, "started").splitlines() == ["3 24 a,b,c", "3 24 a,b,c", "2 16 a,b", "3 24 a,b,c"], \
        read(folder, "started")


def case_charts(_directory, source, _folder):
    """The curves are those of the formula."""
    sys.path.insert(0, os.path.join(source, "bench", "python"))
    try:
        import report_charts
    except ImportError:
        if os.path.realpath(sys.executable) != os.path.realpath(SYSTEM_PYTHON) and os.path.exists(SYSTEM_PYTHON):
            os.execv(SYSTEM_PYTHON, [SYSTEM_PYTHON, *sys.argv])
        print("skipped: matplotlib is not installed")
        sys.exit(SKIPPED)
    report = bench_report({4096: 8.0, 1024: 2.0}, "SHM", rival=4.0)
    gyre, rival = report_charts.curves_of("x", report, "busbw")
    assert gyre.sizes == [1024, 4096] and rival.label == "x: a rival"
    for i, size, us in ((0, 1024, 2.0), (1, 4096, 8.0)):
        busbw = size / us / 1000 * FACTOR
        expected = [busbw, busbw / 2, busbw * 2, busbw / 4]
        found = [gyre.values[i], gyre.low[i], gyre.high[i], rival.values[i]]
        assert all(abs(a - b) < 1e-9 for a, b in zip(expected, found)), (expected, found)
    assert report_charts.curves_of("x", report, "time")[0].low == [1.0, 4.0]
    picture = report_charts.draw_reports([("x", report)])
    assert picture == report_charts.draw_reports([("x", report)]), "two runs draw two pictures"
    assert [report_charts.size_text(size) for size in (8, 1024, 3 << 20)] == ["8 B", "1 KiB", "3 MiB"]
    assert [report_charts.size_text(size) for size in (1000, 65536, 1 << 30, 1536, (1 << 20) + 4, 26214400)] == \
        ["1000 B", "64 KiB", "1 GiB", "1.5 KiB", "1048580 B", "25 MiB"]


def case_measured(directory, _source, folder):
    """Benches are run; what cannot be measured is said, with the reason."""
    start(directory, folder, "--transports", "socket,shm,ib", "--sizes", "1K:4K", "--output", "own",
          "--ddp", write(folder, "ddp.json", {"gloo": "not tried"}))
    page = sections_of(read(folder, "own.md"))
    assert list(page) == HEADINGS
    if "built without json-c" in page["Not measured"]:
        print("skipped: the benches were built without json-c")
        sys.exit(SKIPPED)
    assert "| TCP | NET/Socket/0 |" in page["Transports"], page["Transports"]
    assert "| shared memory | SHM |" in page["Transports"], page["Transports"]
    assert re.search(r"line \d+: .* via NET/Socket/0", page["Log evidence"]), page["Log evidence"]
    assert re.search(r"\| 4 KiB \| \d+\.\d\d \|", page["Transports"]), page["Transports"]
    assert "not measured: not tried" in page["PyTorch DDP iterations"]
    if not os.path.exists("/sys/class/infiniband") or not os.listdir("/sys/class/infiniband"):
        assert re.search(r"all-reduce over RDMA \| \S", page["Not measured"]), page["Not measured"]
        assert "| RDMA |" not in page["Transports"]
    # What a failed run printed about its transport is kept.
    launcher = write(folder, "launcher", b'#!/bin/sh\necho a:1:1 GYRE INFO rank 0 -\\> 1 not via ib: a reason "$@"\n'
                     b'echo error: the end; exit 3\n')
    os.chmod(launcher, 0o755)
    done = start(directory, folder, "--launch", launcher, "--transports", "socket", "--output", "failed", "--bench",
                 "-n 3 -d 'half'", "--doctor", doctor_of(directory, folder, machines.roce_server()))
    page = sections_of(read(folder, "failed.md"))
    assert "all-reduce over TCP | exit status 3: error: the end |" in page["Not measured"], page["Not measured"]
    assert re.search(r"not via ib: a reason .* -f 4 -n 3 -d half --json", page["Log evidence"]), page["Log evidence"]
    assert "no bench could be measured" in done.stderr, done
    # Nothing can be started: every run has its reason, and no result is made up.
    start(directory, folder, "--launch", "/no/such/launcher -np 2", "--output", "none", "--ddp",
          os.path.join(folder, "ddp.json"))
    page = sections_of(read(folder, "none.md"))
    assert page["Not measured"].count("/no/such/launcher") == 4, page["Not measured"]
    assert "No bench could be measured" in page["Transports"], page["Transports"]
    assert "found no problem" not in page["Issues"] and "not known" in page["Verdict"], page["Verdict"]


def refusal_of(check, path):
    """What report_sources says of a file that is not as it should be."""
    from report_sources import SourceError, read_json
    try:
        check(read_json(path), path)
    except SourceError as error:
        return str(error)
    return "it was accepted"


def failure_of(commands, seconds):
    """What report_runs says of commands that fail, and whether it ended their processes."""
    import report_runs
    started, starting = [], report_runs.start

    def start_and_keep(*arguments):
        started.append(starting(*arguments))
        return started[-1]
    report_runs.start = start_and_keep
    try:
        report_runs.finish([(command, {}) for command in commands], seconds)
    except (report_runs.RunError, OSError) as error:
        assert all(process.returncode is not None for process in started), commands
        return str(error)
    finally:
        report_runs.start = starting
    return "they succeeded"


OPEN_MPI_ROOT = "-" * 74 + "\nmpirun has detected an attempt to run as root.\n\nAdvice: none.\n" + "-" * 74 + "\n"
OPEN_MPI_END = "-" * 74 + "\nmpirun detected that a process ended:\n\n  Exit code:    1\n" + "-" * 74 + "\n"


def check_last_words():
    """The reason that is shown is a program's, and Open MPI's only where no program says one."""
    from report_runs import last_words
    assert last_words(OPEN_MPI_ROOT) == "mpirun has detected an attempt to run as root."
    assert last_words("# a table\ngyre: no way to b\n# end\n" + OPEN_MPI_END) == "gyre: no way to b"
    assert last_words("# a table\n" + OPEN_MPI_END) == "mpirun detected that a process ended:"
    assert last_words("only this\n") == "only this"
    assert last_words("\n") == "it printed nothing"


def check_processes(source):
    """The first failure ends all processes, and outputs of any length do not stop them."""
    sys.path.insert(0, os.path.join(source, "bench", "python"))
    from report_runs import finish
    waiting = ["sleep", "1000"]
    told = failure_of([waiting, ["sh", "-c", "echo error: a reason; exit 3"]], 60)
    assert told == "exit status 3: error: a reason", told
    assert "/no/such/program" in failure_of([waiting, ["/no/such/program"]], 60)
    assert failure_of([waiting, waiting], 0.2) == "it took longer than 0.2 seconds; --seconds allows more"
    check_last_words()
    with tempfile.TemporaryDirectory() as folder:
        pipe = os.path.join(folder, "pipe")
        os.mkfifo(pipe)
        # The first waits until the second has written more than a pipe holds.
        printed = finish([(["cat", pipe], {}), (["sh", "-c", f"head -c 200000 /dev/zero; echo end > {pipe}"], {})], 60)
    assert len(printed) == 200000 + len("end\n"), len(printed)


FRAME = """<!DOCTYPE html><iframe width="%d" height="900" style="border: 0" srcdoc="%s"></iframe><script>
onload = () => {
    const page = document.querySelector("iframe").contentDocument;
    const wide = [...page.querySelectorAll("table, pre, svg, h1, h2, p, li")].filter(
        (node) => getComputedStyle(node).overflowX === "visible" && node.getBoundingClientRect().right > %d + 0.5
            || node.tagName === "TABLE" && node.scrollWidth > node.clientWidth && %d > 1000);
    document.title = JSON.stringify([page.documentElement.scrollWidth, wide.map((node) => node.textContent.slice(0, 60))]);
};</script>"""


def overflow_of(browser, folder, page, width):
    """(the width that a page takes in a window of that width, the starts of all that does not fit)."""
    frame = write(folder, "frame.html", (FRAME % (width, html.escape(page), width, width)).encode())
    done = subprocess.run([browser, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
                           "--window-size=1400,1000", "--virtual-time-budget=5000", f"--user-data-dir={folder}/browser",
                           "--dump-dom", f"file://{frame}"], capture_output=True, text=True, timeout=120, check=False)
    title = re.search(r"<title>(.*?)</title>", done.stdout, re.S)
    assert title, (done.stdout[:300], done.stderr[-500:])
    return json.loads(html.unescape(title.group(1)))


def case_browser(directory, _source, folder):
    """At 1200 and 400 pixels the page is no wider than the window; at 1200 no table scrolls. So is the doctor's."""
    browser = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if browser is None:
        print("skipped: no chromium here (apt-get install chromium)")
        sys.exit(SKIPPED)
    found = overflow_of(browser, folder, '<p style="width: 500px">x</p>', 400)
    assert found[0] > 400 and found[1] == ["x"], f"the check cannot fail: {found}"
    sizes = [1024 << 2 * i for i in range(11)]
    runs = [("TCP", 2.0, "NET/Socket/0"), ("RDMA", 16.0, "NET/IB/0/GDRDMA, NET/IB/1/GDRDMA, P2P/IPC"),
            ("RDMA, GPUDirect off", 8.0, "NET/IB/0, NET/IB/1, P2P/IPC")]
    arguments = []
    for label, rate, transports in runs:
        ports = ",".join(f"mlx5_{port}:1" for port in range(8))
        path = write(folder, f"{rate}.json", bench_report({size: 9 + size / (rate * 1e3) for size in sizes}, transports,
                                                          environment={"GYRE_IB_HCA": ports}))
        arguments += ["--json", f"{label}={path}"]
    machine = machines.roce_server()
    machine["proc/self/limits"] = machines.limits(memlock="8388608")  # a finding with a long fix
    doctor = doctor_of(directory, folder, machine)
    value = read_json(doctor)
    names = [f"host{i} (rank {8 * i})" for i in range(8)]
    cells = [[None if i == j else 23.25 for j in range(8)] for i in range(8)]
    value["matrix"] = {"hosts": {"names": names, "slowest": [], "gbytes_per_s": cells, "latency_us": cells}}
    start(directory, folder, *arguments, "--doctor", write(folder, "doctor.json", value), "--limit", "24", "--output", "out",
          "--log", write(folder, "job.log", b"h:1:1 NCCL WARN " + b"x" * 500 + b"\n"))
    subprocess.run([os.path.join(directory, "gyre"), "doctor", "--root", os.path.join(folder, "machine"), "--html",
                    os.path.join(folder, "doctor.html")], capture_output=True, env=clean_environment(), check=False)
    for name, width in (("out.html", 1200), ("out.html", 400), ("doctor.html", 1200), ("doctor.html", 400)):
        found = overflow_of(browser, folder, read(folder, name), width)
        assert found[0] <= width, (name, width, found)
        # In a narrow window the report's tables scroll within the page, so what lies in them may be further right.
        assert (name, width) == ("out.html", 400) or not found[1], (name, width, found)


def case_refusals(directory, source, folder):
    sys.path.insert(0, os.path.join(source, "bench", "python"))
    from report_sources import check_bench, check_ddp, check_doctor
    check_processes(source)
    good = bench_report({1024: 1.0}, "SHM")
    path = write(folder, "bad.json", good)
    assert refusal_of(check_bench, path) == "it was accepted"
    not_a_number = json.loads(json.dumps(good))
    not_a_number["results"][0]["out_of_place"]["time_us"] = float("nan")
    wrong = [("is not JSON", b"\xff\xfe garbage"), ("is not JSON", json.dumps(good).encode()[:-20]),
             ("is not JSON", b""), ("is not JSON", b"[" * 100000), ("is not the report of a bench", []),
             ("is not the report of a bench", {"results": []}),
             ("schema_version is 7", {**good, "schema_version": 7}), ("has no results", {**good, "results": []}),
             ("no size", {**good, "results": [3]}), ("has no times", {**good, "results": [{"bytes": 8}]}),
             ("has no times", not_a_number), ("its places", {**good, "places": 3}),
             ("were wrong", bench_report({8: 1.0}, "SHM", wrong=2))]
    for words, value in wrong:
        write(folder, "bad.json", value)
        told = refusal_of(check_bench, path)
        assert words in told and path in told, (words, told)
    for check, words, values in (
            (check_doctor, "is not the report of gyre doctor", ([1], {"checks": [{"id": 3}]}, {"checks": 5}, {})),
            (check_doctor, "its matrix is not", (
                {"checks": [], "matrix": 3}, {"checks": [], "matrix": {"hosts": [1]}},
                {"checks": [], "matrix": {"gpus": {"names": ["x"], "gbytes_per_s": [["a"]], "latency_us": [[None]]}}},
                {"checks": [], "matrix": {"gpus": {"names": ["x"], "gbytes_per_s": [[None]], "latency_us": []}}})),
            (check_ddp, "expected DDP times", ([1], {}, {"gloo": -1}, {"gloo": []}, {"gloo": True}))):
        for value in values:
            write(folder, "bad.json", value)
            told = refusal_of(check, path)
            assert words in told and path in told, (value, told)
    # The command says it in one line, and writes nothing.
    write(folder, "good.json", good)
    write(folder, "bad.json", b"{")
    done = start(directory, folder, "--json", "good.json", "--doctor", path, status=1)
    assert done.stderr.count("\n") == 1 and f"{path}: is not JSON" in done.stderr, done
    for arguments in (["--json", "good.json", "--output", "/no/such/folder/x"], ["--json", "/no/such"]):
        done = start(directory, folder, *arguments, status=1)
        assert done.stderr.startswith("gyre report: ") and "Traceback" not in done.stderr, (arguments, done)
    assert not glob.glob(os.path.join(folder, "*.md")) and not glob.glob(os.path.join(folder, "*.html"))
    for arguments in (["--ranks", "0"], ["--transports", "pigeon"], ["--sizes", "abc"], ["--bench", "'"]):
        assert arguments[1] in start(directory, folder, *arguments, status=2).stderr
    start(directory, folder, "--no-such-option", status=2)


def case_absent(directory, source, folder):
    """Without Python or its packages there is one clear line; the help needs neither."""
    listed = start(directory, folder, "--help", PATH="/no/such/folder").stdout
    sys.path.insert(0, os.path.join(source, "bench", "python"))
    from report import make_parser
    known = {name for action in make_parser()._actions for name in action.option_strings}
    assert set(re.findall(r"^  (--[a-z-]+)", listed, re.M)) == known, (listed, known)
    done = start(directory, folder, status=127, PATH="/no/such/folder")
    assert "apt-get install python3" in done.stderr, done.stderr
    bare = os.path.join(folder, "python3")  # a python3 without packages, whatever this machine has
    write_text(bare, f'#!/bin/sh\nexec {sys.executable} -I -S "$@"\n')
    os.chmod(bare, 0o755)
    probe = subprocess.run([bare, os.path.join(HERE, "without_packages.py"),
                            os.path.join(source, "bench", "python"), "report"], capture_output=True, text=True, check=False)
    assert probe.returncode == 1 and "gyre report --install" in probe.stderr, probe
    assert "Traceback" not in probe.stderr, probe


def main():
    name, directory, source = sys.argv[1:]
    with tempfile.TemporaryDirectory() as folder:
        globals()["case_" + name](os.path.realpath(directory), os.path.realpath(source), folder)
    print(f"{name}: ok")


if __name__ == "__main__":
    main()
