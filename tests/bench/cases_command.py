"""`gyre`, the command in front of the other programs."""

import os
import re
import subprocess

from running import bench, clean_environment, run


def start(directory, *arguments, status=0, **variables):
    environment = {**clean_environment(), **variables}
    return run([bench(directory, "gyre"), *arguments], status=status, environment=environment)


def table_of_commands(source):
    with open(os.path.join(source, "bench", "command", "command_table.c"), encoding="utf-8") as file:
        rows = re.findall(r'^    \{"([\w-]+)",', file.read(), re.M)
    assert "bench" in rows and "env" in rows, rows
    return rows


def names_of_variables(source):
    with open(os.path.join(source, "core", "base", "param_table.h"), encoding="utf-8") as file:
        return re.findall(r"^X\((\w+),", file.read(), re.M)


def case_command(directory, source):
    # Every command is listed, and its help begins with two examples of that command.
    listed = start(directory, "--help").stdout
    for name in table_of_commands(source):
        assert re.search(rf"^  {name} ", listed, re.M), f"{name} is not listed"
        lines = start(directory, name, "--help").stdout.split("\n")
        assert lines[0] == "examples:", lines[:3]
        assert all("gyre " in line for line in lines[1:3]) and lines[3] == "", lines[:4]

    # Unknown names are errors that name the nearest one.
    done = start(directory, "tuen", status=2)
    assert "did you mean tune?" in done.stderr, done.stderr
    done = start(directory, "bench", "allredcue", status=2)
    assert "did you mean allreduce?" in done.stderr, done.stderr

    # The command takes the place of the process: output, options and exit status are the program's.
    small = ["-g", "2", "--device", "host", "-b", "8", "-e", "8", "-n", "1", "-w", "1"]
    done = start(directory, "bench", "allreduce", *small)
    assert "# Avg bus bandwidth" in done.stdout, done.stdout
    start(directory, "topo", "--no-such-option", status=2)

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
    done = start(directory, "env", "--set", NCCL_SOCKET_IFNAME="eth1", GYRE_IB_HCA="mlx5_0",
                 NCCL_IB_HCA="mlx5_1")
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
