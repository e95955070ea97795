# SPDX-License-Identifier: Apache-2.0
"""Programs of users beyond torch.distributed, which tests/gpu/run_clients runs on gyre and on NCCL."""
import importlib


class Skip(Exception):
    """The case cannot run here; the text is the reason."""


def need(name, pip_name=None):
    """A package, or the reason why the case is skipped. An import can fail in many ways: a missing CUDA
    library is an OSError."""
    try:
        return importlib.import_module(name)
    except (ImportError, OSError) as error:
        raise Skip(f"no {name} here ({error}); pip install {pip_name or name}") from error
