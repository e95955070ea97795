#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""CuPy on all GPUs: NCCL communicators of one process (initAll, groups), and cupyx.distributed in processes.

    python3 tests/gpu/clients/cupy_client.py [--json FILE]

One thread makes the calls of all GPUs between groupStart() and groupEnd(). Values are checked against formulas.
"""
import argparse
import json
import multiprocessing
import os
import statistics
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from clients import Skip, need  # noqa: E402

TIMES = 20
SIZES = (1, 1000, 1 << 20)
PROCESS_SECONDS = 90


class World:
    """The GPUs of this process, each with a communicator and a stream."""

    def __init__(self, cupy, n):
        from cupy.cuda import nccl
        self.cupy, self.nccl, self.n = cupy, nccl, n
        self.comms = nccl.NcclCommunicator.initAll(list(range(n)))
        self.streams = []
        for rank in range(n):
            with cupy.cuda.Device(rank):
                self.streams.append(cupy.cuda.Stream(non_blocking=True))

    def array(self, rank, values):
        with self.cupy.cuda.Device(rank), self.streams[rank]:
            return self.cupy.asarray(values)

    def arrays(self, values_of):
        return [self.array(rank, values_of(rank)) for rank in range(self.n)]

    def call(self, function):
        """function(comm, rank, stream) for all GPUs in one group, then waits."""
        self.nccl.groupStart()
        for rank, comm in enumerate(self.comms):
            with self.cupy.cuda.Device(rank):
                function(comm, rank, self.streams[rank].ptr)
        self.nccl.groupEnd()
        for stream in self.streams:
            stream.synchronize()

    def check(self, arrays, wanted_of, what):
        for rank, array in enumerate(arrays):
            with self.cupy.cuda.Device(rank):
                got, wanted = array.get(), wanted_of(rank)
            if not (got == wanted).all():
                raise AssertionError(f"{what} on GPU {rank}: {got[:4]}..., not {wanted[:4]}...")


def collectives(w, np, size, dtype, number):
    """Every call of NcclCommunicator. @number: NCCL's of the type."""
    n = w.n
    nccl = w.nccl
    total = n * (n + 1) // 2

    def full(rank):
        return np.full(size, rank + 1, dtype)

    def by_rank(_):
        return np.arange(1, n + 1).astype(dtype).repeat(size)

    source = w.arrays(full)
    for op, wanted in ((nccl.NCCL_SUM, total), (nccl.NCCL_MAX, n), (nccl.NCCL_MIN, 1)):
        out = w.arrays(lambda _: np.zeros(size, dtype))
        w.call(lambda comm, r, stream, op=op, out=out: comm.allReduce(
            source[r].data.ptr, out[r].data.ptr, size, number, op, stream))
        w.check(out, lambda _, wanted=wanted: np.full(size, wanted, dtype), f"allReduce {dtype}")
    w.check(source, full, "the input of allReduce")
    in_place = w.arrays(full)
    w.call(lambda comm, r, stream: comm.allReduce(in_place[r].data.ptr, in_place[r].data.ptr, size, number,
                                                  nccl.NCCL_SUM, stream))
    w.check(in_place, lambda _: np.full(size, total, dtype), f"allReduce in place {dtype}")
    for root in {0, n - 1}:
        out = w.arrays(lambda _: np.zeros(size, dtype))
        w.call(lambda comm, r, stream, root=root, out=out: comm.broadcast(
            source[r].data.ptr, out[r].data.ptr, size, number, root, stream))
        w.check(out, lambda _, root=root: full(root), "broadcast")
        out = w.arrays(full)
        w.call(lambda comm, r, stream, root=root, out=out: comm.bcast(out[r].data.ptr, size, number, root, stream))
        w.check(out, lambda _, root=root: full(root), "bcast")
        out = w.arrays(lambda _: np.zeros(size, dtype))
        w.call(lambda comm, r, stream, root=root, out=out: comm.reduce(
            source[r].data.ptr, out[r].data.ptr, size, number, nccl.NCCL_SUM, root, stream))
        w.check(out, lambda r, root=root: np.full(size, total if r == root else 0, dtype), "reduce")
    gathered = w.arrays(lambda _: np.zeros(n * size, dtype))
    w.call(lambda comm, r, stream: comm.allGather(source[r].data.ptr, gathered[r].data.ptr, size, number, stream))
    w.check(gathered, by_rank, "allGather")
    out = w.arrays(lambda _: np.zeros(size, dtype))
    w.call(lambda comm, r, stream: comm.reduceScatter(gathered[r].data.ptr, out[r].data.ptr, size, number,
                                                      nccl.NCCL_SUM, stream))
    w.check(out, lambda r: np.full(size, n * (r + 1), dtype), "reduceScatter")
    out = w.arrays(lambda _: np.zeros(size, dtype))

    def pass_on(comm, r, stream):
        comm.send(source[r].data.ptr, size, number, (r + 1) % n, stream)
        comm.recv(out[r].data.ptr, size, number, (r - 1) % n, stream)

    w.call(pass_on)
    w.check(out, lambda r: full((r - 1) % n), "send and recv")


def time_of_all_reduce(w, np, n_bytes):
    arrays = w.arrays(lambda _: np.ones(n_bytes // 4, np.float32))
    times = []
    for _ in range(TIMES + 3):
        begin = time.perf_counter()
        w.call(lambda comm, r, stream: comm.allReduce(arrays[r].data.ptr, arrays[r].data.ptr, n_bytes // 4,
                                                      w.nccl.NCCL_FLOAT32, w.nccl.NCCL_MAX, stream))
        times.append((time.perf_counter() - begin) * 1e6)
    return statistics.median(times[3:])


def distributed(cupy, np, comm, rank, n):
    """Calls of cupyx.distributed; arrays are made and compared by NumPy, so that CuPy compiles nothing."""
    base = np.arange(n * 1000, dtype=np.float32)

    def check(out, wanted, what):
        if not (out.get() == wanted).all():
            raise AssertionError(f"{what}: {out.get().ravel()[:4]}..., not {wanted.ravel()[:4]}...")

    mine, out = cupy.asarray(base + rank), cupy.asarray(base)
    comm.all_reduce(mine, out)
    check(out, n * base + n * (n - 1) // 2, "all_reduce")
    every = np.stack([base + r for r in range(n)])
    out = cupy.asarray(np.zeros_like(every))
    comm.all_gather(mine, out, n * 1000)
    check(out, every, "all_gather")
    out = cupy.asarray(np.zeros((n, 1000), np.float32))
    comm.all_to_all(mine.reshape(n, 1000), out)
    check(out, every[:, rank * 1000:(rank + 1) * 1000], "all_to_all")
    comm.broadcast(mine, n - 1)
    check(mine, base + n - 1, "broadcast")
    peer = rank ^ 1
    if peer < n:
        sent, out = (cupy.asarray(np.full(1000, value, np.float32)) for value in (rank, -1))
        comm.send_recv(sent, out, peer)
        check(out, np.full(1000, peer, np.float32), "send_recv")
    # All ranks, in reverse order. cupyx has no split, so that it is asked of the NcclCommunicator below it.
    from cupy.cuda import nccl
    part = comm._comm.commSplit(0, n - rank, nccl.NcclConfig(split_share=0))
    assert part.rank_id() == n - 1 - rank and part.size() == n, "commSplit"
    out = cupy.asarray(np.full(1000, rank, np.float32))
    part.broadcast(out.data.ptr, out.data.ptr, 1000, nccl.NCCL_FLOAT32, 0, cupy.cuda.get_current_stream().ptr)
    check(out, np.full(1000, n - 1, np.float32), "broadcast of commSplit")
    part.destroy()
    comm.barrier()


def process(rank, n, port, result):
    """One rank of cupyx.distributed."""
    multiprocessing.set_start_method("fork", force=True)  # CuPy's own server does not start in other ways
    try:
        import cupy
        import cupyx.distributed
        import numpy
        cupy.cuda.Device(rank).use()
        comm = cupyx.distributed.init_process_group(n, rank, port=port)
        try:
            distributed(cupy, numpy, comm, rank, n)
        finally:
            comm.stop()
        result.put((rank, None))
    except BaseException as error:  # the parent waits for an answer
        result.put((rank, f"{type(error).__name__}: {error}"))


def processes(n):
    """cupyx.distributed with one process a GPU."""
    context = multiprocessing.get_context("spawn")
    result = context.Queue()
    port = 20000 + os.getpid() % 20000
    workers = [context.Process(target=process, args=(rank, n, port, result)) for rank in range(n)]
    for worker in workers:
        worker.start()
    try:
        answers = [result.get(timeout=PROCESS_SECONDS) for _ in workers]
    finally:
        for worker in workers:
            worker.join(timeout=10)
            if worker.is_alive():
                worker.kill()
    errors = [f"rank {rank}: {error}" for rank, error in answers if error is not None]
    if errors:
        raise AssertionError("cupyx.distributed: " + "; ".join(errors))


def run(options):
    np, cupy = need("numpy"), need("cupy", "cupy-cuda13x")
    try:
        n = cupy.cuda.runtime.getDeviceCount()
    except cupy.cuda.runtime.CUDARuntimeError as error:
        raise Skip(f"CuPy finds no GPU: {error}") from error
    if n < 2:
        raise Skip(f"CuPy sees {n} GPU, two are needed")
    nccl = getattr(cupy.cuda, "nccl", None)  # absent from a CuPy that was built without NCCL
    if nccl is None or not nccl.available:
        raise Skip("this CuPy finds no libnccl.so.2")
    begin = time.perf_counter()
    processes(n)
    w = World(cupy, n)
    for dtype, name in (("float32", "FLOAT32"), ("float16", "FLOAT16"), ("int64", "INT64"), ("uint8", "UINT8")):
        for size in SIZES:
            collectives(w, np, size, dtype, getattr(w.nccl, f"NCCL_{name}"))
    times = {f"us of allReduce of {n_bytes} B": time_of_all_reduce(w, np, n_bytes) for n_bytes in (4096, 64 << 20)}
    for comm in w.comms:
        comm.destroy()
    seconds = time.perf_counter() - begin
    print(f"cupy: ok on {n} GPUs, {seconds:.1f} s cupy {cupy.__version__}, NCCL {w.nccl.get_version()}, "
          + ", ".join(f"{value:.1f} {name}" for name, value in times.items()), flush=True)
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump({"times": times}, file)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json")
    options = parser.parse_args()
    try:
        run(options)
    except Skip as reason:
        print(f"cupy: skipped: {reason}")


if __name__ == "__main__":
    main()
