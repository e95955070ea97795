# SPDX-License-Identifier: Apache-2.0
"""The settings of a communicator, as a gyre_config."""
import ctypes
import operator

from . import native
from .buffers import CUDA, HOST
from .errors import InvalidArgument

DEVICES = {"auto": native.GYRE_DEVICE_AUTO, "host": HOST, "cuda": CUDA}
_SETTINGS = {name: kind for name, kind in native.gyre_config._fields_
             if name not in ("struct_bytes", "version", "device_kind", "device_ordinal", "blocking", "refusal")}


def _setting_of(name, value):
    """The value as ctypes takes it. ctypes itself would cut a number to 32 bits."""
    if _SETTINGS[name] is ctypes.c_char_p:
        if not isinstance(value, (str, bytes, type(None))):
            raise InvalidArgument(f"the setting {name} is a text, not {value!r}")
        return value.encode(errors="surrogateescape") if isinstance(value, str) else value
    try:
        number = operator.index(value)
    except TypeError:
        raise InvalidArgument(f"the setting {name} is a whole number, not {value!r}") from None
    if _SETTINGS[name](number).value != number:
        raise InvalidArgument(f"the setting {name} does not fit in 32 bits: {number}")
    return number


def device_of(device):
    """Kind and ordinal of "auto", "host", "cuda", "cuda:1", a torch.device, or "auto:1": GPU 1, or the host where
    there is no GPU. The ordinal can be None."""
    kind, _, ordinal = str(device).partition(":")
    if kind not in DEVICES or (ordinal and (kind == "host" or not ordinal.isdigit())):
        raise InvalidArgument(f"device {device!r} is none of {', '.join(DEVICES)}, cuda:0, cuda:1, ...")
    return DEVICES[kind], int(ordinal) if ordinal else None


def config_of(device, settings):
    """A gyre_config. @device: "auto", "host", "cuda" or "cuda:1"."""
    config = native.gyre_config(*native.GYRE_CONFIG_INIT)
    config.device_kind, ordinal = device_of(device)
    if ordinal is not None:
        config.device_ordinal = ordinal
    for name, value in settings.items():
        if name not in _SETTINGS:
            raise InvalidArgument(f"a communicator has no setting {name}; it has {', '.join(_SETTINGS)}")
        setattr(config, name, _setting_of(name, value))
    return config
