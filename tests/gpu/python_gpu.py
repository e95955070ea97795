#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The Python package gyre on arrays of GPUs: torch's, CuPy's, JAX's, DLPack and __cuda_array_interface__.

    python3 tests/gpu/python_gpu.py BUILD_DIR [CASE...] [--ranks N]       threads of this process, one a GPU
    mpirun -np N python_gpu.py BUILD_DIR [CASE...]      processes, one a GPU
    --device host tries the script itself on host memory, as far as it needs no GPU

Values are checked against formulas. One line a case: "name: ok", or "name: skipped: reason". A case that a rank
fails ends with exit status 1; with less than two GPUs the exit status is 77.
"""
import argparse
import os
import sys
import threading
import time
import traceback

sys.dont_write_bytecode = True
TIMEOUT_MS = 30000  # a call that stands still ends with an error
barrier = None  # of ranks that are threads


class Skip(Exception):
    """The case cannot run here; the text is the reason."""


def need(name):
    try:
        return __import__(name)
    except (ImportError, OSError) as error:
        raise Skip(f"no {name} here: {error}") from error


def need_gpu(comm):
    if comm.ordinal is None:
        raise Skip("no GPU")


def refused(words, function, *arguments, **keywords):
    """Checks that a call raises InvalidArgument, with these words in its text."""
    try:
        function(*arguments, **keywords)
    except gyre.InvalidArgument as error:
        assert all(word in str(error) for word in words), (words, str(error))
        return
    raise AssertionError(f"{words}: nothing was raised")


def device_of(comm):
    return "cpu" if comm.ordinal is None else comm.device


def expect(got, wanted, what):
    """Every element of a torch tensor, after what the current stream has before it."""
    import torch
    wanted = wanted.to(got.device) if torch.is_tensor(wanted) else torch.full_like(got, wanted)
    if not torch.equal(got, wanted):
        raise AssertionError(f"{what}: {got.flatten()[:4].tolist()}..., not {wanted.flatten()[:4].tolist()}...")


# ---- the cases; each is called on every rank ---------------------------------------------------------------

def values(comm):
    """Every collective on torch tensors, on torch's current stream, without a wait in between."""
    torch = need("torch")
    n, rank, device = comm.n_ranks, comm.rank, device_of(comm)
    total = n * (n + 1) // 2
    for size in (1, 1000, 1 << 20):
        for dtype in (torch.float32, torch.bfloat16, torch.int64):
            def full(value, count=size, dtype=dtype):
                return torch.full((count,), value, dtype=dtype, device=device)

            by_rank = torch.arange(1, n + 1, device=device).to(dtype).repeat_interleave(size)
            expect(comm.all_reduce(full(rank + 1)), total, f"all_reduce {dtype}")
            expect(comm.all_reduce(full(rank + 1), full(0), op="max"), n, f"all_reduce max {dtype}")
            expect(comm.all_gather(full(rank + 1), full(0, n * size)), by_rank, "all_gather")
            expect(comm.reduce_scatter(by_rank, full(0)), n * (rank + 1), "reduce_scatter")
            expect(comm.all_to_all(by_rank + rank, full(0, n * size)),
                   (torch.arange(n, device=device).to(dtype) + rank + 1).repeat_interleave(size), "all_to_all")
            for root in {0, n - 1}:
                expect(comm.broadcast(full(rank + 7), root=root), root + 7, "broadcast")
                out = comm.reduce(full(rank + 1), full(0) if rank == root else None, root=root)
                assert (out is None) == (rank != root)
                if rank == root:
                    expect(out, total, "reduce")
                out = comm.gather(full(rank + 1), full(0, n * size) if rank == root else None, root=root)
                if rank == root:
                    expect(out, by_rank, "gather")
                expect(comm.scatter(by_rank if rank == root else None, full(0), root=root), rank + 1, "scatter")
            out = full(0)
            with gyre.group():  # the sent tensor has no other owner until the group's end
                comm.recv(out, (rank - 1) % n)
                comm.send(full(rank + 1), (rank + 1) % n)
            expect(out, (rank - 1) % n + 1, "send and recv")
    half = comm.split(rank % 2, rank)
    with half:
        expect(half.all_reduce(torch.ones(100, device=device)), half.n_ranks, "all_reduce of a part")


def streams(comm):
    """torch's side streams, a stream by its number, and gyre's own; results in order with torch's kernels."""
    torch = need("torch")
    need_gpu(comm)
    n, device = comm.n_ranks, comm.device
    size = 1 << 22
    side = torch.cuda.Stream(device)
    for how in ("current", "stream", "number"):
        x = torch.ones(size, device=device)
        side.wait_stream(torch.cuda.current_stream(device))
        with torch.cuda.stream(side):
            x.mul_(3)
            for _ in range(4):  # each kernel of torch must see the result of the call before it
                if how == "current":
                    comm.all_reduce(x)
                else:
                    comm.all_reduce(x, stream=side if how == "stream" else side.cuda_stream)
                x.div_(n)
        torch.cuda.current_stream(device).wait_stream(side)
        expect(x, 3, f"all_reduce on a side stream, given as {how}")
    for device_name in (comm.device, "cuda"):  # "cuda": the thread's current device
        with gyre.Stream(device_name) as stream:
            x = torch.ones(size, device=device)
            torch.cuda.synchronize(device)
            comm.all_reduce(x, stream=stream)
            comm.all_reduce(x, stream=stream)
            stream.synchronize()
            assert stream.is_done()
            expect(x, n * n, "all_reduce on a stream of gyre")
            with torch.cuda.stream(torch.cuda.ExternalStream(stream.handle, device)):
                comm.all_reduce(x)
                x.add_(1)
            stream.synchronize()
            expect(x, n ** 3 + 1, "all_reduce on a stream of gyre that torch uses")


def refusals(comm):
    """What does not fit is refused with the reason, and the communicator works afterwards."""
    torch = need("torch")
    need_gpu(comm)
    n, here = comm.n_ranks, comm.device
    refused(["in host memory", here], comm.all_reduce, torch.ones(4))
    refused(["not contiguous"], comm.all_reduce, torch.ones(4, 4, device=here).t()[:, 1:])
    refused(["no element type complex64"], comm.all_reduce, torch.ones(4, device=here, dtype=torch.complex64))
    refused(["the result has 3"], comm.all_reduce, torch.ones(4, device=here), torch.ones(3, device=here))
    refused(["is no stream"], comm.all_reduce, torch.ones(4, device=here), stream="side")
    with gyre.Stream() as host_stream:
        refused(["one of host", here], comm.all_reduce, torch.ones(4, device=here), stream=host_stream)
    if torch.cuda.device_count() > 1:
        other = f"cuda:{(comm.ordinal + 1) % torch.cuda.device_count()}"
        refused([other, here], comm.all_reduce, torch.ones(4, device=other))
        refused([other, here], comm.all_reduce, torch.ones(4, device=here), stream=torch.cuda.Stream(other))
        interface = torch.ones(4, device=other).__cuda_array_interface__  # which does not say on which GPU
        refused(["GPU"], comm.all_reduce, Interface(interface))
    expect(comm.all_reduce(torch.ones(4, device=here)), n, "all_reduce afterwards")


class Interface:
    """Only __cuda_array_interface__."""

    def __init__(self, interface, **more):
        self.__cuda_array_interface__ = {**interface, **more}


class DLPack:
    """Only DLPack."""

    def __init__(self, tensor):
        self.tensor = tensor

    def __dlpack__(self, **keywords):
        return self.tensor.__dlpack__(**keywords)

    def __dlpack_device__(self):
        return self.tensor.__dlpack_device__()


def interfaces(comm):
    """Arrays of unknown libraries: the result is there when the call returns, unless they name their stream."""
    torch = need("torch")
    need_gpu(comm)
    n, device = comm.n_ranks, comm.device
    side = torch.cuda.Stream(device)
    for make in (DLPack, lambda x: Interface(x.__cuda_array_interface__)):
        x = torch.ones(1 << 20, device=device)
        comm.all_reduce(make(x))
        comm.all_reduce(make(x))
        with torch.cuda.stream(side):  # waits for nothing by itself
            expect(x, n * n, "all_reduce of an unknown array")
    x = torch.ones(1 << 26, device=device)
    with torch.cuda.device((comm.ordinal + 1) % torch.cuda.device_count()):
        # The default stream is that of the communicator's GPU, not of the thread's current one.
        comm.all_reduce(Interface(x.__cuda_array_interface__))
    with torch.cuda.stream(side):
        expect(x, n, "all_reduce of an unknown array while another GPU is the current one")
    x = torch.ones(1 << 20, device=device)
    comm.all_reduce(Interface(x.__cuda_array_interface__, version=3, stream=1))  # on the default stream
    expect(x, n, "all_reduce of an unknown array that names the default stream")
    x = torch.ones(1 << 20, device=device)
    side.wait_stream(torch.cuda.current_stream(device))
    with torch.cuda.stream(side):
        x.mul_(2)
        comm.all_reduce(DLPack(x), stream=side)
        comm.all_reduce(Interface(x.__cuda_array_interface__, version=3, stream=side.cuda_stream))
        expect(x, 2 * n * n, "all_reduce of unknown arrays on a side stream")
    with gyre.group():
        out = torch.zeros(1000, device=device)
        comm.recv(DLPack(out), (comm.rank - 1) % n)
        comm.send(DLPack(torch.full((1000,), comm.rank + 1.0, device=device)), (comm.rank + 1) % n)
    expect(out, (comm.rank - 1) % n + 1, "send and recv of DLPack")


def meet():
    """Ranks that are threads wait for each other: CUDA's functions that make memory and streams can wait for
    the kernels of all GPUs of a process (docs/python.md)."""
    if barrier is not None:
        barrier.wait(TIMEOUT_MS / 1000)


def cupy_arrays(comm):
    """CuPy's arrays, on its current stream and on a given one, alone and together with torch's."""
    need_gpu(comm)
    cupy, numpy = need("cupy"), need("numpy")
    n = comm.n_ranks
    base = numpy.arange(100000, dtype=numpy.float32)

    def check(array, wanted, what):
        assert (array.get() == wanted).all(), f"{what}: {array.get()[:4]}..., not {wanted[:4]}..."

    with cupy.cuda.Device(comm.ordinal):
        x = cupy.asarray(base)
        meet()
        comm.all_reduce(x)
        check(x, n * base, "all_reduce")
        for explicit in (False, True):
            stream = cupy.cuda.Stream(non_blocking=True)
            with stream:
                x = cupy.asarray(base)
                meet()
                comm.all_reduce(x, stream=stream if explicit else None)
                check(x, n * base, "all_reduce on a stream")
        parts = cupy.asarray(numpy.zeros((n, base.size), numpy.float32))
        mine = cupy.asarray(base + comm.rank)
        meet()
        comm.all_gather(mine, parts)
        check(parts, numpy.stack([base + r for r in range(n)]), "all_gather")
        refused(["not contiguous"], comm.all_reduce, parts.T)
        refused(["in host memory"], comm.all_reduce, base)
        other = comm.ordinal + 1 if comm.ordinal + 1 < cupy.cuda.runtime.getDeviceCount() else comm.ordinal - 1
        if other >= 0:
            with cupy.cuda.Device(other):
                elsewhere = cupy.asarray(base)
            refused([f"cuda:{other}", comm.device], comm.all_reduce, elsewhere)
        cupy.cuda.get_current_stream().synchronize()
    try:
        torch = need("torch")
    except Skip:
        return
    tensor = torch.from_numpy(base).to(comm.device)
    with cupy.cuda.Device(comm.ordinal):  # both libraries use the default stream now
        result = cupy.asarray(numpy.zeros_like(base))
        meet()
        comm.all_reduce(tensor, result)
        check(result, n * base, "all_reduce from torch to CuPy")
        with cupy.cuda.Stream(non_blocking=True):
            refused(["streams differ"], comm.all_reduce, tensor, result)


def jax_arrays(comm):
    """JAX's arrays can be sent; as a result they are refused, because JAX counts on their values."""
    torch = need("torch")
    need_gpu(comm)
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    jax = need("jax")
    try:
        device = jax.devices("cuda")[comm.ordinal]
    except RuntimeError as error:
        raise Skip(f"jax finds no GPU: {error}") from error
    x = jax.device_put(jax.numpy.arange(1000, dtype="float32"), device).block_until_ready()
    out = torch.zeros(1000, device=comm.device)
    expect(comm.all_reduce(x, out), comm.n_ranks * torch.arange(1000, dtype=torch.float32), "all_reduce from JAX")
    refused(["read-only"], comm.all_reduce, x)


def graph(comm):
    """Calls captured by torch.cuda.graph, replayed with other inputs, between calls outside of it."""
    torch = need("torch")
    need_gpu(comm)
    n, rank, device = comm.n_ranks, comm.rank, comm.device
    x = torch.full((1 << 16,), float(rank), device=device)
    out, gathered = torch.empty_like(x), torch.empty(n << 16, device=device)

    def work():
        out.copy_(x)
        comm.all_reduce(out)
        out.mul_(2)
        comm.all_gather(out, gathered)

    side = torch.cuda.Stream(device)
    side.wait_stream(torch.cuda.current_stream(device))
    with torch.cuda.stream(side):  # memory and programs are made at the first calls
        for _ in range(3):
            work()
    torch.cuda.current_stream(device).wait_stream(side)
    torch.cuda.synchronize(device)
    captured = torch.cuda.CUDAGraph()
    with torch.cuda.graph(captured, stream=side, capture_error_mode="thread_local"):
        work()
    for replay in range(20):
        x.fill_(rank + replay)
        captured.replay()
        wanted = 2 * (n * (n - 1) // 2 + n * replay)
        expect(out, wanted, f"replay {replay}")
        expect(gathered, wanted, f"all_gather of replay {replay}")
        if replay % 5 == 0:
            expect(comm.all_reduce(torch.ones(1000, device=device)), n, "all_reduce between replays")
    torch.cuda.synchronize(device)
    del captured


def times(comm):
    """Time of an all-reduce from Python, enqueued in a row."""
    torch = need("torch")
    need_gpu(comm)
    texts = []
    for n_bytes, count in ((4096, 500), (64 << 20, 50)):
        x = torch.zeros(n_bytes // 4, device=comm.device)
        for _ in range(10):
            comm.all_reduce(x)
        torch.cuda.synchronize(comm.device)
        begin = time.perf_counter()
        for _ in range(count):
            comm.all_reduce(x)
        enqueued = time.perf_counter()
        torch.cuda.synchronize(comm.device)
        done = time.perf_counter()
        texts.append(f"{n_bytes} B: {(done - begin) * 1e6 / count:.1f} us, of which "
                     f"{(enqueued - begin) * 1e6 / count:.1f} us until the call returns")
    return "; ".join(texts)


CASES = {f.__name__: f for f in (values, streams, refusals, interfaces, cupy_arrays, jax_arrays, graph, times)}


# ---- running -----------------------------------------------------------------------------------------------

def guarded(comm, case):
    """The outcome on one rank: all ranks find the same packages, so that all of them skip."""
    try:
        return case(comm), None
    except Skip as reason:
        return None, reason


def report(name, outcome, begin, where):
    text, skipped = outcome
    seconds = time.perf_counter() - begin
    if skipped is not None:
        print(f"{name}: skipped: {skipped}", flush=True)
    else:
        print(f"{name}: ok on {where}, {seconds:.1f} s {text or ''}".rstrip(), flush=True)


def run_threads(names, n_ranks, device):
    """Whether all cases are right; the ranks are threads of this process."""
    global barrier
    n_failed = 0
    for name in names:
        begin = time.perf_counter()
        barrier = threading.Barrier(n_ranks)
        try:
            outcome = gyre.run_threads(n_ranks, guarded, CASES[name], device=device, timeout_ms=TIMEOUT_MS)[0]
            report(name, outcome, begin, f"{n_ranks} threads")
        except Exception:  # the next case has a communicator of its own
            traceback.print_exc()
            print(f"{name}: FAILED", flush=True)
            n_failed += 1
    return n_failed == 0


def run_processes(names, device):
    """The same for processes of mpirun or torchrun. The first failure ends the job."""
    for name in names:
        begin = time.perf_counter()
        with gyre.from_environment(device, timeout_ms=TIMEOUT_MS) as comm:
            if comm.ordinal is not None:
                gyre.gpu.use_device(comm.ordinal)
            outcome = guarded(comm, CASES[name])
            if comm.rank == 0:
                report(name, outcome, begin, f"{comm.n_ranks} processes")
    return True


def count_gpus():
    try:
        import torch
        return torch.cuda.device_count()
    except (ImportError, OSError):
        return 0


def main():
    global gyre  # found in the build folder that is named
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build")
    parser.add_argument("cases", nargs="*", metavar="CASE", help="one of " + ", ".join(CASES))
    parser.add_argument("--ranks", type=int, help="threads; default: a GPU each")
    parser.add_argument("--device", choices=("cuda", "host"), default="cuda")
    options = parser.parse_intermixed_args()
    unknown = [name for name in options.cases if name not in CASES]
    if unknown:
        parser.error(f"no such case: {' '.join(unknown)}")
    sys.path.insert(0, os.path.join(os.path.abspath(options.build), "python"))
    import gyre
    import gyre.gpu
    names = options.cases or list(CASES)
    from_launcher = "OMPI_COMM_WORLD_RANK" in os.environ or "RANK" in os.environ
    n = options.ranks or (count_gpus() if options.device == "cuda" else 2)
    if options.device == "cuda" and n < 2:
        print(f"skipped: {n} GPUs that torch sees, two are needed")
        return 77
    # A case that stands still in spite of the communicator's time limit ends here.
    watch = threading.Timer(60 * len(names), lambda: (traceback.print_stack(), os._exit(1)))
    watch.daemon = True
    watch.start()
    done = run_processes(names, options.device) if from_launcher else run_threads(names, n, options.device)
    watch.cancel()
    return 0 if done else 1


if __name__ == "__main__":
    sys.exit(main())
