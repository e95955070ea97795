#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests of `gyre report`, as users start it: what it writes of known reports, and what it refuses.

    python3 tests/report/report.py CASE BENCH_DIR SOURCE_DIR
        (CASE: the name of a case_* function, without "case_")

Exits 77 where matplotlib or Jinja2 is missing (case "absent" runs without them).
"""
import glob
import html.parser
import json
import os
import re
import subprocess
import sys
import tempfile
import xml.etree.ElementTree

HERE = os.path.dirname(os.path.realpath(__file__))
sys.path.insert(0, os.path.join(HERE, "../bench"))
sys.path.insert(0, os.path.join(HERE, "../doctor"))
import machines
from running import clean_environment

SKIPPED = 77
SYSTEM_PYTHON = "/usr/bin/python3"  # has the packages of apt-get
HEADINGS = ["Summary", "System", "Network interfaces", "RDMA devices", "GID table",
            "Variables before and after", "Issues", "GPUDirect RDMA",
            "Interfaces and devices: what was chosen", "GID index: why this row", "Traffic class",
            "PFC and ECN: why both", "InfiniBand", "Pairs of hosts, GPUs and rails", "Results", "Charts",
            "Largest bottleneck", "PyTorch DDP iterations", "Log evidence", "Not measured"]
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
    with open(os.path.join(folder, name), encoding="utf-8") as file:
        return file.read()


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
    log = write(folder, "job.log", b"a:1:2 GYRE INFO NET/IB : Using [0]mlx5_0:1/RoCE\nnothing\n")
    doctor = doctor_of(directory, folder, machines.roce_server())
    done = start(directory, folder, "--json", f"before={tcp}", "--json", f"after <b>={roce}", "--doctor", doctor,
                 "--ddp", write(folder, "ddp.json", {"gloo": 150.0, "gyre": 50.0, "NCCL": "no GPU"}),
                 "--log", log, "--output", "out", "--title", "A <i>title</i>")
    assert done.stdout == "wrote out.md and out.html\n", done.stdout
    page = sections_of(read(folder, "out.md"))
    assert list(page) == HEADINGS, list(page)
    # 2^20 bytes in 250 us are 4.194304 GB/s; all-reduce of 4 ranks: x 1.5; the limit is 10.
    row = next(line for line in page["Results"].splitlines() if line.startswith("| 1048576 |"))
    assert row == "| 1048576 | 4000.00 | 0.393 | 250.00 | 6.291 | 62.9 | 16.00 |", row
    assert "| after &lt;b> | NET/IB/0 | 6.29 GB/s |" in page["Summary"], page["Summary"]
    assert "| mlx5_0:1 | 3 | 192.168.1.1 | RoCE v2 | eth1 | used |" in page["GID table"], page["GID table"]
    assert "row 3 is used" in page["GID index: why this row"]
    assert "| NCCL_IB_TC | 5 | 1 | 01 |" in page["Traffic class"], page["Traffic class"]
    assert "| NCCL_IB_TC | 5 | unset |" in page["Variables before and after"]
    assert "Not present on this system" in page["InfiniBand"]
    assert "| gyre | 50.00 | 3.00 |" in page["PyTorch DDP iterations"], page["PyTorch DDP iterations"]
    assert "job.log:1: a:1:2 GYRE INFO NET/IB : Using [0]mlx5_0:1/RoCE" in page["Log evidence"]
    assert "nothing" not in page["Log evidence"]
    assert "reaches 63% of 10 GB/s" in page["Largest bottleneck"], page["Largest bottleneck"]
    assert "DDP iterations on NCCL | no GPU" in page["Not measured"], page["Not measured"]

    text = read(folder, "out.html")
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
    assert "0.125</td>" in read(folder, "all.html"), "the HTML page has the same table"
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
    listed = [line[2:] for line in page["Summary"].splitlines() if line.startswith("- ")]
    assert listed == ["host.memlock on ranks 0-1,3 (fail): something", "host.shm on rank 0 (warn): something",
                      "rdma.mtu x:1 on rank 2 (warn): something"], listed
    assert "| issue 3 | host.shm on rank 3 (warn) |" in page["Issues"], page["Issues"]
    assert "share a row" in page["System"], page["System"]
    assert "| net.mtu | eth0 | 0-3 | ok | something |" in page["Interfaces and devices: what was chosen"]
    assert "| x:1 | 0-3 | 0 | 10.0.0.1 | RoCE v2 | eth0 | used |" in page["GID table"], page["GID table"]
    assert "Limit of one, two: unknown" in page["Results"], page["Results"]


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
    assert "| 1024 | 1024.00 | 0.0015 |" in page["Results"], page["Results"]
    assert 'the run "slow" reaches 0.0015 GB/s, and "fast" 0.0512.' in page["Largest bottleneck"], page["Largest bottleneck"]
    assert "rdma.devices x:1 (warn): a slow device. What lifts it: another device." in page["Largest bottleneck"]
    assert "After: slow, the fastest of the other runs; fast was faster." in page["Variables before and after"]
    assert "| GYRE_TRANSPORT | socket | ib |" in page["Variables before and after"]
    assert "OMPI" not in page["Variables before and after"]
    # A second run over TCP may be the faster one.
    faster = write(folder, "faster.json", report(20.0, "NET/Socket/0", "socket"))
    start(directory, folder, "--json", f"one={tcp}", "--json", f"slow={roce}", "--json", f"fast={faster}", "--doctor",
          doctor, "--output", "three")
    page = sections_of(read(folder, "three.md"))
    assert 'the run "slow" reaches 0.0015 GB/s, and "fast" 0.0768.' in page["Largest bottleneck"], page["Largest bottleneck"]
    start(directory, folder, "--json", f"fast={tcp}", "--doctor", doctor, "--output", "one")
    page = sections_of(read(folder, "one.md"))
    assert "No run used RDMA, although x:1 is an active RDMA port" in page["Largest bottleneck"], page["Largest bottleneck"]
    assert "| GYRE_TRANSPORT | socket |\n" in page["Variables before and after"], page["Variables before and after"]


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


def case_measured(directory, _source, folder):
    """Benches are run; what cannot be measured is said, with the reason."""
    start(directory, folder, "--transports", "socket,shm,ib", "--sizes", "1K:4K", "--output", "own",
          "--ddp", write(folder, "ddp.json", {"gloo": "not tried"}))
    page = sections_of(read(folder, "own.md"))
    assert list(page) == HEADINGS
    if "built without json-c" in page["Not measured"]:
        print("skipped: the benches were built without json-c")
        sys.exit(SKIPPED)
    assert "| TCP | NET/Socket/0 |" in page["Summary"], page["Summary"]
    assert "| shared memory | SHM |" in page["Summary"], page["Summary"]
    assert re.search(r"line \d+: .* via NET/Socket/0", page["Log evidence"]), page["Log evidence"]
    assert re.search(r"\| 4096 \| \d+\.\d\d \|", page["Results"]), page["Results"]
    assert "not measured: not tried" in page["PyTorch DDP iterations"]
    if not os.path.exists("/sys/class/infiniband") or not os.listdir("/sys/class/infiniband"):
        assert re.search(r"all-reduce over RDMA \| \S", page["Not measured"]), page["Not measured"]
        assert "RDMA |" not in page["Summary"]
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
    assert "No bench could be measured" in page["Results"], page["Results"]
    assert "found none" not in page["Summary"] and "found no problem" not in page["Issues"]


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
    assert set(re.findall(r"^  (--[a-z]+)", listed, re.M)) == known, (listed, known)
    done = start(directory, folder, status=127, PATH="/no/such/folder")
    assert "apt-get install python3" in done.stderr, done.stderr
    bare = os.path.join(folder, "python3")  # a python3 without packages, whatever this machine has
    with open(bare, "w", encoding="utf-8") as file:
        file.write(f'#!/bin/sh\nexec {sys.executable} -I -S "$@"\n')
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
