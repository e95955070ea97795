# SPDX-License-Identifier: Apache-2.0
"""gyre, a collective engine for GPUs and hosts: communicators on arrays, and programs of collectives.

    import gyre, numpy
    def rank(comm):
        return comm.all_reduce(numpy.full(4, comm.rank + 1.0))
    print(gyre.run_threads(4, rank)[0])

docs/python.md is the guide. The library is loaded at the first use of a communicator, so that nccl_path()
and the like work without it.
"""
import importlib
import os
import sys

from .paths import NotFound, include_path, library_path, nccl_path, program_path

# Name -> the module that has it. They are imported when they are first used.
_MODULES = {
    "communicator": ("Communicator", "init_all", "unique_id"),
    "rendezvous": ("from_environment", "run_threads"),
    "streams": ("Stream", "group"),
    "programs": ("Builder", "Prediction", "Programs", "Verdict", "predict"),
    "errors": ("Aborted", "DeviceFailure", "GyreError", "InternalFailure", "InvalidArgument", "InvalidUsage",
               "OutOfMemory", "ProgramError", "ProgramRefused", "RemoteFailure", "SystemFailure", "Timeout",
               "Unsupported"),
}
_HOMES = {name: module for module, names in _MODULES.items() for name in names}

__all__ = ["NotFound", "include_path", "library_path", "main", "nccl_path", "program_path", *_HOMES]


def __getattr__(name):
    if name == "__version__":
        return importlib.import_module(".library", __name__).version()
    if name in ("library", "native"):
        return importlib.import_module(f".{name}", __name__)
    if name not in _HOMES:
        raise AttributeError(f"module gyre has no attribute {name}")
    value = getattr(importlib.import_module(f".{_HOMES[name]}", __name__), name)
    globals()[name] = value
    return value


def __dir__():
    return sorted(__all__)


def main():
    """The command `gyre`: this process becomes the program."""
    os.execv(program_path("gyre"), ["gyre", *sys.argv[1:]])
