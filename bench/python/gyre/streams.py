# SPDX-License-Identifier: Apache-2.0
"""Streams, and groups of calls that one thread launches together."""
import contextlib
import ctypes
import threading
import time

from . import native
from .buffers import CUDA
from .errors import InvalidArgument
from .library import LIBRARY, call, check
from .settings import device_of

_SPINS = 200             # polls without a pause: a short call ends within them
_PAUSE_SECONDS = (1e-5, 1e-3)  # the first pause between polls, and the longest

# .calls: what the open group has enqueued, absent outside groups: pairs of the communicator to wait for, or None,
# and the arrays of a call, which must live until the group's end launches it.
_group = threading.local()


class Stream:
    """A queue of calls of one rank. Calls with a stream return at once; their results are there after
    synchronize().
    @device: "host", "cuda" (the current GPU) or "cuda:1"; a communicator's `device` is its stream's."""

    def __init__(self, device="host"):
        self.kind, self.ordinal = device_of(device)
        if self.kind == native.GYRE_DEVICE_AUTO:
            raise InvalidArgument('a stream is of "host", "cuda" or "cuda:1", not of "auto"')
        self._keep = []  # arrays that enqueued calls use
        handle = ctypes.c_void_p()
        call("gyre_stream_create", ctypes.byref(handle), self.kind, -1 if self.ordinal is None else self.ordinal)
        self.handle = handle.value

    def __cuda_stream__(self):
        """Other libraries take a stream of a GPU by this."""
        if self.kind != CUDA:
            raise InvalidArgument("this is a stream of the host, not of CUDA")
        return 0, self.handle

    def keep(self, *owners):
        """Keeps the arrays of an enqueued call alive until synchronize()."""
        self._keep.extend(owners)

    def is_done(self):
        """Has everything that was enqueued been carried out?"""
        return LIBRARY.gyre_stream_query(self.handle, self.kind) != native.GYRE_IN_PROGRESS

    def synchronize(self):
        """Waits until everything that was enqueued is carried out. Raises its first failure."""
        wait(self.handle, self.kind)
        self._keep.clear()

    def close(self):
        """Waits, then frees the stream."""
        if self.handle is not None:
            handle, self.handle = self.handle, None
            call("gyre_stream_destroy", handle, self.kind)
            self._keep.clear()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


def wait(handle, kind):
    """gyre_stream_synchronize(). The main thread polls, because Python handles Ctrl-C only between calls."""
    if threading.current_thread() is threading.main_thread():
        spins, pause = 0, _PAUSE_SECONDS[0]
        while LIBRARY.gyre_stream_query(handle, kind) == native.GYRE_IN_PROGRESS:
            spins += 1
            if spins > _SPINS:
                time.sleep(pause)
                pause = min(2 * pause, _PAUSE_SECONDS[1])
    check(LIBRARY.gyre_stream_synchronize(handle, kind))


def calls_of_group():
    """The list of the group that this thread has open, else None."""
    return getattr(_group, "calls", None)


@contextlib.contextmanager
def group():
    """with gyre.group(): the calls of the block are launched together at its end, and the block ends when
    they are carried out. One thread that serves several ranks needs it, and so do sends and receives that must
    not wait for each other. If the block raises an exception, none of its calls is launched."""
    is_outermost = calls_of_group() is None
    call("gyre_group_start")
    if is_outermost:
        _group.calls = []
    try:
        yield
    except BaseException:
        if is_outermost:
            del _group.calls
            LIBRARY.gyre_group_cancel()
        else:
            LIBRARY.gyre_group_end()  # only the outermost end launches
        raise
    if not is_outermost:
        call("gyre_group_end")
        return
    calls = _group.calls
    del _group.calls
    call("gyre_group_end")
    # Every communicator once: waiting for one says that all its calls are done.
    first_error = None
    for comm in {id(comm): comm for comm, _ in calls if comm is not None}.values():
        try:
            comm.synchronize()
        except Exception as error:
            first_error = first_error or error
    if first_error is not None:
        raise first_error
