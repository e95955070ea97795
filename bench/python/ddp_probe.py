# SPDX-License-Identifier: Apache-2.0
"""The time of one iteration of DistributedDataParallel, started with torchrun's variables, or by mpirun, srun or
mpiexec with MASTER_ADDR and MASTER_PORT.

    python3 bench/python/ddp_probe.py BACKEND      BACKEND: gloo, or nccl (needs a GPU for each rank)

Rank 0 prints "ddp_iteration_ms X", the median of 10 iterations after 3 that do not count. The model has
8.4 million parameters in float32, so that an iteration all-reduces 34 MB in two buckets.
"""
import os
import statistics
import sys
import time

import torch
import torch.distributed

WIDTH = 1024
LAYERS = 8
ITERATIONS = 10
WARMUP = 3
# Torchrun's variables and those of Open MPI, Slurm and MPICH, which mean the same.
SAME = {"RANK": ("OMPI_COMM_WORLD_RANK", "SLURM_PROCID", "PMI_RANK"),
        "WORLD_SIZE": ("OMPI_COMM_WORLD_SIZE", "SLURM_NTASKS", "PMI_SIZE"),
        "LOCAL_RANK": ("OMPI_COMM_WORLD_LOCAL_RANK", "SLURM_LOCALID", "MPI_LOCALRANKID")}


def main():
    backend = sys.argv[1]
    for name, others in SAME.items():
        value = next((os.environ[other] for other in others if other in os.environ), None)
        if value is not None:
            os.environ.setdefault(name, value)
    if backend == "nccl":
        if not torch.cuda.is_available():
            sys.exit("ddp_probe: error: nccl needs a GPU, and PyTorch sees none")
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]) % torch.cuda.device_count())
    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.set_num_threads(1)
    torch.distributed.init_process_group(backend)
    model = torch.nn.Sequential(*[torch.nn.Linear(WIDTH, WIDTH) for _ in range(LAYERS)]).to(device)
    model = torch.nn.parallel.DistributedDataParallel(model)
    inputs = torch.ones(16, WIDTH, device=device)
    times = []
    for _ in range(WARMUP + ITERATIONS):
        started = time.perf_counter()
        model(inputs).sum().backward()
        if device == "cuda":
            torch.cuda.synchronize()
        times.append((time.perf_counter() - started) * 1e3)
    if torch.distributed.get_rank() == 0:
        print(f"ddp_iteration_ms {statistics.median(times[WARMUP:]):.3f}")
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
