/* SPDX-License-Identifier: Apache-2.0
 *
 * Added while programs and libraries are loaded.
 */
#include "tests/stand_in_gpu/launch.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

struct kernel {
    const void *function;
    size_t args_bytes;
    void (*call)(const void *function, const void *args);
};

static struct {
    pthread_mutex_t lock;
    struct kernel *kernels;
    size_t n;
} list = {.lock = PTHREAD_MUTEX_INITIALIZER};

void stand_in_add_kernel(const void *function, size_t args_bytes,
                         void (*call)(const void *function, const void *args))
{
    (void)pthread_mutex_lock(&list.lock);
    struct kernel *longer = realloc(list.kernels, (list.n + 1) * sizeof(*longer));
    if (longer == NULL) {
        fprintf(stderr, "stand-in GPU: no memory for the list of kernels\n");
        abort();
    }
    longer[list.n++] = (struct kernel){function, args_bytes, call};
    list.kernels = longer;
    (void)pthread_mutex_unlock(&list.lock);
}

bool stand_in_find_kernel(const void *function, size_t *args_bytes_out,
                          void (**call_out)(const void *function, const void *args))
{
    bool is_found = false;
    (void)pthread_mutex_lock(&list.lock);
    for (size_t i = 0; i < list.n && !is_found; i++)
        if (list.kernels[i].function == function) {
            *args_bytes_out = list.kernels[i].args_bytes;
            *call_out = list.kernels[i].call;
            is_found = true;
        }
    (void)pthread_mutex_unlock(&list.lock);
    return is_found;
}
