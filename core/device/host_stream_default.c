/* SPDX-License-Identifier: Apache-2.0
 *
 * Each thread's default stream. It is made by the first use and ends with its thread.
 */
#include "core/device/host_stream.h"

#include <pthread.h>

/* The key ends default streams together with their threads. It belongs to the process, as all
 * pthread keys do. Written once, under once_control. */
static pthread_once_t once_control = PTHREAD_ONCE_INIT;
static pthread_key_t default_key;
static int default_key_errno;

static void close_default(void *stream)
{
    (void)gyre_host_stream_destroy(stream);
}

static void create_default_key(void)
{
    default_key_errno = pthread_key_create(&default_key, close_default);
}

gyre_stream gyre_host_stream_default(void)
{
    pthread_once(&once_control, create_default_key);
    return default_key_errno != 0 ? NULL : pthread_getspecific(default_key);
}

gyre_status gyre_host_stream_resolve(gyre_stream handle, gyre_stream *stream_out)
{
    if (handle != NULL) {
        *stream_out = handle;
        return GYRE_SUCCESS;
    }
    gyre_stream stream = gyre_host_stream_default();
    if (default_key_errno != 0)
        return gyre_fail_errno(default_key_errno, "pthread_key_create for default streams");
    if (stream == NULL) {
        GYRE_TRY(gyre_host_stream_create(&stream));
        const int error_number = pthread_setspecific(default_key, stream);
        if (error_number != 0) {
            (void)gyre_host_stream_destroy(stream);
            return gyre_fail_errno(error_number, "pthread_setspecific for the default stream");
        }
    }
    *stream_out = stream;
    return GYRE_SUCCESS;
}
