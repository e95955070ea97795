# SPDX-License-Identifier: Apache-2.0
"""gyre.h for ctypes. Written by cmake/wheel/make_native.py; do not change it by hand."""
import ctypes

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
GYRE_SUCCESS = 0
GYRE_ERROR_INVALID_ARGUMENT = 1
GYRE_ERROR_INVALID_USAGE = 2
GYRE_ERROR_OUT_OF_MEMORY = 3
GYRE_ERROR_SYSTEM = 4
GYRE_ERROR_DEVICE = 5
GYRE_ERROR_REMOTE = 6
GYRE_ERROR_TIMEOUT = 7
GYRE_ERROR_UNSUPPORTED = 8
GYRE_ERROR_ABORTED = 9
GYRE_ERROR_INTERNAL = 10
GYRE_IN_PROGRESS = 11

# enum gyre_dtype
GYRE_INT8 = 0
GYRE_UINT8 = 1
GYRE_INT32 = 2
GYRE_UINT32 = 3
GYRE_INT64 = 4
GYRE_UINT64 = 5
GYRE_FLOAT16 = 6
GYRE_FLOAT32 = 7
GYRE_FLOAT64 = 8
GYRE_BFLOAT16 = 9
GYRE_FLOAT8_E4M3 = 10
GYRE_FLOAT8_E5M2 = 11

# enum gyre_op
GYRE_SUM = 0
GYRE_PROD = 1
GYRE_MAX = 2
GYRE_MIN = 3
GYRE_AVG = 4
GYRE_FIRST_USER_OP = 16

# enum gyre_device_kind
GYRE_DEVICE_AUTO = 0
GYRE_DEVICE_HOST = 1
GYRE_DEVICE_CUDA = 2


class gyre_unique_id(ctypes.Structure):
    """struct gyre_unique_id."""
    _fields_ = [
        ("bytes", ctypes.c_uint8 * GYRE_UNIQUE_ID_BYTES),
    ]


class gyre_config(ctypes.Structure):
    """struct gyre_config."""
    _fields_ = [
        ("struct_bytes", ctypes.c_uint32),
        ("version", ctypes.c_uint32),
        ("device_kind", ctypes.c_int),
        ("device_ordinal", ctypes.c_int),
        ("blocking", ctypes.c_int),
        ("min_channels", ctypes.c_int),
        ("max_channels", ctypes.c_int),
        ("sm_budget", ctypes.c_int),
        ("traffic_class", ctypes.c_int),
        ("service_level", ctypes.c_int),
        ("timeout_ms", ctypes.c_int),
        ("transport", ctypes.c_char_p),
        ("name", ctypes.c_char_p),
        ("net", ctypes.c_char_p),
        ("refusal", ctypes.c_char_p),
    ]


class gyre_launch(ctypes.Structure):
    """struct gyre_launch."""
    _fields_ = [
        ("struct_bytes", ctypes.c_uint32),
        ("version", ctypes.c_uint32),
        ("rank", ctypes.c_int),
        ("n_ranks", ctypes.c_int),
        ("local_rank", ctypes.c_int),
        ("n_local_ranks", ctypes.c_int),
        ("port", ctypes.c_int),
        ("name", ctypes.c_char * 32),
        ("address", ctypes.c_char * 256),
        ("job", ctypes.c_char * 256),
        ("choice", ctypes.c_char * 512),
    ]


class gyre_properties(ctypes.Structure):
    """struct gyre_properties."""
    _fields_ = [
        ("struct_bytes", ctypes.c_uint32),
        ("version", ctypes.c_uint32),
        ("rank", ctypes.c_int),
        ("n_ranks", ctypes.c_int),
        ("n_hosts", ctypes.c_int),
        ("device_kind", ctypes.c_int),
        ("device_ordinal", ctypes.c_int),
        ("can_window", ctypes.c_int),
        ("max_channels", ctypes.c_int),
        ("id", ctypes.c_uint64),
        ("device_bytes", ctypes.c_uint64),
        ("host_bytes", ctypes.c_uint64),
        ("transports", ctypes.c_char * 64),
        ("name", ctypes.c_char * 64),
    ]


# enum gyre_call_kind
GYRE_CALL_ALL_REDUCE = 0
GYRE_CALL_BROADCAST = 1
GYRE_CALL_REDUCE = 2
GYRE_CALL_ALL_GATHER = 3
GYRE_CALL_REDUCE_SCATTER = 4
GYRE_CALL_ALL_TO_ALL = 5
GYRE_CALL_GATHER = 6
GYRE_CALL_SCATTER = 7


class gyre_call_args(ctypes.Structure):
    """struct gyre_call_args."""
    _fields_ = [
        ("struct_bytes", ctypes.c_uint32),
        ("version", ctypes.c_uint32),
        ("kind", ctypes.c_int),
        ("root", ctypes.c_int),
        ("send", ctypes.c_void_p),
        ("recv", ctypes.c_void_p),
        ("count", ctypes.c_size_t),
        ("dtype", ctypes.c_int),
        ("op", ctypes.c_int),
        ("algorithm", ctypes.c_char_p),
        ("protocol", ctypes.c_char_p),
        ("min_channels", ctypes.c_int),
        ("max_channels", ctypes.c_int),
        ("prefers", ctypes.c_int),
    ]


class gyre_observed_call(ctypes.Structure):
    """struct gyre_observed_call."""
    _fields_ = [
        ("kind", ctypes.c_int),
        ("root", ctypes.c_int),
        ("send", ctypes.c_void_p),
        ("recv", ctypes.c_void_p),
        ("count", ctypes.c_size_t),
        ("dtype", ctypes.c_int),
        ("stream", ctypes.c_void_p),
        ("tag", ctypes.c_void_p),
        ("algorithm", ctypes.c_char_p),
        ("protocol", ctypes.c_char_p),
        ("n_channels", ctypes.c_int),
        ("is_timed", ctypes.c_int),
    ]


class gyre_observer(ctypes.Structure):
    """struct gyre_observer."""
    _fields_ = [
        ("struct_bytes", ctypes.c_uint32),
        ("version", ctypes.c_uint32),
        ("context", ctypes.c_void_p),
        ("submitted", ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.POINTER(gyre_observed_call))),
        ("launching", ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.POINTER(gyre_observed_call), ctypes.c_int)),
        ("launched", ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.POINTER(gyre_observed_call), ctypes.c_int)),
        ("begun", ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint64)),
        ("ended", ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint64)),
        ("finished", ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)),
        ("closed", ctypes.CFUNCTYPE(None, ctypes.c_void_p)),
    ]


class gyre_put_target(ctypes.Structure):
    """struct gyre_put_target."""
    _fields_ = [
        ("peer", ctypes.c_int),
        ("window", ctypes.c_uint),
        ("offset_bytes", ctypes.c_size_t),
        ("signal", ctypes.c_int),
    ]


class gyre_signal_wait(ctypes.Structure):
    """struct gyre_signal_wait."""
    _fields_ = [
        ("peer", ctypes.c_int),
        ("signal", ctypes.c_int),
        ("count", ctypes.c_int),
    ]


GYRE_CONFIG_INIT = (ctypes.sizeof(gyre_config), GYRE_VERSION, GYRE_DEVICE_AUTO, GYRE_CONFIG_UNDEFINED,
                    GYRE_CONFIG_UNDEFINED, GYRE_CONFIG_UNDEFINED, GYRE_CONFIG_UNDEFINED,
                    GYRE_CONFIG_UNDEFINED, GYRE_CONFIG_UNDEFINED, GYRE_CONFIG_UNDEFINED,
                    GYRE_CONFIG_UNDEFINED, None, None, None, None)
GYRE_LAUNCH_INIT = (ctypes.sizeof(gyre_launch), GYRE_VERSION, 0, 1, -1, -1, 0, b"", b"", b"", b"")
GYRE_PROPERTIES_INIT = (ctypes.sizeof(gyre_properties), GYRE_VERSION, -1, 0, 0, GYRE_DEVICE_AUTO, -1, 0, 0, 0,
                        0, 0, b"", b"")
GYRE_CALL_ARGS_INIT = (ctypes.sizeof(gyre_call_args), GYRE_VERSION, GYRE_CALL_ALL_REDUCE, 0, None, None, 0,
                       GYRE_INT8, GYRE_SUM, None, None, 0, 0, 0)

# name: (what it returns, its arguments)
FUNCTIONS = {
    "gyre_get_version": (ctypes.c_int, [ctypes.POINTER(ctypes.c_int)]),
    "gyre_get_device": (ctypes.c_int, [ctypes.POINTER(ctypes.c_int)]),
    "gyre_get_variable": (ctypes.c_int, [ctypes.c_char_p, ctypes.c_void_p, ctypes.c_size_t]),
    "gyre_get_variable_name": (ctypes.c_char_p, [ctypes.c_int]),
    "gyre_log_text": (None, [ctypes.c_bool, ctypes.c_char_p]),
    "gyre_status_name": (ctypes.c_char_p, [ctypes.c_int]),
    "gyre_last_error": (ctypes.c_char_p, []),
    "gyre_get_unique_id": (ctypes.c_int, [ctypes.POINTER(gyre_unique_id)]),
    "gyre_get_launch": (ctypes.c_int, [ctypes.POINTER(gyre_launch)]),
    "gyre_get_launch_id": (ctypes.c_int, [ctypes.POINTER(gyre_launch), ctypes.c_uint, ctypes.c_int,
                                          ctypes.POINTER(gyre_unique_id)]),
    "gyre_comm_init_rank": (ctypes.c_int, [ctypes.POINTER(ctypes.c_void_p), ctypes.c_int,
                                           ctypes.POINTER(gyre_unique_id), ctypes.c_int,
                                           ctypes.POINTER(gyre_config)]),
    "gyre_comm_init_all": (ctypes.c_int, [ctypes.POINTER(ctypes.c_void_p), ctypes.c_int,
                                          ctypes.POINTER(ctypes.c_int), ctypes.POINTER(gyre_config)]),
    "gyre_comm_split": (ctypes.c_int, [ctypes.c_void_p, ctypes.c_int, ctypes.c_int,
                                       ctypes.POINTER(ctypes.c_void_p), ctypes.POINTER(gyre_config)]),
    "gyre_comm_shrink": (ctypes.c_int, [ctypes.c_void_p, ctypes.POINTER(ctypes.c_int), ctypes.c_int,
                                        ctypes.c_int, ctypes.POINTER(ctypes.c_void_p),
                                        ctypes.POINTER(gyre_config)]),
    "gyre_comm_grow": (ctypes.c_int, [ctypes.c_void_p, ctypes.c_int, ctypes.POINTER(gyre_unique_id),
                                      ctypes.POINTER(ctypes.c_void_p), ctypes.POINTER(gyre_config)]),
    "gyre_comm_finalize": (ctypes.c_int, [ctypes.c_void_p]),
    "gyre_comm_destroy": (ctypes.c_int, [ctypes.c_void_p]),
    "gyre_comm_abort": (ctypes.c_int, [ctypes.c_void_p]),
    "gyre_comm_count": (ctypes.c_int, [ctypes.c_void_p, ctypes.POINTER(ctypes.c_int)]),
    "gyre_comm_rank": (ctypes.c_int, [ctypes.c_void_p, ctypes.POINTER(ctypes.c_int)]),
    "gyre_comm_device": (ctypes.c_int, [ctypes.c_void_p, ctypes.POINTER(ctypes.c_int),
                                        ctypes.POINTER(ctypes.c_int)]),
    "gyre_comm_properties": (ctypes.c_int, [ctypes.c_void_p, ctypes.POINTER(gyre_properties)]),
    "gyre_comm_exchange": (ctypes.c_int, [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t,
                                          ctypes.c_void_p]),
    "gyre_comm_last_error": (ctypes.c_char_p, [ctypes.c_void_p]),
    "gyre_comm_async_error": (ctypes.c_int, [ctypes.c_void_p, ctypes.POINTER(ctypes.c_int)]),
    "gyre_comm_dump": (ctypes.c_int, [ctypes.c_void_p, ctypes.c_int]),
    "gyre_group_start": (ctypes.c_int, []),
    "gyre_group_end": (ctypes.c_int, []),
    "gyre_group_simulate_end": (ctypes.c_int, [ctypes.POINTER(ctypes.c_double)]),
    "gyre_group_cancel": (ctypes.c_int, []),
    "gyre_all_reduce": (ctypes.c_int, [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int,
                                       ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p]),
    "gyre_broadcast": (ctypes.c_int, [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int,
                                      ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p]),
    "gyre_reduce": (ctypes.c_int, [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int,
                                   ctypes.c_int, ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p]),
    "gyre_all_gather": (ctypes.c_int, [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int,
                                       ctypes.c_void_p, ctypes.c_void_p]),
    "gyre_reduce_scatter": (ctypes.c_int, [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int,
                                           ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p]),
    "gyre_all_to_all": (ctypes.c_int, [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int,
                                       ctypes.c_void_p, ctypes.c_void_p]),
    "gyre_gather": (ctypes.c_int, [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int,
                                   ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p]),
    "gyre_scatter": (ctypes.c_int, [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int,
                                    ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p]),
    "gyre_send": (ctypes.c_int, [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int,
                                 ctypes.c_void_p, ctypes.c_void_p]),
    "gyre_recv": (ctypes.c_int, [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int,
                                 ctypes.c_void_p, ctypes.c_void_p]),
    "gyre_collective": (ctypes.c_int, [ctypes.POINTER(gyre_call_args), ctypes.c_void_p, ctypes.c_void_p]),
    "gyre_op_create_premul_sum": (ctypes.c_int, [ctypes.POINTER(ctypes.c_int), ctypes.c_void_p,
                                                 ctypes.c_int, ctypes.c_void_p]),
    "gyre_op_destroy": (ctypes.c_int, [ctypes.c_int, ctypes.c_void_p]),
    "gyre_comm_observe": (ctypes.c_int, [ctypes.c_void_p, ctypes.POINTER(gyre_observer)]),
    "gyre_comm_register": (ctypes.c_int, [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t,
                                          ctypes.POINTER(ctypes.c_void_p)]),
    "gyre_comm_deregister": (ctypes.c_int, [ctypes.c_void_p, ctypes.c_void_p]),
    "gyre_window_register": (ctypes.c_int, [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t,
                                            ctypes.POINTER(ctypes.c_uint)]),
    "gyre_window_deregister": (ctypes.c_int, [ctypes.c_void_p, ctypes.c_uint]),
    "gyre_window_address": (ctypes.c_int, [ctypes.c_void_p, ctypes.c_uint, ctypes.c_int,
                                           ctypes.POINTER(ctypes.c_void_p), ctypes.POINTER(ctypes.c_size_t)]),
    "gyre_put": (ctypes.c_int, [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int,
                                ctypes.POINTER(gyre_put_target), ctypes.c_void_p, ctypes.c_void_p]),
    "gyre_signal": (ctypes.c_int, [ctypes.c_int, ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p]),
    "gyre_wait_signal": (ctypes.c_int, [ctypes.POINTER(gyre_signal_wait), ctypes.c_int, ctypes.c_void_p,
                                        ctypes.c_void_p]),
    "gyre_mem_alloc": (ctypes.c_int, [ctypes.POINTER(ctypes.c_void_p), ctypes.c_size_t, ctypes.c_int,
                                      ctypes.c_int]),
    "gyre_mem_free": (ctypes.c_int, [ctypes.c_void_p, ctypes.c_int]),
    "gyre_stream_create": (ctypes.c_int, [ctypes.POINTER(ctypes.c_void_p), ctypes.c_int, ctypes.c_int]),
    "gyre_stream_destroy": (ctypes.c_int, [ctypes.c_void_p, ctypes.c_int]),
    "gyre_stream_synchronize": (ctypes.c_int, [ctypes.c_void_p, ctypes.c_int]),
    "gyre_stream_query": (ctypes.c_int, [ctypes.c_void_p, ctypes.c_int]),
}
