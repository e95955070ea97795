#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""How the Python package treats arrays and streams of GPUs, tried without a GPU.

    python3 tests/python/gpu_arrays.py CASE BUILD_DIR
        (CASE: the name of a case_* function, without "case_")

The arrays are objects that say they are on a GPU, torch and CuPy are stand-ins, and a communicator of the host
takes itself for one of cuda:1. The library is replaced by a recorder of its calls, so that the tests see which
address and which stream a call would get, and whether the package waits. tests/gpu/python_gpu.py has real GPUs.
"""
import contextlib
import ctypes
import os
import sys
import types
from unittest import mock

from common import refused, run_named, use_package_of

if len(sys.argv) != 3:
    sys.exit(__doc__)
use_package_of(sys.argv[2])
import gyre  # noqa: E402
from gyre import buffers, communicator, gpu, rendezvous, settings  # noqa: E402

ADDRESS, OTHER_ADDRESS = 0x7f0000001000, 0x7f0000100000
CURRENT = 0x5100  # handle of the stand-ins' current stream


class Interface:
    """Only __cuda_array_interface__."""

    def __init__(self, address=ADDRESS, shape=(4,), typestr="<f4", is_read_only=False, **more):
        self.__cuda_array_interface__ = {"data": (address, is_read_only), "shape": shape, "typestr": typestr,
                                         "version": 3, **more}


class DLPack:
    """Only DLPack, as an array of an unknown library; `asked` is what __dlpack__() was called with."""

    def __init__(self, address=ADDRESS, ordinal=1, device_type=2, version=None, flags=0):
        self.device = (device_type, ordinal)
        self.version, self.asked = version, None
        self.shape = (ctypes.c_int64 * 1)(4)
        tensor = buffers._DLTensor(address, device_type, ordinal, 1, 2, 32, 1, self.shape, None, 0)
        # The owner and the deleter follow the tensor; nothing here calls them.
        self.memory = (buffers._DLVersioned(1, 0, None, None, flags, tensor) if version
                       else (buffers._DLTensor * 2)(tensor))

    def __dlpack_device__(self):
        return self.device

    def __dlpack__(self, **keywords):
        if not self.version and "max_version" in keywords:
            raise TypeError("no such argument: max_version")
        self.asked = keywords
        new = ctypes.pythonapi.PyCapsule_New
        new.restype, new.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
        self.name = b"dltensor_versioned" if self.version else b"dltensor"
        return new(ctypes.addressof(self.memory), self.name, None)


class Recorder:
    """In place of libgyre.so: every call succeeds and is kept."""

    def __init__(self):
        self.calls = []

    def __getattr__(self, name):
        def function(*arguments):
            self.calls.append((name, arguments))
            return 0
        return function


class Driver:
    """In place of libcuda.so.1: the names of the calls, and one that fails."""

    def __init__(self, failing=None):
        self.names, self.failing = [], failing

    def __getattr__(self, name):
        def function(*_):
            self.names.append(name)
            return 201 if name == self.failing else 0
        return function


class Gpu:
    """A communicator of one rank on cuda:1, as far as the package can tell."""

    def __enter__(self):
        self.comm = gyre.init_all(1, "host")[0]
        self.saved = vars(self.comm).copy(), communicator.LIBRARY, communicator.wait, communicator.on_device
        vars(self.comm).update(_kind=buffers.CUDA, ordinal=1, device="cuda:1", _stream=None)
        self.library = communicator.LIBRARY = Recorder()
        self.waits, self.device = [], None
        communicator.wait = lambda handle, kind: self.waits.append((handle, self.device))
        communicator.on_device = self.on_device
        return self

    def __exit__(self, *_):
        vars(self.comm).update(self.saved[0])
        _, communicator.LIBRARY, communicator.wait, communicator.on_device = self.saved
        self.comm.destroy()

    @contextlib.contextmanager
    def on_device(self, ordinal):
        self.device = ordinal
        yield
        self.device = None

    def all_reduce(self, *arrays, **keywords):
        """(send, recv, stream) of the call that the library gets, and the waits: (stream, current device)."""
        self.library.calls.clear()
        self.waits.clear()
        self.comm.all_reduce(*arrays, **keywords)
        (name, arguments), = self.library.calls
        assert name == "gyre_all_reduce", name
        return (arguments[0], arguments[1], arguments[-1]), list(self.waits)


@contextlib.contextmanager
def module(name, **attributes):
    """A stand-in for a library that the program has imported."""
    before = sys.modules.get(name)
    sys.modules[name] = types.SimpleNamespace(**attributes)
    try:
        yield
    finally:
        sys.modules.pop(name)
        if before is not None:
            sys.modules[name] = before


# ---- arrays ------------------------------------------------------------------------------------------------

def case_arrays():
    """Addresses and types; what does not fit is refused before the library is called."""
    with Gpu() as g:
        found, waits = g.all_reduce(Interface(), Interface(OTHER_ADDRESS))
        assert found == (ADDRESS, OTHER_ADDRESS, None), found
        assert waits == [(None, 1)], waits  # the default stream of cuda:1, whatever device is current
        wrong = gyre.InvalidArgument
        for words, array in ((["not contiguous"], Interface(shape=(4, 4), strides=(32, 8))),
                             (["no element type"], Interface(typestr="<c8")),
                             (["byte order"], Interface(typestr=">f4")),
                             (["mask"], Interface(mask=Interface())),
                             (["read-only"], Interface(is_read_only=True)),
                             (["in host memory", "cuda:1", "copy"], bytearray(16)),
                             (["on cuda:0", "works on cuda:1"], DLPack(ordinal=0)),
                             (["read-only"], DLPack(version=1, flags=1)),
                             (["DLPack device 10"], DLPack(device_type=10))):
            g.library.calls.clear()
            refused(wrong, words, g.comm.all_reduce, array)
            assert g.library.calls == [], array
        # A source may be read-only, but memory without an address is none.
        assert g.all_reduce(Interface(is_read_only=True), Interface(OTHER_ADDRESS))[0][0] == ADDRESS
        refused(wrong, ["no address"], g.comm.all_reduce, Interface(data=None))
        # Managed memory is the GPU's, too; pinned memory is the host's.
        assert g.all_reduce(DLPack(device_type=13))[0] == (ADDRESS, ADDRESS, None)
        refused(wrong, ["in host memory"], g.comm.all_reduce, DLPack(device_type=3))
    with gyre.init_all(1, "host")[0] as comm:
        refused(gyre.InvalidArgument, ["on a GPU", "works on host"], comm.all_reduce, Interface())
        refused(gyre.InvalidArgument, ["on a GPU", "works on host"], comm.all_reduce, DLPack())


def case_dlpack():
    """A library is told on which stream its array will be used; old and new forms of DLPack."""
    with Gpu() as g:
        for version in (None, 1):
            array = DLPack(version=version)
            assert g.all_reduce(array) == ((ADDRESS, ADDRESS, None), [(None, 1)])
            wanted = {"stream": 1, "max_version": (1, 0)} if version else {"stream": 1}
            assert array.asked == wanted, array.asked
            assert g.all_reduce(array, stream=0x77) == ((ADDRESS, ADDRESS, 0x77), [])
            assert array.asked["stream"] == 0x77
    # A host array is not asked about streams.
    array = DLPack(device_type=1)
    assert buffers.buffer_of(array).ordinal is None and array.asked == {}

    class Refuses(DLPack):
        def __dlpack__(self, **keywords):
            raise BufferError("is on the way out")

    refused(gyre.InvalidArgument, ["Refuses", "is on the way out"], buffers.buffer_of, Refuses())


# ---- streams -----------------------------------------------------------------------------------------------

def case_streams():
    """All forms of a stream; a call on a stream returns at once; streams of another device are refused."""
    torch_stream = types.SimpleNamespace(cuda_stream=0x10, device=types.SimpleNamespace(index=1))
    cupy_stream, cupy_default = (types.SimpleNamespace(ptr=ptr, device_id=device) for ptr, device in
                                 ((0x20, 1), (0, -1)))

    class Protocol:
        def __cuda_stream__(self):
            return 0, 0x30

    with Gpu() as g:
        for stream, handle in ((torch_stream, 0x10), (cupy_stream, 0x20), (cupy_default, 0), (Protocol(), 0x30),
                               (0x40, 0x40)):
            assert g.all_reduce(Interface(), stream=stream) == ((ADDRESS, ADDRESS, handle), []), stream
        torch_stream.device.index = 0
        refused(gyre.InvalidArgument, ["cuda:0", "cuda:1"], g.comm.all_reduce, Interface(), stream=torch_stream)
        refused(gyre.InvalidArgument, ["str is no stream", "torch.cuda.Stream"], g.comm.all_reduce, Interface(),
                stream="side")
        with gyre.Stream() as host_stream:
            refused(gyre.InvalidArgument, ["one of host", "cuda:1"], g.comm.all_reduce, Interface(),
                    stream=host_stream)
        # An array can name its stream; 1 is the default one. The call is in order there, and returns at once.
        assert g.all_reduce(Interface(stream=0x50)) == ((ADDRESS, ADDRESS, 0x50), [])
        assert g.all_reduce(Interface(stream=1)) == ((ADDRESS, ADDRESS, 0), [])
        assert g.all_reduce(Interface(stream=0x50), Interface(OTHER_ADDRESS))[0][2] == 0x50
        refused(gyre.InvalidArgument, ["current streams differ", "stream="], g.comm.all_reduce,
                Interface(stream=0x50), Interface(stream=0x60))
        assert g.all_reduce(Interface(stream=0x50), Interface(stream=0x60), stream=0x70)[0][2] == 0x70
    with gyre.init_all(1, "host")[0] as comm:
        refused(gyre.InvalidArgument, ["stream is one of cuda", "host"], comm.all_reduce, bytearray(1),
                stream=cupy_stream)
    refused(gyre.InvalidArgument, ["not of \"auto\""], gyre.Stream, "auto")
    with gyre.Stream() as stream:
        refused(gyre.InvalidArgument, ["of the host"], stream.__cuda_stream__)


def case_groups():
    """A group keeps its arrays until it ends; only calls on the default stream are waited for there."""
    with Gpu() as g:
        kept = []

        class Array(Interface):
            def __del__(self):
                kept.remove(id(self))

        def make(**more):
            array = Array(**more)
            kept.append(id(array))
            return array

        with gyre.group():
            g.comm.all_reduce(make(stream=0x50))
            g.comm.all_reduce(make(), stream=0x60)
            assert len(kept) == 2 and g.waits == [], (kept, g.waits)
        assert kept == [] and g.waits == []
        with gyre.group():
            g.comm.all_reduce(make())
            g.comm.all_reduce(make())
        assert g.waits == [(None, 1)], g.waits


# ---- libraries ---------------------------------------------------------------------------------------------

class Tensor:
    """What the package asks of a torch tensor."""
    def __init__(self, ordinal=1, kind="cuda"):
        self.device = types.SimpleNamespace(type=kind, index=ordinal)
        self.layout, self.dtype, self.recorded = "strided", "torch.float32", []

    def data_ptr(self):
        return ADDRESS

    def numel(self):
        return 4

    def record_stream(self, stream):
        self.recorded.append(stream)

    def is_contiguous(self):
        return True

    def is_conj(self):
        return False

    is_neg = is_conj


def case_libraries():
    """torch and CuPy: calls run on their current streams, and their current device is a thread's."""
    used = []
    cuda = types.SimpleNamespace(current_stream=lambda device: types.SimpleNamespace(cuda_stream=CURRENT + device.index),
                                 is_available=lambda: True, set_device=lambda n: used.append(("torch", n)))
    with Gpu() as g, module("torch", Tensor=Tensor, strided="strided", cuda=cuda):
        tensor = Tensor()
        assert g.all_reduce(tensor) == ((ADDRESS, ADDRESS, CURRENT + 1), [])
        assert tensor.recorded == []
        side = types.SimpleNamespace(cuda_stream=0x10, device=types.SimpleNamespace(index=1))
        assert g.all_reduce(tensor, stream=side)[0][2] == 0x10
        assert tensor.recorded == [side, side]  # it is sent and received
        refused(gyre.InvalidArgument, ["on cuda:0", "works on cuda:1"], g.comm.all_reduce, Tensor(0))
        refused(gyre.InvalidArgument, ["in host memory"], g.comm.all_reduce, Tensor(None, "cpu"))
        gpu.use_device(1)

    class Array(Interface):
        device = types.SimpleNamespace(id=1)
        dtype = types.SimpleNamespace(name="float16")

    streams = {1: types.SimpleNamespace(ptr=0x99)}
    device = lambda n: types.SimpleNamespace(use=lambda: used.append(("cupy", n)))  # noqa: E731
    with Gpu() as g, module("cupy", ndarray=Array, cuda=types.SimpleNamespace(
            get_current_stream=lambda n: streams[n], Device=device)):
        assert g.all_reduce(Array(typestr="<f2", stream=0x98)) == ((ADDRESS, ADDRESS, 0x99), [])
        Array.device = types.SimpleNamespace(id=0)
        streams[0] = streams[1]
        refused(gyre.InvalidArgument, ["on cuda:0", "works on cuda:1"], g.comm.all_reduce, Array())
        gpu.use_device(1)
    assert used == [("torch", 1), ("cupy", 1)], used
    with Gpu() as g, module("jax", Array=Interface):
        refused(gyre.InvalidArgument, ["read-only"], g.comm.all_reduce, Interface())


def case_devices():
    """The GPU of a process is that of its number on its host, among those that it can see."""
    for local_rank, visible, device, wanted in (
            (3, None, "auto", "auto:3"), (3, None, "cuda", "cuda:3"), (3, None, "cuda:0", "cuda:0"),
            (3, None, "host", "host"), (-1, None, "cuda", "cuda"), (-1, "4,7", "cuda", "cuda"),
            # The launcher gave each process one GPU of its own, or the user gave all of them two.
            (3, "3", "cuda", "cuda:0"), (1, "4,7", "cuda", "cuda:1")):
        environment = {} if visible is None else {"CUDA_VISIBLE_DEVICES": visible}
        with mock.patch.dict(os.environ, environment, clear=True):
            assert rendezvous._device_of_rank(device, local_rank) == wanted, (local_rank, visible, device)
    # The GPU is the current one in the block only, also if the block or the driver fails.
    whole = ["cuDeviceGet", "cuDevicePrimaryCtxRetain", "cuCtxPushCurrent_v2", "cuCtxPopCurrent_v2",
             "cuDevicePrimaryCtxRelease_v2"]
    for raised, failing, wanted in ((KeyError, None, whole), (gyre.DeviceFailure, "cuCtxPushCurrent_v2",
                                                              whole[:3] + whole[4:])):
        driver = Driver(failing)
        with mock.patch.object(gpu.ctypes, "CDLL", lambda _, driver=driver: driver):
            try:
                with gpu.on_device(1):
                    assert driver.names == whole[:3], driver.names
                    raise KeyError
            except raised:
                pass
        assert driver.names == wanted, driver.names
    config = settings.config_of("auto:1", {})
    assert (config.device_kind, config.device_ordinal) == (gyre.native.GYRE_DEVICE_AUTO, 1)
    refused(gyre.InvalidArgument, ["none of auto"], settings.config_of, "host:1", {})


if __name__ == "__main__":
    run_named(globals())
