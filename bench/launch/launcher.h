/* SPDX-License-Identifier: Apache-2.0
 *
 * How a run's processes gather a few bytes: over MPI, over connections to process 0, or not at all.
 */
#ifndef GYRE_BENCH_LAUNCHER_H
#define GYRE_BENCH_LAUNCHER_H

#include "bench/driver/options.h"

#include "core/foundation/base/status.h"

#include <pthread.h>

struct bench_launcher_ops;

struct bench_launcher {
    const struct bench_launcher_ops *ops;
    int process;
    int n_processes;
    int local_process;
    int n_local_processes;
    gyre_launch launch;
};

struct bench_launcher_ops {
    const char *name;
    /* Sets process and n_processes. Deadline: GYRE_BOOTSTRAP_TIMEOUT. */
    gyre_status (*open)(struct bench_launcher *launcher);
    /* By process. Also a barrier. Main thread only. */
    gyre_status (*all_gather)(struct bench_launcher *launcher, const void *mine, size_t n_bytes,
                              void *all_out);
    void (*close)(struct bench_launcher *launcher);
};

extern const struct bench_launcher_ops bench_launcher_alone;
extern const struct bench_launcher_ops bench_launcher_meet; /* process 0 listens */
#ifdef GYRE_BENCH_WITH_MPI
extern const struct bench_launcher_ops bench_launcher_mpi;
#endif

/** Errors: as gyre_launch_find(). */
gyre_status bench_launcher_detect(char *const *environment, gyre_launch *launch_out,
                                  const struct bench_launcher_ops **ops_out);

/** Closed by ops->close(). */
gyre_status bench_launcher_open(struct bench_launcher *launcher_out);

/* The threads of all processes. After each phase ranks tell each other whether they succeeded, so
 * that none waits for one that gave up. */

/* Shared by one process's ranks. */
struct bench_ranks {
    struct bench_launcher *launcher;
    int n_local;
    pthread_barrier_t barrier;
    const void **mine;       /* contributions by local rank, stable between barriers */
    unsigned char *gathered; /* written by local rank 0 between barriers */
    size_t n_gathered_bytes;
    gyre_status status; /* of the last gather, written by local rank 0 between barriers */
    char cause[GYRE_CAUSE_MAX_BYTES];
};

struct bench_self {
    struct bench_ranks *ranks;
    int local; /* index in this process, 0 is the main thread */
    int rank;
    int n_ranks;
};

/** @n_local: the same in all processes. */
gyre_status bench_ranks_open(struct bench_launcher *launcher, int n_local,
                             struct bench_ranks *ranks_out);
void bench_ranks_close(struct bench_ranks *ranks);

/** Collective. @all_out: by rank, NULL = only a barrier. Errors: REMOTE on every rank of a process
 * that lost another one. */
gyre_status bench_ranks_all_gather(const struct bench_self *self, const void *mine, size_t n_bytes,
                                   void *all_out);

gyre_status bench_ranks_barrier(const struct bench_self *self);

/** SUCCESS if every rank passed SUCCESS. A failed rank gets its own status back, others REMOTE with
 * the first failed rank. Collective. */
gyre_status bench_ranks_agree(const struct bench_self *self, gyre_status status);

/** @failed_out: the first failed rank, -1 = none or, with an error, a lost process. */
gyre_status bench_ranks_agree_on(const struct bench_self *self, gyre_status status,
                                 int *failed_out);

/** Processes check environment, @config and device, then process 0 makes the id. Collective over
 * processes. @n_local: ranks a process. Errors name rank and cause: this process's, else REMOTE. */
gyre_status bench_rendezvous(struct bench_launcher *launcher, int n_local,
                             const gyre_config *config, gyre_unique_id *id_out);

/** A lower bound for one host, so that only runs that would fail are refused. Pure. @n_ranks: of
 * the whole run. */
uint64_t bench_memory_needed(const struct bench_options *options, uint64_t n_ranks,
                             uint64_t n_ranks_here);

/** Free memory and swap of the host, or what control groups leave if that is less. UINT64_MAX =
 * unknown. @root: "", or holds proc and sys. @what_out: static name of the limit. */
uint64_t bench_memory_find_free(const char *root, const char **what_out);

/** @free_bytes, @what: from bench_memory_find_free(). Errors: OUT_OF_MEMORY with both figures. */
gyre_status bench_memory_check(uint64_t n_ranks_here, uint64_t needed_bytes, uint64_t free_bytes,
                               const char *what);

/** Checked by each host's first process. Collective over processes, which all fail together.
 * @n_local: ranks a process. */
gyre_status bench_memory_agree(struct bench_launcher *launcher, const struct bench_options *options,
                               int n_local);

#define BENCH_MAX_AGREED_OPTIONS 48
#define BENCH_OPTION_TEXT_BYTES  32

/* Texts of one process, padded with NUL. A cut word ends with its hash. */
struct bench_option_texts {
    char texts[BENCH_MAX_AGREED_OPTIONS][BENCH_OPTION_TEXT_BYTES];
};

/** Options that must agree (enum bench_agreement). Pure. */
void bench_option_texts_of(const struct bench_kind *kind, const struct bench_options *options,
                           struct bench_option_texts *texts_out);

/** With process 0. Pure. @all: by process. Errors: INVALID_ARGUMENT with the first difference. */
gyre_status bench_option_texts_compare(const struct bench_option_texts *all, int n_processes);

/** Runs before other gathers, whose size may depend on options. Collective, with one answer for all
 * processes. Errors: as bench_option_texts_compare(). */
gyre_status bench_options_agree(struct bench_launcher *launcher, const struct bench_kind *kind,
                                const struct bench_options *options);

#endif
