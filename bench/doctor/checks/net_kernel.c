/* SPDX-License-Identifier: Apache-2.0
 *
 * Checks of the network: the settings of the kernel, and the errors that it counts.
 */
#include "bench/doctor/net.h"

#include <arpa/inet.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The number of bytes that one connection must be able to have in flight: 100 Gbit/s over 0.3 ms.
 * Linux' default for reading is 6 MiB and for writing 4 MiB. */
#define BUFFER_LEAST ((int64_t)4 << 20)

/* The last of the three numbers of tcp_rmem and tcp_wmem: the most that a connection may use. */
static enum bench_read read_most(const char *root, const char *path, int64_t *most_out)
{
    char text[128];
    long long numbers[3];
    const enum bench_read result = bench_read_text(root, path, text, sizeof(text));
    if (result != BENCH_READ_OK)
        return result;
    if (sscanf(text, "%lld %lld %lld", &numbers[0], &numbers[1], &numbers[2]) != 3 ||
        numbers[2] <= 0)
        return BENCH_READ_BROKEN;
    *most_out = numbers[2];
    return BENCH_READ_OK;
}

void bench_check_net_buffers(struct bench_doctor *doctor)
{
    static const struct {
        const char *path, *fix;
    } files[] = {{"/proc/sys/net/ipv4/tcp_rmem",
                  "sysctl -w net.ipv4.tcp_rmem='4096 131072 67108864' net.core.rmem_max=67108864"},
                 {"/proc/sys/net/ipv4/tcp_wmem",
                  "sysctl -w net.ipv4.tcp_wmem='4096 65536 67108864' net.core.wmem_max=67108864"}};
    char text[256] = "";
    for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++) {
        int64_t most = 0;
        const enum bench_read result = read_most(doctor->root, files[i].path, &most);
        const size_t used = strlen(text);
        if (result != BENCH_READ_OK)
            bench_say_unreadable(doctor, NULL, files[i].path, result);
        else if (most < BUFFER_LEAST)
            bench_say(doctor, BENCH_WARN, NULL, files[i].fix,
                      "%s: at most %" PRId64 " bytes a connection; a fast network needs 4 MiB or "
                      "more on the way",
                      files[i].path, most);
        else
            snprintf(text + used, sizeof(text) - used, "%s%s: at most %" PRId64 " bytes",
                     used > 0 ? "; " : "", files[i].path, most);
    }
    if (bench_said(doctor) < 0)
        bench_say(doctor, BENCH_OK, NULL, NULL, "%s", text);
}

void bench_check_net_ports(struct bench_doctor *doctor)
{
    static const char path[] = "/proc/sys/net/ipv4/ip_local_port_range";
    char text[64];
    int low = 0, high = 0;
    const enum bench_read result = bench_read_text(doctor->root, path, text, sizeof(text));
    if (result != BENCH_READ_OK || sscanf(text, "%d %d", &low, &high) != 2 || low < 1 || high < low)
        bench_say_unreadable(doctor, NULL, path,
                             result == BENCH_READ_OK ? BENCH_READ_BROKEN : result);
    else if (high - low < 1000)
        bench_say(doctor, BENCH_WARN, NULL, "sysctl -w net.ipv4.ip_local_port_range='32768 60999'",
                  "%s: %d to %d: too few ports for the connections of many ranks", path, low, high);
    else
        bench_say(doctor, BENCH_OK, NULL, NULL,
                  "%s: %d to %d; a firewall between the hosts must let them through", path, low,
                  high);
}

void bench_check_net_errors(struct bench_doctor *doctor)
{
    static const char *const files[] = {"rx_crc_errors", "rx_frame_errors", "tx_carrier_errors"};
    struct bench_net *net = bench_net_read(doctor);
    int n_read = 0;
    for (int i = 0; net != NULL && i < net->n_devices; i++)
        for (size_t k = 0; k < sizeof(files) / sizeof(files[0]); k++) {
            char path[128];
            int64_t number = 0;
            snprintf(path, sizeof(path), "/sys/class/net/%s/statistics/%s", net->devices[i].name,
                     files[k]);
            if (strcmp(net->devices[i].kind, "physical") != 0)
                continue;
            const enum bench_read result = bench_read_number(doctor->root, path, &number);
            if (result == BENCH_READ_BROKEN || result == BENCH_READ_DENIED)
                bench_say_unreadable(doctor, net->devices[i].name, path, result);
            else if (result == BENCH_READ_OK && number > 0)
                bench_say(doctor, BENCH_WARN, net->devices[i].name,
                          "replace the cable or the transceiver; clean the fibre",
                          "%s: %" PRId64 " since the interface exists", path, number);
            n_read += result == BENCH_READ_OK;
        }
    if (bench_said(doctor) < 0)
        bench_say(doctor, n_read > 0 ? BENCH_OK : BENCH_SKIPPED, NULL, NULL,
                  n_read > 0 ? "/sys/class/net/*/statistics: no damaged frames"
                             : "no adapter that counts damaged frames");
    free(net);
}

/* ---- net.same_subnet ----------------------------------------------------------------------- */

static uint32_t subnet_of(const struct gyre_sock_interface *interface)
{
    uint32_t address;
    memcpy(&address, interface->address.bytes, sizeof(address));
    const unsigned bits = interface->prefix_bits;
    return ntohl(address) & (bits == 0 ? 0 : 0xffffffffU << (32 - bits));
}

/* A host with two interfaces in one subnet sends everything through the first one, and answers
 * address requests for either on both. */
void bench_check_net_same_subnet(struct bench_doctor *doctor)
{
    struct bench_net *net = bench_net_read(doctor);
    for (int i = 0; net != NULL && i < net->n_addresses; i++)
        for (int j = i + 1; j < net->n_addresses; j++) {
            const struct gyre_sock_interface *a = &net->addresses[i], *b = &net->addresses[j];
            char first[80], second[80];
            if (a->address.family != AF_INET || b->address.family != AF_INET || a->is_loopback ||
                !a->is_running || !b->is_running || a->prefix_bits != b->prefix_bits ||
                a->prefix_bits > 30 || strcmp(a->name, b->name) == 0 ||
                subnet_of(a) != subnet_of(b))
                continue;
            bench_say(doctor, BENCH_WARN, b->name,
                      "give each rail a subnet of its own; or sysctl -w net.ipv4.conf.all."
                      "arp_announce=2 net.ipv4.conf.all.arp_ignore=1 and a routing table a "
                      "source address",
                      "%s %s and %s %s are in one subnet: packets for both leave through one of "
                      "them",
                      a->name, bench_net_host_text(a, first, sizeof(first)), b->name,
                      bench_net_host_text(b, second, sizeof(second)));
        }
    if (bench_said(doctor) < 0 && net != NULL)
        bench_say(doctor, BENCH_OK, NULL, NULL, "no two interfaces share an IPv4 subnet");
    free(net);
}
