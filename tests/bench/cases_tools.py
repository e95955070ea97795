"""The programs and options around the simulator: tune, --predict, schedule."""

import json
import os
import re
import shutil
import tempfile

from report_schema import has_json
from running import bench, mpirun, needs_mpi_build, read_csv, read_json, read_text, run, write_text


PREDICTION = re.compile(r" *(\d+)  (\w+) +(\w+) +(\d+) +(\d+) +([\d.]+) +([\d.]+) +([\d.]+)"
                        r"  (\w+) +(\w+) +(\d+) +(\d+) +([\d.]+) +([\d.]+)%$")


def check_restrictions(directory, sizes):
    """Neither tune nor --predict tries an algorithm that --algo or GYRE_ALGO forbids."""
    done = run([bench(directory, "tune"), "--algo", "ring"] + sizes)
    tried = re.findall(r"^(?:all|reduce)_\w+ +\d+  (\w+) ", done.stdout, re.M)
    assert len(tried) > 6 and set(tried) == {"ring"}, done.stdout
    for options, variables in [(["--algo", "^direct,ring"], {}), ([], {"GYRE_ALGO": "broadcast:tree,twoshot"})]:
        done = run([bench(directory, "broadcast"), "--predict", "1"] + sizes + options, environment=variables)
        lines = [PREDICTION.match(line) for line in done.stdout.split("\n")]
        used = [line[i] for line in lines if line for i in (2, 9)]
        assert len(used) == 6 and set(used) <= {"tree", "twoshot"}, done.stdout
    done = run([bench(directory, "allreduce"), "--predict", "1", "--path", "placed", "-R", "2"] + sizes, status=1)
    assert "planned as if in no window: --path wants" in done.stderr, done.stderr


def case_tune(directory, source):
    """tune writes constants, GYRE_TUNING_FILE reads them, and --predict compares predicted and
    measured times."""
    sizes = ["-b", "64", "-e", "64K", "-f", "32", "--rounds", "2", "--device", "host", "-g", "2"]
    with tempfile.TemporaryDirectory() as place:
        path = os.path.join(place, "tuning.txt")
        done = run([bench(directory, "tune"), "--output", path] + sizes)
        assert "constants fitted" in done.stdout, done.stdout
        run([bench(directory, "tune"), "--output", path, "-b", "0"] + sizes[2:])  # sizes from 0 on
        text = read_text(path)
        assert re.search(r"^simple_host_hop_ns = [\d.e+-]+$", text, re.M), text
        for name in ["allreduce", "allgather", "broadcast", "reduce", "reducescatter", "alltoall"]:
            for environment in [{}, {"GYRE_TUNING_FILE": path}]:
                done = run([bench(directory, name), "--predict", "1"] + sizes, environment=environment)
                lines = [line for line in done.stdout.split("\n") if line and line[0] != "#"]
                assert len(lines) == 3, done.stdout
                for line in lines:
                    match = PREDICTION.match(line)
                    assert match, line
                    assert all(float(match[i]) > 0 for i in (6, 7, 13)), line
                assert "the tuner loses over 5%" in done.stdout, done.stdout
        done = run([bench(directory, "allreduce"), "-b", "4K", "-e", "4K", "--device", "host", "-g",
                    "2"], environment={"GYRE_TUNING_FILE": path, "GYRE_DEBUG": "INFO",
                                       "GYRE_DEBUG_SUBSYS": "TUNING"})
        log = done.stdout + done.stderr
        assert re.search(r"all_reduce 4096 B: \w+ simple, \d channels, tiles of \d+ B, predicted "
                         r"[\d.]+ us \(measured constants\)$", log, re.M), log  # no bound is known on one host
        with open(path, "a") as file:
            file.write("nonsense = 1\n")
        done = run([bench(directory, "allreduce"), "-g", "2", "--device", "host"], status=1,
                   environment={"GYRE_TUNING_FILE": path})
        assert "GYRE_TUNING_FILE" in done.stderr and "nonsense" in done.stderr, done.stderr
        if has_json(directory):
            done = run([bench(directory, "tune"), "--from",
                        os.path.join(source, "docs", "performance", "h200"), "--output", path])
            with open(path, encoding="utf-8") as file:  # the shipped constants are these, rounded
                error = re.search(r"constants from \d+ calls; typical error (\d+)%", file.read())
            assert error and int(error.group(1)) <= 15, done.stdout
            done = run([bench(directory, "tune"), "--from", place], status=1)
            assert "no *.json there" in done.stderr, done.stderr
        for options, words in [  # before anything is measured
                (["--output", "/nonexistent/x"], "--output /nonexistent/x: No such file"),
                (["-g", "1"], "one rank sends nothing"),
                (["--algo", "tree"], "no algorithm that --algo allows can do all_gather"),
                (["--path", "placed"], "--path wants the results of all_reduce placed"),
                (["--from", place, "--algo", "ring"], "--from does not go with --algo")]:
            done = run([bench(directory, "tune"), "--rounds", "1000", "--output", path] + sizes[:6] +
                       sizes[8:] + options, status=1)
            assert words in done.stderr, (options, done.stderr)
        assert os.path.getsize(path) > 0, "a refusal has emptied the file"
        new = os.path.join(place, "new.txt")
        run([bench(directory, "tune"), "-g", "1", "--output", new], status=1)
        assert not os.path.exists(new), "a refusal has left a file"
    check_restrictions(directory, sizes)
    done = run([bench(directory, "sendrecv"), "--predict", "1"] + sizes, status=1)
    assert "point to point" in done.stderr, done.stderr
    needs_mpi_build(directory)
    done = mpirun(2, [bench(directory, "allreduce"), "--predict", "1", "-b", "64", "-e", "64",
                      "--device", "host", "--rounds", "2"])
    assert len([line for line in done.stdout.split("\n") if PREDICTION.match(line)]) == 1, done


def check_fabric_files(schedule, rails):
    """A file of results never takes the place of a file that is read, and is replaced at once."""
    small = ["--algo", "ring", "--bytes", "1M"]
    with tempfile.TemporaryDirectory() as work:
        fabric, link, table = (os.path.join(work, name) for name in ("r.fabric", "link", "a,b.csv"))
        shutil.copy(rails, fabric)
        os.symlink(fabric, link)
        for option in ("--csv", "--json"):
            done = run(schedule + small + ["--fabric", fabric, option, link], status=2)
            assert f"{option} and --fabric are the same file" in done.stderr, done.stderr
        done = run(schedule + small + ["--cost", fabric, "--ranks", "2", "--csv", fabric], status=2)
        assert "--csv and --cost are the same file" in done.stderr, done.stderr
        with open(fabric, encoding="utf-8") as file, open(rails, encoding="utf-8") as original:
            assert file.read() == original.read(), "the input was changed"
        write_text(table, "kept")
        run(schedule + small + ["--fabric", "/nonexistent", "--csv", table], status=1)
        assert read_text(table) == "kept", "a failure has emptied the table"
        quoted = os.path.join(work, 'a "fast", one.fabric')
        shutil.copy(rails, quoted)
        run(schedule + small + ["--fabric", quoted, "--csv", table])
        rows = read_csv(table)
        assert len(rows) == 1, rows
        expected = {"machine": "h200", "device": "cuda", "dtype": "float", "fabric": quoted,
                    "bytes": "1048576", "ranks": "64"}
        assert {name: rows[0][name] for name in expected} == expected, rows


def case_fabric(directory, source):
    """schedule --fabric predicts over switches, names the busiest link, and refuses wrong files."""
    schedule = [bench(directory, "schedule"), "--predict", "--coll", "all_reduce"]
    examples = os.path.join(source, "docs", "examples")
    common = ["--algo", "ring", "--bytes", "1G", "--fabric"]
    for name, link in [("rails", "from host 0 nic 0"), ("racks", "leaf 2 to spine 0"), ("hurt", "from host 3 nic 5")]:
        done = run(schedule + common + [os.path.join(examples, name + ".fabric")])
        assert re.search(rf"^ +1073741824 .*  {link} \d+%", done.stdout, re.M), done.stdout
    check_fabric_files(schedule, os.path.join(examples, "rails.fabric"))
    done = run(schedule + ["--bytes", "1M", "--fabric", os.path.join(examples, "racks.fabric")])
    assert "# left out: twoshot: slow between so many ranks" in done.stdout, done.stdout
    assert re.search("^# +bytes .* doubling ", done.stdout, re.M), done.stdout
    with tempfile.NamedTemporaryFile("w", suffix=".fabric") as file:
        file.write("hosts 4 gpus 2 nics 2 rate 10\nleaves 2\n")
        file.flush()
        done = run(schedule + ["--bytes", "1M", "--fabric", file.name], status=1)
        assert re.search("^# left out: ring: .*no way", done.stdout, re.M), done.stdout
        assert "no algorithm can be predicted for all_reduce" in done.stderr, done.stderr
        file.write("wiring rails\n")  # on rails without spines some algorithms stay on their rails
        file.flush()
        done = run(schedule + ["--bytes", "1M", "--fabric", file.name])
        assert re.search("^# left out: twoshot: .*no way", done.stdout, re.M), done.stdout
        assert "left out: ring" not in done.stdout and re.search("^ +1048576 ", done.stdout, re.M), done.stdout
    rails = os.path.join(examples, "rails.fabric")
    with tempfile.NamedTemporaryFile("w", suffix=".fabric") as file:
        file.write("hosts 2 gpus 2 nics 1 rate 5\nleaves 2\nlink leaf 0 spine 0 dead\n")
        file.flush()
        done = run(schedule + common + [file.name], status=1)
        assert "line 3: there is no spine 0" in done.stderr, done.stderr
    for options, words in [(["--fabric", "/nonexistent"], "--fabric: /nonexistent"),
                           (["--fabric", rails, "--hosts", "2x2"], "do not go with --fabric"),
                           (["--fabric", rails, "--nic-rate", "5"], "do not go with --fabric"),
                           (["--fabric", rails, "--library", "nccl", "--algo", "ring"],
                            "--library needs --predict, and goes with")]:
        done = run(schedule + options, status=1 if "/nonexistent" in options else 2)
        assert words in done.stderr, (options, done.stderr)


def check_libraries(schedule, folder):
    """The same call as a row and as a line of a table; wrong rows have an answer, too."""
    path = os.path.join(folder, "calls.rows")
    write_text(path, "# a comment\ncoll=all_reduce ranks=8 bytes=1048576 nvls=1\n"
               "coll=all_reduce ranks=9 hosts=2 bytes=1\ncoll=all_reduce ranks=8 bytes=1 speed=2\n"
               "coll=all_gather ranks=8 bytes=8 algo=tree\n")
    answers = run([schedule, "--predict", "--rows", path]).stdout.splitlines()
    assert len(answers) == 4, answers
    words = dict(word.split("=") for word in answers[0].split())
    assert (words["algo"], words["proto"], words["channels"]) == ("ring", "ll", "24"), answers[0]
    for answer, reason in zip(answers[1:], ["a multiple of hosts=", '"speed" is none of',
                                            "NCCL has no all_gather by tree"]):
        assert answer.startswith("error ") and reason in answer, answer
    table = run([schedule, "--predict", "--library", "nccl,nvls=1", "--coll", "all_reduce",
                 "--ranks", "8", "--bytes", "1M"]).stdout.splitlines()[-1].split()
    assert table[:4] == ["1048576", "ring", "ll", "24"], table
    assert abs(float(table[5]) - float(words["time_us"])) < 0.01, (table, words)
    run([schedule, "--rows", path], status=2)
    run([schedule, "--predict", "--rows", os.path.join(folder, "none")], status=1)


def times_of(directory, folder, options):
    """Rows of `schedule --predict`."""
    path = os.path.join(folder, "predicted.json")
    run([bench(directory, "schedule"), "--predict", *options, "--json", path])
    return read_json(path)["predictions"]


def check_net_times(directory):
    """--net decides the hop between hosts, and over TCP the least channels of GPUs."""
    pair = ["--coll", "all_reduce", "--algo", "direct", "--hosts", "2x1", "--bytes", "1K"]
    with tempfile.TemporaryDirectory() as folder:
        simple = ["--proto", "simple/simple"]
        plain, ib, socket, lines = (times_of(directory, folder, pair + words)[0]
                                    for words in (simple, [*simple, "--net", "ib"],
                                                  [*simple, "--net", "Socket"], ["--net", "socket"]))
        # One hop: 2 + 9 us over RDMA, 10 + 10 us over TCP (docs/tuning.md).
        assert plain["time_us"] == ib["time_us"] and ib["network"] == "ib", (plain, ib)
        assert abs(socket["time_us"] - ib["time_us"] - 9) < 1e-6, (ib, socket)
        assert socket["network"] == "socket" and "network" not in plain, (plain, socket)
        # GPUs take lines over TCP for small calls. Two microseconds of a hop, and a shorter step.
        assert lines["protocol_between_hosts"] == lines["protocol"] == "ll", lines
        assert 2 < socket["time_us"] - lines["time_us"] < 4, (socket, lines)
        large = [*pair[:-1], "1M", "--net", "socket"]
        assert times_of(directory, folder, large)[0]["channels"] >= 8
        drawn = json.loads(run([bench(directory, "draw"), *pair, "--net", "socket", "--json", "-"]).stdout)
        assert abs(drawn["times"]["time_ns"] / 1e3 - lines["time_us"]) < 0.01, drawn["times"]


def case_schedule_net(directory, _):
    """--net of schedule, draw and bottleneck names what is between hosts."""
    if has_json(directory):
        check_net_times(directory)
    lines = ["--predict", "--coll", "all_reduce", "--hosts", "2x8", "--bytes", "1K", "--proto", "ll/ll"]
    run([bench(directory, "schedule"), *lines, "--net", "ib"])
    run([bench(directory, "schedule"), *lines, "--net", "socket"])
    model = ["--params", "1e9", "--tokens", "1e6"]
    for tool, options in [("schedule", ["--predict", "--coll", "all_reduce"]), ("bottleneck", model),
                          ("draw", ["--coll", "all_reduce", "--algo", "ring", "--html", "-"])]:
        done = run([bench(directory, tool), *options, "--hosts", "2x2", "--net", "wire"], status=2)
        assert f"{tool}: --net wire: expected ib (RDMA) or socket (TCP)" in done.stderr, done.stderr
        done = run([bench(directory, tool), *options, "--ranks", "4", "--net", "ib"], status=2)
        assert f"{tool}: --net needs --hosts" in done.stderr, done.stderr


def case_schedule(directory, _):
    """schedule --predict predicts times for machines of any size, and schedule reads what it
    printed."""
    with tempfile.TemporaryDirectory() as folder:
        check_libraries(bench(directory, "schedule"), folder)
    schedule = [bench(directory, "schedule"), "--predict", "--coll", "all_reduce"]
    hosts = "64x8" if os.environ.get("TEST_FEW") else "512x8"
    done = run(schedule + ["--hosts", hosts, "--bytes", "1M"])
    assert re.search(rf"^ +1048576( +[\d.]+)+  two_level_\w+$", done.stdout, re.M), done.stdout
    done = run(schedule + ["--ranks", "8", "--algo", "ring", "--cost", "host", "--bytes", "1M"])
    assert re.search(r"^ +1048576 +simple +\d+ +\d+( +[\d.]+){3} +-  \w+ \d+%", done.stdout, re.M), done.stdout
    done = run(schedule + ["--ranks", "4", "--algo", "twoshot", "--cost", "h200", "--proto", "lamport",
                           "--bytes", "1M"])
    assert re.search(r"^ +1048576 +lamport +\d+ +\d+ ", done.stdout, re.M), done.stdout
    for options, words in [
            (["--ranks", "8", "--cost", "/nonexistent"], "/nonexistent"),
            (["--ranks", "8", "--proto", "ll", "--cost", "host"], "simple only"),
            (["--ranks", "8", "--algo", "ring", "--depth", "1", "--channels", "1"], "deadlock"),
            (["--ranks", "8", "--algo", "sendrecv"], "has no all_reduce")]:
        done = run(schedule + options, status=1)
        assert words in done.stderr and "GYRE_" not in done.stderr, (options, done.stderr)
    for options, words in [
            (["--ranks", "8", "--hosts", "3x3"], "HOSTSxRANKS"),
            (["--ranks", "16385"], "16384"),
            (["--ranks", "4", "--hosts", "0,0,1,-1"], "expected 4 numbers"),
            (["--ranks", "4", "--rounds"], "--predict does not go with"),
            ([], "--ranks is missing")]:
        done = run(schedule + options, status=2)
        assert words in done.stderr and "GYRE_" not in done.stderr, (options, done.stderr)
    for sizes in ("2M:1M", "-5", "banana", "1G:1K", "0", "1K:"):
        done = run(schedule + ["--ranks", "8", "--bytes", sizes], status=2)
        assert f"--bytes {sizes}: expected SIZE or FIRST:LAST" in done.stderr, done.stderr
    for options, words in [(["--channels", "2"], "need --predict"), (["--cost", "x"], "need --pre"),
                           (["--rank", "1", "--rounds"], "--rank does not go with --rounds"),
                           (["--file", "x"], "do not go with --file")]:
        done = run([bench(directory, "schedule"), "--algo", "ring", "--coll", "all_reduce",
                    "--ranks", "4"] + options, status=2)
        assert words in done.stderr, (options, done.stderr)
    for options, words in [
            (["--algo", "ring", "--coll", "all_reduce", "--rank", "4"], "--rank 4: the ranks are 0 to 3"),
            (["--algo", "ring", "--coll", "reduce", "--root", "9"], "root 9: the ranks are 0 to 3"),
            (["--algo", "sendrecv", "--coll", "send_recv"], "send_recv has 1 or 2 ranks, not 4")]:
        done = run([bench(directory, "schedule"), "--ranks", "4"] + options, status=1)
        assert done.stderr == f"schedule: {words}\n", (options, done.stderr)
    placed = [bench(directory, "schedule"), "--algo", "spread", "--coll", "all_reduce", "--ranks",
              "4", "--placed", "--verify"]
    done = run(placed)
    assert done.stdout.count("# the tail: only copies") == 4, done.stdout
    assert "proved in place" in done.stdout and "out 0 -> into 1, into 2, into 3" in done.stdout
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as file:  # the text reads back
        file.write(done.stdout[:done.stdout.index("# proved")])
        file.flush()
        again = run([bench(directory, "schedule"), "--file", file.name, "--verify"])
    assert again.stdout == done.stdout, again.stdout
