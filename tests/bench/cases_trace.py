"""Traces: GYRE_TRACE_FILE, schedule --trace, and gyre explain."""

import collections
import json
import os
import shutil
import subprocess
import sys
import tempfile

from report_schema import has_json
from running import SKIPPED, bench, mpirun, needs_mpi_build, read_json, run, write_json, write_text

PHASES = {"M": set(), "X": {"dur", "cat", "args"}, "s": {"id", "cat"}, "t": {"id", "cat", "bp"},
          "f": {"id", "cat", "bp"}}
EXPLAINED = ["launch", "peer", "credit", "wire", "reduce", "copy", "other"]


def read_trace(paths, source):
    """The events of trace files. Each must have what the format demands of its phase."""
    events = []
    for path in paths:
        trace = read_json(path)
        assert trace["otherData"]["tool"] == "gyre" and trace["otherData"]["source"] == source
        events += trace["traceEvents"]
    for event in events:
        assert event["ph"] in PHASES, event
        missing = ({"ph", "ts", "pid", "tid", "name"} | PHASES[event["ph"]]) - set(event)
        assert not missing and event["ts"] >= 0 and event.get("dur", 0) >= 0, (event, missing)
    return events


def check_slices(events):
    """The slices of a track do not overlap, but for one that lies in another."""
    tracks = collections.defaultdict(list)
    for event in events:
        if event["ph"] == "X":
            tracks[event["pid"], event["tid"]].append((event["ts"], -event["dur"]))
    for track, slices in tracks.items():
        ends = []
        for start, minus_length in sorted(slices):
            while ends and ends[-1] <= start + 0.0005:
                ends.pop()
            assert not ends or start - minus_length <= ends[-1] + 0.0005, (track, start)
            ends.append(start - minus_length)


# The timer of a GPU goes in steps of 32 ns, and two of its multiprocessors may see different steps.
GPU_CLOCK_US = 0.1


def check_flows(events, n_passed, clock_us=0):
    """Every flow begins once and ends once, and passes so many proxies. A slot is received after the
    step that sends it has begun, as far as the clocks of the two ranks agree: clock_us, and the error that
    the trace gives for each. (It can be received before that step has read the clock at its end.)"""
    error_us = {event["pid"]: event["args"]["clock_error_ns"] / 1000 for event in events
                if event["name"] == "gyre_rank"}
    sending = {slot: event["ts"] - error_us[event["pid"]] for event in events if event.get("cat") == "step"
               for slot in event["args"]["sent"]}
    seen = {phase: collections.defaultdict(list) for phase in "stf"}
    for event in events:
        if event["ph"] in seen:
            late_us = error_us[event["pid"]] if event["ph"] == "f" else 0
            seen[event["ph"]][event["id"]].append(event["ts"] + late_us)
    assert seen["s"] and set(seen["s"]) == set(seen["f"])
    for slot, begun in seen["s"].items():
        ended = seen["f"][slot]
        assert len(begun) == len(ended) == 1, slot
        assert len(seen["t"][slot]) == n_passed, (slot, seen["t"][slot])
        assert sending[slot] <= ended[0] + clock_us, (slot, sending[slot], ended)


def program_of(directory, shape, rank):
    """The lines of each worker's steps."""
    done = run([bench(directory, "schedule")] + shape + ["--rank", str(rank)])
    workers = []
    for line in done.stdout.split("\n"):
        if line.startswith("worker "):
            workers.append([])
        elif line.startswith("  "):
            workers[-1].append(line.strip())
    return workers


def check_steps(directory, events, shape, n_ranks, is_gpu=False):
    """Every worker ran the steps of the program that `schedule` prints, in order, tile by tile. On
    GPUs two tiles can go through the steps together. Returns the number of calls."""
    ran = collections.defaultdict(list)
    for event in events:
        if event.get("cat") == "step":
            args = event["args"]
            ran[event["pid"], args["call"], args["channel"], args["worker"]].append(
                (event["ts"], args["tile"], args["step"], args["text"], event["name"]))
    for rank in range(n_ranks):
        workers = program_of(directory, shape, rank)
        mine = {key: steps for key, steps in ran.items() if key[0] == rank}
        assert mine and {key[3] for key in mine} == set(range(len(workers)))
        for key, steps in mine.items():
            lines = workers[key[3]]
            n_tiles = len(steps) // len(lines)
            assert [step[:1] for step in steps] == sorted(step[:1] for step in steps)
            if is_gpu:
                for tile in range(n_tiles):
                    assert [step[2] for step in steps if step[1] == tile] == list(range(len(lines)))
                steps.sort(key=lambda step: step[1:3])
            assert [step[1:4] for step in steps] == [
                (tile, i, line) for tile in range(n_tiles) for i, line in enumerate(lines)], key
            for step in steps:
                inputs = step[3].split(" -> ")[0].count(" + ") + 1
                assert step[4] == ("reduce" if inputs > 1 else "copy"), step
    return len({key[1] for key in ran})


def check_explained(directory, paths, n_ranks, n_calls):
    if not has_json(directory):
        return
    done = run([bench(directory, "gyre"), "explain", "--json", "-"] + paths)
    explained = json.loads(done.stdout)["measured"]
    assert explained["unpaired_slots"] == 0 and explained["left_out"] == 0
    assert len(explained["calls"]) == n_ranks * n_calls
    for call in explained["calls"]:
        total = sum(call[name + "_us"] for name in EXPLAINED)
        assert abs(total - call["time_us"]) <= 0.05 * call["time_us"] + 0.01, call


def case_trace(directory, source):
    """A traced run records every step of its program in order, with a flow for each slot."""
    with tempfile.TemporaryDirectory() as place:
        path = os.path.join(place, "trace.json")
        for algorithm, transport in [("ring", "p2p"), ("tree", "p2p"), ("ring", "socket")]:
            run([bench(directory, "allreduce"), "-g", "3", "-b", "600K", "-e", "600K", "-n", "3",
                 "-w", "1", "--device", "host", "--algo", algorithm],
                environment={"GYRE_TRACE_FILE": path, "GYRE_TRANSPORT": transport})
            events = read_trace([path], "measured")
            check_slices(events)
            check_flows(events, 2 if transport == "socket" else 0)
            shape = ["--algo", algorithm, "--coll", "all_reduce", "--ranks", "3"]
            n_calls = check_steps(directory, events, shape, 3)
            assert n_calls == sum(e["name"] == "launch" for e in events) // 3
            check_explained(directory, [path], 3, n_calls)
        # A small buffer loses old events, and says so; the calls that are left add up.
        done = run([bench(directory, "allreduce"), "-g", "2", "-b", "64K", "-e", "64K", "-n", "50",
                    "--device", "host"],
                   environment={"GYRE_TRACE_FILE": path, "GYRE_TRACE_EVENTS": "64"})
        assert "oldest events" in done.stdout + done.stderr, done.stderr
        ranks = [e["args"] for e in read_trace([path], "measured") if e["name"] == "gyre_rank"]
        assert len(ranks) == 2 and all(rank["lost_events"] > 0 for rank in ranks)
        if has_json(directory):
            run([bench(directory, "gyre"), "explain", path])


def case_trace_processes(directory, source):
    """Processes write a file for each rank; hosts with one clock measure an offset of about 0."""
    needs_mpi_build(directory)
    bench_line = [bench(directory, "allreduce"), "-b", "64K", "-e", "64K", "-n", "2", "--device",
                  "host", "--algo", "ring"]
    with tempfile.TemporaryDirectory() as place:
        script = "GYRE_HOSTID=h$OMPI_COMM_WORLD_RANK exec \"$@\""
        mpirun(2, ["sh", "-c", script, "sh"] + bench_line,
               environment={"GYRE_TRACE_FILE": os.path.join(place, "%r.json")})
        paths = [os.path.join(place, f"{rank}.json") for rank in range(2)]
        events = read_trace(paths, "measured")
        shape = ["--algo", "ring", "--coll", "all_reduce", "--ranks", "2", "--hosts", "0,1"]
        n_calls = check_steps(directory, events, shape, 2)
        check_explained(directory, paths, 2, n_calls)
        ranks = {e["pid"]: e["args"] for e in events if e["name"] == "gyre_rank"}
        assert ranks[0]["clock_offset_ns"] == 0 and ranks[0]["clock_error_ns"] == 0
        assert 0 < ranks[1]["clock_error_ns"]
        assert abs(ranks[1]["clock_offset_ns"]) <= ranks[1]["clock_error_ns"], ranks[1]
        done = mpirun(2, bench_line, status=1, environment={"GYRE_TRACE_FILE": os.path.join(place, "one.json")})
        assert "put %r (the rank) into its name" in done.stderr, done.stderr


def case_trace_simulated(directory, source):
    """The simulator's trace has the same steps and tracks as a measured one."""
    with tempfile.TemporaryDirectory() as place:
        measured, simulated = os.path.join(place, "m.json"), os.path.join(place, "s.json")
        run([bench(directory, "allreduce"), "-g", "4", "-b", "1M", "-e", "1M", "-n", "1", "-w", "0",
             "--device", "host", "--algo", "tree"], environment={"GYRE_TRACE_FILE": measured})
        shape = ["--algo", "tree", "--coll", "all_reduce", "--ranks", "4"]
        predict = [bench(directory, "schedule"), "--predict", "--cost", "host"] + shape
        run(predict + ["--bytes", "1M", "--trace", simulated])
        events = read_trace([simulated], "simulated")
        check_slices(events)
        check_flows(events, 0)
        assert check_steps(directory, events, shape, 4) == 1
        tracks = [{(e["pid"], e["tid"], e["args"]["name"]) for e in read_trace([path], kind)
                   if e["name"] in ("process_name", "thread_name")}
                  for path, kind in [(measured, "measured"), (simulated, "simulated")]]
        assert tracks[1] <= tracks[0], tracks[1] - tracks[0]
        # Programs from a file: every rank is shown, also where one rank could stand for all.
        for algorithm in ("ring", "tree"):
            shape = ["--algo", algorithm, "--coll", "all_reduce", "--ranks", "4"]
            programs = os.path.join(place, "mine.gyre")
            write_text(programs, run([bench(directory, "schedule")] + shape).stdout)
            done = run([bench(directory, "schedule"), "--predict", "--cost", "host", "--file",
                        programs, "--bytes", "1M", "--trace", simulated])
            predicted_us = float(done.stdout.split("\n")[3].split()[4])
            events = read_trace([simulated], "simulated")
            check_flows(events, 0)
            assert check_steps(directory, events, shape, 4) == 1
            calls = [e for e in events if e["name"] == "all_reduce"]
            ends = [e["ts"] + e["dur"] - min(c["ts"] for c in events if c["name"] == "launch") for e in calls]
            assert len(calls) == 4 and abs(max(ends) - predicted_us) <= 0.01, (ends, predicted_us)
        done = run(predict + ["--trace", simulated], status=1)
        assert "--trace shows one call" in done.stderr, done.stderr
        if has_json(directory):
            done = run([bench(directory, "gyre"), "explain", measured, simulated])
            assert "# measured minus predicted: tree all_reduce, 1048576 B" in done.stdout


def check_phases(events, n_ranks, names):
    """Every call of every rank has these phases of a fused program, or copies, in this order on each
    of its tracks. Returns the number of calls."""
    tracks = collections.defaultdict(list)
    for event in events:
        if event.get("cat") == "step":
            tracks[event["pid"], event["args"]["call"], event["tid"]].append(event)
    assert {key[0] for key in tracks} == set(range(n_ranks))
    for key, steps in tracks.items():
        steps.sort(key=lambda event: (event["args"]["begin_us"], event["ts"]))
        assert [step["name"] for step in steps] == names, (key, steps)
        # The waits and the phases follow each other, and none is empty of time altogether.
        assert steps[-1]["ts"] + steps[-1]["dur"] > steps[0]["args"]["begin_us"], steps
    return len({key[1] for key in tracks})


def case_trace_gpu(directory, source):
    """Four ranks on one GPU record every step of their programs in order, with a flow for each slot:
    those of the interpreter one by one, in every protocol, and those of fused kernels as phases, but for
    LAMPORT's, which are calls without steps. Replays of a graph are calls, and copies of copy engines are
    steps."""
    if shutil.which("nvidia-smi") is None or subprocess.run(["nvidia-smi", "-L"]).returncode != 0:
        print("there is no GPU here")
        sys.exit(SKIPPED)
    with tempfile.TemporaryDirectory() as place:
        path = os.path.join(place, "trace.json")
        environment = {"GYRE_TRACE_FILE": path, "GYRE_SHARE_GPU": "1",
                       "CUDA_VISIBLE_DEVICES": "0", "CUDA_DEVICE_MAX_CONNECTIONS": "32"}

        def traced(size, *options):
            """The events of a run, without tracks on which slices overlap."""
            run([bench(directory, "allreduce"), "-g", "4", "-b", size, "-e", size, "-n", "3", "-w",
                 "1", "--device", "cuda", *options], environment=environment)
            events = read_trace([path], "measured")
            check_slices(events)
            return events

        for options in (["ring", "--proto", "simple"], ["tree", "--proto", "simple"],
                        ["ring", "--proto", "simple", "-G", "2"], ["ring", "--proto", "ll"],
                        ["ring", "--proto", "ll128"], ["tree", "--proto", "ll"],
                        ["ring", "--proto", "lamport"]):
            events = traced("600K", "--algo", *options)
            check_flows(events, 0, GPU_CLOCK_US)
            shape = ["--algo", options[0], "--coll", "all_reduce", "--ranks", "4"]
            n_calls = check_steps(directory, events, shape, 4, is_gpu=True)
            if "-G" not in options:
                assert n_calls == sum(e["name"] == "launch" for e in events) // 4
            check_explained(directory, [path], 4, n_calls)
        one_shot, two_shot = ["copy", "reduce"], ["copy", "reduce", "copy"]
        for algorithm, protocol, names in [
                ("direct", "lamport", one_shot), ("direct", "ll", one_shot),
                ("direct", "ll128", one_shot), ("twoshot", "lamport", two_shot),
                ("twoshot", "ll128", two_shot), ("twoshot", "simple", two_shot)]:
            events = traced("48K", "--algo", algorithm, "--proto", protocol)
            calls = [e for e in events if e["name"] == "all_reduce"]
            assert len(calls) == sum(e["name"] == "launch" for e in events) > 0
            assert all(e["args"]["algorithm"] == algorithm for e in calls), calls
            if protocol == "lamport":
                assert not any(e.get("cat") == "step" for e in events)
                continue
            check_flows(events, 0, GPU_CLOCK_US)
            n_calls = check_phases(events, 4, names)
            check_explained(directory, [path], 4, n_calls)
        # Copies in windows: the kernel reduces, copy engines gather.
        events = traced("4M", "-R", "2", "--path", "copy_engine")
        assert not any(e["args"]["left_out_launches"] for e in events if e["name"] == "gyre_rank")
        copied = [e for e in events if e.get("cat") == "step" and not e["args"]["received"] and not e["args"]["sent"]]
        n_calls = len({e["args"]["call"] for e in copied})
        assert n_calls > 0 and len(copied) == 2 * 4 * n_calls, (n_calls, len(copied))


def made_step(rank, name, times, received, sent):
    """A step that begins to wait, has data, has credit, and ends at these times."""
    begin, data, ready, end = times
    return {"ph": "X", "cat": "step", "name": name, "pid": rank, "tid": 16, "ts": ready,
            "dur": end - ready, "args": {"call": 0, "begin_us": begin, "data_us": data,
                                         "received": received, "sent": sent}}


def made_trace(start, spent, shares):
    """Rank 1 spends these times on a call; rank 0 sends it one slot. With two workers that have
    threads of their own, the second worker copies all the time."""
    launch, peer, credit, wire, reduce, copy, other = (spent[name] for name in EXPLAINED)
    begin = start + launch
    copied = begin + copy
    sent = copied + peer
    data = sent + wire
    ready = data + credit
    reduced = ready + reduce
    end = reduced + other
    events = [{"ph": "M", "name": "gyre_rank", "pid": rank, "tid": 0, "ts": 0,
               "args": {"rank": rank, "shares_a_thread": shares, "complete_from_us": 0,
                        "lost_events": 0}} for rank in range(2)]
    for rank in range(2):
        args = {"call": 0, "bytes": 4096, "collective": "all_reduce"}
        events.append({"ph": "X", "cat": "call", "name": "launch", "pid": rank, "tid": 0,
                       "ts": start, "dur": launch / 2, "args": args})
        events.append({"ph": "X", "cat": "call", "name": "all_reduce", "pid": rank, "tid": 1,
                       "ts": begin, "dur": end - begin, "args": dict(args, algorithm='made "\u00e9')})
    events.append(made_step(0, "copy", (begin, begin, begin, sent), [], ["x:0>1/0#0"]))
    events.append(made_step(1, "copy", (begin, begin, begin, copied), [], []))
    events.append(made_step(1, "reduce", (copied, data, ready, reduced), ["x:0>1/0#0"], []))
    if not shares:
        events.append(dict(made_step(1, "copy", (begin, begin, begin, end), [], []), tid=17))
    return {"otherData": {"tool": "gyre", "source": "measured"}, "traceEvents": events}


def case_explain(directory, source):
    """explain finds the times from which a trace was made."""
    with tempfile.TemporaryDirectory() as place:
        path = os.path.join(place, "made.json")
        if not has_json(directory):
            write_json(path, made_trace(0, dict.fromkeys(EXPLAINED, 1), True))
            done = run([bench(directory, "gyre"), "explain", path], status=1)
            assert "built without json-c" in done.stderr, done.stderr
            return
        for seed in range(6):
            spent = {name: 3 + (seed * 7 + i * 5) % 11 for i, name in enumerate(EXPLAINED)}
            shares = seed % 2 == 0
            write_json(path, made_trace(1e6 * seed, spent, shares))
            done = run([bench(directory, "gyre"), "explain", "--json", "-", path])
            explained = json.loads(done.stdout)["measured"]
            assert [group["algorithm"] for group in explained["groups"]] == ['made "\u00e9'], explained
            call = [call for call in explained["calls"] if call["rank"] == 1][0]
            total = sum(spent.values())
            assert abs(call["time_us"] - total) <= 0.01, (call, spent)
            for name in EXPLAINED:
                expected = spent[name]
                if not shares and name != "launch":  # the mean with the worker that only copies
                    expected = expected / 2 + (name == "copy") * (total - spent["launch"]) / 2
                assert abs(call[name + "_us"] - expected) <= 0.05 * expected, (name, call, spent)
        # Two files whose ranks have the same process numbers, of different communicators.
        paths = [os.path.join(place, f"{i}.json") for i in range(2)]
        for i, name in enumerate(paths):
            trace = made_trace(0, dict.fromkeys(EXPLAINED, 2 + i), True)
            for event in trace["traceEvents"]:
                if event["name"] == "gyre_rank":
                    event["args"] |= {"communicator": f"c{i}", "left_out_launches": 3}
            write_json(name, trace)
        done = run([bench(directory, "gyre"), "explain", "--json", "-"] + paths)
        calls = json.loads(done.stdout)["measured"]["calls"]
        assert sorted(call["launch_us"] for call in calls if call["rank"] == 1) == [2, 3], calls
        done = run([bench(directory, "gyre"), "explain"] + paths)
        assert "# not recorded: 12 launches of a rank" in done.stdout, done.stdout
        for text, message in [("{", "is not JSON"), ("{}", "is not a trace that gyre wrote")]:
            write_text(path, text)
            done = run([bench(directory, "gyre"), "explain", path], status=1)
            assert message in done.stderr, done.stderr
        command = [bench(directory, "gyre"), "explain", path]
        for rank in (-5, 16384, 2**31 - 1):
            trace = made_trace(0, dict.fromkeys(EXPLAINED, 1), True)
            for event in trace["traceEvents"]:
                if event["name"] == "gyre_rank":
                    event["args"]["rank"] = rank
            write_json(path, trace)
            done = run(command, status=1)
            assert f"rank {rank} is not one of" in done.stderr, done.stderr
        write_json(path, made_trace(0, dict.fromkeys(EXPLAINED, 1), True))
        done = run([*command, path], status=1)
        assert "stands in an earlier file" in done.stderr, done.stderr
        trace["traceEvents"] = [e for e in trace["traceEvents"] if e.get("cat") != "step"]
        for event in trace["traceEvents"]:
            event.get("args", {}).pop("bytes", None)
        for event in trace["traceEvents"]:
            if event["name"] == "gyre_rank":
                event["args"]["rank"] = 0
        write_json(path, trace)
        done = run(command, status=1)
        assert "no size in bytes" in done.stderr, done.stderr
        trace["traceEvents"] = [e for e in trace["traceEvents"] if e.get("cat") != "call"]
        write_json(path, trace)
        done = run(command, status=1)
        assert "no call with steps was recorded" in done.stderr, done.stderr
        run([bench(directory, "gyre"), "explain"], status=2)
