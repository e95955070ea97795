/* SPDX-License-Identifier: Apache-2.0
 *
 * Copies of data, at the speed of the memory wherever the two buffers lie.
 */
#ifndef GYRE_BASE_COPY_H
#define GYRE_BASE_COPY_H

#include <stddef.h>

/** gyre_copy - copies bytes as memmove does; the two ranges may overlap.
 *
 * Some processors (AMD Zen 3 and 4) copy 17 times slower than usual with the instruction `rep
 * movsb` where the target lies 1 to 31 bytes behind the source, counted within a page of 4 KiB. C
 * libraries use that instruction for 2 KiB and more (glibc before 2.39 does). Memory from malloc
 * begins 16 bytes behind a page, and slots begin with one, so that distance is common. This
 * function copies such ranges in pieces that are too short for the instruction. */
void gyre_copy(void *to, const void *from, size_t n_bytes);

#endif
