# SPDX-License-Identifier: Apache-2.0
"""Communicators of processes that a launcher started, and of threads.

gyre's unique id has to reach all processes once. torchrun gives them MASTER_ADDR and MASTER_PORT: rank 0 hands
the id out there. mpirun and srun give only ranks: on one host the id goes through a socket without a file,
whose name begins with the user's number; for several hosts MASTER_ADDR and MASTER_PORT must be set, too. As
torchrun's own store does, this trusts the network at MASTER_ADDR.
"""
import contextlib
import itertools
import os
import socket
import struct
import threading
import time

from . import native
from .communicator import Communicator, init_all, unique_id
from .errors import GyreError, InvalidUsage, RemoteFailure, Timeout
from .gpu import use_device

_RANKS = (("RANK", "WORLD_SIZE"), ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"), ("PMI_RANK", "PMI_SIZE"),
          ("SLURM_PROCID", "SLURM_NTASKS"))
_LOCAL_RANKS = ("LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", "SLURM_LOCALID")
_JOBS = ("PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid", "PMI_JOBID", "SLURM_JOB_ID")
_HELLO = struct.Struct("!16sII")  # magic, number of the communicator, rank
_MAGIC = b"gyre python 0001"
_RETRY_SECONDS = 0.02
_HELLO_SECONDS = 2
_numbers = itertools.count()  # the communicators that this process has made with from_environment()


def ranks_of_environment():
    """(rank, number of ranks), as torchrun, mpirun or srun say."""
    for rank, n_ranks in _RANKS:
        if rank in os.environ and n_ranks in os.environ:
            return int(os.environ[rank]), int(os.environ[n_ranks])
    raise InvalidUsage("no launcher is in the environment: neither "
                       + " nor ".join(f"{rank} with {n_ranks}" for rank, n_ranks in _RANKS))


def _device_of_rank(device):
    """ "auto" and "cuda" with the GPU of the rank's number on its host. Launchers that give each process GPUs of its
    own name them in CUDA_VISIBLE_DEVICES, and they count from 0 in the process."""
    local_rank = next((os.environ[name] for name in _LOCAL_RANKS if name in os.environ), None)
    if device not in ("auto", "cuda") or local_rank is None:
        return device
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    ordinal = int(local_rank) % len(visible.split(",")) if visible else int(local_rank)
    return f"{device}:{ordinal}"


def _addresses():
    """Where rank 0 hands out the id: a list of (family, address)."""
    if "MASTER_ADDR" in os.environ and "MASTER_PORT" in os.environ:
        port = int(os.environ["MASTER_PORT"])
        if os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True":  # torchrun itself listens at MASTER_PORT
            port = port + 1 if port < 65535 else 1024
        found = socket.getaddrinfo(os.environ["MASTER_ADDR"], port, type=socket.SOCK_STREAM)
        return [(family, address) for family, _, _, _, address in found]
    job = next((os.environ[name] for name in _JOBS if name in os.environ), None)
    if job is None:
        raise InvalidUsage("set MASTER_ADDR and MASTER_PORT: the launcher names neither an address nor a job")
    local = os.environ.get("OMPI_COMM_WORLD_LOCAL_SIZE") or os.environ.get("MPI_LOCALNRANKS")
    if local is not None and int(local) != ranks_of_environment()[1]:
        raise InvalidUsage("the ranks run on several hosts: set MASTER_ADDR to the host of rank 0 and "
                           "MASTER_PORT to a free port of it (mpirun -x MASTER_ADDR=... -x MASTER_PORT=...)")
    return [(socket.AF_UNIX, f"\0gyre-{os.getuid()}-{job}")]


def _is_own_user(connection):
    """A socket without a file can be opened by every user of the host."""
    if connection.family != socket.AF_UNIX:
        return True
    raw = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    return struct.unpack("3i", raw)[1] == os.getuid()


def _read(connection, n_bytes):
    """n_bytes, or fewer if the connection ended."""
    data = b""
    while len(data) < n_bytes:
        part = connection.recv(n_bytes - len(data))
        if not part:
            break
        data += part
    return data


def _listen(addresses, deadline):
    error = None
    while time.monotonic() < deadline:
        for family, address in addresses:
            server = socket.socket(family, socket.SOCK_STREAM)
            try:
                if family != socket.AF_UNIX:
                    server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                server.bind(address)
                server.listen(1024)
                return server
            except OSError as failure:
                error = failure
                server.close()
        time.sleep(_RETRY_SECONDS)
    raise Timeout(f"rank 0 cannot listen at {addresses[0][1]!r}: {error}")


def _hand_out(id_bytes, n_ranks, number, deadline):
    """Rank 0 gives the id to every other rank once."""
    missing = set(range(1, n_ranks))
    with _listen(_addresses(), deadline) as server:
        while missing:
            server.settimeout(max(0.001, deadline - time.monotonic()))
            try:
                connection, _ = server.accept()
            except socket.timeout:
                raise Timeout(f"ranks {', '.join(map(str, sorted(missing)))} never came for the unique id "
                              "(MASTER_ADDR, MASTER_PORT)") from None
            with connection:
                connection.settimeout(_HELLO_SECONDS)
                try:
                    hello = _read(connection, _HELLO.size)
                    if len(hello) != _HELLO.size or not _is_own_user(connection):
                        continue
                    magic, their_number, rank = _HELLO.unpack(hello)
                    # A rank that is ahead, at its next communicator, is turned away and comes back.
                    if magic == _MAGIC and their_number == number and rank in missing:
                        connection.sendall(id_bytes)
                        missing.discard(rank)
                except OSError:
                    continue


def _fetch(rank, number, deadline):
    """Gets the id from rank 0, which may start later than this rank."""
    error = None
    while time.monotonic() < deadline:
        for family, address in _addresses():
            try:
                with socket.socket(family, socket.SOCK_STREAM) as connection:
                    connection.settimeout(max(0.001, deadline - time.monotonic()))
                    connection.connect(address)
                    if not _is_own_user(connection):
                        raise RemoteFailure(f"another user of this host listens at {address!r}")
                    connection.sendall(_HELLO.pack(_MAGIC, number, rank))
                    id_bytes = _read(connection, native.GYRE_UNIQUE_ID_BYTES)
                    if len(id_bytes) == native.GYRE_UNIQUE_ID_BYTES:
                        return id_bytes
                    error = "rank 0 is not there yet"
            except socket.timeout as failure:
                error = error or str(failure)  # the last try has little time, and says less than those before
            except OSError as failure:
                error = str(failure)
        time.sleep(_RETRY_SECONDS)
    raise Timeout(f"rank {rank} got no unique id from rank 0 at {_addresses()[0][1]!r}: "
                  f"{error or 'nothing was tried'}")


def from_environment(device="auto", wait_seconds=120, **settings):
    """A communicator of the processes that torchrun, mpirun or srun started, each of which calls this.
    @device: "auto" or "cuda" (the GPU of the rank's number on its host), "host", or "cuda:1"."""
    rank, n_ranks = ranks_of_environment()
    number, deadline = next(_numbers), time.monotonic() + wait_seconds
    device = _device_of_rank(device)
    if rank != 0:
        return Communicator(n_ranks, _fetch(rank, number, deadline), rank, device, **settings)
    id_bytes = unique_id()
    if n_ranks > 1:
        _hand_out(id_bytes, n_ranks, number, deadline)
    return Communicator(n_ranks, id_bytes, rank, device, **settings)


def run_threads(n_ranks, function, *arguments, programs=None, device="host", **settings):
    """Runs function(comm, *arguments) in n_ranks threads, one for each rank, and returns their results by
    rank. If one raises an exception, the communicator is aborted, and the first exception is raised here.
    With device="cuda" rank 0 has GPU 0, rank 1 GPU 1, ..., or those of `devices`, and each thread's current device
    of torch and of CuPy is its rank's.
    @programs: Programs that the communicator shall use where they fit."""
    if programs is not None:
        with programs.active():
            comms = init_all(n_ranks, device, **settings)
    else:
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
