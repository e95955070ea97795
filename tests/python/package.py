#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests of the Python package gyre, from a build folder: PYTHONPATH=$PWD/build/python, as users have it.

    tests/python/package.py CASE BUILD_DIR SOURCE_DIR
        (CASE: the name of a case_* function, without "case_")

Expected values come from NumPy, from torch or from a formula. Exits 77, with the reason, where a package is
missing. The cases "table" and "plain" need Python alone.
"""
import array
import ctypes
import functools
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time

from common import need_package, refused, run_named, skip, use_package_of

if len(sys.argv) != 4:
    sys.exit(__doc__)
BUILD, SOURCE = map(os.path.abspath, sys.argv[2:])
use_package_of(BUILD)
import gyre  # noqa: E402

try:
    import numpy as np
except ImportError:
    np = None

N_RANKS = 4


def need_numpy():
    need_package("numpy", "python3-numpy")


# ---- the table ---------------------------------------------------------------------------------------------

def case_table():
    """native.py is what make_native.py makes of gyre.h, and a compiler agrees about sizes and numbers."""
    script = os.path.join(SOURCE, "cmake", "wheel", "make_native.py")
    done = subprocess.run([sys.executable, script, "--check"], stdout=subprocess.PIPE, text=True, check=False)
    assert done.returncode == 0, f"run cmake/wheel/make_native.py:\n{done.stdout}"
    from gyre import native
    compiler = os.environ.get("CC") or "cc"
    if shutil.which(compiler) is None:
        skip(f"no compiler ({compiler}) to compare with")
    facts = []
    for name, value in vars(native).items():
        if isinstance(value, int) and name.startswith("GYRE_"):
            facts.append((f"(long long)({name})", value))
        elif isinstance(value, type) and issubclass(value, ctypes.Structure):
            facts.append((f"(long long)sizeof({name})", ctypes.sizeof(value)))
            facts += [(f"(long long)offsetof({name}, {field})", getattr(value, field).offset)
                      for field, _ in value._fields_]
    assert len(facts) > 100, "the table has lost its numbers"
    checks = "\n".join(f'_Static_assert({code} == {value}LL, "{code} is not {value}");' for code, value in facts)
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "table.c")
        with open(path, "w", encoding="utf-8") as file:
            file.write(f"#include <stddef.h>\n#include <gyre.h>\n{checks}\n")
        done = subprocess.run([compiler, "-std=c11", "-fsyntax-only", "-I", os.path.join(SOURCE, "core"), path],
                              stderr=subprocess.PIPE, text=True, check=False)
        assert done.returncode == 0, done.stderr
    # Every function is exported, with the name of the table.
    for name in native.FUNCTIONS:
        assert getattr(ctypes.CDLL(gyre.library_path()), name)


def case_plain():
    """Without NumPy: array.array, bytearray, and what is no array at all."""
    def rank(comm):
        numbers = array.array("d", [comm.rank + 1, 2.0])
        comm.all_reduce(numbers)
        letters = bytearray(b"gyre" if comm.rank == 1 else b"....")
        comm.broadcast(letters, root=1)
        longs = array.array("q", [comm.rank])
        everybody = array.array("q", [0] * comm.n_ranks)
        comm.all_gather(longs, everybody)
        return numbers.tolist(), bytes(letters), everybody.tolist()

    for result in gyre.run_threads(3, rank):
        assert result == ([6.0, 6.0], b"gyre", [0, 1, 2]), result
    with gyre.init_all(1, "host")[0] as comm:
        refused(gyre.InvalidArgument, ["read-only"], comm.all_reduce, b"gyre")
        refused(gyre.InvalidArgument, ["list is no array"], comm.all_reduce, [1.0])
        refused(gyre.InvalidArgument, ["not contiguous"], comm.all_reduce, memoryview(bytearray(8))[::2])
        refused(gyre.InvalidArgument, ["no element type int16"], comm.all_reduce, array.array("h", [1]))
        for arguments in ((comm.all_reduce, None), (comm.broadcast, None), (comm.reduce, None), (comm.send, None, 0),
                          (comm.all_gather, None, bytearray(1)), (comm.all_gather, bytearray(1), None)):
            refused(gyre.InvalidArgument, ["NoneType is no array"], *arguments)
        one = bytearray(1)
        for kind, name, function, *arguments in (("broadcast", "root", comm.broadcast, one),
                                                 ("reduce", "root", comm.reduce, one),
                                                 ("gather", "root", comm.gather, one),
                                                 ("scatter", "root", comm.scatter, one, one),
                                                 ("send", "peer", comm.send, one), ("recv", "peer", comm.recv, one)):
            for wrong in ("a", None, 0.5):
                refused(TypeError, [f"{kind}: {name} ", repr(wrong)], functools.partial(function, *arguments,
                                                                                       **{name: wrong}))
            refused(gyre.InvalidArgument, [f"{kind}: {name} is {1 << 32}"],
                    functools.partial(function, *arguments, **{name: 1 << 32}))
    refused(gyre.InvalidArgument, ["no setting refusal"], gyre.init_all, 1, "host", refusal="no")
    refused(gyre.InvalidArgument, ["none of auto, host"], gyre.init_all, 1, "gpu")
    refused(gyre.InvalidArgument, ["no setting depth", "timeout_ms"], gyre.init_all, 1, "host", depth=2)
    refused(gyre.InvalidArgument, ["timeout_ms", "whole number, not 'a'"], gyre.init_all, 1, "host", timeout_ms="a")
    refused(gyre.InvalidArgument, ["timeout_ms", "32 bits"], gyre.init_all, 1, "host", timeout_ms=1 << 32)
    refused(gyre.InvalidArgument, ["transport", "a text, not 7"], gyre.init_all, 1, "host", transport=7)
    refused(gyre.GyreError, ["gyre's program nosuch was not found"], gyre.program_path, "nosuch")
    assert gyre.__version__.count(".") == 2
    refused(AttributeError, ["no attribute nothing"], lambda: gyre.nothing)
    number = ctypes.c_int()
    gyre.library.call("gyre_get_version", ctypes.byref(number))
    assert number.value >= gyre.native.GYRE_VERSION
    refused(gyre.InvalidArgument, [], gyre.library.call, "gyre_get_version", None)


# ---- values ------------------------------------------------------------------------------------------------

def inputs_of(rank, n_elems, dtype, seed=0):
    """Small integers, different for each rank, exact in every type and in any order of additions."""
    values = np.random.default_rng(1000 * seed + rank).integers(1, 4, n_elems)
    return values.astype(dtype)


def check_collectives(comm, dtype, n):
    """Every collective with every operation, held against NumPy."""
    ranks = range(comm.n_ranks)
    all_in = [inputs_of(r, n * comm.n_ranks, dtype) for r in ranks]
    mine = all_in[comm.rank]
    reductions = {"sum": np.add, "prod": np.multiply, "max": np.maximum, "min": np.minimum}
    for op, function in reductions.items():
        due = function.reduce(all_in).astype(dtype)
        np.testing.assert_array_equal(comm.all_reduce(mine, np.empty_like(mine), op=op), due)
        mine_too = mine.copy()
        assert comm.all_reduce(mine_too, op=op) is mine_too
        np.testing.assert_array_equal(mine_too, due)
        part = comm.reduce_scatter(mine, np.empty(n, dtype), op=op)
        np.testing.assert_array_equal(part, due[comm.rank * n:(comm.rank + 1) * n])
        for root in (0, comm.n_ranks - 1):
            result = comm.reduce(mine, np.empty_like(mine) if comm.rank == root else None, op=op, root=root)
            assert (result is None) == (comm.rank != root)
            if comm.rank == root:
                np.testing.assert_array_equal(result, due)
    for root in (0, comm.n_ranks - 1):
        np.testing.assert_array_equal(comm.broadcast(mine.copy(), root=root), all_in[root])
        gathered = comm.gather(mine, np.empty((comm.n_ranks, mine.size), dtype) if comm.rank == root else None,
                               root=root)
        if comm.rank == root:
            np.testing.assert_array_equal(gathered, np.stack(all_in))
        else:
            assert gathered is None
        block = comm.scatter(mine if comm.rank == root else None, np.empty(n, dtype), root=root)
        np.testing.assert_array_equal(block, all_in[root].reshape(comm.n_ranks, n)[comm.rank])
    np.testing.assert_array_equal(comm.all_gather(mine, np.empty((comm.n_ranks, mine.size), dtype)),
                                  np.stack(all_in))
    received = comm.all_to_all(mine, np.empty_like(mine))
    np.testing.assert_array_equal(received.reshape(comm.n_ranks, n),
                                  np.stack([x.reshape(comm.n_ranks, n)[comm.rank] for x in all_in]))
    with gyre.group():
        came = comm.recv(np.empty_like(mine), (comm.rank - 1) % comm.n_ranks)
        comm.send(mine, (comm.rank + 1) % comm.n_ranks)
    np.testing.assert_array_equal(came, all_in[comm.rank - 1])
    np.testing.assert_array_equal(mine, inputs_of(comm.rank, n * comm.n_ranks, dtype))  # inputs stay as they are


def case_values():
    need_numpy()
    for n_ranks in (1, 2, N_RANKS):
        for dtype in ("int8", "uint8", "int32", "uint32", "int64", "uint64", "float16", "float32", "float64"):
            gyre.run_threads(n_ranks, check_collectives, np.dtype(dtype), 37)

    def average(comm):
        return comm.all_reduce(np.full(3, 4.0 * comm.rank), op="avg"), comm.all_reduce(np.empty(0))

    for mean, empty in gyre.run_threads(N_RANKS, average):
        assert (mean == 6.0).all() and empty.size == 0

    def limited(comm):
        for algorithm in ("ring", "tree", "direct"):
            result = comm.all_reduce(np.arange(5.0) * comm.rank, algorithm=algorithm, protocol="simple", channels=1)
            np.testing.assert_array_equal(result, np.arange(5.0) * 6)
        refused(gyre.InvalidArgument, ["no argument colour", "protocol"], comm.all_reduce, np.ones(1), colour=1)

    gyre.run_threads(N_RANKS, limited)


def case_arrays():
    """Objects of other libraries that only have one of the interfaces."""
    need_numpy()

    class DLPack:
        """Only __dlpack__, as an array of an unknown library."""
        def __init__(self, base):
            self.base = base

        def __dlpack__(self):
            return self.base.__dlpack__()

    class Interface:
        """Only __array_interface__."""
        def __init__(self, base):
            self.base = base
            self.__array_interface__ = base.__array_interface__

    kinds = [Interface, memoryview]
    if hasattr(np.ndarray, "__dlpack__"):
        kinds.append(DLPack)
    else:  # Ubuntu 22.04 has NumPy 1.21
        print(f"DLPack: not tried, NumPy {np.__version__} is older than 1.22")

    def rank(comm):
        for kind in kinds:
            base = np.full((2, 3), comm.rank + 1, np.float32)
            comm.all_reduce(kind(base))
            np.testing.assert_array_equal(base, np.full((2, 3), 3, np.float32))
            columns = np.zeros((4, 4), np.float32)[:, :2]
            refused(gyre.InvalidArgument, ["not contiguous", "(4, 2)"], comm.all_reduce, kind(columns))
            refused(gyre.InvalidArgument, ["no element type"], comm.all_reduce, kind(np.zeros(2, np.int16)))

    gyre.run_threads(2, rank)

    class Given:
        """An interface as given, without an array behind it."""
        def __init__(self, **interface):
            self.__array_interface__ = interface

    with gyre.init_all(1, "host")[0] as comm:
        for words, kind in ((["bytes as its data"], Given(typestr="|u1", shape=(4,), data=b"gyre")),
                            (["no 'data'"], Given(typestr="|u1", shape=(4,))),
                            (["no address"], Given(typestr="|u1", shape=(4,), data=None)),
                            (["no 'typestr'"], Given(shape=(4,), data=(0, False))),
                            (["no dictionary"], np.ndarray)):
            refused(gyre.InvalidArgument, words, comm.all_reduce, kind)
    # An object that makes its memory anew at each look: the buffer keeps what it gave.
    from gyre.buffers import buffer_of

    class Anew:
        @property
        def __array_interface__(self):
            values = np.arange(4.0)
            return Kept(values.__array_interface__, values)

    class Kept(dict):
        """The interface of an array, which it keeps."""
        def __init__(self, interface, values):
            super().__init__(interface)
            self.values = values

    buffer = buffer_of(Anew())
    assert list((ctypes.c_double * 4).from_address(buffer.address)) == [0, 1, 2, 3] and buffer.owner[1].values.size == 4

    # A slice of whole rows is contiguous, and only its memory is written.
    whole = [np.ones((4, 3)) for _ in range(2)]
    gyre.run_threads(2, lambda comm: comm.all_reduce(whole[comm.rank][1:3]))
    np.testing.assert_array_equal(whole[1], [[1] * 3, [2] * 3, [2] * 3, [1] * 3])


def case_types():
    """The types that NumPy lacks and ml_dtypes has."""
    need_package("ml_dtypes", "pip install ml_dtypes")
    import ml_dtypes
    for name in ("bfloat16", "float8_e4m3fn", "float8_e5m2"):
        dtype = np.dtype(getattr(ml_dtypes, name))
        for result in gyre.run_threads(2, lambda comm: comm.all_reduce(np.array([1.5, -2, comm.rank], dtype))):
            np.testing.assert_array_equal(result.astype(np.float32), [3, -4, 1])


def case_torch():
    need_package("torch", "python3-torch")
    import torch

    def rank(comm):
        for name in ("float32", "bfloat16", "float16", "int64", "float8_e4m3fn"):
            dtype = getattr(torch, name, None)  # old versions have no float8
            if dtype is None:
                continue
            tensor = torch.tensor([1.0, 2.0, comm.rank]).to(dtype)
            before = tensor.data_ptr()
            assert comm.all_reduce(tensor) is tensor and tensor.data_ptr() == before
            assert tensor.to(torch.float32).tolist() == [2.0, 4.0, 1.0], (dtype, tensor)
        parts = torch.empty(2, 3)
        comm.all_gather(torch.full((3,), float(comm.rank)), parts)
        assert parts.tolist() == [[0.0] * 3, [1.0] * 3]
        refused(gyre.InvalidArgument, ["not contiguous"], comm.all_reduce, torch.zeros(4, 4).t()[:, 1:])
        refused(gyre.InvalidArgument, ["no element type complex64"], comm.all_reduce,
                torch.zeros(2, dtype=torch.complex64))

    gyre.run_threads(2, rank)


INTERRUPTED = """
import os, signal, sys, threading
sys.dont_write_bytecode = True
sys.path.insert(0, sys.argv[1])
import gyre
comms = gyre.init_all(2, "host")

def interrupt():
    # Many polls after the call was enqueued, so that the main thread is in its wait.
    n_polls = 0
    while n_polls < 2000:
        n_polls += not comms[0]._stream.is_done()
    os.kill(os.getpid(), signal.SIGINT)

def rank(comm):
    if comm.rank == 0:
        comms[0] = comm
        interrupter.start()
    comm.recv(bytearray(8), 1 - comm.rank)

interrupter = threading.Thread(target=interrupt)
try:
    {call}
except KeyboardInterrupt:
    print("interrupted", flush=True)
"""


# ---- failures ----------------------------------------------------------------------------------------------

def case_refusals():
    """Wrong arguments are refused before anything is enqueued: the communicator works afterwards."""
    need_numpy()

    def rank(comm):
        four, three, eight = np.zeros(4), np.zeros(3), np.zeros(8)
        wrong = gyre.InvalidArgument
        refused(wrong, ["4 elements are sent", "has 3"], comm.all_reduce, four, three)
        refused(wrong, ["float64 is sent", "float32"], comm.all_reduce, four, np.zeros(4, np.float32))
        refused(wrong, ["no element type complex128"], comm.all_reduce, np.zeros(4, complex))
        refused(wrong, ["no element type bool"], comm.all_reduce, np.zeros(4, bool))
        refused(wrong, ["byte order"], comm.all_reduce, np.zeros(4, ">f8"))
        refused(wrong, ["no element type datetime64[ns]"], comm.all_reduce, np.zeros(4, "M8[ns]"))
        # A scalar is no part of the array that it comes from: the result would go into freed memory.
        for scalar in (four[2], np.float64(3), np.int32(3)):
            refused(wrong, ["NumPy scalar is a copy", "x[2:3]"], comm.all_reduce, scalar)
            refused(wrong, ["NumPy scalar is a copy"], comm.all_gather, np.zeros(1), scalar)
        refused(wrong, ["not contiguous"], comm.all_reduce, np.zeros((3, 3)).T[:, :2])
        refused(wrong, ["not contiguous"], comm.all_reduce, np.zeros((2, 3), order="F"))
        fixed = np.zeros(4)
        fixed.setflags(write=False)
        refused(wrong, ["read-only"], comm.all_reduce, fixed)
        refused(wrong, ["'mean' is none of sum"], comm.all_reduce, four, op="mean")
        refused(wrong, ["has 8 elements", "needs 6"], comm.all_gather, three, eight)
        refused(wrong, ["has 3 elements", "needs 8"], comm.reduce_scatter, three, four)
        refused(wrong, ["3 elements cannot be cut into 2"], comm.all_to_all, three, three.copy())
        refused(wrong, ["root"], comm.broadcast, four, root=2)
        refused(wrong, ["list is no array"], comm.all_reduce, [1.0])
        if comm.rank == 0:
            refused(wrong, ["the root needs an array"], comm.gather, four)
            refused(wrong, ["the root needs an array"], comm.scatter, None, four)
        assert comm.all_reduce(np.ones(1))[0] == 2
        assert isinstance(refused(wrong, [], comm.all_reduce, 7), ValueError)

    gyre.run_threads(2, rank)
    comm = gyre.init_all(1, "host")[0]
    comm.destroy()
    comm.destroy()
    refused(gyre.InvalidUsage, ["was destroyed"], comm.all_reduce, np.zeros(1))
    refused(gyre.InvalidArgument, ["128 bytes"], gyre.Communicator, 1, b"short", 0)


def case_failures():
    """gyre's cause is in the exception; an abort ends what waits; an exception ends the other ranks."""
    need_numpy()
    started = threading.Event()

    def aborted(comm):
        if comm.rank == 0:
            started.wait()
            comm.abort()
            return None
        started.set()
        return refused(gyre.GyreError, ["abort"], comm.all_reduce, np.zeros(4))

    error = gyre.run_threads(2, aborted)[1]
    assert isinstance(error, (gyre.RemoteFailure, gyre.Aborted)) and error.cause and error.status, error

    def leaves(comm):
        if comm.rank == 1:
            raise KeyError("of this rank")
        comm.all_reduce(np.zeros(4))

    refused(KeyError, ["of this rank"], gyre.run_threads, 3, leaves)

    # The calls differ; both ranks are told, with both calls. GYRE_CHECK compares before data moves.
    os.environ["GYRE_CHECK"] = "calls"
    refused(gyre.InvalidUsage, ["rank 0", "rank 1", "3 x double", "4 x double"], gyre.run_threads, 2,
            lambda comm: comm.all_reduce(np.zeros(3 + comm.rank)))
    del os.environ["GYRE_CHECK"]

    def times_out(comm):
        if comm.rank == 1:
            return refused(gyre.Timeout, ["rank 0"], comm.all_reduce, np.zeros(1))
        done.wait()
        return None

    done = threading.Event()

    def times_out_and_says_so(comm):
        try:
            return times_out(comm)
        finally:
            done.set()

    assert isinstance(gyre.run_threads(2, times_out_and_says_so, timeout_ms=200)[1], TimeoutError)

    # Ctrl-C ends a call that would wait for ever: of the main thread, and of the threads of run_threads().
    for call in ("rank(comms[0])", "gyre.run_threads(2, rank)"):
        script = [sys.executable, "-c", INTERRUPTED.format(call=call), os.path.join(BUILD, "python")]
        child = subprocess.run(script, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=60,
                               check=False)
        assert "interrupted\n" in child.stdout and child.returncode == 0, child.stdout

    # The exception of a block is the one to see, and the failure of a communicator is kept.
    def block():
        with gyre.init_all(1, "host")[0]:
            raise KeyError("of the block")

    refused(KeyError, ["of the block"], block)
    first, second = gyre.init_all(2, "host")
    first.check()
    first.abort()
    refused(gyre.Aborted, [], first.check)
    for comm in (first, second):
        comm.destroy()


# ---- threads, groups, communicators ------------------------------------------------------------------------

def case_threads():
    """A collective gives up Python's global lock: its peer is a thread of Python that starts later."""
    need_numpy()
    comms = gyre.init_all(2, "host")
    result = np.ones(4)
    waiting = threading.Thread(target=comms[0].all_reduce, args=(result,))
    waiting.start()
    # This thread could not go on if the other one held the lock inside the collective.
    assert comms[1].all_reduce(np.full(4, 2.0))[0] == 3
    waiting.join()
    assert (result == 3).all()

    # One thread for all ranks, in a group; and a group whose block fails launches nothing.
    arrays = [np.full(3, rank + 1.0) for rank in range(2)]
    with gyre.group():
        for comm, mine in zip(comms, arrays):
            with gyre.group():
                comm.all_reduce(mine)
    assert (np.stack(arrays) == 3).all()

    def broken():
        with gyre.group():
            comms[0].all_reduce(arrays[0])
            raise KeyError("in the group")

    refused(KeyError, ["in the group"], broken)
    assert (arrays[0] == 3).all()

    # Streams: calls return at once, and arrays live until the stream is synchronized.
    streams = [gyre.Stream(), gyre.Stream()]
    for _ in range(3):
        for comm, stream, mine in zip(comms, streams, arrays):
            comm.all_reduce(mine, stream=stream)
    for stream in streams:
        stream.synchronize()
        assert stream.is_done()
        stream.close()
    assert (np.stack(arrays) == 24).all()
    for comm in comms:
        comm.destroy()


def case_communicators():
    """Two communicators of the same ranks; split, shrink, properties; ids."""
    need_numpy()
    ids = [gyre.unique_id(), gyre.unique_id()]
    results = [None] * 3

    def rank(number):
        with gyre.Communicator(3, ids[0], number, "host") as one, \
                gyre.Communicator(3, ids[1], 2 - number, "host", name="other") as two:
            assert (one.rank, two.rank, one.n_ranks) == (number, 2 - number, 3)
            with gyre.group():
                summed = one.all_reduce(np.full(2, number + 1.0))
                of_root = two.broadcast(np.full(2, float(number)), root=0)
            facts = one.properties()
            assert facts["n_ranks"] == 3 and facts["rank"] == number and facts["id"] != two.properties()["id"]
            half = one.split(0 if number < 2 else None, key=-number)
            if number == 2:
                assert half is None
            else:
                with half:
                    assert (half.n_ranks, half.rank) == (2, 1 - number)
                    assert half.all_reduce(np.ones(1))[0] == 2
                with one.shrink([2]) as pair:
                    assert pair.all_reduce(np.ones(1))[0] == 2 and pair.rank == number
            results[number] = (summed.tolist(), of_root.tolist())

    threads = [threading.Thread(target=rank, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [([6.0, 6.0], [2.0, 2.0])] * 3, results


JOB = """
import sys
sys.dont_write_bytecode = True
sys.path.insert(0, sys.argv[1])
import array, gyre
for _ in range(2):
    with gyre.from_environment("host") as comm:
        numbers = comm.all_reduce(array.array("q", [comm.rank + 1]))
with open(f"{sys.argv[2]}/{comm.rank}", "w") as file:
    file.write(f"rank {comm.rank} of {comm.n_ranks} has {numbers[0]}")
"""


def check_job(folder, outputs, n_ranks):
    """@folder: each rank wrote a file there, because mpirun mixes what ranks print. They are removed."""
    for rank in range(n_ranks):
        path = os.path.join(folder, str(rank))
        assert os.path.exists(path), "".join(outputs)
        with open(path, encoding="utf-8") as file:
            text = file.read()
        assert text == f"rank {rank} of {n_ranks} has {n_ranks * (n_ranks + 1) // 2}", text
        os.remove(path)


def meet(launch, number, milliseconds=60000):
    """The unique id of the launch."""
    import ctypes
    from gyre import native
    from gyre.library import call
    result = native.gyre_unique_id()
    call("gyre_get_launch_id", ctypes.byref(launch), number, milliseconds, ctypes.byref(result))
    return bytes(result.bytes)


def same_table_as_the_benches():
    """Each row of tests/support/launchers.txt, which tests/bootstrap/test_launch.c reads, too."""
    from gyre import rendezvous
    from unittest import mock
    with open(os.path.join(SOURCE, "tests", "support", "launchers.txt"), encoding="utf-8") as file:
        rows = [line.rstrip("\n").split("; ") for line in file if line[0] != "#"]
    assert len(rows) > 10
    for name, _, numbers, _, variables in rows:
        with mock.patch.dict(os.environ, dict(word.split("=", 1) for word in variables.split())):
            found = rendezvous.launch()
            assert [found.rank, found.n_ranks, found.local_rank] == list(map(int, numbers.split())), name
            assert found.name.decode() == name and rendezvous.ranks_of_environment() == (found.rank, found.n_ranks)


def case_launchers():
    """Processes with torchrun's variables, and processes of mpirun; each makes two communicators."""
    sys.path[:0] = [os.path.join(SOURCE, "tests", folder) for folder in ("support", "bench")]
    from open_mpi import for_open_mpi
    from running import free_port
    folder = tempfile.mkdtemp()
    script = [sys.executable, "-c", JOB, os.path.join(BUILD, "python"), folder]
    port = free_port()
    jobs = [subprocess.Popen(script, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                             env={**os.environ, "RANK": str(rank), "WORLD_SIZE": "3", "MASTER_ADDR": "127.0.0.1",
                                  "MASTER_PORT": str(port)}) for rank in range(3)]
    check_job(folder, [job.communicate(timeout=60)[0] for job in jobs], 3)
    # Two steps of one Slurm job, side by side: each meets by its identity.
    steps = [(tempfile.mkdtemp(dir=folder), {"SLURM_JOB_ID": str(os.getpid()), "SLURM_STEP_ID": str(step),
                                             "SLURM_STEP_NUM_TASKS": "2"}) for step in range(2)]
    jobs = [subprocess.Popen(script[:-1] + [path], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                             env={**os.environ, **variables, "SLURM_PROCID": str(rank)})
            for path, variables in steps for rank in range(2)]
    outputs = [job.communicate(timeout=60)[0] for job in jobs]
    for step, (path, _) in enumerate(steps):
        check_job(path, outputs[2 * step:2 * step + 2], 2)
        os.rmdir(path)
    refused(gyre.InvalidUsage, ["no launcher", "WORLD_SIZE"], gyre.from_environment)
    same_table_as_the_benches()
    os.environ.update({"RANK": "1", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)})
    # A rank that is at its next communicator already does not get the id of this one.
    from gyre import rendezvous
    start = time.monotonic()
    ranks = [rendezvous.launch() for _ in range(2)]
    ranks[0].rank = 0
    ids = []
    server = threading.Thread(target=lambda: ids.append(meet(ranks[0], 7)))
    server.start()
    refused(gyre.Timeout, ["rank 0 is not there yet"], meet, ranks[1], 8, 500)
    ids.append(meet(ranks[1], 7))
    server.join()
    assert ids[0] == ids[1] and ranks[1].local_rank == 1 and ranks[1].n_local_ranks == 2, ids
    refused(gyre.Timeout, ["rank 1 cannot reach rank 0"], gyre.from_environment, "host", wait_seconds=0.2)
    os.environ["RANK"] = "0"
    refused(gyre.Timeout, ["ranks 1 never came"], gyre.from_environment, "host", wait_seconds=0.2)
    assert time.monotonic() - start < 60  # GYRE_BOOTSTRAP_TIMEOUT is 120 s
    if shutil.which("mpirun") is None:
        skip("no mpirun; torchrun's variables were tried")
    done = subprocess.run(["mpirun", "--oversubscribe", "--bind-to", "none", "-np", "3", *script],
                          env={**{name: value for name, value in os.environ.items()
                                  if name not in ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")},
                               **for_open_mpi()},
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=90, check=False)
    check_job(folder, [done.stdout], 3)
    os.rmdir(folder)


# ---- programs ----------------------------------------------------------------------------------------------

def two_ranks(final=True):
    """Each rank sends its vector, and adds in the order of the ranks."""
    builder = gyre.Builder("swap", "all_reduce", n_ranks=2)
    for rank in range(2):
        builder.step(rank, 0, ["in 0"], [f"to {1 - rank}"])
        terms = ["in 0", "from 1"] if rank == 0 else ["from 0", "in 0"]
        builder.step(rank, 0, terms, ["out 0"], final=final)
    return builder


def case_programs():
    need_numpy()
    try:
        ring = gyre.Programs.of_algorithm("ring", "all_reduce", ranks=4)
        assert ring.verify(), ring.verify()
    except gyre.ProgramError as error:
        if "json" in str(error):
            skip(f"built without json-c: {error}")
        raise
    assert (ring.name, ring.collective, ring.n_ranks) == ("ring", "all_reduce", 4)
    assert ring.rounds().count("\n") >= 7  # a ring of four ranks has seven rounds

    wrong = gyre.Programs(str(ring).replace("from 0 + in 3 -> to 2", "from 0 -> to 2"))
    assert not wrong.verify() and "contributions of 3 ranks of 4" in wrong.verify().finding
    refused(gyre.ProgramRefused, ["rank", "step"], wrong.prove)
    # Init proves the programs that a communicator shall use.
    error = refused(gyre.InvalidArgument, ["the verifier refuses it"], gyre.run_threads, 4,
                    lambda comm: comm.all_reduce(np.ones(8)), programs=wrong)
    assert "contributions of 3 ranks of 4" in error.cause and "GYRE_ALGO_FILE" not in os.environ

    built = two_ranks().programs()
    assert built.prove() is built
    assert "final" in two_ranks(final=False).programs().verify().finding
    for result in gyre.run_threads(2, lambda comm: comm.all_reduce(np.arange(9.0)), programs=built):
        np.testing.assert_array_equal(result, 2 * np.arange(9.0))
    refused(gyre.InvalidArgument, ["'to 1' is not an input"], two_ranks().step, 0, 0, ["to 1"], [])
    refused(gyre.InvalidArgument, ["rank 2 is not one of 2"], two_ranks().step, 2, 0, [], [])
    refused(gyre.InvalidArgument, ["has no program"], gyre.Programs, "nothing")
    for name in ("my algo", "", "a" * 16, "a->b", "a:b"):
        refused(gyre.InvalidArgument, [repr(name), "1 to 15 bytes"], gyre.Builder, name, "all_reduce", n_ranks=2)
    gyre.Builder("two-level.2", "all_reduce", n_ranks=2)
    refused(gyre.ProgramError, ["line 4"], gyre.Programs(str(built).replace("in 0 ->", "in zero ->")).verify)

    # More bytes take longer; the same program costs the same by name and from a file.
    times = [row.time_us for row in ring.predict(["64K", "1M", "1G"], cost="h200")]
    assert len(times) == 3 and times[0] <= times[1] < times[2], times
    by_name = gyre.predict("all_reduce", ranks=4, algorithm="ring", bytes=1 << 20)
    assert [row.time_us for row in by_name] == times[1:2] and by_name[0].bytes == 1 << 20
    assert gyre.predict("all_reduce", ranks=64, algorithm="ring")[0].time_us > times[1]
    refused(gyre.ProgramError, ["nothing"], gyre.predict, "all_reduce", ranks=4, algorithm="nothing")
    # A fabric names the hosts, and its spines are slower than no fabric at all.
    fabric = os.path.join(SOURCE, "docs", "examples", "racks.fabric")
    through, around = (gyre.predict("all_reduce", algorithm="ring", bytes="1G", **shape)[0]
                       for shape in ({"fabric": fabric}, {"hosts": "8x8"}))
    assert through.ranks == around.ranks == 64 and through.time_us > around.time_us, (through, around)

    with tempfile.TemporaryDirectory() as folder:
        for kind, start in (("html", "<!doctype html"), ("svg", "<svg"), ("json", "{")):
            path = os.path.join(folder, f"drawn.{kind}")
            (wrong if kind == "svg" else ring).draw(path)
            with open(path, encoding="utf-8") as file:
                assert start in file.read(200).lower(), kind
        refused(gyre.InvalidArgument, [".html, .svg"], ring.draw, os.path.join(folder, "drawn.png"))
        path = os.path.join(folder, "mine.gyre")
        built.save(path)
        assert str(gyre.Programs.read(path)) == str(built)
        with open(path, "wb") as file:
            file.write(b"program \xff\xfe\0")
        refused(gyre.InvalidArgument, [path, "is no text"], gyre.Programs.read, path)
    assert ring._repr_svg_().lstrip().startswith("<")


if __name__ == "__main__":
    run_named(globals())
