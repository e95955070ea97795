# SPDX-License-Identifier: Apache-2.0
"""What a job of Open MPI's needs in its environment when a test starts it."""
import os


def for_open_mpi():
    """Variables that let root start ranks, keep sanitizers to gyre's own mistakes, and let MPI give its
    processor away while it waits: tests run beside it.

    Open MPI leaks memory of plugins that it has unloaded, which no suppression can name, and its
    threads and locks are not instrumented. gyre's own mistakes show in the same benches as threads
    and with torchrun's variables, where nothing is ignored.
    """
    return {
        "OMPI_ALLOW_RUN_AS_ROOT": "1",
        "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
        "OMPI_MCA_mpi_yield_when_idle": "1",
        "ASAN_OPTIONS": os.environ.get("ASAN_OPTIONS", "") + ":detect_leaks=0",
        "TSAN_OPTIONS": (os.environ.get("TSAN_OPTIONS", "") +
                         ":ignore_noninstrumented_modules=1:detect_deadlocks=0"),
    }
