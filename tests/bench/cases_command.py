"""`gyre`, the command in front of the other programs."""

import json
import os
import re
import subprocess
import tempfile

from running import bench, clean_environment, read_json, read_text, run, write_text


def start(directory, *arguments, status=0, **variables):
    environment = {**clean_environment(), **variables}
    return run([bench(directory, "gyre"), *arguments], status=status, environment=environment)


def table_of_commands(source):
    rows = re.findall(r'^    \{\.name = "([\w-]+)",', read_text(os.path.join(source, "bench", "gyre.c")), re.M)
    assert "bench" in rows and "env" in rows, rows
    return rows


def names_of_variables(source):
    return re.findall(r"^X\((\w+),", read_text(os.path.join(source, "core", "foundation", "base", "param_table.h")), re.M)


TWO_GPUS = """<system version="1"><cpu numaid="0" arch="x86_64" vendor="GenuineIntel" familyid="6" modelid="85">
{}{}</cpu></system>"""
GPU = """<pci busid="{0}" class="0x030200" link_speed="16.0 GT/s PCIe" link_width="16"><gpu dev="{1}" sm="90">
<nvlink target="{2}" count="6" tclass="0x030200"/></gpu></pci>"""


def check_topo_json(directory, folder):
    """topo --json has what the text shows: nodes, both directions of a link, paths."""
    xml, out = os.path.join(folder, "two.xml"), os.path.join(folder, "two.json")
    first, second = "0000:18:00.0", "0000:19:00.0"
    write_text(xml, TWO_GPUS.format(GPU.format(first, 0, second), GPU.format(second, 1, first)))
    done = subprocess.run([bench(directory, "topo"), "--xml", xml, "--json", out], capture_output=True, text=True,
                          env=clean_environment(), check=False)
    if "libxml2" in done.stderr or "json-c" in done.stderr:
        return  # this build cannot read or write the file, and says so
    assert done.returncode == 0, done
    topo = read_json(out)
    gpus = [node["index"] for node in topo["nodes"] if node["kind"] == "GPU"]
    assert [topo["nodes"][gpu]["name"] for gpu in gpus] == ["GPU0", "GPU1"], topo
    assert all(node["parent"] < node["index"] for node in topo["nodes"]), topo
    both = [tuple(gpus), tuple(reversed(gpus))]
    assert [(link["from"], link["to"]) for link in topo["links"]] == both, topo
    assert all(link["kind"] == "NVLink" and link["lanes"] == 6 for link in topo["links"]), topo
    # The whole way between the GPUs is that NVLink.
    assert [(path["from"], path["to"], path["level"], path["gbytes_per_s"]) for path in topo["paths"]] == \
        [(*pair, "NVL", topo["links"][0]["gbytes_per_s"]) for pair in both], topo
    assert f"topology hash {topo['hash']}" in done.stdout, done


def check_file_choices(directory):
    """A file with a built-in algorithm's programs is run as that algorithm: way, kernel and sizes are the same."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "own.gyre")
        for name, ranks in (("ring", "4"), ("twoshot", "2"), ("twoshot", "8"), ("direct", "4"), ("tree", "4")):
            done = subprocess.run([os.path.join(directory, "schedule"), "--algo", name, "--coll", "all_reduce", "--ranks",
                                   ranks], capture_output=True, text=True, check=True)
            write_text(path, done.stdout)
            for size in ("1K", "64K", "1M", "16M", "1G"):
                words = ["explain-choice", size, "--ranks", ranks, "--machine", "h200", "--json"]
                own, given = (json.loads(start(directory, *words, **{key: value}).stdout)
                              for key, value in (("GYRE_ALGO", name), ("GYRE_ALGO_FILE", path)))
                assert given.pop("built_in") == name and given["kernel"], given
                assert {**given, "won": own["won"], "lost": own["lost"]} == own, (given, own)
        shown = start(directory, *words[:-1], GYRE_ALGO_FILE=path).stdout
        assert f"by GYRE_ALGO_FILE {path}: run as the built-in tree" in shown, shown
        write_text(path, done.stdout.replace("depth 1", "depth 2"))
        shown = start(directory, *words[:-1], GYRE_ALGO_FILE=path).stdout
        assert "programs of no built-in algorithm" in shown and "the steps are interpreted" in shown, shown


def case_command(directory, source):
    # Every command is listed, and its help begins with two examples of that command.
    listed = start(directory, "--help").stdout
    for name in table_of_commands(source):
        assert re.search(rf"^  {name} ", listed, re.M), f"{name} is not listed"
        lines = start(directory, name, "--help").stdout.split("\n")
        assert lines[0] == "examples:", lines[:3]
        assert all("gyre " in line for line in lines[1:3]) and lines[3] == "", lines[:4]

    # A row wins, and the rows before it say why they do not: the sizes are those of host.rows.
    known = json.loads(start(directory, "explain-choice", "8193", "--ranks", "3", "--json").stdout)
    assert known["algorithm"] == "twoshot" and known["won"]["file"] == "host.rows", known
    assert known["won"]["row"] == "way all_reduce block<=1M -> twoshot simple", known
    assert known["channels_row"]["row"] == "channels * -> 1", known
    assert known["tile_row"]["row"] == "tile * -> slot", known
    assert [lost["reason"] for lost in known["lost"]] == [
        "not proxied", "ranks 3 > 2", "block 8193 > 8192", "not proxied", "not chain"], known
    shown = start(directory, "explain-choice", "1M", "--machine", "h200").stdout
    assert "h200.rows" in shown and "bytes 1048576 > 163840" in shown, shown
    assert "kernel lamport sum, 64 blocks of 288 threads" in shown, shown
    known = json.loads(start(directory, "explain-choice", "8", "--ranks", "8", "--library", "nccl", "--json").stdout)
    assert known["nccl"]["algorithm"] == "ring" and known["nccl"]["protocol"] == "ll", known
    assert abs(known["nccl"]["estimated_us"] - 15) < 0.01, known  # 6.6 + 14 hops of 0.6 us (its tuning.cc)
    shown = start(directory, "explain-choice", "64M", "--ranks", "8", "--library", "nccl").stdout
    assert "NCCL 2.30: nvls simple, 16 channels" in shown, shown  # from about 2 MiB on (stas00/ml-engineering)
    start(directory, "explain-choice", "8", "--library", "mpi", status=1)
    shown = start(directory, "explain-choice", "64K", "--machine", "gpu_host_memory", "--ranks", "2").stdout
    assert "the steps are interpreted" in shown, shown
    known = json.loads(start(directory, "explain-choice", "1M", "--ranks", "8", "--hosts", "2", "--json").stdout)
    assert known["won"] is None and known["predicted_us"] > 0 and known["hosts"] == 2, known
    assert known["protocol_between_hosts"] == "simple", known
    # A host that has lost half of its bandwidth: calls take longer, and some another way.
    shown = start(directory, "explain-choice", "256K", "--ranks", "8", "--hosts", "4", "--lost", "50").stdout
    assert "the NICs with 50 % of their rate" in shown and ": ring simple" in shown, shown
    with tempfile.TemporaryDirectory() as folder:
        rows = os.path.join(folder, "mine.rows")
        write_text(rows, "measured here\nway all_reduce hosts=2 -> tree simple\n")
        known = json.loads(start(directory, "explain-choice", "1M", "--ranks", "8", "--hosts", "2", "--json",
                                 GYRE_TUNING_FILE=rows).stdout)
    assert known["algorithm"] == "tree" and known["won"]["file"] == "mine.rows", known
    check_file_choices(directory)
    for words in (["1X"], ["1M", "--coll", "all_sum"], ["1M", "--ranks", "0"], [],
                  ["1M", "--hosts", "3"], ["1M", "2M"]):
        start(directory, "explain-choice", *words, status=2)

    # Unknown names are errors that name the nearest one.
    done = start(directory, "tuen", status=2)
    assert "did you mean tune?" in done.stderr, done.stderr
    done = start(directory, "allreduce", "-g", "2", status=2)
    assert "did you mean gyre bench allreduce?" in done.stderr, done.stderr
    done = start(directory, "bench", "allredcue", status=2)
    assert "did you mean allreduce?" in done.stderr, done.stderr

    # The command takes the place of the process: output, options and exit status are the program's.
    small = ["-g", "2", "--device", "host", "-b", "8", "-e", "8", "-n", "1", "-w", "1"]
    done = start(directory, "bench", "allreduce", *small)
    assert "# Avg bus bandwidth" in done.stdout, done.stdout
    for tool in ("topo", "limits"):
        done = start(directory, tool, "--colour", status=2)
        assert f"{tool}: --colour: no such option, or its value is missing" in done.stderr, done.stderr
    for name in ("env", "version", "nccl-path"):
        done = start(directory, name, "colour", status=2)
        assert done.stderr.startswith(f'gyre {name}: unexpected argument "colour"\n'), done.stderr

    # Help names the program as it was called, and no path that is missing once gyre is installed.
    for words in ("topo", "limits", "schedule", "draw", "bottleneck", "tune", "bench allreduce"):
        shown = start(directory, *words.split(), "--help").stdout
        assert f"usage: gyre {words} " in shown and "build/bench" not in shown, shown
    called = bench(directory, "schedule")
    assert f"usage: {called} --algo" in run([called, "--help"]).stdout
    assert "build/bench" not in start(directory, "env").stdout

    with tempfile.TemporaryDirectory() as folder:
        check_topo_json(directory, folder)

    # Tiles are named as other sizes are.
    predict = ["schedule", "--predict", "--algo", "ring", "--coll", "all_reduce", "--ranks", "4", "--bytes", "1M"]
    assert start(directory, *predict, "--tile", "64K").stdout == start(directory, *predict, "--tile", "65536").stdout
    for tile in ("0", "2G", "64Q", ""):
        done = start(directory, *predict, "--tile", tile, status=2)
        assert done.returncode == 2 and f"--tile {tile}: expected a size" in done.stderr, done

    # A shape that does not exist is wrong usage, whoever is asked for it.
    for words in ("--algo pigeon --ranks 4", "--algo ring --hosts 0x8", "--algo ring"):
        for tool in (["schedule"], ["draw", "--svg", "-"]):
            done = start(directory, *tool, "--coll", "all_reduce", *words.split(), status=2)
            assert done.returncode == 2 and done.stderr.startswith(f"{tool[0]}: --"), done

    # It is found through a link, from any folder.
    link = os.path.join(os.getcwd(), f"gyre_link_{os.getpid()}")
    os.symlink(os.path.realpath(bench(directory, "gyre")), link)
    try:
        done = subprocess.run([link, "schedule", "--algo", "ring", "--coll", "all_reduce", "--ranks",
                               "2", "--verify"], capture_output=True, text=True, cwd="/")
    finally:
        os.unlink(link)
    assert done.returncode == 0, done.stderr

    done = start(directory, "--version")
    assert re.match(r"gyre \d+\.\d+\.\d+, commit \S+\n", done.stdout), done.stdout
    assert done.stdout == start(directory, "version").stdout
    check_env(directory, source)


def check_env(directory, source):
    lines = start(directory, "env").stdout.split("\n")
    for name in names_of_variables(source):
        rows = [line for line in lines if line.split() and line.split()[0] == f"GYRE_{name}"]
        assert len(rows) == 1, f"{name}: {rows}"

    # The value in force, and the variable that it comes from: GYRE_X wins over NCCL_X.
    done = start(directory, "env", "--set", NCCL_SOCKET_IFNAME="eth1", GYRE_IB_HCA="mlx5_0", NCCL_IB_HCA="mlx5_1")
    rows = [line.split()[:3] for line in done.stdout.split("\n")[1:] if line]
    assert sorted(rows) == [["GYRE_IB_HCA", "mlx5_0", "GYRE_IB_HCA"],
                            ["GYRE_SOCKET_IFNAME", "eth1", "NCCL_SOCKET_IFNAME"]], rows

    # A wrong value or name is an error and hides no other variable; NCCL's are only mentioned.
    done = start(directory, "env", "--set", status=1, GYRE_IB_TC="999", GYRE_IB_HCA="mlx5_0")
    assert "GYRE_IB_TC=999 is not legal" in done.stdout and "mlx5_0" in done.stdout, done.stdout
    done = start(directory, "env", status=1, GYRE_SOCKET_IFNAM="eth0")
    assert "did you mean GYRE_SOCKET_IFNAME?" in done.stdout, done.stdout
    done = start(directory, "env", NCCL_IB_HCAS="mlx5_0", NCCL_NVLS_ENABLE="0")
    assert "NCCL_IB_HCAS: unknown; did you mean NCCL_IB_HCA?" in done.stdout, done.stdout
    assert "NCCL_NVLS_ENABLE: gyre has no such variable" in done.stdout, done.stdout
