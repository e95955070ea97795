/* SPDX-License-Identifier: Apache-2.0 */
#include "core/foundation/base/copy.h"

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#define PAGE_BYTES          4096
#define SLOW_DISTANCE_BYTES 31   /* targets 1 to this many bytes behind the source are slow */
#define PIECE_BYTES         1024 /* short enough that no C library uses `rep movsb` */

void gyre_copy(void *to, const void *from, size_t n_bytes)
{
    unsigned char *target = to;
    const unsigned char *source = from;
    const uintptr_t distance = (uintptr_t)target - (uintptr_t)source;
    const uintptr_t in_page = distance % PAGE_BYTES;
    const bool is_slow = in_page > 0 && in_page <= SLOW_DISTANCE_BYTES && n_bytes > PIECE_BYTES;
    if (!is_slow || distance < n_bytes) { /* pieces would overwrite what they have yet to copy */
        memmove(target, source, n_bytes);
        return;
    }
    for (size_t n_done = 0; n_done < n_bytes; n_done += PIECE_BYTES) {
        const size_t n_left = n_bytes - n_done;
        memmove(target + n_done, source + n_done, n_left < PIECE_BYTES ? n_left : PIECE_BYTES);
    }
}
