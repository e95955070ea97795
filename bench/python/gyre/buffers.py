# SPDX-License-Identifier: Apache-2.0
"""The memory behind an array of any library, without a copy: NumPy arrays, torch tensors, and objects with
__cuda_array_interface__, __array_interface__, __dlpack__ or Python's buffer protocol.

An array must be contiguous, in the byte order of the machine and of an element type that gyre has. What is
not is refused: a hidden copy of a result would be lost.
"""
import ctypes
import math
import re
import sys

from . import native
from .errors import InvalidArgument
from .gpu import dlpack_stream, stream_of_interface

HOST, CUDA = native.GYRE_DEVICE_HOST, native.GYRE_DEVICE_CUDA

# Name of the element type in NumPy, torch and ml_dtypes -> (gyre's, bytes).
DTYPES = {
    "int8": (native.GYRE_INT8, 1), "uint8": (native.GYRE_UINT8, 1),
    "int32": (native.GYRE_INT32, 4), "uint32": (native.GYRE_UINT32, 4),
    "int64": (native.GYRE_INT64, 8), "uint64": (native.GYRE_UINT64, 8),
    "float16": (native.GYRE_FLOAT16, 2), "float32": (native.GYRE_FLOAT32, 4),
    "float64": (native.GYRE_FLOAT64, 8), "bfloat16": (native.GYRE_BFLOAT16, 2),
    "float8_e4m3fn": (native.GYRE_FLOAT8_E4M3, 1), "float8_e5m2": (native.GYRE_FLOAT8_E5M2, 1),
}
_KINDS = {"i": "int", "u": "uint", "f": "float"}                    # of a "typestr" such as "<f4"
_DLPACK_KINDS = {0: "int", 1: "uint", 2: "float", 4: "bfloat"}      # DLDataTypeCode
_DLPACK_DEVICES = {1: HOST, 2: CUDA, 3: HOST, 13: CUDA}             # DLDeviceType; 3: pinned, 13: managed
_DLPACK_READ_ONLY = 1                                               # in the flags of a versioned tensor
_FORMATS = {"b": "int8", "B": "uint8", "h": "int16", "H": "uint16", "i": "int32", "I": "uint32",
            "e": "float16", "f": "float32", "d": "float64", "?": "bool"}
_TYPESTR = re.compile(r"([<>|=])(\w)(\d+)")
_NATIVE_ORDER = "<" if sys.byteorder == "little" else ">"


class _DLTensor(ctypes.Structure):
    """The start of a DLManagedTensor, as DLPack lays it out."""
    _fields_ = [("data", ctypes.c_void_p), ("device_type", ctypes.c_int32), ("device_id", ctypes.c_int32),
                ("n_dims", ctypes.c_int32), ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8),
                ("lanes", ctypes.c_uint16), ("shape", ctypes.POINTER(ctypes.c_int64)),
                ("strides", ctypes.POINTER(ctypes.c_int64)), ("byte_offset", ctypes.c_uint64)]


class _DLVersioned(ctypes.Structure):
    """The start of a DLManagedTensorVersioned."""
    _fields_ = [("major", ctypes.c_uint32), ("minor", ctypes.c_uint32), ("manager", ctypes.c_void_p),
                ("deleter", ctypes.c_void_p), ("flags", ctypes.c_uint64), ("tensor", _DLTensor)]


class _PyBuffer(ctypes.Structure):
    """Py_buffer of Python's C interface."""
    _fields_ = [("buf", ctypes.c_void_p), ("obj", ctypes.c_void_p), ("len", ctypes.c_ssize_t),
                ("itemsize", ctypes.c_ssize_t), ("readonly", ctypes.c_int), ("ndim", ctypes.c_int),
                ("format", ctypes.c_char_p), ("shape", ctypes.c_void_p), ("strides", ctypes.c_void_p),
                ("suboffsets", ctypes.c_void_p), ("internal", ctypes.c_void_p)]


_capsule_pointer = ctypes.pythonapi.PyCapsule_GetPointer
_capsule_pointer.restype = ctypes.c_void_p
_capsule_pointer.argtypes = [ctypes.py_object, ctypes.c_char_p]
_capsule_is_valid = ctypes.pythonapi.PyCapsule_IsValid
_capsule_is_valid.argtypes = [ctypes.py_object, ctypes.c_char_p]
_get_buffer = ctypes.pythonapi.PyObject_GetBuffer
_get_buffer.argtypes = [ctypes.py_object, ctypes.POINTER(_PyBuffer), ctypes.c_int]
_release_buffer = ctypes.pythonapi.PyBuffer_Release
_release_buffer.argtypes = [ctypes.POINTER(_PyBuffer)]


class Buffer:
    """Address, element type and number of elements of an array. `owner` keeps the memory alive."""

    def __init__(self, owner, address, n_elems, dtype_name, device=HOST, is_writable=True, stream=None,
                 ordinal=None):
        if dtype_name not in DTYPES:
            raise InvalidArgument(f"gyre has no element type {dtype_name}; it has {', '.join(DTYPES)}")
        self.owner = owner
        self.address = address
        self.n_elems = n_elems
        self.dtype_name = dtype_name
        self.dtype, self.elem_bytes = DTYPES[dtype_name]
        self.device = device
        self.is_writable = is_writable
        self.stream = stream    # handle of the stream that the array's library uses now; None = unknown
        self.ordinal = ordinal  # of the GPU; None = unknown, or host memory


def _check_contiguous(shape, strides, elem_bytes):
    """@strides: in bytes, or None for a contiguous array."""
    expected = elem_bytes
    for extent, stride in zip(reversed(shape), reversed(strides or ())):
        if extent > 1 and stride != expected:
            raise InvalidArgument(f"an array of shape {tuple(shape)} with strides of {tuple(strides)} bytes is "
                                  "not contiguous; pass a contiguous copy, such as numpy.ascontiguousarray(x) "
                                  "or x.contiguous()")
        expected *= extent


def _of_torch(array, torch):
    if array.layout != torch.strided:
        raise InvalidArgument(f"a tensor of layout {array.layout} is not a plain array")
    if array.device.type not in ("cpu", "cuda"):
        raise InvalidArgument(f"a tensor on {array.device} is neither in host memory nor on a CUDA device")
    if array.is_conj() or array.is_neg():
        raise InvalidArgument("a tensor with a pending conjugation or negation; call resolve_conj().resolve_neg()")
    if not array.is_contiguous():
        _check_contiguous(array.shape, [s * array.element_size() for s in array.stride()],
                          array.element_size())
    on_gpu = array.device.type == "cuda"
    return Buffer(array, array.data_ptr(), array.numel(), str(array.dtype).replace("torch.", ""),
                  CUDA if on_gpu else HOST,
                  stream=torch.cuda.current_stream(array.device).cuda_stream if on_gpu else None,
                  ordinal=array.device.index if on_gpu else None)


def _of_interface(array, interface, device):
    """__array_interface__ and __cuda_array_interface__. Refuses what gyre cannot read, such as an interface that leaves
    the address to the buffer protocol."""
    what = f"the array interface of {type(array).__name__}"
    if not isinstance(interface, dict):
        raise InvalidArgument(f"{what} is no dictionary; pass an array, not its class")
    for key in ("typestr", "shape", "data"):
        if key not in interface:
            raise InvalidArgument(f"{what} has no {key!r}")
    if interface.get("mask") is not None:
        raise InvalidArgument(f"{what} has a mask, which gyre would ignore")
    data = interface["data"]
    if data is not None and not (isinstance(data, tuple) and len(data) == 2 and isinstance(data[0], int)):
        raise InvalidArgument(f"{what} has {type(data).__name__} as its data, where gyre needs a tuple of address "
                              "and read-only flag; pass numpy.array(x)")
    if data is None and math.prod(interface["shape"]) > 0:
        raise InvalidArgument(f"{what} gives no address of its data; pass numpy.array(x)")
    found = _TYPESTR.fullmatch(interface["typestr"])
    if found is None:  # such as "<M8[ns]"
        raise InvalidArgument(f"gyre has no element type {getattr(array, 'dtype', interface['typestr'])}; "
                              f"it has {', '.join(DTYPES)}")
    order, kind, elem_bytes = found[1], found[2], int(found[3])
    if order not in ("|", "=", _NATIVE_ORDER):
        raise InvalidArgument(f"the elements ({interface['typestr']}) are not in this machine's byte order")
    name = getattr(getattr(array, "dtype", None), "name", None)  # ml_dtypes: bfloat16 has typestr "<V2"
    if name not in DTYPES:
        name = f"{_KINDS[kind]}{elem_bytes * 8}" if kind in _KINDS else name or interface["typestr"]
    _check_contiguous(interface["shape"], interface.get("strides"), elem_bytes)
    address, is_read_only = data or (0, False)
    stream, ordinal = stream_of_interface(interface) if device == CUDA else None, None
    cupy = sys.modules.get("cupy") if device == CUDA else None
    if cupy is not None and isinstance(array, getattr(cupy, "ndarray", ())):
        ordinal = array.device.id
        stream = cupy.cuda.get_current_stream(ordinal).ptr
    # Some objects make the interface anew at each look, and it can be what holds the memory.
    return Buffer((array, interface), address, math.prod(interface["shape"]), name, device, not is_read_only,
                  stream, ordinal)


def _of_dlpack(array, stream):
    """The capsule is versioned, if the array's library has that. On a GPU the library makes @stream wait for what it
    still does to the array."""
    device = getattr(array, "__dlpack_device__", None)
    on_gpu = device is not None and _DLPACK_DEVICES.get(int(device()[0])) == CUDA
    keywords = {"stream": dlpack_stream(stream)} if on_gpu else {}
    try:
        try:
            capsule = array.__dlpack__(max_version=(1, 0), **keywords)
        except TypeError:  # older than versions
            capsule = array.__dlpack__(**keywords)
    except BufferError as error:
        raise InvalidArgument(f"{type(array).__name__} does not give its memory through DLPack: {error}") from error
    is_writable = True
    if _capsule_is_valid(capsule, b"dltensor_versioned"):
        versioned = _DLVersioned.from_address(_capsule_pointer(capsule, b"dltensor_versioned"))
        is_writable = not versioned.flags & _DLPACK_READ_ONLY
        tensor = versioned.tensor
    else:
        tensor = _DLTensor.from_address(_capsule_pointer(capsule, b"dltensor"))
    if tensor.device_type not in _DLPACK_DEVICES:
        raise InvalidArgument(f"DLPack device {tensor.device_type} is neither host memory nor CUDA")
    name = f"{_DLPACK_KINDS.get(tensor.code, f'code {tensor.code} of DLPack, ')}{tensor.bits}"
    shape = tensor.shape[:tensor.n_dims]
    elem_bytes = tensor.bits // 8
    if tensor.lanes != 1:
        raise InvalidArgument(f"gyre has no vector type ({tensor.lanes} lanes of {name})")
    if tensor.strides:
        _check_contiguous(shape, [s * elem_bytes for s in tensor.strides[:tensor.n_dims]], elem_bytes)
    address = (tensor.data or 0) + tensor.byte_offset
    device = _DLPACK_DEVICES[tensor.device_type]
    return Buffer((array, capsule), address, math.prod(shape), name, device, is_writable,
                  ordinal=tensor.device_id if device == CUDA else None)


def _of_python_buffer(array):
    view = memoryview(array)
    if not view.c_contiguous:
        _check_contiguous(view.shape, view.strides, view.itemsize)
    name = _FORMATS.get(view.format.lstrip("@="), f"of format {view.format!r}")
    if view.format in ("l", "q", "n", "L", "Q", "N"):
        name = f"{'int' if view.format.islower() else 'uint'}{view.itemsize * 8}"
    raw = _PyBuffer()
    _get_buffer(view, ctypes.byref(raw), 0)
    address = raw.buf
    _release_buffer(ctypes.byref(raw))  # the view itself keeps the memory where it is
    return Buffer((array, view), address, view.nbytes // view.itemsize, name, is_writable=not view.readonly)


def buffer_of(array, stream=None):
    """The memory of an array. Raises InvalidArgument, with the reason, for what gyre cannot use.
    @stream: on which the array will be used; None = the default stream."""
    jax = sys.modules.get("jax")
    buffer = _buffer_of(array, stream)
    if jax is not None and isinstance(array, getattr(jax, "Array", ())):
        buffer.is_writable = False  # JAX counts on it, but not all of its interfaces say so
    return buffer


def _buffer_of(array, stream):
    torch, numpy = sys.modules.get("torch"), sys.modules.get("numpy")
    if numpy is not None and isinstance(array, getattr(numpy, "generic", ())):
        # Its interface has the address of a copy that is freed at once.
        raise InvalidArgument("a NumPy scalar is a copy; pass an array, such as x[2:3]")
    if torch is not None and isinstance(array, getattr(torch, "Tensor", ())):
        return _of_torch(array, torch)
    for attribute, device in (("__cuda_array_interface__", CUDA), ("__array_interface__", HOST)):
        interface = getattr(array, attribute, None)
        if interface is not None:
            return _of_interface(array, interface, device)
    if hasattr(array, "__dlpack__"):
        return _of_dlpack(array, stream)
    try:
        return _of_python_buffer(array)
    except TypeError:
        raise InvalidArgument(
            f"{type(array).__name__} is no array that gyre can use: it needs a NumPy array, a torch tensor, or "
            "an object with __dlpack__, __array_interface__, __cuda_array_interface__ or the buffer protocol"
        ) from None
