/* SPDX-License-Identifier: Apache-2.0
 *
 * Sockets are this process's alone. A child that fork() made would hold every connection open:
 * peers would hear of this process's death when the child ends. So the child closes them before
 * anything else.
 */
#include "core/foundation/base/sock.h"

#include "core/foundation/base/file.h"
#include "core/foundation/base/thread.h"
#include "core/foundation/base/util.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define FDS_PER_WORD 64

/* Process-wide, because descriptors are. A thread that holds the lock sees each descriptor as
 * marked and open, or as neither. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static uint64_t *is_marked; /* a bit a descriptor; under lock, as n_words */
static size_t n_words;

static void close_inherited(void)
{
    for (size_t word = 0; word < n_words; word++) {
        for (int bit = 0; bit < FDS_PER_WORD && is_marked[word] != 0; bit++)
            if ((is_marked[word] >> bit & 1) != 0)
                close((int)word * FDS_PER_WORD + bit);
        is_marked[word] = 0;
    }
}

GYRE_WATCH_FORKS(&lock, close_inherited)

/* Under lock. Returns fd, or -1 with errno and closes it. */
static int mark(int fd)
{
    const size_t word = (size_t)fd / FDS_PER_WORD;
    if (word >= n_words) {
        uint64_t *words = realloc(is_marked, (word + 1) * sizeof(*words));
        if (words == NULL) {
            close(fd);
            errno = ENOMEM;
            return -1;
        }
        memset(words + n_words, 0, (word + 1 - n_words) * sizeof(*words));
        is_marked = words;
        n_words = word + 1;
    }
    is_marked[word] |= 1ULL << fd % FDS_PER_WORD;
    return fd;
}

int gyre_sock_new(int family)
{
    pthread_mutex_lock(&lock);
    int fd = gyre_descriptor_keep(socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    if (fd >= 0)
        fd = mark(fd);
    pthread_mutex_unlock(&lock);
    return fd;
}

int gyre_sock_take(int listen_fd)
{
    pthread_mutex_lock(&lock);
    int fd = gyre_descriptor_keep(accept4(listen_fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (fd >= 0)
        fd = mark(fd);
    pthread_mutex_unlock(&lock);
    return fd;
}

void gyre_sock_close(int fd)
{
    const size_t word = (size_t)fd / FDS_PER_WORD;
    pthread_mutex_lock(&lock);
    if (word < n_words)
        is_marked[word] &= ~(1ULL << fd % FDS_PER_WORD);
    close(fd);
    pthread_mutex_unlock(&lock);
}
