#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A rank of a training loop on NumPy arrays, whose sums are checked in every bit.

    tests/lab/train_on_rails.py SECONDS        under a launcher; prints "speed SECOND KBYTES" each second
"""
import sys
import time

import gyre
import numpy as np

COUNT = 16384


def gradient(step, rank):
    """Whole numbers, so that sums do not depend on their order."""
    return ((np.arange(COUNT) * 7 + step * 13 + rank * 29) % 1021).astype(np.float32)


def main():
    with gyre.from_environment(device="host") as comm:
        began = time.monotonic()
        weights, step, second, n_bytes = np.zeros(COUNT, np.float32), 0, 0, 0
        wanted_weights = weights.copy()
        is_over = np.zeros(1, np.float32)
        while is_over[0] == 0:
            array = gradient(step, comm.rank)
            comm.all_reduce(array)
            wanted = sum(gradient(step, rank) for rank in range(comm.n_ranks))
            if not np.array_equal(array, wanted):
                raise ValueError(f"step {step} on rank {comm.rank}: {np.sum(array != wanted)} wrong elements")
            weights -= array / 1024
            wanted_weights -= wanted / 1024
            step, n_bytes = step + 1, n_bytes + array.nbytes
            if comm.rank == 0 and time.monotonic() - began >= second + 1:
                second = int(time.monotonic() - began)
                print(f"speed {second} {n_bytes / 1000:.0f}", flush=True)
                n_bytes = 0
            is_over[0] = comm.rank == 0 and time.monotonic() - began >= float(sys.argv[1])
            comm.broadcast(is_over)
        if not np.array_equal(weights, wanted_weights):
            raise ValueError("the weights are wrong")
        print(f"trained {step} steps, all sums right", flush=True)


if __name__ == "__main__":
    main()
