# SPDX-License-Identifier: Apache-2.0
"""What the package asks torch, CuPy and the CUDA driver about GPUs and streams.

Nothing is imported here: an array or a stream of a library exists only in a program that has imported it.
"""
import contextlib
import ctypes
import operator
import sys

from .errors import DeviceFailure, InvalidArgument

_CUDA_STREAM_LEGACY = 1  # the default stream's number in DLPack and __cuda_array_interface__


def handle_of(stream):
    """Handle and device ordinal of a CUDA stream: a torch.cuda.Stream, a cupy.cuda.Stream, an object with
    __cuda_stream__, or the number of a cudaStream_t. The ordinal is None where the object does not know it."""
    if hasattr(stream, "cuda_stream"):                      # torch
        return stream.cuda_stream, getattr(getattr(stream, "device", None), "index", None)
    if hasattr(stream, "ptr"):                              # CuPy; its default streams belong to no device
        ordinal = getattr(stream, "device_id", None)
        return stream.ptr, ordinal if ordinal is not None and ordinal >= 0 else None
    protocol = getattr(stream, "__cuda_stream__", None)
    if protocol is not None:                                # a method, in the first versions an attribute
        return (protocol() if callable(protocol) else protocol)[1], None
    try:
        return operator.index(stream), None
    except TypeError:
        raise InvalidArgument(f"{type(stream).__name__} is no stream: pass a gyre.Stream, a torch.cuda.Stream, a "
                              "cupy.cuda.Stream, an object with __cuda_stream__ or the number of a cudaStream_t"
                              ) from None


def dlpack_stream(stream):
    """The number that __dlpack__() takes for the stream of a call; None is the default stream."""
    handle = None if stream is None else getattr(stream, "handle", None) or handle_of(stream)[0]
    return handle or _CUDA_STREAM_LEGACY


def stream_of_interface(interface):
    """The stream of a __cuda_array_interface__ as a handle, or None: the array is ready, or says nothing."""
    number = interface.get("stream")
    return 0 if number == _CUDA_STREAM_LEGACY else number


def record(owner, stream):
    """torch must not give away the memory of a tensor before a stream of torch has carried out the call."""
    if hasattr(stream, "cuda_stream") and hasattr(owner, "record_stream"):
        owner.record_stream(stream)


def use_device(ordinal):
    """Makes a GPU this thread's current one in torch and in CuPy, where the program has imported them."""
    # While another thread imports a module, a part of it is in sys.modules already: `import` waits for the rest.
    if "torch" in sys.modules:
        import torch
        if torch.cuda.is_available():
            torch.cuda.set_device(ordinal)
    if "cupy" in sys.modules:
        import cupy
        cupy.cuda.Device(ordinal).use()


@contextlib.contextmanager
def on_device(ordinal):
    """A GPU is the thread's current one in the block: the default stream is then that GPU's."""
    driver = ctypes.CDLL("libcuda.so.1")

    def must(name, *arguments):
        result = getattr(driver, name)(*arguments)
        if result != 0:
            raise DeviceFailure(f"{name} of GPU {ordinal} failed with {result}")

    device, context, before = ctypes.c_int(), ctypes.c_void_p(), ctypes.c_void_p()
    must("cuDeviceGet", ctypes.byref(device), ctypes.c_int(ordinal))
    must("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
    try:
        must("cuCtxPushCurrent_v2", context)
        try:
            yield
        finally:
            must("cuCtxPopCurrent_v2", ctypes.byref(before))
    finally:
        must("cuDevicePrimaryCtxRelease_v2", device)
