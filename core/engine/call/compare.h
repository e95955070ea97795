/* SPDX-License-Identifier: Apache-2.0
 *
 * GYRE_CHECK=calls: every rank's record of a collective is gathered and compared before the call
 * is launched.
 */
#ifndef GYRE_CALL_COMPARE_H
#define GYRE_CALL_COMPARE_H

#include "core/engine/call/launch.h"

/** gyre_compares_calls - was the communicator made with GYRE_CHECK=calls? */
bool gyre_compares_calls(const struct gyre_caller *caller);

/** gyre_compare_call - wait for all ranks' records of a collective and compare them. A difference
 * ends the communicator on every rank. Errors: INVALID_USAGE naming both calls, or what ended the
 * communicator meanwhile. */
gyre_status gyre_compare_call(struct gyre_caller *caller, const struct gyre_record *record);

/* Compares the collectives of one communicator in a group. It has a thread of its own and runs
 * ahead of the launches, because the launching thread may also serve other ranks of the
 * communicator and would then wait for itself. */
struct gyre_comparer;

/** gyre_comparer_start - start comparing. @calls: the group's; they must not move until the
 * comparer is finished. Errors: OUT_OF_MEMORY, SYSTEM; the communicator then ends on all ranks,
 * which wait for this
 * one. */
gyre_status gyre_comparer_start(struct gyre_caller *caller, const struct gyre_pending *calls,
                                size_t n_calls, struct gyre_comparer **comparer_out);

/** gyre_comparer_take - wait until the communicator's next collective of the group is compared.
 * Errors: those of gyre_compare_call(). */
gyre_status gyre_comparer_take(struct gyre_comparer *comparer);

/** gyre_comparer_finish - wait until all its collectives are compared, or one failed; free it. */
void gyre_comparer_finish(struct gyre_comparer *comparer);

#endif
