"""Reports of a bench: JSON and CSV, of one run and of the combinations of --sweep."""

import csv
import json
import os
import resource
import stat
import sys
import tempfile

from report_schema import check_schema, has_json, schema_of_reports
from running import SKIPPED, SMALL, bench, read_csv, read_json, read_text, run, write_text


def case_reports(directory, source):
    schema = schema_of_reports(source)
    if not has_json(directory):
        print("the benches were built without json-c")
        sys.exit(SKIPPED)
    with tempfile.TemporaryDirectory() as work:
        # "\udce9" is the byte 0xe9, which is no UTF-8.
        report, table = os.path.join(work, "r\udce9.json"), os.path.join(work, "t.csv")
        command = [bench(directory, "reduce"), "-g", "3", "--device", "host", "-J", report, "--csv", table] + SMALL
        run(command, environment={"NCCL_IB_HCA": "mlx5_0", "NCCL_MY_TOKEN": "hush", "PASSWORD": "x",
                                  "HOME_TOKEN": "hush", "GYRE_HOSTID": "caf\udce9"})
        text = read_text(report)
        parsed = json.loads(text)
        check_schema(parsed, schema)
        assert "hush" not in text, "a secret is in the report"
        assert parsed["environment"]["NCCL_MY_TOKEN"] == "(hidden)", parsed["environment"]
        assert parsed["environment"]["NCCL_IB_HCA"] == "mlx5_0", parsed["environment"]
        assert parsed["environment"]["GYRE_HOSTID"] == "caf\ufffd", parsed["environment"]
        assert parsed["command"][parsed["command"].index("-J") + 1].endswith("/r\ufffd.json")
        assert "PASSWORD" not in parsed["environment"] and "PATH" not in parsed["environment"]
        assert [r["bytes"] for r in parsed["results"]] == [8, 128, 2048, 32768]
        for row in parsed["results"]:
            times = row["out_of_place"]["single_calls_us"]
            assert 0 < times["min"] <= times["median"] <= times["p99"] <= times["max"], row
            assert row["algorithm"] and row["channels"] >= 1, row
            assert row["path"] == "staged" and row["transports"], row
            assert row["versions"]["gyre"] == parsed["gyre_version"], row
            # the ranks are on host memory and no engine is compared
            assert row["versions"]["reference"] is row["versions"]["cuda_driver"] is None, row
            assert row["sms"] == {"gyre": None, "reference": None}, row
            assert row["clocks"] == {"sm_mhz": None, "memory_mhz": None}, row
        placed = command[:command.index("-J")] + ["-R", "2", "--algo", "all_reduce:ring", "-J",
                                                  report, "-b", "64K", "-e", "64K"]
        run([bench(directory, "allreduce")] + placed[1:])
        assert [r["path"] for r in read_json(report)["results"]] == ["placed"]
        # A path that is not a regular file must not be replaced by one, least of all a device node.
        pipe = os.path.join(work, "pipe")
        os.mkfifo(pipe)
        done = run(command + ["-J", pipe], status=1)
        assert "not a regular file" in done.stderr, done.stderr
        assert stat.S_ISFIFO(os.stat(pipe).st_mode), "the pipe is gone"
        # Another user may have planted a link in a folder that both users can write to.
        victim = os.path.join(work, "victim")
        write_text(victim, "mine")
        os.symlink(victim, report + ".part")
        run(command)
        assert read_text(victim) == "mine", "the report was written through a planted link"
        rows = read_csv(table)
        assert len(rows) == 8 and all(None not in row.values() for row in rows), rows
        assert [int(row["bytes"]) for row in rows[::2]] == [8, 128, 2048, 32768]


def case_kept(directory, _):
    """A run that fails before its first row leaves the files of an earlier run, and tune leaves its constants."""
    files = [("--csv", "t.csv")] + ([("-J", "r.json")] if has_json(directory) else [])
    two = ["-g", "2", "--device", "host", "-b", "8", "-e", "64"]
    with tempfile.TemporaryDirectory() as work:
        def text_of(name):
            return read_text(os.path.join(work, name))

        def write_old():
            for name in ("t.csv", "r.json", "constants"):
                write_text(os.path.join(work, name), "old")

        write_old()
        outputs = [word for option, name in files for word in (option, os.path.join(work, name))]
        for command in (["alltoall"] + two + ["--algo", "tree"],
                        ["allreduce"] + two + ["--sweep", "1", "--algo", "ring", "--proto", "ll128"],
                        ["allreduce"] + two + ["--limits", "/nonexistent"],
                        ["allreduce"] + two + ["--algo-file", "/nonexistent"]):
            run([bench(directory, command[0])] + command[1:] + outputs, status=1)
            assert {text_of(name) for _, name in files} == {"old"}, (command, text_of("t.csv"))
        run([bench(directory, "tune"), "-g", "1", "--device", "host", "--output", os.path.join(work, "constants")],
            status=1)
        assert text_of("constants") == "old"
        run([bench(directory, "allreduce")] + two + outputs)
        assert text_of("t.csv").startswith("collective,bytes"), text_of("t.csv")
        # A device is written directly.
        done = run([bench(directory, "allreduce")] + two + ["--csv", "/dev/stdout"])
        assert "\nall_reduce,8,2,float,sum," in done.stdout, done.stdout
        assert sorted(os.listdir(work)) == ["constants", "r.json", "t.csv"], os.listdir(work)
    if os.access("/dev/shm", os.W_OK):  # an ordinary file system, although it is below /dev
        with tempfile.TemporaryDirectory(dir="/dev/shm") as work:
            path = os.path.join(work, "t.csv")
            for _ in range(2):
                run([bench(directory, "allreduce")] + two + ["--csv", path])
            assert read_text(path).count("collective,bytes") == 1


def case_sweep(directory, _):
    """Every combination writes its own reports, and tune can read them."""
    command = [bench(directory, "allreduce"), "-g", "2", "--device", "host", "--sweep", "1",
               "--algo", "ring,tree", "--channels", "1,2"] + SMALL
    combinations = [("ring", "1"), ("ring", "2"), ("tree", "1"), ("tree", "2")]
    with tempfile.TemporaryDirectory() as work:
        write_text(os.path.join(work, "z.csv"), "of an earlier sweep\n")
        run(command + ["--csv", os.path.join(work, "z.csv")])
        for algo, channels in combinations:
            rows = read_csv(os.path.join(work, f"z.{algo}-{channels}.csv"))
            assert len(rows) == 8, rows
            assert {(row["algorithm"], row["channels"]) for row in rows} == {(algo, channels)}, rows
        with open(os.path.join(work, "z.csv"), newline="", encoding="utf-8") as file:
            rows = list(csv.DictReader(file))  # of the whole sweep
        assert [(row["algorithm"], row["channels"]) for row in rows] == \
            [combination for combination in combinations for _ in range(4)], rows
        assert {(row["engine"], row["ranks"], row["hosts"]) for row in rows} == {("gyre", "2", "1")}, rows
        if has_json(directory):
            run(command + ["-J", os.path.join(work, "s.json")])
            for algo, channels in combinations:
                rows = read_json(os.path.join(work, f"s.{algo}-{channels}.json"))["results"]
                assert [(row["algorithm"], row["channels"]) for row in rows] == [(algo, int(channels))] * 4, rows
            constants = os.path.join(work, "constants")
            run([bench(directory, "tune"), "--from", work, "--output", constants])
            assert "constants from 16 calls" in read_text(constants)
        assert len(os.listdir(work)) == (10 if has_json(directory) else 5), os.listdir(work)
    if has_json(directory):
        check_sweep_with_failures(directory)


def check_sweep_with_failures(directory):
    """The JSON reports of both combinations become too large at the second row. The CSV of the whole sweep
    keeps the rows of both."""
    command = [bench(directory, "allreduce"), "-g", "2", "--device", "host", "-n", "2", "-w", "1", "-b", "8"]
    with tempfile.TemporaryDirectory() as work:
        path = os.path.join(work, "r.json")
        sizes = []
        for last in ("8", "64"):
            run(command + ["-e", last, "-f", "8", "-J", path])
            sizes.append(os.path.getsize(path))
        limit = sum(sizes) // 2
        run(command + ["-e", "64", "-f", "8", "-J", path, "--csv", os.path.join(work, "z.csv"), "--sweep", "1",
                       "--algo", "ring,tree"], status=1,
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit)))
        with open(os.path.join(work, "z.csv"), newline="", encoding="utf-8") as file:
            assert {row["algorithm"] for row in csv.DictReader(file)} == {"ring", "tree"}
