/* SPDX-License-Identifier: Apache-2.0
 *
 * What this build is.
 */
#ifndef GYRE_BENCH_VERSION_H
#define GYRE_BENCH_VERSION_H

/** bench_version_text - "0.1.0". */
const char *bench_version_text(void);

/** bench_version_commit - of the sources when CMake configured the build, with "+" behind it if
 * they had changes; "unknown" outside a git checkout. */
const char *bench_version_commit(void);

/** bench_version_cuda - 130 is 13.0; 0 = none. */
int bench_version_cuda(void);

#endif
