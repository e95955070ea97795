/* SPDX-License-Identifier: Apache-2.0
 *
 * What this build is.
 */
#ifndef GYRE_BENCH_VERSION_H
#define GYRE_BENCH_VERSION_H

/** "0.1.0". */
const char *bench_version_text(void);

/** Of the sources when CMake ran, with "+" if they had changes. "unknown" outside a git
 * checkout. */
const char *bench_version_commit(void);

/** 130 is 13.0. 0 = none. */
int bench_version_cuda(void);

#endif
