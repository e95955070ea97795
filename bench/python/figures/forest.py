# SPDX-License-Identifier: Apache-2.0
"""All-gather of boxes of eight GPUs over the bound of cuts: trees between boxes beside a ring."""
from result import LINKS_ALONE, Result, predicted

PAPER = "ForestColl, arXiv 2402.06787"
CLAIM = "a forest of spanning trees reaches the bound that the cuts of the network give; a ring does not"
INEQUALITY = "2, 4 and 8 boxes: two_level_ring, whose trees cross to each box once a block, takes at most 1.15 of the cut " \
             "bound; ring at least 1.1 with 2 and with 4 boxes"
EVIDENCE = "simulated: proved programs of gyre that have the shape of the paper's trees; not its generator's files"
MINUTES = 1
N_GPUS, NIC, NVLINK = 8, 50, 450  # GB/s
N_BYTES, TILES = 1 << 30, ("131072", "524288", "2097152")  # the best one counts


def bound_us(n_boxes):
    """The cuts round a box, through its NICs, and round a GPU, through its NVLink and its NIC."""
    n = n_boxes * N_GPUS
    return max(N_BYTES * (n_boxes - 1) / n_boxes / N_GPUS / NIC,
               N_BYTES * (n - 1) / n / (NVLINK + (NIC if n_boxes > 1 else 0))) / 1e3


def run(tools):
    cost = LINKS_ALONE.replace("800", "4000") + f"host_egress_bytes_per_ns = {NVLINK}\nhost_ingress_bytes_per_ns = " \
        f"{NVLINK}\nhost_worker_send_bytes_per_ns = 100000\nsimple_host_hop_ns = 1000\n"
    rows = []
    for n_boxes in (1, 2, 4, 8):
        fabric = f"hosts {n_boxes} gpus {N_GPUS} nics {N_GPUS} rate {NIC}\n"
        us = [min(predicted(tools, "--algo", way, "--coll", "all_gather", "--bytes", str(N_BYTES), "--channels", "8",
                            "--tile", tile, fabric=fabric, cost=cost)[0][1] for tile in TILES)
              for way in (("two_level_ring", "ring") if n_boxes > 1 else ("direct", "ring"))]
        rows.append([n_boxes, *(each / bound_us(n_boxes) for each in us), bound_us(n_boxes)])
    shown = all(row[1] <= 1.15 for row in rows[1:]) and all(row[2] >= 1.1 for row in rows[1:3])
    curves = {name: [(row[0], 1 / row[at]) for row in rows] for name, at in (("trees", 1), ("ring", 2))}
    return Result(shown, "time over the cut bound with 2, 4, 8 boxes: trees " +
                  ", ".join(f"{row[1]:.2f}" for row in rows[1:]) + "; ring " + ", ".join(f"{row[2]:.2f}" for row in rows[1:]),
                  ["boxes", "trees / bound", "ring / bound", "bound, us"], rows, curves, "boxes of 8 GPUs",
                  "bandwidth over the cut bound")
