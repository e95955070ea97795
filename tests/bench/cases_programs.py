"""Programs from files: they run, are predicted, and are made from MSCCL's XML."""

import os
import re
import socket
import tempfile

import msccl_algorithms as msccl
from report_schema import check_schema, has_json, schema_of_reports
from running import bench, free_port, parse, read_csv, read_json, run, start_ranks, write_text

HOST = ["--device", "host", "-w", "1", "-n", "2"]


def write(folder, name, text):
    path = os.path.join(folder, name)
    write_text(path, text)
    return path


def printed(directory, *options):
    return run([bench(directory, "schedule"), *options]).stdout


def check_refusals(directory, folder, ring):
    allreduce = [bench(directory, "allreduce"), "-g", "4", "-b", "8", "-e", "8"] + HOST
    wrong = write(folder, "wrong.gyre", ring.replace(" final", "", 1))
    ring = write(folder, "four.gyre", ring)
    for options, words in [
            (["--algo-file", wrong], "rank 0, worker 0, step 3, tile 0: holds all contributions"),
            (["--algo-file", "/nonexistent"], "--algo-file: /nonexistent"),
            (["--algo-file", ring, "--algo", "ring"], "--algo does not go with --algo-file"),
            (["--algo-file", ring, "--predict", "1"], "--algo-file does not go with"),
            (["--algo-file", ring, "-g", "3"], "no program for all_reduce of 3 ranks; it has: ring all_reduce of 4 ranks")]:
        done = run(allreduce + options, status=2 if "go with" in words else 1)
        assert words in done.stderr, (options, done.stderr)
    done = run(allreduce, environment={"GYRE_ALGO_FILE": wrong}, status=1)
    assert "GYRE_ALGO_FILE " + wrong in done.stderr, done.stderr
    # The other rank has other programs.
    ranks = start_ranks(directory, 2, free_port(), odd=1, environment={"GYRE_ALGO_FILE": ring})
    errors = [rank.communicate(timeout=60)[1] for rank in ranks]
    assert all("the programs in GYRE_ALGO_FILE differ" in error for error in errors), errors


def check_predictions(directory, folder):
    """A prediction of a file is that of the algorithm whose programs it has."""
    shape = ["--coll", "all_reduce", "--ranks", "4", "--hosts", "2x2"]
    one_host = shape[:4]
    text = printed(directory, "--algo", "twoshot", *shape)
    path = write(folder, "two.gyre", text)
    for hosts in ([], ["--hosts", "2x2"]):
        sizes = ["--bytes", "4K:1M", "--cost", "host"]
        expected = printed(directory, "--predict", "--algo", "twoshot", *one_host, *hosts, *sizes)
        assert printed(directory, "--predict", "--file", path, *hosts, *sizes) == expected
    ring = ["--algo", "ring", *shape]
    variants = [printed(directory, *ring, "--variant", str(variant)) for variant in range(2)]
    both = write(folder, "variants.gyre", "".join(variants))
    assert printed(directory, "--predict", "--file", both, "--hosts", "2x2", *sizes) == \
        printed(directory, "--predict", *ring, *sizes)
    # An algorithm that calls do not take by themselves gets as many channels as pay, as if it was asked for.
    predict = ["--predict", "--algo", "multiplying4", "--coll", "all_reduce", "--hosts", "64x1", "--bytes", "64K"]
    chosen, alone = (float(printed(directory, *predict, *channels).split("\n")[-2].split()[4])
                     for channels in ([], ["--channels", "1"]))
    assert chosen < 0.5 * alone, (chosen, alone)
    # What was searched is predicted the same if it is given, without the search.
    large = ["--predict", "--algo", "doubling", "--coll", "all_reduce", "--hosts", "1100x1", "--bytes", "64K"]
    row = printed(directory, *large).split("\n")[-2]
    assert printed(directory, *large, "--channels", row.split()[2], "--tile", row.split()[3]).split("\n")[-2] == row, row
    for options, words in [(["--predict", "--hosts", "3x2"], "expected 4 numbers"),
                           (["--hosts", "2x2"], "do not go with --file"),
                           (["--json", "x"], "--json needs --verify or --predict")]:
        done = run([bench(directory, "schedule"), "--file", path] + options, status=1 if "expected" in words else 2)
        assert words in done.stderr, (options, done.stderr)
    return path


def check_json(directory, folder, path, wrong_text):
    out = os.path.join(folder, "out.json")
    done = run([bench(directory, "schedule"), "--predict", "--file", path, "--cost", "host",
                "--bytes", "4K:64K", "--json", out])
    rows = re.findall(r"^ +(\d+) +simple +(\d+) +(\d+) +([\d.]+)", done.stdout, re.M)
    report = read_json(out)
    assert report["schema_version"] == 1 and report["command"][1] == "--predict", report
    assert [(row["bytes"], row["channels"], row["tile_bytes"], f"{row['time_us']:.2f}")
            for row in report["predictions"]] == \
        [(int(a), int(b), int(c), d) for a, b, c, d in rows] and len(rows) == 3, report
    assert all(row["from_file"] and row["algorithm"] == "twoshot" and row["ranks"] == 4
               for row in report["predictions"]), report
    # A proof that fails is written, too.
    wrong = write(folder, "wrong.gyre", wrong_text)
    done = run([bench(directory, "schedule"), "--file", wrong, "--verify", "--json", out], status=1)
    place = re.search(r"^# refused out of place: rank (\d), worker (\d), step (\d), .*\n"
                      r"# step (\d) of rank (\d), worker (\d), counted from 0: (.*)$", done.stdout, re.M)
    assert place and place.group(1, 2, 3) == place.group(5, 6, 4), done.stdout
    program = re.split("^program ", wrong_text, flags=re.M)[1 + int(place.group(1))]
    steps = re.split(r"^worker \d\n", program, flags=re.M)[1 + int(place.group(2))].split("\n")
    assert steps[int(place.group(3))].strip() == place.group(7), (place.group(0), steps)
    proofs = read_json(out)["proofs"]
    assert [proof["proved"] for proof in proofs] == [False] and \
        "holds all contributions" in proofs[0]["reason"], proofs
    run([bench(directory, "schedule"), "--file", path, "--verify", "--json", out])
    proofs = read_json(out)["proofs"]
    assert [(proof["proved"], proof["in_place"]) for proof in proofs] == [(True, False), (True, True)], proofs


def case_programs(directory, _):
    """--algo-file and GYRE_ALGO_FILE run the programs of a file for the calls that they fit;
    schedule predicts them and writes JSON."""
    ring = printed(directory, "--algo", "ring", "--coll", "all_reduce", "--ranks", "4")
    sum_up = printed(directory, "--algo", "tree", "--coll", "reduce", "--ranks", "4", "--root", "1")
    with tempfile.TemporaryDirectory() as folder:
        path = write(folder, "some.gyre", "# two shapes\n" + ring + sum_up)
        logged = {"GYRE_DEBUG": "INFO", "GYRE_DEBUG_SUBSYS": "TUNING"}
        for name, options, variables in [
                ("allreduce", ["--algo-file", path], {}),
                ("allreduce", [], {"GYRE_ALGO_FILE": path}),
                ("reduce", ["-r", "1", "--algo-file", path], {})]:
            command = [bench(directory, name), "-g", "4", "-b", "8", "-e", "128K", "-f", "128"]
            done = run(command + HOST + options, environment={**variables, **logged})
            assert "# Out of bounds values : 0 OK" in done.stdout, done.stdout
            assert "ring all_reduce of 4 ranks; tree reduce of 4 ranks, root 1" in done.stderr
            assert "(from the file)" in done.stderr, done.stderr
        # A root that the file does not have, and an algorithm that the user names: built in.
        for options in (["-r", "0"], ["-r", "1", "--algo", "ring"]):
            done = run([bench(directory, "reduce"), "-g", "4", "-b", "8", "-e", "8"] + HOST +
                       options, environment={"GYRE_ALGO_FILE": path, **logged})
            assert "(from the file)" not in done.stderr, done.stderr
        done = run([bench(directory, "allreduce"), "-g", "2", "-b", "8", "-e", "8"] + HOST,
                   environment={"GYRE_CHECK": "programs,calls", **logged})
        assert "of 2 ranks is proved" in done.stderr, done.stderr
        # Programs that place data, which need results in windows.
        path = write(folder, "placed.gyre", printed(
            directory, "--algo", "ring", "--coll", "all_reduce", "--ranks", "4", "--placed"))
        command = [bench(directory, "allreduce"), "-g", "4", "-b", "64K", "-e", "64K", "--algo-file", path] + HOST
        done = run(command + ["-R", "2"], environment=logged)
        assert "(from the file) simple placed" in done.stderr, done.stderr
        assert "# Out of bounds values : 0 OK" in done.stdout, done.stdout
        assert "placed programs need results in windows" in run(command, status=1).stderr
        check_refusals(directory, folder, ring)
        two = check_predictions(directory, folder)
        if has_json(directory):
            check_json(directory, folder, two, ring.replace(" final", "", 1))


def check_xml_refusals(directory, folder):
    """What cannot be read or expressed is refused with its line."""
    ring = msccl.ring_all_reduce(4)
    lines = ring.split("\n")
    assert 's="1" type="rrs"' in lines[4], lines[4]

    def changed(line, old, new):
        assert old in lines[line - 1], lines[line - 1]
        return "\n".join(lines[:line - 1] + [lines[line - 1].replace(old, new)] + lines[line:])

    for text, words in [
            (changed(5, "rrs", "xyz"), 'line 5: step: type "xyz" is none of'),
            (changed(5, 'srcoff="3"', 'srcoff="4"'), "line 5: step: chunks 4 to 4 of buffer i"),
            (changed(5, 'srcbuf="i"', 'srcbuf="s"'), "line 5: step: chunks 3 to 3 of buffer s"),
            (changed(5, 'depid="-1"', 'depid="7"'), "line 5: step: it depends on step -1 of tb 7"),
            (changed(5, 'srcoff="3"', 'srcoff="2"'), "line 5: step: reduces chunk 3 with chunk 2"),
            (changed(8, 'dstoff="0"', 'dstoff="1"'), "line 8: step: puts chunk 0 of the vector in "
                                                     "the place of chunk 1"),
            (changed(3, 'recv="3"', 'recv="2"'), "line 3: tb: no tb of gpu 2 sends to gpu 0"),
            (changed(3, 'send="1"', 'send="0"'), "line 3: tb: GPU 0 sends to itself"),
            (changed(1, "allreduce", "custom"), 'line 1: algo: coll is "custom"'),
            (changed(13, 'id="1"', 'id="0"'), "line 13: gpu: id 0 stands in line 2 too"),
            (changed(4, 'depid="-1" deps="-1"', 'depid="0" deps="6"'),
             "line 4: step: it never runs"),
            (ring.replace("</algo>", ""), "not well-formed XML"),
            (msccl.write("x", "allgather", 7, [[]] * 4, chunks=(1, 7)), "line 1: nchunksperloop"),
            (ring.replace("<algo", '<!DOCTYPE algo [<!ENTITY a "b">]><algo'), "line 1: defines the entity a"),
            (msccl.write("x", "allreduce", 4, [[]] * 4), "the programs are wrong out of place")]:
        path = write(folder, "wrong.xml", text)
        done = run([bench(directory, "schedule"), "--from-msccl", path], status=1)
        assert words in done.stderr and done.stdout == "", (words, done.stderr)


def case_msccl(directory, _):
    """schedule --from-msccl makes proved programs of MSCCL's XML, which give right values."""
    with tempfile.TemporaryDirectory() as folder:
        done = run([bench(directory, "schedule"), "--from-msccl", "/nonexistent.xml"], status=1)
        assert "--from-msccl: /nonexistent.xml cannot be read: No such file" in done.stderr, done.stderr
        for name, coll, n_ranks, text in [
                ("allreduce", "all_reduce", 4, msccl.ring_all_reduce(4)),
                ("allreduce", "all_reduce", 3, msccl.ring_all_reduce(3, n_channels=2)),
                ("allreduce", "all_reduce", 4, msccl.all_pairs_all_reduce(4)),
                ("allreduce", "all_reduce", 4, msccl.halving_doubling_all_reduce(4)),
                ("allreduce", "all_reduce", 4, msccl.doubling_all_reduce(4)),
                ("allgather", "all_gather", 4, msccl.ring_all_gather(4)),
                ("allgather", "all_gather", 3, msccl.ring_all_gather(3, n_parts=2)),
                ("allgather", "all_gather", 3, msccl.direct_all_gather(3)),
                ("alltoall", "all_to_all", 3, msccl.crossing_all_to_all(3)),
                ("reducescatter", "reduce_scatter", 4, msccl.ring_reduce_scatter(4)),
                ("alltoall", "all_to_all", 3, msccl.direct_all_to_all(3)),
                ("broadcast", "broadcast", 3, msccl.chain_broadcast(3)),
                ("reduce", "reduce", 3, msccl.chain_reduce(3))]:
            xml = write(folder, "algo.xml", text)
            programs = printed(directory, "--from-msccl", xml)
            assert programs.count(f" {coll}\n") == n_ranks, programs  # parts of blocks that are alike are one
            path = write(folder, "algo.gyre", programs)
            done = run([bench(directory, name), "-g", str(n_ranks), "-b", "4", "-e", "1M", "-f",
                        "64", "-d", "int32", "--algo-file", path] + HOST)
            assert len(parse(done.stdout, n_ranks)) == 4, done.stdout
            assert "# Out of bounds values : 0 OK" in done.stdout, done.stdout
        for n_ranks, depth in ((16, 1), (32, 1)):  # 16 and more chunks in one step
            xml = write(folder, "algo.xml", msccl.halving_doubling_all_reduce(n_ranks))
            proved = printed(directory, "--from-msccl", xml, "--rank", "0", "--verify")
            assert f"proved in place: depth {depth} is enough" in proved, proved
        # More channels than lanes. A host device has no eight FIFOs a pair, so the programs do not run there.
        xml = write(folder, "algo.xml", msccl.ring_all_reduce(3, n_channels=10))
        proved = printed(directory, "--from-msccl", xml, "--verify")
        assert "lanes 8" in proved and "proved in place" in proved, proved
        check_xml_refusals(directory, folder)


def check_contender_files(directory, source, allreduce, folder):
    """--csv and --json of --compare-algos say what the table says."""
    table, report = os.path.join(folder, "turns.csv"), os.path.join(folder, "turns.json")
    command = allreduce + ["--rounds", "3", "--compare-algos", "ring,twoshot", "--csv", table]
    done = run(command + (["--json", report] if has_json(directory) else []))
    lines = [line.split() for line in done.stdout.split("\n") if line and line[0] != "#"]
    rows = read_csv(table)
    assert [(row["bytes"], row["algorithm"]) for row in rows] == \
        [(line[0], name) for line in lines for name in ("ring", "twoshot")], rows
    for at, row in enumerate(rows):
        line, is_first = lines[at // 2], at % 2 == 0
        assert (row["engine"], row["ranks"], row["hosts"], row["collective"]) == ("gyre", "3", "1", "all_reduce"), row
        assert re.fullmatch(r"\d+\.\d+\.\d+", row["version"]) and re.fullmatch(r"\S+T\S+Z", row["date"]), row
        where = (row["machine"], row["device"], row["fabric"], row["dtype"])
        assert where == (socket.gethostname(), "host", "", "float"), row
        assert row["protocol"] == "simple" and int(row["channels"]) >= 1, row
        us = float(row["time_us"])
        assert abs(us - float(line[1 if is_first else 2])) < 0.006, (row, line)
        # busbw of all-reduce: 2 (n - 1) / n of the bytes
        assert abs(float(row["busbw_gbytes_per_s"]) - int(row["bytes"]) / us / 1e3 * 4 / 3) < 1e-3, row
        shown = [row["ratio"], row["ratio_low"], row["ratio_high"]]
        assert shown == ["", "", ""] if is_first else \
            all(abs(float(a) - float(b)) < 0.0006 for a, b in zip(shown, line[3:])), (row, line)
    if has_json(directory):
        value = read_json(report)
        check_schema(value, schema_of_reports(source))
        assert [(row["bytes"], row["algorithm"]) for row in value["contenders"]] == \
            [(int(row["bytes"]), row["algorithm"]) for row in rows] and value["results"] == [], value
        assert [(row["type"], row["protocol"], str(row["channels"])) for row in value["contenders"]] == \
            [(row["dtype"], row["protocol"], row["channels"]) for row in rows], value
        for row in value["contenders"]:
            assert len(row["turns_us"]) == 3 and len(row["samples_us"]) % 3 == 0, row
            of_round = len(row["samples_us"]) // 3
            # In host memory a turn is a rank's mean, of the slowest rank; each sample is of its slowest rank. So the
            # mean of samples is at least the turn, and at most the sum of the means of all 3 ranks.
            for turn, us in enumerate(row["turns_us"]):
                mean = sum(row["samples_us"][turn * of_round:(turn + 1) * of_round]) / of_round
                assert mean / 3 * 0.9999 <= us <= mean * 1.0001, (us, mean)
        run(allreduce + ["--compare-algos", "gyre,ring@simple", "--sizes", "1K,8", "--json", report])
        assert [(row["bytes"], row["algorithm"]) for row in read_json(report)["contenders"]] == \
            [(size, name) for size in (1024, 8) for name in ("gyre", "ring@simple")], "order of --sizes"
    done = run(allreduce + ["--compare-algos", "ring,tree", "--csv", "/nonexistent/x"], status=1)
    assert "--csv /nonexistent/x: No such file" in done.stderr and done.stdout == "", done


def check_predicted_csv(directory, folder):
    """schedule --predict --csv has a line for each algorithm and size, with the times of the table."""
    path = os.path.join(folder, "predicted.csv")
    predict = [bench(directory, "schedule"), "--predict", "--coll", "all_gather", "--hosts", "2x4", "--bytes", "1M",
               "--algo", "ring"]
    shown = run(predict + ["--csv", path]).stdout.split("\n")[3].split()
    rows = read_csv(path)
    assert len(rows) == 1 and [rows[0][key] for key in ("engine", "ranks", "hosts", "algorithm", "protocol", "channels",
                                                        "bytes")] == \
        ["predicted", "8", "2", "ring", shown[1], shown[2], "1048576"], (rows, shown)
    assert abs(float(rows[0]["time_us"]) - float(shown[4])) < 0.006, (rows, shown)
    assert "are the same file" in run(predict + ["--csv", path, "--json", path], status=2).stderr
    assert "--csv needs --predict" in run([bench(directory, "schedule"), "--algo", "ring", "--coll", "all_gather",
                                           "--ranks", "2", "--verify", "--csv", path], status=2).stderr


def case_contenders(directory, source):
    """--compare-algos times algorithms and a file in turns, and refuses lists that say nothing."""
    allreduce = [bench(directory, "allreduce"), "-g", "3", "-b", "8", "-e", "1K", "-f", "128"] + HOST
    with tempfile.TemporaryDirectory() as folder:
        path = write(folder, "ring.gyre", printed(
            directory, "--algo", "ring", "--coll", "all_reduce", "--ranks", "3"))
        done = run(allreduce + ["--algo-file", path, "--rounds", "3", "--compare-algos",
                                "ring,twoshot,file"],
                   environment={"GYRE_DEBUG": "INFO", "GYRE_DEBUG_SUBSYS": "TUNING"})
        lines = [line.split() for line in done.stdout.split("\n") if line and line[0] != "#"]
        assert [line[0] for line in lines] == ["8", "1024"], done.stdout
        for line in lines:
            assert len(line) == 2 + 2 * 4 and all(float(word) > 0 for word in line), line
            for at in (2, 6):  # a ratio lies in its interval
                assert float(line[at + 2]) <= float(line[at + 1]) <= float(line[at + 3]), line
        assert all(f"8 B: {words} simple" in done.stderr
                   for words in ("ring", "twoshot", "ring (from the file)")), done.stderr
        check_contender_files(directory, source, allreduce, folder)
        check_predicted_csv(directory, folder)
    for names, words in [("ring," * 8 + "tree", "named twice"), ("ring,rung", '"rung" is neither'),
                         ("ring,file", "--algo-file names"), ("ring,", '"" is neither'),
                         ("ring,tree --predict 1", "does not go with"),
                         ("ring,tree -d all", "takes one type"),
                         ("ring,tree --sizes 8,x", '--sizes 8,x: "x" is not a size'),
                         ("ring,tree --compare old --old-lib x.so", "old is one of the names")]:
        done = run(allreduce + ["--compare-algos"] + names.split(), status=2)
        assert words in done.stderr, (names, done.stderr)
    done = run([bench(directory, "allgather"), "-g", "2", "-b", "8", "-e", "8", "--compare-algos",
                "ring,tree"] + HOST, status=1)
    assert "no algorithm that --compare-algos allows can do all_gather" in done.stderr, done.stderr
