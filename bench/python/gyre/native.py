# SPDX-License-Identifier: Apache-2.0
"""gyre.h for ctypes. Written by cmake/wheel/make_native.py; do not change it by hand."""
import ctypes
from ctypes import (CFUNCTYPE, POINTER, c_bool, c_char, c_char_p, c_double, c_int, c_size_t, c_uint, c_uint32,
                    c_uint64, c_uint8, c_void_p, sizeof)

GYRE_VERSION_MAJOR = 0
GYRE_VERSION_MINOR = 1
GYRE_VERSION_PATCH = 0
GYRE_UNIQUE_ID_BYTES = 128
GYRE_CONFIG_UNDEFINED = -1
GYRE_SPLIT_NOCOLOR = -1
GYRE_SHRINK_DEFAULT = 0
GYRE_SHRINK_ABORT = 1
GYRE_OBSERVED_SEND = 100
GYRE_OBSERVED_RECV = 101
GYRE_N_SIGNALS = 32
GYRE_NO_SIGNAL = -1
GYRE_VERSION = GYRE_VERSION_MAJOR * 10000 + GYRE_VERSION_MINOR * 100 + GYRE_VERSION_PATCH

# enum gyre_status
(GYRE_SUCCESS, GYRE_ERROR_INVALID_ARGUMENT, GYRE_ERROR_INVALID_USAGE,
 GYRE_ERROR_OUT_OF_MEMORY, GYRE_ERROR_SYSTEM, GYRE_ERROR_DEVICE,
 GYRE_ERROR_REMOTE, GYRE_ERROR_TIMEOUT, GYRE_ERROR_UNSUPPORTED,
 GYRE_ERROR_ABORTED, GYRE_ERROR_INTERNAL, GYRE_IN_PROGRESS) = (0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11)

# enum gyre_dtype
(GYRE_INT8, GYRE_UINT8, GYRE_INT32, GYRE_UINT32, GYRE_INT64,
 GYRE_UINT64, GYRE_FLOAT16, GYRE_FLOAT32, GYRE_FLOAT64,
 GYRE_BFLOAT16, GYRE_FLOAT8_E4M3, GYRE_FLOAT8_E5M2) = (0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11)

# enum gyre_op
(GYRE_SUM, GYRE_PROD, GYRE_MAX, GYRE_MIN, GYRE_AVG, GYRE_FIRST_USER_OP) = (0, 1, 2, 3, 4, 16)

# enum gyre_device_kind
(GYRE_DEVICE_AUTO, GYRE_DEVICE_HOST, GYRE_DEVICE_CUDA) = (0, 1, 2)


class gyre_unique_id(ctypes.Structure):
    """struct gyre_unique_id."""
    _fields_ = [("bytes", c_uint8 * GYRE_UNIQUE_ID_BYTES)]


class gyre_config(ctypes.Structure):
    """struct gyre_config."""
    _fields_ = [("struct_bytes", c_uint32), ("version", c_uint32), ("device_kind", c_int),
                ("device_ordinal", c_int), ("blocking", c_int), ("min_channels", c_int),
                ("max_channels", c_int), ("sm_budget", c_int), ("traffic_class", c_int),
                ("service_level", c_int), ("timeout_ms", c_int), ("transport", c_char_p), ("name", c_char_p),
                ("net", c_char_p), ("refusal", c_char_p)]


class gyre_launch(ctypes.Structure):
    """struct gyre_launch."""
    _fields_ = [("struct_bytes", c_uint32), ("version", c_uint32), ("rank", c_int), ("n_ranks", c_int),
                ("local_rank", c_int), ("n_local_ranks", c_int), ("port", c_int), ("name", c_char * 32),
                ("address", c_char * 256), ("job", c_char * 256), ("choice", c_char * 512)]


class gyre_properties(ctypes.Structure):
    """struct gyre_properties."""
    _fields_ = [("struct_bytes", c_uint32), ("version", c_uint32), ("rank", c_int), ("n_ranks", c_int),
                ("n_hosts", c_int), ("device_kind", c_int), ("device_ordinal", c_int), ("can_window", c_int),
                ("max_channels", c_int), ("id", c_uint64), ("device_bytes", c_uint64),
                ("host_bytes", c_uint64), ("transports", c_char * 64), ("name", c_char * 64)]


# enum gyre_call_kind
(GYRE_CALL_ALL_REDUCE, GYRE_CALL_BROADCAST, GYRE_CALL_REDUCE, GYRE_CALL_ALL_GATHER,
 GYRE_CALL_REDUCE_SCATTER, GYRE_CALL_ALL_TO_ALL, GYRE_CALL_GATHER,
 GYRE_CALL_SCATTER) = (0, 1, 2, 3, 4, 5, 6, 7)


class gyre_call_args(ctypes.Structure):
    """struct gyre_call_args."""
    _fields_ = [("struct_bytes", c_uint32), ("version", c_uint32), ("kind", c_int), ("root", c_int),
                ("send", c_void_p), ("recv", c_void_p), ("count", c_size_t), ("dtype", c_int), ("op", c_int),
                ("algorithm", c_char_p), ("protocol", c_char_p), ("min_channels", c_int),
                ("max_channels", c_int), ("prefers", c_int)]


class gyre_observed_call(ctypes.Structure):
    """struct gyre_observed_call."""
    _fields_ = [("kind", c_int), ("root", c_int), ("send", c_void_p), ("recv", c_void_p), ("count", c_size_t),
                ("dtype", c_int), ("stream", c_void_p), ("tag", c_void_p), ("algorithm", c_char_p),
                ("protocol", c_char_p), ("n_channels", c_int), ("is_timed", c_int)]


class gyre_connection_event(ctypes.Structure):
    """struct gyre_connection_event."""
    _fields_ = [("kind", c_int), ("peer", c_int), ("text", c_char_p)]


class gyre_observer(ctypes.Structure):
    """struct gyre_observer."""
    _fields_ = [("struct_bytes", c_uint32), ("version", c_uint32), ("context", c_void_p),
                ("submitted", CFUNCTYPE(c_void_p, c_void_p, POINTER(gyre_observed_call))),
                ("launching", CFUNCTYPE(None, c_void_p, POINTER(gyre_observed_call), c_int)),
                ("launched", CFUNCTYPE(None, c_void_p, POINTER(gyre_observed_call), c_int)),
                ("begun", CFUNCTYPE(None, c_void_p, c_void_p, c_uint64)),
                ("ended", CFUNCTYPE(None, c_void_p, c_void_p, c_uint64)),
                ("finished", CFUNCTYPE(None, c_void_p, c_void_p)), ("closed", CFUNCTYPE(None, c_void_p)),
                ("connection", CFUNCTYPE(None, c_void_p, POINTER(gyre_connection_event)))]


class gyre_put_target(ctypes.Structure):
    """struct gyre_put_target."""
    _fields_ = [("peer", c_int), ("window", c_uint), ("offset_bytes", c_size_t), ("signal", c_int)]


class gyre_signal_wait(ctypes.Structure):
    """struct gyre_signal_wait."""
    _fields_ = [("peer", c_int), ("signal", c_int), ("count", c_int)]


GYRE_CONFIG_INIT = (sizeof(gyre_config), GYRE_VERSION, GYRE_DEVICE_AUTO, GYRE_CONFIG_UNDEFINED,
                    GYRE_CONFIG_UNDEFINED, GYRE_CONFIG_UNDEFINED, GYRE_CONFIG_UNDEFINED,
                    GYRE_CONFIG_UNDEFINED, GYRE_CONFIG_UNDEFINED, GYRE_CONFIG_UNDEFINED,
                    GYRE_CONFIG_UNDEFINED, None, None, None, None)
GYRE_LAUNCH_INIT = (sizeof(gyre_launch), GYRE_VERSION, 0, 1, -1, -1, 0, b"", b"", b"", b"")
GYRE_PROPERTIES_INIT = (sizeof(gyre_properties), GYRE_VERSION, -1, 0, 0, GYRE_DEVICE_AUTO, -1, 0, 0, 0, 0, 0,
                        b"", b"")
GYRE_CALL_ARGS_INIT = (sizeof(gyre_call_args), GYRE_VERSION, GYRE_CALL_ALL_REDUCE, 0, None, None, 0,
                       GYRE_INT8, GYRE_SUM, None, None, 0, 0, 0)

# name: (what it returns, its arguments)
FUNCTIONS = {
    "gyre_get_version": (c_int, [POINTER(c_int)]),
    "gyre_get_device": (c_int, [POINTER(c_int)]),
    "gyre_get_variable": (c_int, [c_char_p, c_void_p, c_size_t]),
    "gyre_get_variable_name": (c_char_p, [c_int]),
    "gyre_log_text": (None, [c_bool, c_char_p]),
    "gyre_status_name": (c_char_p, [c_int]),
    "gyre_last_error": (c_char_p, []),
    "gyre_get_unique_id": (c_int, [POINTER(gyre_unique_id)]),
    "gyre_get_launch": (c_int, [POINTER(gyre_launch)]),
    "gyre_get_launch_id": (c_int, [POINTER(gyre_launch), c_uint, c_int, POINTER(gyre_unique_id)]),
    "gyre_comm_init_rank": (c_int, [POINTER(c_void_p), c_int, POINTER(gyre_unique_id), c_int,
                                    POINTER(gyre_config)]),
    "gyre_comm_init_all": (c_int, [POINTER(c_void_p), c_int, POINTER(c_int), POINTER(gyre_config)]),
    "gyre_comm_split": (c_int, [c_void_p, c_int, c_int, POINTER(c_void_p), POINTER(gyre_config)]),
    "gyre_comm_shrink": (c_int, [c_void_p, POINTER(c_int), c_int, c_int, POINTER(c_void_p),
                                 POINTER(gyre_config)]),
    "gyre_comm_grow": (c_int, [c_void_p, c_int, POINTER(gyre_unique_id), POINTER(c_void_p),
                               POINTER(gyre_config)]),
    "gyre_comm_finalize": (c_int, [c_void_p]),
    "gyre_comm_destroy": (c_int, [c_void_p]),
    "gyre_comm_abort": (c_int, [c_void_p]),
    "gyre_comm_count": (c_int, [c_void_p, POINTER(c_int)]),
    "gyre_comm_rank": (c_int, [c_void_p, POINTER(c_int)]),
    "gyre_comm_device": (c_int, [c_void_p, POINTER(c_int), POINTER(c_int)]),
    "gyre_comm_properties": (c_int, [c_void_p, POINTER(gyre_properties)]),
    "gyre_comm_exchange": (c_int, [c_void_p, c_void_p, c_size_t, c_void_p]),
    "gyre_comm_last_error": (c_char_p, [c_void_p]),
    "gyre_comm_async_error": (c_int, [c_void_p, POINTER(c_int)]),
    "gyre_comm_dump": (c_int, [c_void_p, c_int]),
    "gyre_group_start": (c_int, []),
    "gyre_group_end": (c_int, []),
    "gyre_group_simulate_end": (c_int, [POINTER(c_double)]),
    "gyre_group_cancel": (c_int, []),
    "gyre_all_reduce": (c_int, [c_void_p, c_void_p, c_size_t, c_int, c_int, c_void_p, c_void_p]),
    "gyre_broadcast": (c_int, [c_void_p, c_void_p, c_size_t, c_int, c_int, c_void_p, c_void_p]),
    "gyre_reduce": (c_int, [c_void_p, c_void_p, c_size_t, c_int, c_int, c_int, c_void_p, c_void_p]),
    "gyre_all_gather": (c_int, [c_void_p, c_void_p, c_size_t, c_int, c_void_p, c_void_p]),
    "gyre_reduce_scatter": (c_int, [c_void_p, c_void_p, c_size_t, c_int, c_int, c_void_p, c_void_p]),
    "gyre_all_to_all": (c_int, [c_void_p, c_void_p, c_size_t, c_int, c_void_p, c_void_p]),
    "gyre_gather": (c_int, [c_void_p, c_void_p, c_size_t, c_int, c_int, c_void_p, c_void_p]),
    "gyre_scatter": (c_int, [c_void_p, c_void_p, c_size_t, c_int, c_int, c_void_p, c_void_p]),
    "gyre_send": (c_int, [c_void_p, c_size_t, c_int, c_int, c_void_p, c_void_p]),
    "gyre_recv": (c_int, [c_void_p, c_size_t, c_int, c_int, c_void_p, c_void_p]),
    "gyre_collective": (c_int, [POINTER(gyre_call_args), c_void_p, c_void_p]),
    "gyre_op_create_premul_sum": (c_int, [POINTER(c_int), c_void_p, c_int, c_void_p]),
    "gyre_op_destroy": (c_int, [c_int, c_void_p]),
    "gyre_comm_observe": (c_int, [c_void_p, POINTER(gyre_observer)]),
    "gyre_comm_register": (c_int, [c_void_p, c_void_p, c_size_t, POINTER(c_void_p)]),
    "gyre_comm_deregister": (c_int, [c_void_p, c_void_p]),
    "gyre_window_register": (c_int, [c_void_p, c_void_p, c_size_t, POINTER(c_uint)]),
    "gyre_window_deregister": (c_int, [c_void_p, c_uint]),
    "gyre_window_address": (c_int, [c_void_p, c_uint, c_int, POINTER(c_void_p), POINTER(c_size_t)]),
    "gyre_put": (c_int, [c_void_p, c_size_t, c_int, POINTER(gyre_put_target), c_void_p, c_void_p]),
    "gyre_signal": (c_int, [c_int, c_int, c_void_p, c_void_p]),
    "gyre_wait_signal": (c_int, [POINTER(gyre_signal_wait), c_int, c_void_p, c_void_p]),
    "gyre_mem_alloc": (c_int, [POINTER(c_void_p), c_size_t, c_int, c_int]),
    "gyre_mem_free": (c_int, [c_void_p, c_int]),
    "gyre_stream_create": (c_int, [POINTER(c_void_p), c_int, c_int]),
    "gyre_stream_destroy": (c_int, [c_void_p, c_int]),
    "gyre_stream_synchronize": (c_int, [c_void_p, c_int]),
    "gyre_stream_query": (c_int, [c_void_p, c_int]),
}
