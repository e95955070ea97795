# SPDX-License-Identifier: Apache-2.0
"""What a figure returns, and how it asks the simulator."""
import json
import os
import subprocess
import tempfile
from dataclasses import dataclass, field

# Nothing but links and latencies counts: 0.8 us a message, as Swing's paper has it.
LINKS_ALONE = """launch_ns = 0
worker_launch_ns = 0
simple_step_ns = 0
simple_network_hop_ns = 800
network_credit_ns = 0
network_worker_send_bytes_per_ns = 100000
worker_read_bytes_per_ns = 100000
worker_store_bytes_per_ns = 100000
uncached_slowdown = 1
parallel_workers = 64
"""


@dataclass
class Result:
    """@cannot: why the claim cannot be tested here; then nothing else is set. @curves: label -> [(x, y)]."""
    showed: bool = False
    found: str = ""
    columns: list = field(default_factory=list)
    rows: list = field(default_factory=list)
    curves: dict = field(default_factory=dict)
    x_label: str = ""
    y_label: str = ""
    cannot: str = ""


def predicted(tools, *options, fabric=None, cost=None):
    """[(bytes, us)] of gyre schedule --predict. @fabric, @cost: the texts of such files."""
    with tempfile.TemporaryDirectory() as folder:
        report, words = os.path.join(folder, "predicted.json"), [*options]
        for option, text in (("fabric", fabric), ("cost", cost)):
            if text is not None:
                words += [f"--{option}", os.path.join(folder, option)]
                with open(words[-1], "w", encoding="utf-8") as file:
                    file.write(text)
        done = subprocess.run([os.path.join(tools, "schedule"), "--predict", *words, "--json", report],
                              capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise OSError(0, done.stderr.strip(), "gyre schedule")
        with open(report, encoding="utf-8") as file:
            return [(row["bytes"], row["time_us"]) for row in json.load(file)["predictions"]]


def torus_us(tools, algorithm, dims, n_bytes, coll="all_reduce"):
    """In a torus of 400 Gbit/s a link and direction and 400 ns a hop. A step moves what it has in one slot."""
    n, sides = 1, "x".join(map(str, dims))
    for side in dims:
        n *= side
    is_torus = ":" in algorithm
    name = algorithm.replace(":", f":{sides}") if is_torus else algorithm
    n_channels = 2 * len(dims) if is_torus else 1
    longest = {"ring": n, "rings": n, "bucket": min(dims), "doubling": 1}.get(algorithm.rstrip(":"), 2)
    fabric = f"hosts {n} gpus 1 nics 1 rate {100 * len(dims)}\ntorus {' '.join(map(str, dims))} rate 50\n" \
             "latency nic 0 uplink 400\n"
    return predicted(tools, "--algo", name, "--coll", coll, "--bytes", str(n_bytes), "--proto", "simple", "--channels",
                     str(n_channels), "--tile", str((n_bytes + 1024) // longest // n_channels + 64), fabric=fabric,
                     cost=LINKS_ALONE)[0][1]
