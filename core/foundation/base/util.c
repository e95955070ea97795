/* SPDX-License-Identifier: Apache-2.0 */
#include "core/foundation/base/util.h"

#include "core/foundation/base/text.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>
#include <stdbool.h>
#include <stdint.h>

bool gyre_grow(void *array, uint32_t *capacity, uint64_t n, size_t item_bytes)
{
    void *memory;
    if (n <= *capacity)
        return true;
    const uint64_t wanted = gyre_max_u64(n, gyre_max_u64(16, 2 * (uint64_t)*capacity));
    memcpy(&memory, array, sizeof(memory));
    memory = wanted > UINT32_MAX ? NULL : realloc(memory, wanted * item_bytes);
    if (memory == NULL)
        return false;
    memcpy(array, &memory, sizeof(memory));
    *capacity = (uint32_t)wanted;
    return true;
}

uint64_t gyre_now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000ULL + (uint64_t)now.tv_nsec;
}

uint64_t gyre_hash(uint64_t hash, const void *bytes, size_t n_bytes)
{
    const unsigned char *byte = bytes;
    for (size_t i = 0; i < n_bytes; i++) {
        hash ^= byte[i];
        hash *= 0x100000001b3ULL;
    }
    return hash;
}

gyre_status gyre_host_hash(const char *host_id, uint64_t *hash_out)
{
    if (host_id != NULL && host_id[0] != '\0') {
        *hash_out = gyre_hash(GYRE_HASH_INIT, host_id, strlen(host_id));
        return GYRE_SUCCESS;
    }
    char name[256] = "";
    gethostname(name, sizeof(name) - 1);
    /* Hosts may share a hostname, not a boot id, which containers share. */
    return gyre_boot_hash(gyre_hash(GYRE_HASH_INIT, name, strlen(name)), hash_out);
}

gyre_status gyre_boot_hash(uint64_t hash, uint64_t *hash_out)
{
    static const char path[] = "/proc/sys/kernel/random/boot_id";
    char boot_id[64];
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0 && (errno == EMFILE || errno == ENFILE || errno == ENOMEM))
        return gyre_fail_errno(errno, "open(%s)", path);
    if (fd >= 0) {
        ssize_t n_read;
        do
            n_read = read(fd, boot_id, sizeof(boot_id));
        while (n_read < 0 && errno == EINTR);
        if (n_read > 0)
            hash = gyre_hash(hash, boot_id, (size_t)n_read);
        close(fd);
    }
    *hash_out = hash;
    return GYRE_SUCCESS;
}

gyre_status gyre_random_bytes(void *bytes, size_t n_bytes)
{
    unsigned char *at = bytes;
    while (n_bytes > 0) {
        const ssize_t n_got = getrandom(at, n_bytes, 0);
        if (n_got < 0 && errno == EINTR)
            continue;
        if (n_got < 0)
            return gyre_fail_errno(errno, "getrandom(%zu bytes)", n_bytes);
        at += n_got;
        n_bytes -= (size_t)n_got;
    }
    return GYRE_SUCCESS;
}

unsigned gyre_edit_distance(const char *a, const char *b)
{
    enum { MAX = 64 };
    unsigned row[MAX];
    const size_t n_a = strnlen(a, MAX - 1);
    const size_t n_b = strnlen(b, MAX - 1);
    for (size_t j = 0; j <= n_b; j++)
        row[j] = (unsigned)j;
    for (size_t i = 1; i <= n_a; i++) {
        unsigned diagonal = row[0];
        row[0] = (unsigned)i;
        for (size_t j = 1; j <= n_b; j++) {
            const unsigned above = row[j];
            const unsigned replace = diagonal + (a[i - 1] != b[j - 1]);
            const unsigned shorter = above < row[j - 1] ? above : row[j - 1];
            row[j] = replace < shorter + 1 ? replace : shorter + 1;
            diagonal = above;
        }
    }
    return row[n_b];
}

bool gyre_list_next(const char **at, const char **word_out, size_t *n_bytes_out)
{
    const char *start = *at + strspn(*at, ", \t\r\n");
    const char *end = start + strcspn(start, ",");
    *at = end;
    while (end > start && gyre_text_is_space(end[-1]))
        end--;
    *word_out = start;
    *n_bytes_out = (size_t)(end - start);
    return end > start;
}

#define PAGE_BYTES          4096
#define SLOW_DISTANCE_BYTES 31
#define PIECE_BYTES         1024 /* short enough that no C library uses `rep movsb` */

void gyre_copy(void *to, const void *from, size_t n_bytes)
{
    unsigned char *target = to;
    const unsigned char *source = from;
    const uintptr_t distance = (uintptr_t)target - (uintptr_t)source;
    const uintptr_t in_page = distance % PAGE_BYTES;
    const bool is_slow = in_page > 0 && in_page <= SLOW_DISTANCE_BYTES && n_bytes > PIECE_BYTES;
    if (!is_slow || distance < n_bytes) {
        memmove(target, source, n_bytes);
        return;
    }
    for (size_t n_done = 0; n_done < n_bytes; n_done += PIECE_BYTES) {
        const size_t n_left = n_bytes - n_done;
        memmove(target + n_done, source + n_done, n_left < PIECE_BYTES ? n_left : PIECE_BYTES);
    }
}
