# SPDX-License-Identifier: Apache-2.0
"""gyre, a collective engine for GPUs and hosts: where the installed parts lie, and the command.

    gyre run -- torchrun --nproc-per-node 8 train.py      # PyTorch on gyre's libnccl.so.2
    python -c 'import gyre; print(gyre.nccl_path())'
"""

import os
import sys

from ._version import __version__

__all__ = ["__version__", "include_path", "library_path", "main", "nccl_path"]

# What `cmake --install` put down, inside this package.
_TREE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "tree")


def nccl_path():
    """The folder of gyre's libnccl.so.2, for LD_LIBRARY_PATH. PyTorch needs LD_PRELOAD: `gyre run`."""
    return os.path.join(_TREE, "lib", "gyre", "nccl")


def library_path():
    """The file libgyre.so.0, for ctypes or a linker."""
    return os.path.join(_TREE, "lib", "libgyre.so.0")


def include_path():
    """The folder of gyre.h."""
    return os.path.join(_TREE, "include")


def main():
    """The command `gyre`: this process becomes the program."""
    program = os.path.join(_TREE, "libexec", "gyre", "gyre")
    os.execv(program, ["gyre", *sys.argv[1:]])
