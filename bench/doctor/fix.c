/* SPDX-License-Identifier: Apache-2.0
 *
 * Puts the names of a port or an interface into the text that says what mends a finding, so that
 * its command can be copied.
 */
#include "bench/doctor/doctor.h"

#include <string.h>

/* Appends as much of the text as there is room for. */
static void append(char *text, size_t text_bytes, const char *more, size_t n_more)
{
    const size_t used = strlen(text);
    const size_t n = n_more < text_bytes - used - 1 ? n_more : text_bytes - used - 1;
    memcpy(text + used, more, n);
    text[used + n] = '\0';
}

/* @unknown: is appended if the text has NETDEV and the interface is not known. */
static const char *put_names(const char *fix, const char *device, const char *netdev,
                             const char *unknown, char *text_out)
{
    static const char netdev_word[] = "NETDEV", device_word[] = "DEVICE";
    const bool is_unknown = netdev[0] == '\0' && strstr(fix, netdev_word) != NULL;
    text_out[0] = '\0';
    while (*fix != '\0') {
        const char *name = NULL;
        if (strncmp(fix, netdev_word, strlen(netdev_word)) == 0 && netdev[0] != '\0')
            name = netdev;
        else if (strncmp(fix, device_word, strlen(device_word)) == 0)
            name = device;
        if (name != NULL)
            append(text_out, BENCH_FIX_BYTES, name, strlen(name));
        else
            append(text_out, BENCH_FIX_BYTES, fix, 1);
        fix += name == NULL ? 1 : name == netdev ? strlen(netdev_word) : strlen(device_word);
    }
    if (is_unknown)
        append(text_out, BENCH_FIX_BYTES, unknown, strlen(unknown));
    return text_out;
}

const char *bench_fix_of_port(const char *fix, const char *device, const char *netdev,
                              char *text_out)
{
    return put_names(fix, device, netdev,
                     " (NETDEV is the interface of the port: rdma link show names it)", text_out);
}

const char *bench_fix_of_interface(const char *fix, const char *netdev, char *text_out)
{
    return put_names(fix, NULL, netdev,
                     " (NETDEV is an interface of this host: ip link lists them)", text_out);
}
