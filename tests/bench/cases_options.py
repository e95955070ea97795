"""Options and files that a bench refuses, and the words in which it does."""

import json
import os
import subprocess
import tempfile

from report_schema import has_json
from running import bench, run


def case_options(directory, _):
    refused = [
        (["-b", "12X"], "is not a size"),
        (["-b", "2M", "-e", "1M"], "larger than"),
        (["-b", "64M"], "-b 67108864 is larger than -e 33554432; give both"),
        (["-i", "0"], "never reaches"),
        (["--no-such-option"], "no such option"),
        (["-n"], "needs a value"),
        (["-n", "0"], "is not a number from 1"),
        (["-d", "float3"], "is none of"),
        (["-o", "xor"], "is none of"),
        (["stray"], "take options only"),
        (["-g", "2", "-r", "2", "--device", "host"], "the ranks are 0 to 1"),
        (["--algo", "nonsense", "--device", "host"], "nonsense"),
        (["--compare", "gloo"], "is none of"),
        (["-G", "1", "--device", "host"], "no graphs"),
        (["-f", "1.5"], "is not a number from 0"),
        (["-f", "2K"], "is not a number from 0"),
        (["-f", "1", "-i", "0"], "never reaches"),
        (["--from", "."], "--from and --output do not go with allreduce"),
        (["--output", "x"], "--from and --output do not go with allreduce"),
        (["--nccl-lib", "x"], "--nccl-lib needs --compare nccl"),
        (["--nccl-algo", "Ring", "--compare", "mpi"], "--nccl-algo needs --compare nccl"),
        (["--compare", "old"], "--compare old and --old-lib need each other"),
        (["--old-lib", "x"], "--compare old and --old-lib need each other"),
        (["--compare", "old", "--old-lib", "x", "--algo", "ring"], "does not go with --algo"),
        (["--nccl-proto", "LL"], "--nccl-proto needs --compare nccl"),
        (["--channels", "2"], "--channels needs --sweep 1; for one number of channels set GYRE_MIN_NCHANNELS"),
        (["--sweep", "1", "--channels", "0"], "\"0\" is not a number from 1 to 64"),
        (["--sweep", "1", "--channels", "1,65"], "\"65\" is not a number from 1 to 64"),
        (["--sweep", "1", "--channels", "1x"], "\"1x\" is not a number from 1 to 64"),
        (["--sweep", "1", "--channels", "1,,2"], "a word of the list is empty"),
        (["--sweep", "1", "--algo", "ring,"], "a word of the list is empty"),
        (["--predict", "1", "-J", "x"], "--predict 1 does not go with"),
        (["-J", "x", "--csv", "x"], "are the same file"),
        (["-J", "-"], "--json -: give the path"),
        (["--csv", "-"], "--csv -: give the path"),
        (["--nccl-mode", "symmetric"], "is none of"),
        (["--nccl-mode", "zero-sm"], "needs --compare nccl"),
        (["--compare-algos", "ring,nope"], "\"nope\" is neither an algorithm"),
        (["--compare-algos", "ring,tree,ring"], "\"ring\" is named twice"),
        (["--compare-algos", "ring@simple,ring@bogus"], "ring@bogus: --compare-algos: \"bogus\" is none of"),
        (["--host-time", "1", "-z", "1"], "--host-time does not go with -G"),
        (["--nccl-mode", "window"], "needs --compare nccl"),
        (["-J", "/nonexistent/x.json", "-b", "8", "-e", "8", "--device", "host"], "-"),
        (["--csv", "/nonexistent/x.csv", "-b", "8", "-e", "8", "--device", "host"], "/nonexistent"),
    ]
    for options, words in refused:
        # What the command line alone shows to be wrong ends with 2, what the run shows with 1.
        is_found_later = "-r" in options or "/nonexistent/x" in "".join(options)
        done = run([bench(directory, "allreduce")] + options, status=1 if is_found_later else 2)
        assert words in done.stderr, (options, done.stderr)
    for options in (["-J", "x"], ["--csv", "x"], ["--predict", "1"], ["--compare", "mpi"]):
        done = run([bench(directory, "tune")] + options, status=2)
        assert "tune does not go with" in done.stderr, (options, done.stderr)
    done = run([bench(directory, "sendrecv"), "--algo", "ring"], status=2)
    assert "--algo ring: sends and receives have one algorithm" in done.stderr, done.stderr
    done = run([bench(directory, "sendrecv"), "--proto", "simple"], status=2)
    assert "name them: --proto send_recv:simple" in done.stderr, done.stderr
    run([bench(directory, "sendrecv"), "--device", "host", "-g", "2", "-b", "8", "-e", "8", "--proto", "send_recv:simple"])
    variables = run([bench(directory, "allreduce"), "--help-vars"]).stdout
    for name in ("SOCKET_IFNAME", "IB_HCA", "ALGO", "BOOTSTRAP_TIMEOUT"):
        assert name in variables, variables
    help_text = run([bench(directory, "allreduce"), "--help"]).stdout
    for option in "begtnwmcodrzifGuJ":
        assert f"-{option}," in help_text, option


def case_options_of_nccl_tests(directory, _):
    """Command lines of nccl-tests 2.19 run; an option without effect says so once, on stderr."""
    small = ["--device", "host", "-g", "2", "-b", "1K", "-e", "1K", "-n", "1", "-w", "0"]
    silent = ["-o max", "-o MulSum", "-o all", "-d float16", "-d BF16", "-d fp8_e4m3", "-r -1", "-r all", "-z 1", "-I 0",
              "-M 0", "-x 0", "-p 1", "-n 0x2", "-b 1KB -e 2kib -f 2", "-b 8B -e 16b -f 2", "-b 0.5M -e 1MB -i 512KiB",
              "--minbytes 1K --maxbytes 2K --stepfactor 2 --iters 2 --warmup_iters 1 --agg_iters 1 --check 1 --op sum",
              "--datatype float --root 0 --parallel_init 1 --blocking 0 --report_cputime 0 --average 3 --cudagraph 0",
              "--local_register 0 --stream_null 0 --timeout 0 --report_timestamps 0 --unalign 0 --run_cycles 1",
              "--memory_report 0 --memory 0 --cta_policy 0 --device_implementation 0 --device_cta_count 0"]
    told = [("-I 1", "-I 1 has no effect"), ("-I 1 -K 5", "-K 5 has no effect"), ("-M 1", "-M 1 has no effect"),
            ("-D 1 -R 0", "-D 1 has no effect"), ("-V 16", "-V 16 has no effect"), ("-x 2", "-x 2 has no effect"),
            ("-z 2", "-z 2 is taken as -z 1"), ("-z 3", "-z 3 is taken as -z 1")]
    environment = {"GYRE_DEBUG": "NONE"}
    for options in silent:
        done = run([bench(directory, "allreduce")] + small + options.split(), environment=environment)
        assert done.stderr == "" and " OK" in done.stdout, (options, done.stderr)
    for options, words in told:
        done = run([bench(directory, "allreduce")] + small + options.split(), environment=environment)
        assert words in done.stderr and done.stderr.count("\n") == options.count("-") - options.count("-R"), \
            (options, done.stderr)
        assert "no effect" not in done.stdout and " OK" in done.stdout, (options, done.stdout)
    for options in ("-b 1KX", "-b K", "-b 1iB", "-b 1KBB", "-z 4", "-x 3", "-I -1", "-o mulsum --compare mpi"):
        run([bench(directory, "allreduce")] + small + options.split(), status=2)
    for name in ("allreduce", "reduce", "reducescatter"):
        done = run([bench(directory, name)] + small + ["-o", "mulsum", "-d", "all"], environment=environment)
        rows = [line.split() for line in done.stdout.splitlines() if line and line[0] == " "]
        assert len(rows) == 12 and {row[3] for row in rows} == {"mulsum"}, done.stdout
        assert {row[8] for row in rows} == {"0"} and {row[12] for row in rows} == {"0"}, done.stdout
    if has_json(directory):
        check_json_on_stdout([bench(directory, "allreduce")] + small + ["-J", "/dev/stdout"])


def check_json_on_stdout(command):
    """The report follows the table, in a pipe and in a file that the shell holds open."""
    texts = [run(command).stdout]
    with tempfile.TemporaryFile("w+") as file:
        subprocess.run(command, stdout=file, check=True, timeout=60)
        file.seek(0)
        texts.append(file.read())
    for text in texts:
        start = text.index("\n{") + 1
        report, end = json.JSONDecoder().raw_decode(text[start:])
        table = text[:start] + text[start + end:]
        assert report["summary"]["wrong"] == 0 and "# Avg bus bandwidth" in table, text


def case_causes(directory, _):
    """A failure is one line that names what the user wrote, and nothing after it says OK."""
    one = ["-g", "2", "--device", "host", "-b", "8", "-e", "8"]
    for options, status, words in [(["--algo", "rign"], 2, "--algo: \"rign\" is none of"),
                                   (["--proto", "ll"], 1, "no protocol that --proto allows"),
                                   (["--path", "placed"], 1, "--path wants the results")]:
        done = run([bench(directory, "allreduce")] + one + options, status=status)
        assert words in done.stderr and "GYRE_" not in done.stderr, done.stderr
        assert " OK" not in done.stdout, done.stdout
        assert "Out of bounds" not in done.stdout or "# Ended by an error" in done.stdout, done
    done = run([bench(directory, "allreduce")] + one, status=1, environment={"GYRE_PROTO": "ll"})
    assert "no protocol that GYRE_PROTO allows" in done.stderr, done.stderr
    for name, variables, words in [("allreduce", {"NCCL_PROTO": "LL"}, "NCCL_PROTO is ignored for all_reduce"),
                                   ("allgather", {"NCCL_ALGO": "Tree"}, "NCCL_ALGO is ignored for all_gather")]:
        done = run([bench(directory, name)] + one, environment=variables)
        assert words in done.stderr and " OK" in done.stdout, done.stderr
    topo = bench(directory, "topo")
    for command, variables in [([topo, "--xml", "/etc/passwd"], {}),
                               ([bench(directory, "allreduce"), "-J", "/nonexistent/x"] + one, {}),
                               ([bench(directory, "allreduce")] + one,
                                {"GYRE_TOPO_FILE": "/etc/passwd"})]:
        done = run(command, status=1, environment=variables)
        assert done.stderr and "\n\n" not in done.stderr, done.stderr


def case_files(directory, _):
    """Every program refuses a file that never ends, at once."""
    two = ["-g", "2", "--device", "host", "-b", "8", "-e", "8"]
    with tempfile.TemporaryDirectory() as work:
        pipe = os.path.join(work, "pipe.json")
        os.mkfifo(pipe)
        for path in (pipe, "/dev/zero"):
            commands = [(["schedule", "--file", path], {}), (["topo", "--xml", path], {}),
                        (["allreduce"] + two, {"GYRE_TOPO_FILE": path}),
                        (["allreduce"] + two, {"GYRE_TUNING_FILE": path}),
                        (["schedule", "--predict", "--coll", "all_reduce", "--ranks", "2",
                          "--cost", path], {})]
            if has_json(directory):
                commands.append((["tune", "--from", work], {}))
            for command, variables in commands:
                done = run([bench(directory, command[0])] + command[1:], status=1, timeout=20,
                           environment=variables)
                assert "not a regular file" in done.stderr or "libxml2" in done.stderr, \
                    (command, done.stderr)
        program = run([bench(directory, "schedule"), "--algo", "ring", "--coll", "all_reduce",
                       "--ranks", "2"]).stdout
        done = run([bench(directory, "schedule"), "--file", "-"], input=program)
        assert done.stdout == program, done.stdout
