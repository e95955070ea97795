#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests of `gyre validate`: tables, machine files, the error from values worked out by hand, the fit,
the summary of a sample, and the command itself.

    tests/published/published.py CASE BUILD_FOLDER SOURCE_FOLDER"""
import math
import os
import shutil
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.realpath(__file__)), "../support"))
from files import read_csv, read_json, write_text

NAMES = ("machine gpu gpus_per_host hosts nic_per_host nic_gbit_s net collective library library_version "
         "algorithm_or_proto dtype bytes time_us busbw_gb_s graph trap source").split()
ROW = ["8x H200-SXM NVSwitch host", "H200-SXM-141GB", "2", "1", "0", "", "NVLink", "all_reduce", "NCCL", "2.29.2",
       "default", "half", "4096", "6.52", "0.6", "no", "", "test"]


def near(value, expected, part=1e-6):
    assert abs(value - expected) <= part * abs(expected), (value, expected)


def row_text(**changed):
    row = dict(zip(NAMES, ROW)) | {key: str(value) for key, value in changed.items()}
    return ",".join(row[name] for name in NAMES)


def write(folder, name, *lines):
    path = os.path.join(folder, name)
    write_text(path, "\n".join(lines) + "\n")
    return path


def refused(call, *words):
    from machines import MachineError
    from scores import TableError
    try:
        call()
    except (TableError, MachineError) as error:
        assert all(word in str(error) for word in words), error
        return
    raise AssertionError(f"nothing was refused, expected {words}")


def case_tables(build, source):
    """Rows are read as numbers; what is wrong is refused with its line; a row finds its machine by name or by GPU."""
    from machines import find_machine, read_machine, read_machines
    from scores import read_table
    folder = os.path.join(source, "algorithms", "simulate", "machines")
    with tempfile.TemporaryDirectory() as place:
        row, = read_table(write(place, "a.csv", ",".join(NAMES), row_text()))
        assert (row["ranks"], row["bytes"], row["time_us"], row["nic_gbit_s"]) == (2, 4096, 6.52, 0.0), row
        refused(lambda: read_table(write(place, "b.csv", ",".join(NAMES), row_text(), row_text(bytes="x"))), "line 3")
        refused(lambda: read_table(write(place, "c.csv", ",".join(NAMES), row_text(time_us="0"))), "above 0")
        refused(lambda: read_table(write(place, "d.csv", "machine,bytes", "a,1")), "no column gpu")
        refused(lambda: read_machine(write(place, "e.machine", "name x", "speed 3"), folder), "line 2", "speed")
        refused(lambda: read_machine(write(place, "f.machine", "launch_ns = fast"), folder), "line 1", "fast")
        mine = write(place, "g.machine", "name Our L40S", "library nccl", "like h200", "launch_ns = 1   # ours")
        machines = read_machines(folder, [mine])
    found = {text: find_machine(machines, row | {"machine": text, "gpu": gpu}) for text, gpu in (
        ("8x H200-SXM NVSwitch host", ""), ("somebody's host", "H100-SXM5-80GB"), ("Our L40S host", "L40S"))}
    assert [(machine.short, how) for machine, how in found.values()] == [("h200", "named"), ("h100", "class"),
                                                                        ("g", "named")], found
    ours = found["Our L40S host"][0].constants
    assert ours["launch_ns"] == 1 and ours["host_egress_bytes_per_ns"] == 370.8, ours
    refused(lambda: find_machine(machines, row | {"machine": "a", "gpu": "L40S"}), "L40S", "--machine FILE")
    for machine in machines:
        assert len(machine.fits) <= 3, f"{machine.short} is fitted on more than three rows"


def case_errors(build, source):
    """|ln(predicted / measured)|, every series of equal weight: by hand, two series of errors ln 2, ln 2, ln 4 and ln 1."""
    from scores import bus_factor, error_of, line_rate, set_floors, summary
    from machines import read_machine
    near(error_of(20, 10), math.log(2))
    near(error_of(10, 20), math.log(2))
    scored = [{"series": "a", "error": math.log(2)}, {"series": "a", "error": math.log(2)},
              {"series": "a", "error": math.log(4)}, {"series": "b", "error": 0.0}]
    mean, median, p90, n_rows, n_series = summary(scored)
    near(mean, 2 ** (4 / 6) - 1)  # series a has 4/3 ln 2 on average, b has 0
    assert (median, n_rows, n_series) == (0.0, 4, 2) and summary([]) is None
    near(p90, 3)
    falling = [{"series": "a", "row": {"bytes": 2 ** i, "time_us": us, "trap": ""}} for i, us in enumerate((4, 10, 8, 20))]
    set_floors(falling)  # 10 and 8 become their geometric mean
    for score, floor in zip(falling, (0, math.log(10 / 8) / 2, math.log(10 / 8) / 2, 0)):
        assert abs(score["floor"] - floor) < 1e-12, falling
    near(bus_factor({"collective": "all_reduce", "ranks": 8}), 1.75)
    near(bus_factor({"collective": "all_gather", "ranks": 8}), 0.875)
    machine = read_machine(os.path.join(source, "algorithms", "simulate", "machines", "h100.machine"),
                           os.path.join(source, "algorithms", "simulate", "machines"))
    row = {"collective": "alltoall", "hosts": 2, "gpus_per_host": 8, "ranks": 16, "nic_per_host": 8}
    near(line_rate(machine, row), 8 * 48.6 * 15 / 8 / 8)
    near(line_rate(machine, row | {"hosts": 1}), 370.8)


def case_rounds(build, source):
    """MPI's rounds against closed forms: 4 ranks, hop 1 us, 1 GB/s, 2 GB/s of adding."""
    from rounds import load_of, predict_us
    constants = {"simple_network_hop_ns": 1000, "nic_bytes_per_ns": 1.0, "worker_read_bytes_per_ns": 2.0}
    near(predict_us("all_gather", "ring_ompi", 4, 4000, constants)[0], 3 * (1 + 1))
    near(predict_us("all_reduce", "rabenseifner_over", 4, 4000, constants)[0], 4 * 1 + 2 * 3 + 3 / 2)
    near(predict_us("all_reduce", "recursive_doubling", 4, 4000, constants)[0], 2 * (1 + 4 + 2))
    near(predict_us("all_gather", "ring_ompi", 4, 40000, constants)[0], 3 * (3 + 10))  # 10 kB: the sender asks first
    near(predict_us("gather", "BINE-BINOMIAL-UTOFU-0-2", 4, 4000, constants)[0], 2 * 1 + 3 / 2)
    assert predict_us("alltoall", "default-blacc3d", 8, 4000, constants) is None
    assert [load_of(step, (4, 8)) for step in (None, 0, 1, 2, 3, 4)] == [1, 1, 2, 2, 1, 1]


def planted(folder, **changed):
    """A copy of the machines whose table of calibration has one changed or added row."""
    shutil.copytree(os.path.join(folder, "machines"), place := tempfile.mkdtemp(), dirs_exist_ok=True)
    path = os.path.join(place, "calibrate.csv")
    rows = read_csv(path)
    for row in rows:
        if row["bytes"] == "4096" and row["collective"] == "all_gather":
            row |= changed
    write(place, "calibrate.csv", ",".join(NAMES), *(",".join(f'"{row[name]}"' for name in NAMES) for row in rows))
    return place


def case_fit(build, source):
    """The fit reproduces the constants in the files and the rows that it is fitted to, follows a changed row of the table
    of calibration, and does not know of other tables."""
    import scores as published
    from machines import read_machine
    tools = os.path.join(build, "bench")
    simulator = published.Simulator(tools)
    table = published.read_table(os.path.join(tools, "machines", "calibrate.csv"))
    machine = read_machine(os.path.join(tools, "machines", "h200.machine"), os.path.join(tools, "machines"))
    values = published.fit(machine, table, simulator)
    for key, value in values.items():
        near(value, machine.constants[key], 0.02)
    for row in published.rows_of_fits(machine, table).values():
        near(float(simulator.ask([published.query_of(machine, row, values)])[0]["time_us"]), row["time_us"], 0.01)
    place = planted(tools, time_us="7.38")  # 2 us more
    try:
        moved = published.fit(machine, published.read_table(os.path.join(place, "calibrate.csv")), simulator)
        near(moved["launch_ns"] - values["launch_ns"], 2000, 0.02)
    finally:
        shutil.rmtree(place)
    near(published.fit(machine, table + [row | {"time_us": 1e6, "bytes": 64} for row in table], simulator)["launch_ns"],
         values["launch_ns"], 1e-6)
    refused(lambda: published.fit(machine, [], simulator), "h200.machine", "launch_ns")


def case_command(build, source):
    """gyre validate on a small table: a trap apart, an unknown machine in words, the CSV; --expect with its bar."""
    gyre = os.path.join(build, "bench", "gyre")

    def run(*words, status=0):
        done = subprocess.run([gyre, *words], capture_output=True, text=True, check=False)
        assert done.returncode == status, (words, done.returncode, done.stderr)
        return done.stdout + done.stderr

    with tempfile.TemporaryDirectory() as place:
        table = write(place, "t.csv", ",".join(NAMES), row_text(), row_text(bytes=268435456, time_us=885.52),
                      row_text(bytes=8192, time_us=600, trap="a shared fabric"),
                      row_text(machine="Nobody's host", gpu="X1"))
        rows = os.path.join(place, "rows.csv")
        text = run("validate", table, "--csv", rows)
        for part in ("|GPUs of one host, from 16 KiB|1|1|", "|trap: a shared fabric|1|1|", "no machine file is for "
                     "\"Nobody's host\"", "|all|1|2|"):
            assert part in text, (part, text)
        found = read_csv(rows)
        assert len(found) == 3 and all(float(row["predicted_us"]) > 0 for row in found), found
        near(float(found[0]["predicted_us"]), 6.52, 0.1)
        assert "line 2" in run("validate", write(place, "bad.csv", ",".join(NAMES), row_text(hosts="two")), status=1)
    run("validate", status=2)
    text = run("validate", "--expect", "all_reduce", "64M", "4x8", "--machine", "h100")
    for part in ("32 ranks", "bound", "prediction", "error bar", "nine of ten", "h100.machine"):
        assert part in text, (part, text)
    told = float(text.split("prediction")[1].split()[0])
    schedule = subprocess.run([os.path.join(build, "bench", "schedule"), "--predict", "--machine", "h100", "--hosts", "4x8",
                               "--coll", "all_reduce", "--library", "nccl", "--bytes", "64M"],
                              capture_output=True, text=True, check=True).stdout
    near(float(schedule.splitlines()[-1].split()[5]), told, 0.001)
    with tempfile.TemporaryDirectory() as place:  # a trace of another library's call ends when the prediction says so
        for library, words in (("nccl", ("--ranks", "4")), ("mpi", ("--machine", "leonardo", "--hosts", "4x1"))):
            path = os.path.join(place, f"{library}.json")
            told = run("schedule", "--predict", "--library", library, *words, "--coll", "all_reduce", "--bytes", "1M",
                       "--trace", path).splitlines()[-1].split()[5]
            events = read_json(path)["traceEvents"]
            near(max(event.get("ts", 0) + event.get("dur", 0) for event in events), float(told), 0.01)
        assert "one size" in run("schedule", "--predict", "--library", "nccl", "--ranks", "4", "--coll", "all_reduce",
                                 "--trace", path, status=1)
    assert "machines are: a100" in run("validate", "--expect", "all_reduce", "1G", "64x8", "--machine", "nope", status=1)


if __name__ == "__main__":
    case, build_folder, source_folder = sys.argv[1:]
    sys.path[:0] = [os.path.join(source_folder, "bench", "python", *part) for part in ((), ("published",))]
    globals()[f"case_{case}"](build_folder, source_folder)
