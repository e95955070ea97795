/* SPDX-License-Identifier: Apache-2.0
 *
 * From a call to something an executor can launch: (collective, bytes, dtype, op) -> algorithm,
 * protocol, channels, tile -> program, loaded once and cached. A plan is made locally from what all
 * ranks agreed on at init, so all ranks make the same.
 */
#ifndef GYRE_PLAN_PLAN_H
#define GYRE_PLAN_PLAN_H

#include "core/links/fifo_spec.h"
#include "core/plan/algo_file.h"
#include "core/plan/call.h"
#include "core/plan/tuner/tuner.h"
#include "core/plan/tuning_file.h"
#include "kernels/executor.h"

struct gyre_links;
struct gyre_member;
struct gyre_plan_cache;

/* What plans are made from. All of it outlives the cache. */
struct gyre_plan_config {
    const struct gyre_member *member;
    const struct gyre_links *links;
    const struct gyre_windows *windows;
    const struct gyre_tuning *tuning;
    const struct gyre_algo_file *algo_file; /* of GYRE_ALGO_FILE; zeros = not set */
    struct gyre_executor *executor;
};

/** gyre_plan_cache_open - plans of one communicator on this rank. Used by one thread at a time: the
 * one that makes a call. Errors: OUT_OF_MEMORY, those of gyre_filter_of and, for GYRE_ALGO_FILE, of
 * gyre_file_shapes_open. */
gyre_status gyre_plan_cache_open(const struct gyre_plan_config *config,
                                 struct gyre_plan_cache **cache_out);
void gyre_plan_cache_close(struct gyre_plan_cache *cache);

/** gyre_plan_prepare - load what gyre_plan_work() would load for `call`: before the first launch of
 * a group, because loading may wait for kernels that run. */
gyre_status gyre_plan_prepare(struct gyre_plan_cache *cache, const struct gyre_call *call);

/** gyre_plan_work - make the work that carries out `call`; loads the program on first use.
 * signature and sequence are left to the caller. */
gyre_status gyre_plan_work(struct gyre_plan_cache *cache, const struct gyre_call *call,
                           struct gyre_work *work_out);

/** gyre_plan_force - from now on carry collectives out so; NULL: as tuned again. All ranks alike,
 * between calls; for benches that try every way. What is 0 in @choice is left to the tuner.
 * Point to point is not touched. A choice that is impossible, or that GYRE_ALGO, GYRE_PROTO or
 * GYRE_PATH forbid, fails when it is used. */
void gyre_plan_force(struct gyre_plan_cache *cache, const struct gyre_choice *choice);

/** gyre_plan_restrict - from now on choose among what @words allow, in place of what GYRE_ALGO,
 * GYRE_PROTO and GYRE_PATH allow. If @words names algorithms, the programs of GYRE_ALGO_FILE are
 * no longer used. All ranks alike, between calls; for programs that have options of their own for
 * this. Errors: as gyre_filter_override(). */
gyre_status gyre_plan_restrict(struct gyre_plan_cache *cache,
                               const struct gyre_filter_words *words);

/** gyre_plan_use_file - from now on run the programs of this file for the calls that they fit, in
 * place of those of GYRE_ALGO_FILE. Collective: all ranks must have the same programs. For programs
 * that have an option of their own for this. Between calls.
 * @source: the option, for messages; it lives as long as the plans.
 * Errors: as gyre_algo_file_load() and gyre_file_shapes_open(); INVALID_USAGE (another rank could
 * not read the file, or has other programs). */
gyre_status gyre_plan_use_file(struct gyre_plan_cache *cache, const char *path, const char *source);

/** gyre_plan_resume_file - use the programs of a file again after gyre_plan_restrict() has put
 * algorithms in their place. All ranks alike, between calls. */
void gyre_plan_resume_file(struct gyre_plan_cache *cache);

/** gyre_plan_check_file - has the file programs for calls of this collective by the ranks of this
 * communicator? @in_window: the results of the calls lie in a window.
 * Errors: INVALID_USAGE naming the file and the shapes that it has. */
gyre_status gyre_plan_check_file(const struct gyre_plan_cache *cache, enum gyre_collective coll,
                                 bool in_window);

/** gyre_plan_forget - calls may get other works now than the same calls before: a window came or
 * goes. Before what they refer to is freed. */
void gyre_plan_forget(struct gyre_plan_cache *cache);

/** gyre_plan_choice - the choice that a call gets now (as gyre_tuner_choose) if its result lies in
 * no window. */
gyre_status gyre_plan_choice(struct gyre_plan_cache *cache, const struct gyre_call *call,
                             struct gyre_choice *choice_out);

/** gyre_plan_facts_of - what the choice for a call depends on, if its result lies in no window. */
struct gyre_tuner_facts gyre_plan_facts_of(const struct gyre_plan_cache *cache,
                                           const struct gyre_call *call);

/** gyre_plan_facts - the same of all calls, without what depends on the call; lives as long as the
 * communicator does. */
const struct gyre_tuner_facts *gyre_plan_facts(const struct gyre_plan_cache *cache);

/** gyre_plan_cost - the constants that predict for this communicator: GYRE_TUNING_FILE's, else the
 * shipped ones of its kind of device. */
const struct gyre_cost *gyre_plan_cost(const struct gyre_plan_cache *cache);

/* What a call would use, for people and benches. */
struct gyre_plan_summary {
    char algorithm[16];
    char proto[8];
    unsigned n_channels;
    unsigned slot_bytes;
    unsigned n_blocks; /* thread blocks (CUDA) or cooperative workers (host) of one rank */
    char path[16];     /* of results: gyre_path_names */
    char transports[64];
    double predicted_us; /* 0 = no prediction */
};

/** gyre_plan_describe - how a call would be carried out now.
 * @call: buffers only say whether they lie in a window; NULL = in none. */
gyre_status gyre_plan_describe(struct gyre_plan_cache *cache, const struct gyre_call *call,
                               struct gyre_plan_summary *summary_out);

#endif
