# SPDX-License-Identifier: Apache-2.0
"""Communicators, and the collectives on arrays."""
import contextlib
import ctypes
import operator
import warnings

from . import native
from .buffers import CUDA, HOST, buffer_of
from .errors import GyreError, InvalidArgument, InvalidUsage, error_of
from .gpu import handle_of, on_device, record
from .library import LIBRARY, call, check, text
from .settings import config_of
from .streams import Stream, calls_of_group, wait

OPS = {"sum": native.GYRE_SUM, "prod": native.GYRE_PROD, "max": native.GYRE_MAX, "min": native.GYRE_MIN,
       "avg": native.GYRE_AVG}


def _rank_of(kind, name, value):
    """A rank as an int. ctypes would say "int expected instead of str instance", without the argument's name."""
    try:
        rank = operator.index(value)
    except TypeError:
        raise TypeError(f"{kind}: {name} is a rank, a whole number, not {value!r}") from None
    if ctypes.c_int(rank).value != rank:   # ctypes would cut it to 32 bits
        raise InvalidArgument(f"{kind}: {name} is {rank}, which is no rank")
    return rank


def unique_id():
    """Starts a rendezvous in this process: 128 bytes for the ranks of one communicator, and for nobody else.
    The process must live as long as the communicator."""
    result = native.gyre_unique_id()
    call("gyre_get_unique_id", ctypes.byref(result))
    return bytes(result.bytes)


def init_all(n_ranks, device="auto", devices=None, **settings):
    """A communicator whose ranks all live in this process: a list of handles, by rank.
    @devices: CUDA ordinals, one for each rank; None = 0, 1, 2, ..."""
    config = config_of(device, settings)
    if n_ranks < 1:
        raise InvalidArgument(f"a communicator has at least one rank, not {n_ranks}")
    handles = (ctypes.c_void_p * n_ranks)()
    if devices is not None and len(devices) != n_ranks:
        raise InvalidArgument(f"{len(devices)} devices for {n_ranks} ranks")
    ordinals = (ctypes.c_int * n_ranks)(*devices) if devices is not None else None
    call("gyre_comm_init_all", handles, n_ranks, ordinals, ctypes.byref(config))
    return [Communicator._of_handle(handle) for handle in handles]


def _count_of(whole, part, n_ranks, name, verb):
    """Checks that one array is n_ranks times as long as the other."""
    if whole.n_elems != n_ranks * part.n_elems:
        raise InvalidArgument(f"{name}: the array that is {verb} has {whole.n_elems} elements; with {n_ranks} "
                              f"ranks and blocks of {part.n_elems} it needs {n_ranks * part.n_elems}")


class Communicator:
    """One rank's handle of a communicator.

        with gyre.Communicator(n_ranks, id_bytes, rank) as comm:
            comm.all_reduce(array)

    A context manager: the end of the block destroys the communicator, and an exception in the block aborts it
    first, so that the other ranks do not wait. The calls wait until the result is there, except with a stream,
    inside a group, and on GPUs where torch or CuPy has a current stream. Arrays are used where they are,
    without a copy."""

    def __init__(self, n_ranks, id_bytes, rank, device="auto", **settings):
        """Joins a communicator. Every rank calls this once.
        @id_bytes: from unique_id() of one process."""
        config = config_of(device, settings)
        handle = ctypes.c_void_p()
        if len(id_bytes) != native.GYRE_UNIQUE_ID_BYTES:
            raise InvalidArgument(f"a unique id has {native.GYRE_UNIQUE_ID_BYTES} bytes, not {len(id_bytes)}")
        unique = native.gyre_unique_id.from_buffer_copy(id_bytes)
        call("gyre_comm_init_rank", ctypes.byref(handle), n_ranks, ctypes.byref(unique), rank, ctypes.byref(config))
        self._adopt(handle.value)

    @classmethod
    def _of_handle(cls, handle):
        self = cls.__new__(cls)
        self._adopt(handle)
        return self

    def _adopt(self, handle):
        self._handle = handle
        self._stream = None
        number, kind = ctypes.c_int(), ctypes.c_int()
        call("gyre_comm_count", handle, ctypes.byref(number))
        self.n_ranks = number.value
        call("gyre_comm_rank", handle, ctypes.byref(number))
        self.rank = number.value
        call("gyre_comm_device", handle, ctypes.byref(kind), ctypes.byref(number))
        self._kind = kind.value
        self.ordinal = None if kind.value == HOST else number.value
        self.device = "host" if kind.value == HOST else f"cuda:{number.value}"
        if kind.value == HOST:
            self._stream = Stream()

    def __repr__(self):
        state = "" if self._handle else ", destroyed"
        return f"<gyre.Communicator: rank {self.rank} of {self.n_ranks}, {self.device}{state}>"

    # ---- life ------------------------------------------------------------------------------------

    @property
    def handle(self):
        """The gyre_comm, for functions of gyre.h that this class does not have."""
        if self._handle is None:
            raise InvalidUsage("the communicator was destroyed")
        return self._handle

    def properties(self):
        """The facts of gyre_comm_properties(), as a dictionary."""
        found = native.gyre_properties(*native.GYRE_PROPERTIES_INIT)
        call("gyre_comm_properties", self.handle, ctypes.byref(found))
        facts = {name: getattr(found, name) for name, _ in found._fields_ if name not in ("struct_bytes", "version")}
        facts["transports"] = text(facts["transports"])
        return facts

    def split(self, color, key=0):
        """Divides the ranks: those with one color form a new communicator, ordered by key. None for a rank
        with the color None. Every rank calls this."""
        handle = ctypes.c_void_p()
        color = native.GYRE_SPLIT_NOCOLOR if color is None else color
        call("gyre_comm_split", self.handle, color, key, ctypes.byref(handle), None)
        return Communicator._of_handle(handle.value) if handle.value else None

    def shrink(self, excluded_ranks, has_failed=False):
        """A communicator without some ranks. Every rank that stays calls this with the same list.
        @has_failed: the communicator has failed or the excluded ranks are dead; abort() it first."""
        handle = ctypes.c_void_p()
        ranks = (ctypes.c_int * max(1, len(excluded_ranks)))(*excluded_ranks)
        flags = native.GYRE_SHRINK_ABORT if has_failed else native.GYRE_SHRINK_DEFAULT
        call("gyre_comm_shrink", self.handle, ranks, len(excluded_ranks), flags, ctypes.byref(handle), None)
        return Communicator._of_handle(handle.value)

    def abort(self):
        """Ends all calls at once, without waiting for other ranks. Any thread may call it."""
        call("gyre_comm_abort", self.handle)

    def check(self):
        """Raises the failure that ended the communicator, if there is one. Never blocks."""
        status = ctypes.c_int()
        call("gyre_comm_async_error", self.handle, ctypes.byref(status))
        if status.value not in (native.GYRE_SUCCESS, native.GYRE_IN_PROGRESS):
            raise error_of(status.value, text(LIBRARY.gyre_status_name(status.value)),
                           text(LIBRARY.gyre_comm_last_error(self.handle)))

    def synchronize(self):
        """Waits for the calls that were made without a stream, on GPUs for those on the default stream: what runs
        on streams of torch or CuPy is waited for with their own functions."""
        self._wait(self._stream.handle if self._stream is not None else None)
        if self._stream is not None:
            self._stream.synchronize()

    def destroy(self):
        """Waits for enqueued work, tells the other ranks and frees the communicator."""
        if self._handle is not None:
            handle, self._handle = self._handle, None
            try:
                call("gyre_comm_destroy", handle)
            finally:
                if self._stream is not None:
                    self._stream.close()

    def __enter__(self):
        return self

    def __exit__(self, kind, *_):
        if kind is None or self._handle is None:
            self.destroy()
            return
        with contextlib.suppress(GyreError):  # the exception of the block is the one to see
            self.abort()
            self.destroy()

    def __del__(self):
        # Destroying could wait for other ranks, which a destructor must not do.
        if getattr(self, "_handle", None) is not None:
            warnings.warn(f"{self!r} was never destroyed; use it as a context manager", ResourceWarning,
                          source=self)

    # ---- calls -----------------------------------------------------------------------------------

    def _buffer(self, array, stream, is_written=False):
        buffer = buffer_of(array, stream)
        if buffer.device != self._kind:
            where = "on a GPU" if buffer.device == CUDA else "in host memory"
            raise InvalidArgument(f"the array is {where}, but this communicator works on {self.device}; copy the array "
                                  "there first")
        if buffer.ordinal is not None and buffer.ordinal != self.ordinal:
            raise InvalidArgument(f"the array is on cuda:{buffer.ordinal}, but this communicator works on {self.device}")
        if is_written and not buffer.is_writable:
            raise InvalidArgument("the array for the result is read-only")
        return buffer

    def _wait(self, stream_handle):
        # A GPU's default stream is that of the thread's current device, which can be another one.
        needs_device = self._kind == CUDA and not stream_handle
        with on_device(self.ordinal) if needs_device else contextlib.nullcontext():
            try:
                wait(stream_handle, self._kind)
            except KeyboardInterrupt:
                # The call would go on to write into memory that Python may give away.
                self.abort()
                LIBRARY.gyre_stream_synchronize(stream_handle, self._kind)
                raise

    def _handle_of(self, stream):
        """The handle of a stream that the caller gave, if the stream fits the communicator."""
        if isinstance(stream, Stream):
            kind, handle, ordinal = stream.kind, stream.handle, stream.ordinal
        else:
            handle, ordinal = handle_of(stream)
            kind = self._kind if hasattr(stream, "__index__") else CUDA
        if kind != self._kind or ordinal not in (None, self.ordinal):
            owner = "host" if kind == HOST else "cuda" if ordinal is None else f"cuda:{ordinal}"
            raise InvalidArgument(f"the stream is one of {owner}, but this communicator works on {self.device}")
        return handle

    def _run(self, enqueue, buffers, stream):
        """Enqueues, and waits unless a stream, a group or a GPU's library orders the calls."""
        present = [buffer for buffer in buffers if buffer is not None]
        owners = [buffer.owner for buffer in present]
        calls = calls_of_group()
        waits_for = None  # the communicator that has to wait
        if stream is not None:
            handle = self._handle_of(stream)
            for owner in owners:
                record(owner, stream)
            if isinstance(stream, Stream):
                stream.keep(*owners)
        elif self._kind == CUDA:
            known = {buffer.stream for buffer in present if buffer.stream is not None}
            if len(known) > 1:
                raise InvalidArgument("the arrays belong to libraries whose current streams differ; pass stream=")
            handle = known.pop() if known else None
            waits_for = None if handle is not None else self
        else:
            handle, waits_for = self._stream.handle, self
            if calls is not None:
                self._stream.keep(*owners)
        check(enqueue(handle))
        if calls is not None:
            calls.append((waits_for, owners))
        elif waits_for is not None:
            self._wait(handle)

    def _collective(self, kind, send, recv, count, stream, options, op=None, root=None):
        """@options: what limits this one call: algorithm, protocol, channels."""
        handle = self.handle
        buffers = [buffer for buffer in (send, recv) if buffer is not None]
        if len({buffer.dtype for buffer in buffers}) > 1:
            raise InvalidArgument(f"{kind}: {send.dtype_name} is sent, but the result is {recv.dtype_name}")
        if op is not None and op not in OPS:
            raise InvalidArgument(f"{kind}: operation {op!r} is none of {', '.join(OPS)}")
        unknown = set(options) - {"algorithm", "protocol", "channels"}
        if unknown:
            raise InvalidArgument(f"{kind} has no argument {', '.join(sorted(unknown))}; it has algorithm, "
                                  "protocol and channels")
        arguments = native.gyre_call_args(*native.GYRE_CALL_ARGS_INIT)
        arguments.kind = getattr(native, f"GYRE_CALL_{kind.upper()}")
        arguments.send = send.address if send else None
        arguments.recv = recv.address if recv else None
        arguments.count = count
        arguments.dtype = buffers[0].dtype
        arguments.op = OPS[op] if op is not None else native.GYRE_SUM
        arguments.root = root or 0
        channels = options.get("channels")
        for name in ("algorithm", "protocol"):
            setattr(arguments, name, options[name].encode() if options.get(name) else None)
        if channels is not None:
            arguments.min_channels, arguments.max_channels = (
                (channels, channels) if isinstance(channels, int) else channels)
        if any(value is not None for value in options.values()):
            self._run(lambda on: LIBRARY.gyre_collective(ctypes.byref(arguments), handle, on), buffers, stream)
            return
        # Not gyre_collective(): calls with options do not use the programs of a file.
        given = [arguments.send, arguments.recv, count, arguments.dtype]
        given += [arguments.op] if op is not None else []
        given += [arguments.root] if root is not None else []
        function = getattr(LIBRARY, f"gyre_{kind}")
        self._run(lambda on: function(*given, handle, on), buffers, stream)

    def _same_size(self, kind, send, recv):
        if send.n_elems != recv.n_elems:
            raise InvalidArgument(f"{kind}: {send.n_elems} elements are sent, but the result has {recv.n_elems}")

    def all_reduce(self, send, recv=None, op="sum", stream=None, **options):
        """Every rank gets the reduction of all ranks' arrays. Without `recv` in place. Returns the result."""
        target = send if recv is None else recv
        source, result = self._buffer(send, stream), self._buffer(target, stream, True)
        self._same_size("all_reduce", source, result)
        self._collective("all_reduce", source, result, source.n_elems, stream, options, op=op)
        return target

    def broadcast(self, array, root=0, stream=None, **options):
        """Every rank gets the root's array, in `array`."""
        root = _rank_of("broadcast", "root", root)
        buffer = self._buffer(array, stream, self.rank != root)
        self._collective("broadcast", buffer, buffer, buffer.n_elems, stream, options, root=root)
        return array

    def reduce(self, send, recv=None, op="sum", root=0, stream=None, **options):
        """The root gets the reduction of all ranks' arrays; without `recv` in place. Other ranks need no
        `recv`. Returns the result on the root, None elsewhere."""
        root = _rank_of("reduce", "root", root)
        target = (send if recv is None else recv) if self.rank == root else None
        source, result = self._buffer(send, stream), None
        if self.rank == root:
            result = self._buffer(target, stream, True)
            self._same_size("reduce", source, result)
        self._collective("reduce", source, result, source.n_elems, stream, options, op=op, root=root)
        return target

    def all_gather(self, send, recv, stream=None, **options):
        """Block r of `recv` becomes rank r's `send`, on every rank."""
        source, result = self._buffer(send, stream), self._buffer(recv, stream, True)
        _count_of(result, source, self.n_ranks, "all_gather", "received")
        self._collective("all_gather", source, result, source.n_elems, stream, options)
        return recv

    def reduce_scatter(self, send, recv, op="sum", stream=None, **options):
        """`recv` of rank r becomes the reduction of block r of all ranks' `send`."""
        source, result = self._buffer(send, stream), self._buffer(recv, stream, True)
        _count_of(source, result, self.n_ranks, "reduce_scatter", "sent")
        self._collective("reduce_scatter", source, result, result.n_elems, stream, options, op=op)
        return recv

    def all_to_all(self, send, recv, stream=None, **options):
        """Block r of `recv` on rank k becomes block k of rank r's `send`."""
        source, result = self._buffer(send, stream), self._buffer(recv, stream, True)
        self._same_size("all_to_all", source, result)
        if source.n_elems % self.n_ranks != 0:
            raise InvalidArgument(f"all_to_all: {source.n_elems} elements cannot be cut into {self.n_ranks} "
                                  "blocks of one size")
        self._collective("all_to_all", source, result, source.n_elems // self.n_ranks, stream, options)
        return recv

    def gather(self, send, recv=None, root=0, stream=None, **options):
        """Block r of the root's `recv` becomes rank r's `send`. Other ranks need no `recv`."""
        root = _rank_of("gather", "root", root)
        source, result = self._buffer(send, stream), None
        if self.rank == root:
            if recv is None:
                raise InvalidArgument("gather: the root needs an array for the result")
            result = self._buffer(recv, stream, True)
            _count_of(result, source, self.n_ranks, "gather", "received")
        self._collective("gather", source, result, source.n_elems, stream, options, root=root)
        return recv if self.rank == root else None

    def scatter(self, send, recv, root=0, stream=None, **options):
        """`recv` of rank r becomes block r of the root's `send`. Other ranks need no `send`."""
        root = _rank_of("scatter", "root", root)
        source, result = None, self._buffer(recv, stream, True)
        if self.rank == root:
            if send is None:
                raise InvalidArgument("scatter: the root needs an array to send")
            source = self._buffer(send, stream)
            _count_of(source, result, self.n_ranks, "scatter", "sent")
        self._collective("scatter", source, result, result.n_elems, stream, options, root=root)
        return recv

    def send(self, array, peer, stream=None):
        """Sends an array to one rank, which must receive as many elements of the same type."""
        peer = _rank_of("send", "peer", peer)
        buffer, handle = self._buffer(array, stream), self.handle
        self._run(lambda on: LIBRARY.gyre_send(buffer.address, buffer.n_elems, buffer.dtype, peer, handle, on),
                  [buffer], stream)

    def recv(self, array, peer, stream=None):
        """Receives into an array what one rank sends. Returns the array."""
        peer = _rank_of("recv", "peer", peer)
        buffer, handle = self._buffer(array, stream, True), self.handle
        self._run(lambda on: LIBRARY.gyre_recv(buffer.address, buffer.n_elems, buffer.dtype, peer, handle, on),
                  [buffer], stream)
        return array
