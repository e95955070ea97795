# SPDX-License-Identifier: Apache-2.0
"""Communicators of processes that a launcher started, and of threads.

Which launcher started the process, and how its ranks meet to get one unique id, is decided by the library
(gyre_get_launch), as for the benches. As torchrun's own store does, this trusts the network at MASTER_ADDR.
"""
import contextlib
import ctypes
import itertools
import os
import sys
import threading

from . import native
from .communicator import Communicator, init_all
from .errors import GyreError, InvalidUsage
from .gpu import use_device
from .library import call, text

_numbers = itertools.count()  # the communicators that this process has made with from_environment()


def launch():
    """What the launcher of this process says: a gyre_launch. Its name is empty where there is none."""
    found = native.gyre_launch(*native.GYRE_LAUNCH_INIT)
    call("gyre_get_launch", ctypes.byref(found))
    return found


def ranks_of_environment():
    """(rank, number of ranks), as the launcher says."""
    found = launch()
    if not found.name:
        raise InvalidUsage("no launcher is in the environment: start with torchrun, mpirun or srun, or set RANK, "
                           "WORLD_SIZE, MASTER_ADDR and MASTER_PORT")
    return found.rank, found.n_ranks


def _device_of_rank(device, local_rank):
    """ "auto" and "cuda" with the GPU of the rank's number on its host. Launchers that give each process GPUs of its
    own name them in CUDA_VISIBLE_DEVICES, and they count from 0 in the process."""
    if device not in ("auto", "cuda") or local_rank < 0:
        return device
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    return f"{device}:{local_rank % len(visible.split(',')) if visible else local_rank}"


def _meet(found, wait_seconds):
    """The unique id of all ranks. The library's wait is on a thread of its own, so that Ctrl-C ends this one."""
    result, errors = native.gyre_unique_id(), []
    number = next(_numbers)
    milliseconds = 0 if wait_seconds is None else max(1, int(wait_seconds * 1000))

    def wait():
        try:
            call("gyre_get_launch_id", ctypes.byref(found), number, milliseconds, ctypes.byref(result))
        except GyreError as error:
            errors.append(error)

    thread = threading.Thread(target=wait, name="gyre meets", daemon=True)
    thread.start()
    while thread.is_alive():
        thread.join(0.1)
    if errors:
        raise errors[0]
    return bytes(result.bytes)


def from_environment(device="auto", wait_seconds=None, **settings):
    """A communicator of the processes that a launcher (torchrun, mpirun, srun, ...) started, each of which calls this.
    @device: "auto" or "cuda" (the GPU of the rank's number on its host), "host", or "cuda:1".
    @wait_seconds: until all ranks have come; None: GYRE_BOOTSTRAP_TIMEOUT."""
    rank, n_ranks = ranks_of_environment()
    found = launch()
    if rank == 0 and found.choice:
        print(text(found.choice), file=sys.stderr, flush=True)
    alone = found.local_rank  # a rank that is alone keeps the current GPU
    id_bytes = _meet(found, wait_seconds)
    device = _device_of_rank(device, found.local_rank if n_ranks > 1 else alone)
    return Communicator(n_ranks, id_bytes, rank, device, **settings)


def run_threads(n_ranks, function, *arguments, programs=None, device="host", **settings):
    """Runs function(comm, *arguments) in n_ranks threads, one for each rank, and returns their results by
    rank. If one raises an exception, the communicator is aborted, and the first exception is raised here.
    With device="cuda" rank 0 has GPU 0, rank 1 GPU 1, ..., or those of `devices`, and each thread's current device
    of torch and of CuPy is its rank's.
    @programs: Programs that the communicator shall use where they fit."""
    with programs.active() if programs is not None else contextlib.nullcontext():
        comms = init_all(n_ranks, device, **settings)
    results, errors = [None] * n_ranks, []

    def abort(comm):
        with contextlib.suppress(GyreError):  # the function may have destroyed it
            comm.abort()

    def run(rank):
        try:
            if comms[rank].ordinal is not None:
                use_device(comms[rank].ordinal)
            results[rank] = function(comms[rank], *arguments)
        except BaseException as error:  # every kind: the other ranks wait for this one
            errors.append(error)
            abort(comms[rank])

    threads = [threading.Thread(target=run, args=(rank,), name=f"gyre rank {rank}", daemon=True)
               for rank in range(n_ranks)]
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    except BaseException:
        for comm in comms:
            abort(comm)
        for thread in threads:
            if thread.ident is not None:  # it was started
                thread.join()
        raise
    finally:
        for comm in comms:
            try:
                comm.destroy()
            except GyreError as error:
                errors.append(error)
    if errors:
        raise errors[0]
    return results
