# SPDX-License-Identifier: Apache-2.0
"""The exceptions of the package: one class for each status of gyre.h."""
from . import native


class GyreError(RuntimeError):
    """A call of gyre failed. `status` is the number in gyre.h, `cause` gyre's text with the values that
    matter. Every failure is one of the classes below."""
    status = None

    def __init__(self, cause, words="", status=None):
        super().__init__(f"{words}: {cause}" if words else cause)
        self.cause = cause
        if status is not None:
            self.status = status


class InvalidArgument(GyreError, ValueError):
    """An argument of this call is wrong; nothing was enqueued."""
    status = native.GYRE_ERROR_INVALID_ARGUMENT


class InvalidUsage(GyreError):
    """The ranks' calls differ, or the communicator has failed."""
    status = native.GYRE_ERROR_INVALID_USAGE


class OutOfMemory(GyreError, MemoryError):
    """Host, shared or device memory is used up."""
    status = native.GYRE_ERROR_OUT_OF_MEMORY


class SystemFailure(GyreError):
    """An operating-system call failed; the cause has its errno."""
    status = native.GYRE_ERROR_SYSTEM


class DeviceFailure(GyreError):
    """The CUDA driver or runtime failed."""
    status = native.GYRE_ERROR_DEVICE


class RemoteFailure(GyreError):
    """Another rank died, left or reported an error."""
    status = native.GYRE_ERROR_REMOTE


class Timeout(GyreError, TimeoutError):
    """A deadline passed; the cause names the ranks that are missing."""
    status = native.GYRE_ERROR_TIMEOUT


class Unsupported(GyreError):
    """Legal, but impossible on this device, build or machine."""
    status = native.GYRE_ERROR_UNSUPPORTED


class Aborted(GyreError):
    """Communicator.abort() was called."""
    status = native.GYRE_ERROR_ABORTED


class InternalFailure(GyreError):
    """A bug in gyre."""
    status = native.GYRE_ERROR_INTERNAL


class ProgramError(GyreError):
    """A command of gyre could not read, predict or draw programs; the cause is what it printed."""


class ProgramRefused(ProgramError):
    """The verifier refused programs; the cause is its finding."""


_CLASSES = {kind.status: kind for kind in (InvalidArgument, InvalidUsage, OutOfMemory, SystemFailure,
                                           DeviceFailure, RemoteFailure, Timeout, Unsupported, Aborted,
                                           InternalFailure)}


def error_of(status, words, cause):
    """The exception for a status that is not SUCCESS. @words: the status in words."""
    return _CLASSES.get(status, GyreError)(cause or "no cause was given", words, status)
