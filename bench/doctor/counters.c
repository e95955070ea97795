/* SPDX-License-Identifier: Apache-2.0 */
#include "bench/doctor/machine.h"

#include <glob.h>
#include <inttypes.h>
#include <linux/ethtool.h>
#include <linux/sockios.h>
#include <net/if.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define MOST_STATISTICS 65536

/* Sysfs lacks them. */
static int ask(int fd, const char *netdev, void *command)
{
    struct ifreq request;
    memset(&request, 0, sizeof(request));
    snprintf(request.ifr_name, sizeof(request.ifr_name), "%.15s", netdev);
    request.ifr_data = command;
    return ioctl(fd, SIOCETHTOOL, &request);
}

enum bench_read bench_ethtool_read(const char *netdev, char **text_out)
{
    enum bench_read result = BENCH_READ_ABSENT;
    *text_out = NULL;
    if (bench_root[0] != '\0')
        return bench_read_all(bench_text("/ethtool/%.15s", netdev), text_out);
    const int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return BENCH_READ_BROKEN;
    struct ethtool_sset_info *sets = bench_keep(1, sizeof(*sets) + sizeof(uint32_t));
    sets->cmd = ETHTOOL_GSSET_INFO;
    sets->sset_mask = 1ULL << ETH_SS_STATS;
    const bool is_known = ask(fd, netdev, sets) == 0 && sets->sset_mask != 0;
    const uint32_t n = is_known && sets->data[0] < MOST_STATISTICS ? sets->data[0] : 0;
    struct ethtool_gstrings *names = bench_keep(1, sizeof(*names) + (size_t)n * ETH_GSTRING_LEN);
    struct ethtool_stats *numbers = bench_keep(1, sizeof(*numbers) + (size_t)n * sizeof(uint64_t));
    names->cmd = ETHTOOL_GSTRINGS;
    names->string_set = ETH_SS_STATS;
    names->len = n;
    numbers->cmd = ETHTOOL_GSTATS;
    numbers->n_stats = n;
    if (n > 0)
        result = ask(fd, netdev, names) == 0 && ask(fd, netdev, numbers) == 0 && names->len <= n
                     ? BENCH_READ_OK
                     : BENCH_READ_BROKEN;
    close(fd);
    if (result != BENCH_READ_OK)
        return result;
    size_t used = 0;
    *text_out = bench_keep(n, ETH_GSTRING_LEN + 32);
    for (uint32_t i = 0; i < names->len; i++)
        used += (size_t)sprintf(*text_out + used, "     %.*s: %" PRIu64 "\n", ETH_GSTRING_LEN - 1,
                                (const char *)names->data + (size_t)i * ETH_GSTRING_LEN,
                                (uint64_t)numbers->data[i]);
    return BENCH_READ_OK;
}

#define LOOK_AT_LOSSES \
    "look at PFC and ECN on the way (mlnx_qos -i NETDEV, switch), then at the cables"
#define LOOK_AT_CABLES    "clean or replace the cable"
#define LOOK_AT_INTERFACE "look for losses on the interface: ip -s link"
#define SWITCH_PFC_ON \
    "mlnx_qos -i NETDEV --trust dscp --pfc 0,0,0,1,0,0,0,0, the same on the switch"

const struct bench_meaning bench_meanings[] = {
    {"hw_counters/local_ack_timeout_err", true, true,
     "acknowledgements did not come in time: packets are lost", LOOK_AT_LOSSES},
    {"hw_counters/packet_seq_err", true, true, "packets of this port were lost on the way",
     LOOK_AT_LOSSES},
    {"hw_counters/implied_nak_seq_err", true, false, "answers to this port were lost",
     LOOK_AT_LOSSES},
    {"hw_counters/out_of_sequence", true, true,
     "packets to this port were lost or overtook each other",
     "look at PFC and ECN on the way; switches must not spread one flow over several paths"},
    {"hw_counters/duplicate_request", true, false, "the peer sent packets again", LOOK_AT_LOSSES},
    {"hw_counters/roce_adp_retrans", true, true, "the adapter sent packets again", LOOK_AT_LOSSES},
    {"hw_counters/roce_adp_retrans_to", true, false,
     "the adapter sent packets again after a timeout", LOOK_AT_LOSSES},
    {"hw_counters/rnr_nak_retry_err", true, true, "a receiver had no buffer ready",
     "update the firmware"},
    {"hw_counters/rx_icrc_encapsulated", true, false, "RoCE packets were damaged", LOOK_AT_CABLES},
    {"hw_counters/out_of_seq_request", true, true,
     "packets to this port were lost or overtook each other", LOOK_AT_INTERFACE},
    {"hw_counters/rcvd_seq_err", true, true, "packets of this port were lost on the way",
     LOOK_AT_INTERFACE},
    {"hw_counters/completer_retry_err", true, true, "packets were sent again", LOOK_AT_INTERFACE},
    {"hw_counters/retry_exceeded_err", true, false, "a peer did not answer at all",
     "look at job.rails: it names the pair"},
    {"hw_counters/send_err", true, false, "packets could not be sent",
     "look at the interface's MTU and routes"},
    {"counters/symbol_error", true, true, "the link damages symbols", LOOK_AT_CABLES},
    {"counters/port_rcv_errors", true, true, "damaged packets came in", LOOK_AT_CABLES},
    {"counters/port_xmit_discards", true, false, "packets were thrown away before they were sent",
     LOOK_AT_LOSSES},
    {"counters/link_error_recovery", true, true, "the link had to recover", LOOK_AT_CABLES},
    {"counters/link_downed", true, false, "the link went away", "seat or replace the cable"},
    {"rx_prio#_discards", true, false,
     "frames that came in found no buffer: PFC does not protect them", SWITCH_PFC_ON},
    {"rx_discards_phy", true, false, "frames that came in found no buffer", SWITCH_PFC_ON},
    {"tx_discards_phy", true, false, "frames were thrown away before they were sent",
     LOOK_AT_LOSSES},
    {"rx_crc_errors_phy", true, false, "frames were damaged", LOOK_AT_CABLES},
    {"hw_counters/np_cnp_sent", false, false, "this port told senders to slow down (ECN)", ""},
    {"hw_counters/np_ecn_marked_roce_packets", false, false, "a switch marked packets as congested",
     ""},
    {"hw_counters/rp_cnp_handled", false, false, "this port was told to slow down (ECN), and did",
     ""},
    {"hw_counters/rp_cnp_ignored", true, false,
     "this port was told to slow down (ECN), and did not",
     "switch ECN on: echo 1 > /sys/class/net/NETDEV/ecn/roce_rp/enable/3"},
    {"counters/port_xmit_wait", false, false, "packets had to wait for the receiver's buffers", ""},
    {"rx_prio#_pause", false, false, "the switch stopped this port for a while (PFC)", ""},
    {"tx_prio#_pause", false, false, "this port stopped the switch for a while (PFC)", ""},
    {"rx_pause_ctrl_phy", false, false, "the switch stopped this port for a while (global pause)",
     ""},
    {"tx_pause_ctrl_phy", false, false, "this port stopped the switch for a while (global pause)",
     ""},
};

const int bench_n_meanings = (int)(sizeof(bench_meanings) / sizeof(bench_meanings[0]));

static void add(struct bench_counters *counters, const struct bench_rdma_port *port,
                const char *source, const char *name, int64_t value,
                const struct bench_meaning *meaning)
{
    if (value < 0)
        return;
    counters->list = bench_grow(counters->list, counters->n, sizeof(*counters->list));
    struct bench_counter *counter = &counters->list[counters->n++];
    snprintf(counter->name, sizeof(counter->name), "%.60s %s%.50s", port->name, source, name);
    counter->port = port;
    counter->value = value;
    counter->meaning = meaning;
}

/* # in @pattern is any digit. */
static bool matches(const char *pattern, const char *name)
{
    while (*pattern != '\0' &&
           (*pattern == *name || (*pattern == '#' && *name >= '0' && *name <= '9'))) {
        pattern++;
        name++;
    }
    return *pattern == '\0' && *name == '\0';
}

struct bench_counters *bench_counters_read(const struct bench_machine *machine)
{
    struct bench_counters *counters = bench_keep(1, sizeof(*counters));
    for (int k = 0; k < machine->n_ports; k++) {
        const struct bench_rdma_port *port = &machine->ports[k];
        char *text = NULL;
        if (port->why_unused[0] != '\0')
            continue;
        for (int i = 0; i < bench_n_meanings; i++) {
            const char *name = bench_meanings[i].name;
            int64_t value = 0;
            if (strchr(name, '/') != NULL &&
                bench_read_number(bench_rdma_path(port, name), &value) == BENCH_READ_OK)
                add(counters, port, "", name, value, &bench_meanings[i]);
        }
        if (port->netdev[0] != '\0')
            (void)bench_ethtool_read(port->netdev, &text);
        BENCH_EACH_LINE(text, line)
        {
            char name[64];
            long long value = 0;
            if (sscanf(line, " %63[^:]: %lld", name, &value) != 2)
                continue;
            for (int i = 0; i < bench_n_meanings; i++)
                if (matches(bench_meanings[i].name, name))
                    add(counters, port, "(ethtool) ", name, value, &bench_meanings[i]);
        }
    }
    return counters;
}

static const struct bench_counter *find(const struct bench_counters *counters, const char *name)
{
    for (int i = 0; i < counters->n; i++)
        if (strcmp(counters->list[i].name, name) == 0)
            return &counters->list[i];
    return NULL;
}

void bench_counters_print(const struct bench_machine *machine, int n_seconds, FILE *out)
{
    const struct timespec time = {.tv_sec = n_seconds};
    struct bench_counters *before = bench_counters_read(machine);
    (void)nanosleep(&time, NULL);
    const struct bench_counters *after = bench_counters_read(machine);
    fprintf(out, "%20s %16s  %s\n", "total", bench_text("in %d s", n_seconds), "counter of a port");
    for (int i = 0; i < after->n; i++) {
        const struct bench_counter *counter = &after->list[i];
        const struct bench_counter *old = find(before, counter->name);
        if (counter->value == 0 && !counter->meaning->is_loss)
            continue;
        fprintf(out, "%20" PRId64 " %+16" PRId64 "  %s: %s\n", counter->value,
                counter->value - (old != NULL ? old->value : 0), counter->name,
                counter->meaning->meaning);
    }
    if (after->n == 0)
        fprintf(out, "no RDMA port in use has counters\n");
}

void bench_metrics_print(const char *pattern, FILE *out)
{
    char text[512];
    char line[512];
    glob_t found;
    size_t n = 0;
    for (const char *at = pattern; *at != '\0' && n + 1 < sizeof(text); at++) {
        text[n++] = *at == '%' && at[1] != '\0' ? '*' : *at;
        at += *at == '%' && at[1] != '\0';
    }
    text[n] = '\0';
    if (n == 0 || glob(text, 0, NULL, &found) != 0)
        return;
    for (size_t i = 0; i < found.gl_pathc; i++) {
        FILE *file = fopen(found.gl_pathv[i], "re");
        while (file != NULL && fgets(line, sizeof(line), file) != NULL)
            if (strncmp(line, "gyre_connection_", strlen("gyre_connection_")) == 0)
                fprintf(out, "%s: %s", found.gl_pathv[i], line);
        if (file != NULL)
            fclose(file);
    }
    globfree(&found);
}

int bench_counters_compare(const struct bench_counters *before, const struct bench_counters *after,
                           struct bench_counter *rises_out, int n_max)
{
    int n = 0;
    for (int pass = 0; pass < 2; pass++)
        for (int i = 0; i < after->n && n < n_max; i++) {
            const struct bench_counter *new = &after->list[i];
            const struct bench_counter *old = find(before, new->name);
            if (old == NULL || new->value <= old->value || new->meaning->is_loss != (pass == 0))
                continue;
            rises_out[n] = *new;
            rises_out[n++].value -= old->value;
        }
    return n;
}
