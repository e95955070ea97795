# SPDX-License-Identifier: Apache-2.0
"""libgyre.so through ctypes. call() calls any function of gyre.h that returns a status, and raises an exception
where that is not SUCCESS. ctypes gives up Python's global lock during a call, so that the threads of other
ranks run."""
import ctypes

from . import native
from .errors import InvalidUsage, error_of
from .paths import library_path


def _load():
    library = ctypes.CDLL(library_path())
    for name, (returned, arguments) in native.FUNCTIONS.items():
        try:
            function = getattr(library, name)
        except AttributeError:
            raise InvalidUsage(f"{library_path()} has no {name}: it is older than this package") from None
        function.restype = returned
        function.argtypes = arguments
    return library


LIBRARY = _load()


def text(value):
    """A text of the library."""
    return value.decode(errors="replace") if value else ""


def check(status):
    """Raises the exception of a failed call of this thread."""
    if status != native.GYRE_SUCCESS:
        cause = text(LIBRARY.gyre_last_error())
        raise error_of(status, text(LIBRARY.gyre_status_name(status)), cause)


def call(name, *arguments):
    """Calls the function `name` of gyre.h, which returns a status."""
    check(getattr(LIBRARY, name)(*arguments))


def version():
    """The version of the library that is loaded, such as "0.1.0"."""
    number = ctypes.c_int()
    call("gyre_get_version", ctypes.byref(number))
    return f"{number.value // 10000}.{number.value // 100 % 100}.{number.value % 100}"
