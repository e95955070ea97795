# SPDX-License-Identifier: Apache-2.0
"""Where the parts of gyre lie, seen from this package: in a wheel, in a build folder, or installed."""
import glob
import os

from .errors import GyreError

_PACKAGE = os.path.dirname(os.path.abspath(__file__))
_ABOVE = os.path.dirname(os.path.dirname(_PACKAGE))
# The roots that a part may lie below. In a wheel that is gyre/tree. The package is BUILD/python/gyre in a
# build folder, and PREFIX/libexec/gyre/python/gyre where gyre is installed.
_WHEEL = os.path.join(_PACKAGE, "tree")
_BUILD = _ABOVE
_PREFIX = os.path.dirname(os.path.dirname(_ABOVE))
_SOURCES = os.path.dirname(os.path.dirname(os.path.dirname(os.path.realpath(_PACKAGE))))


class NotFound(GyreError):
    """A part of gyre is not where this package can find it."""


def _first(what, *patterns):
    for pattern in patterns:
        found = sorted(glob.glob(pattern))
        if found:
            return found[0]
    raise NotFound(f"{what} was not found; looked for {', '.join(patterns)}. Install the wheel, or build "
                   "gyre and set PYTHONPATH to the folder python in its build folder")


def library_path():
    """The file libgyre.so.0, for ctypes or a linker."""
    return _first("gyre's library", os.path.join(_WHEEL, "lib", "libgyre.so.0"),
                  os.path.join(_BUILD, "libgyre.so.0"), os.path.join(_PREFIX, "lib*", "libgyre.so.0"),
                  os.path.join(_PREFIX, "lib", "*", "libgyre.so.0"))


def nccl_path():
    """The folder of gyre's libnccl.so.2, for LD_LIBRARY_PATH. PyTorch needs LD_PRELOAD: `gyre run`."""
    name = "libnccl.so.2"
    return os.path.dirname(_first("gyre's libnccl.so.2", os.path.join(_WHEEL, "lib", "gyre", "nccl", name),
                                  os.path.join(_BUILD, "nccl", name),
                                  os.path.join(_PREFIX, "lib*", "gyre", "nccl", name),
                                  os.path.join(_PREFIX, "lib", "*", "gyre", "nccl", name)))


def include_path():
    """The folder of gyre.h."""
    return os.path.dirname(_first("gyre.h", os.path.join(_WHEEL, "include", "gyre.h"),
                                  os.path.join(_PREFIX, "include", "gyre.h"),
                                  os.path.join(_SOURCES, "core", "gyre.h")))


def program_path(name):
    """One of gyre's programs, such as "gyre" or "schedule"."""
    return _first(f"gyre's program {name}", os.path.join(_WHEEL, "libexec", "gyre", name),
                  os.path.join(_BUILD, "bench", name), os.path.join(_PREFIX, "libexec", "gyre", name))
