/* SPDX-License-Identifier: Apache-2.0
 *
 * Reads the counters of RDMA ports and compares them. The names are those of the mlx5 and rxe
 * drivers; counters of other drivers with the same names mean the same.
 */
#include "bench/doctor/counters.h"

#include "bench/doctor/rdma.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_COUNTERS 1024

#define LOOK_AT_LOSSES \
    "look at PFC and ECN on the way (mlnx_qos -i NETDEV, switch), then at the cables"
#define LOOK_AT_CABLES "clean or replace the cable"

/* The file of a port, or the name of ethtool's statistic with # for the priority. */
static const struct meaning {
    const char *name;
    bool is_loss;
    const char *meaning, *fix;
} meanings[] = {
    {"hw_counters/local_ack_timeout_err", true, "no acknowledgement in time: packets were lost",
     LOOK_AT_LOSSES},
    {"hw_counters/packet_seq_err", true, "packets of this port were lost on the way",
     LOOK_AT_LOSSES},
    {"hw_counters/implied_nak_seq_err", true, "answers to this port were lost", LOOK_AT_LOSSES},
    {"hw_counters/out_of_sequence", true, "packets to this port were lost or overtook each other",
     "look at PFC and ECN; switches must not spread one flow over several paths"},
    {"hw_counters/duplicate_request", true, "the peer sent packets again", LOOK_AT_LOSSES},
    {"hw_counters/roce_adp_retrans", true, "the adapter sent packets again", LOOK_AT_LOSSES},
    {"hw_counters/roce_adp_retrans_to", true, "the adapter sent packets again after a timeout",
     LOOK_AT_LOSSES},
    {"hw_counters/rnr_nak_retry_err", true, "a receiver had no buffer ready",
     "update the firmware"},
    {"hw_counters/rx_icrc_encapsulated", true, "RoCE packets were damaged", LOOK_AT_CABLES},
    {"hw_counters/out_of_seq_request", true,
     "packets to this port were lost or overtook each other",
     "look for losses on the interface: ip -s link"},
    {"hw_counters/rcvd_seq_err", true, "packets of this port were lost on the way",
     "look for losses on the interface: ip -s link"},
    {"hw_counters/completer_retry_err", true, "packets were sent again",
     "look for losses on the interface: ip -s link"},
    {"hw_counters/retry_exceeded_err", true, "a peer did not answer at all",
     "look at job.rails: it names the pair"},
    {"hw_counters/send_err", true, "packets could not be sent",
     "look at the interface's MTU and routes"},
    {"counters/symbol_error", true, "the link damages symbols", LOOK_AT_CABLES},
    {"counters/port_rcv_errors", true, "damaged packets came in", LOOK_AT_CABLES},
    {"counters/port_xmit_discards", true, "packets were thrown away before they were sent",
     LOOK_AT_LOSSES},
    {"counters/link_error_recovery", true, "the link had to recover", LOOK_AT_CABLES},
    {"counters/link_downed", true, "the link went away", "seat or replace the cable"},
    {"rx_prio#_discards", true, "frames that came in found no buffer: PFC does not protect them",
     "mlnx_qos -i NETDEV --trust dscp --pfc 0,0,0,1,0,0,0,0, the same on the switch"},
    {"rx_discards_phy", true, "frames that came in found no buffer",
     "mlnx_qos -i NETDEV --trust dscp --pfc 0,0,0,1,0,0,0,0, the same on the switch"},
    {"tx_discards_phy", true, "frames were thrown away before they were sent", LOOK_AT_LOSSES},
    {"rx_crc_errors_phy", true, "frames were damaged", LOOK_AT_CABLES},
    {"hw_counters/np_cnp_sent", false, "this port told senders to slow down (ECN)", ""},
    {"hw_counters/np_ecn_marked_roce_packets", false, "a switch marked packets as congested", ""},
    {"hw_counters/rp_cnp_handled", false, "this port was told to slow down (ECN), and did", ""},
    {"hw_counters/rp_cnp_ignored", true, "this port was told to slow down (ECN), and did not",
     "switch ECN on: echo 1 > /sys/class/net/NETDEV/ecn/roce_rp/enable/3"},
    {"counters/port_xmit_wait", false, "packets had to wait for the receiver's buffers", ""},
    {"rx_prio#_pause", false, "the switch stopped this port for a while (PFC)", ""},
    {"tx_prio#_pause", false, "this port stopped the switch for a while (PFC)", ""},
    {"rx_pause_ctrl_phy", false, "the switch stopped this port for a while (global pause)", ""},
    {"tx_pause_ctrl_phy", false, "this port stopped the switch for a while (global pause)", ""},
};

#define N_MEANINGS (sizeof(meanings) / sizeof(meanings[0]))

/* A port whose counters are read. */
struct port {
    char name[80];   /* "mlx5_0:1" */
    char device[64]; /* "mlx5_0" */
    char netdev[16]; /* "" = unknown */
};

struct counter {
    char name[128];
    struct port port;
    int64_t value;
    const struct meaning *meaning;
};

struct bench_counters {
    struct counter list[MAX_COUNTERS];
    int n;
};

static void add(struct bench_counters *counters, const struct port *port, const char *source,
                const char *name, int64_t value, const struct meaning *meaning)
{
    if (counters->n == MAX_COUNTERS || value < 0)
        return;
    struct counter *counter = &counters->list[counters->n++];
    snprintf(counter->name, sizeof(counter->name), "%.60s %s%.50s", port->name, source, name);
    counter->port = *port;
    counter->value = value;
    counter->meaning = meaning;
}

/* Does a name of ethtool match a pattern, in which # is any digit? */
static bool matches(const char *pattern, const char *name)
{
    while (*pattern != '\0' &&
           (*pattern == *name || (*pattern == '#' && *name >= '0' && *name <= '9'))) {
        pattern++;
        name++;
    }
    return *pattern == '\0' && *name == '\0';
}

static void read_ethtool(struct bench_counters *counters, const char *root, const struct port *port)
{
    char *text = NULL;
    if (bench_ethtool_read(root, port->netdev, &text) != BENCH_READ_OK)
        return;
    char *rest = text;
    for (char *line; (line = bench_next_line(&rest)) != NULL;) {
        char name[64];
        long long value = 0;
        if (sscanf(line, " %63[^:]: %lld", name, &value) != 2)
            continue;
        for (size_t i = 0; i < N_MEANINGS; i++)
            if (matches(meanings[i].name, name))
                add(counters, port, "(ethtool) ", name, value, &meanings[i]);
    }
    free(text);
}

static void read_port(struct bench_counters *counters, const char *root, const char *device,
                      const char *number)
{
    char path[256];
    struct port port = {.netdev = ""};
    snprintf(port.name, sizeof(port.name), "%.60s:%.8s", device, number);
    snprintf(port.device, sizeof(port.device), "%.63s", device);
    const bool has_netdev =
        bench_rdma_netdev(root, device, atoi(number), port.netdev, sizeof(port.netdev));
    for (size_t i = 0; i < N_MEANINGS; i++) {
        int64_t value = 0;
        snprintf(path, sizeof(path), "/sys/class/infiniband/%.63s/ports/%.8s/%.80s", device, number,
                 meanings[i].name);
        if (strchr(meanings[i].name, '/') != NULL &&
            bench_read_number(root, path, &value) == BENCH_READ_OK)
            add(counters, &port, "", meanings[i].name, value, &meanings[i]);
    }
    if (has_netdev)
        read_ethtool(counters, root, &port);
}

struct bench_counters *bench_counters_read(const char *root)
{
    struct bench_counters *counters = calloc(1, sizeof(*counters));
    char(*devices)[BENCH_NAME_BYTES];
    if (counters == NULL)
        return NULL;
    const int n_devices = bench_read_names(root, "/sys/class/infiniband", &devices);
    for (int i = 0; i < n_devices; i++) {
        char path[128];
        char(*ports)[BENCH_NAME_BYTES];
        snprintf(path, sizeof(path), "/sys/class/infiniband/%.63s/ports", devices[i]);
        const int n_ports = bench_read_names(root, path, &ports);
        for (int j = 0; j < n_ports; j++)
            read_port(counters, root, devices[i], ports[j]);
        free(ports);
    }
    free(devices);
    return counters;
}

void bench_counters_free(struct bench_counters *counters)
{
    free(counters);
}

int bench_counters_n(const struct bench_counters *counters)
{
    return counters->n;
}

static const struct counter *find(const struct bench_counters *counters, const char *name)
{
    for (int i = 0; i < counters->n; i++)
        if (strcmp(counters->list[i].name, name) == 0)
            return &counters->list[i];
    return NULL;
}

int bench_counters_compare(const struct bench_counters *before, const struct bench_counters *after,
                           struct bench_rise *rises_out, int n_max)
{
    int n = 0;
    for (int pass = 0; pass < 2; pass++)
        for (int i = 0; i < after->n && n < n_max; i++) {
            const struct counter *new = &after->list[i];
            const struct counter *old = find(before, new->name);
            if (old == NULL || new->value <= old->value || new->meaning->is_loss != (pass == 0))
                continue;
            struct bench_rise *rise = &rises_out[n++];
            snprintf(rise->name, sizeof(rise->name), "%s", new->name);
            rise->n = new->value - old->value;
            rise->is_loss = new->meaning->is_loss;
            rise->meaning = new->meaning->meaning;
            bench_fix_of_port(new->meaning->fix, new->port.device, new->port.netdev, rise->fix);
        }
    return n;
}
