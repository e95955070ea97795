/* SPDX-License-Identifier: Apache-2.0
 *
 * Turns calls into works that an executor can launch. The key of a call (struct gyre_plan_key)
 * determines an algorithm, a protocol, the channels and the tile, and these determine a program,
 * which is loaded once. Each rank plans alone. A choice depends only on settings that all ranks
 * agreed on at init, so all ranks choose the same.
 */
#ifndef GYRE_PLAN_PLAN_H
#define GYRE_PLAN_PLAN_H

#include "core/engine/links/fifo_spec.h"
#include "core/engine/plan/given.h"
#include "core/engine/plan/call.h"
#include "core/engine/plan/plan_table.h"
#include "core/engine/plan/tuning_file.h"
#include "kernels/executor.h"

struct gyre_links;
struct gyre_member;
struct gyre_plan_cache;

/* The objects from which plans are made. Each of them outlives the cache. */
struct gyre_plan_config {
    const struct gyre_member *member;
    const struct gyre_links *links;
    const struct gyre_windows *windows;
    const struct gyre_tuning *tuning;
    const struct gyre_algo_file *algo_file; /* of GYRE_ALGO_FILE; zeros = not set */
    struct gyre_executor *executor;
};

/** gyre_plan_cache_open - make the cache of plans of one communicator on this rank. One thread at a
 * time may use it, the thread that makes a call. Errors: OUT_OF_MEMORY, those of gyre_filter_of
 * and, for GYRE_ALGO_FILE, of gyre_file_shapes_open. */
gyre_status gyre_plan_cache_open(const struct gyre_plan_config *config,
                                 struct gyre_plan_cache **cache_out);
void gyre_plan_cache_close(struct gyre_plan_cache *cache);

/** gyre_plan_get - the plan of a call, whose window is filled in. Made on the first call with
 * its key, which chooses, and loads the program. To be called before the first launch of a group,
 * because loading may wait for kernels that run.
 * @plan_out: valid until gyre_plan_sweep(). Errors: OUT_OF_MEMORY; those of gyre_tuner_choose(), of
 * emitting a program and of the executor's load; UNSUPPORTED if the communicator's FIFOs cannot
 * carry the program. */
gyre_status gyre_plan_get(struct gyre_plan_cache *cache, const struct gyre_call *call,
                          const struct gyre_plan **plan_out);

/** gyre_plan_sweep - free plans that others have replaced. Between batches of calls. */
void gyre_plan_sweep(struct gyre_plan_cache *cache);

/** gyre_plans_made - how many plans the communicator has made on this rank. Tests compare it with
 * the number of keys of the calls. */
uint64_t gyre_plans_made(const struct gyre_plan_cache *cache);

/** gyre_plan_work - fill in the work that carries out a call by its plan. The caller sets the
 * work's signature and sequence. */
void gyre_plan_work(struct gyre_plan_cache *cache, const struct gyre_plan *plan,
                    const struct gyre_call *call, struct gyre_work *work_out);

/** gyre_plan_force - carry out collectives by this choice from now on, or as the tuner chooses if
 * @choice is NULL. All ranks must pass the same choice, between calls. Benches use this to compare
 * all choices. The tuner chooses the fields that are 0 in @choice. Point to point is not affected.
 * A choice that is impossible, or that GYRE_ALGO, GYRE_PROTO or GYRE_PATH forbid, fails when it is
 * used. */
void gyre_plan_force(struct gyre_plan_cache *cache, const struct gyre_choice *choice);

/** gyre_plan_restrict - from now on choose among the algorithms, protocols and paths that @words
 * allow, in place of those that GYRE_ALGO, GYRE_PROTO and GYRE_PATH allow. If @words names
 * algorithms, the programs of GYRE_ALGO_FILE are no longer used. All ranks must pass the same
 * words, between calls. Programs with options of their own for this call it. Errors: as
 * gyre_filter_override(). */
gyre_status gyre_plan_restrict(struct gyre_plan_cache *cache,
                               const struct gyre_filter_words *words);

/** gyre_plan_use_file - from now on run the programs of this file for the calls that they fit, in
 * place of the programs of GYRE_ALGO_FILE. Collective, between calls; all ranks must have the same
 * programs in the file. Programs with an option of their own for this call it.
 * @source: the option, for messages; it lives as long as the plans.
 * Errors: as gyre_algo_file_load() and gyre_file_shapes_open(); INVALID_USAGE (another rank could
 * not read the file, or has other programs). */
gyre_status gyre_plan_use_file(struct gyre_plan_cache *cache, const char *path, const char *source);

/** gyre_plan_resume_file - use the programs of a file again after gyre_plan_restrict() has put
 * algorithms in their place. All ranks must call this, between calls. */
void gyre_plan_resume_file(struct gyre_plan_cache *cache);

/** gyre_plan_check_file - has the file programs for calls of this collective by the ranks of this
 * communicator? @in_window: the results of the calls lie in a window.
 * Errors: INVALID_USAGE naming the file and the shapes that it has. */
gyre_status gyre_plan_check_file(const struct gyre_plan_cache *cache, enum gyre_collective coll,
                                 bool in_window);

/** gyre_plan_choice - make the choice for a call whose result lies in no window, as
 * gyre_tuner_choose() makes it. */
gyre_status gyre_plan_choice(struct gyre_plan_cache *cache, const struct gyre_call *call,
                             struct gyre_choice *choice_out);

/** gyre_plan_facts_of - the facts on which the choice for a call depends if its result lies in no
 * window. */
struct gyre_tuner_facts gyre_plan_facts_of(const struct gyre_plan_cache *cache,
                                           const struct gyre_call *call);

/** gyre_plan_facts - the facts that are the same for all calls. They live as long as the
 * communicator. */
const struct gyre_tuner_facts *gyre_plan_facts(const struct gyre_plan_cache *cache);

/** gyre_plan_cost - the constants with which times are predicted for this communicator: those of
 * GYRE_TUNING_FILE, else the shipped ones of its kind of device. */
const struct gyre_cost *gyre_plan_cost(const struct gyre_plan_cache *cache);

/* The choice for a call in words and numbers, for people and benches. */
struct gyre_plan_summary {
    char algorithm[16];
    char proto[8];     /* of links without a proxy; of all links if there is no such link */
    char net_proto[8]; /* of links that a proxy serves; "" = there are none */
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
