/* SPDX-License-Identifier: Apache-2.0
 *
 * Brings the findings of all ranks together.
 */
#ifndef GYRE_BENCH_DOCTOR_MERGE_H
#define GYRE_BENCH_DOCTOR_MERGE_H

#include "bench/doctor/doctor.h"

/** bench_doctor_merge - gather the findings of all ranks on every rank, and join equal findings.
 * Findings that are ok or skipped are joined even if their evidence differs. Collective. */
gyre_status bench_doctor_merge(struct bench_doctor *doctor);

/** bench_ranks_to_text - "0-3,6". @is_in: by rank. Ends with "..." if there is no room. */
void bench_ranks_to_text(const bool *is_in, int n_ranks, char *text_out, size_t text_bytes);

#endif
