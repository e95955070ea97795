/* SPDX-License-Identifier: Apache-2.0
 *
 * Reads RDMA ports, GID tables and counters from sysfs, without libibverbs: a port that cannot be
 * opened can still be described.
 */
#include "bench/doctor/machine.h"

#include "core/foundation/base/text.h"
#include "core/foundation/topo/topo.h"
#include "transport/ib/rules/ib_hca.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <linux/ethtool.h>
#include <linux/sockios.h>
#include <net/if.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#define MOST_STATISTICS 65536

static void read_device_file(const char *root, const char *device, const char *file, char *text_out,
                             size_t text_bytes)
{
    char path[192];
    snprintf(path, sizeof(path), "/sys/class/infiniband/%.63s/%.63s", device, file);
    (void)bench_read_text(root, path, text_out, text_bytes);
}

const char *bench_rdma_path(const struct bench_rdma_port *port, const char *file, char *text_out)
{
    snprintf(text_out, 256, "/sys/class/infiniband/%.63s/ports/%d/%.120s", port->device, port->port,
             file);
    return text_out;
}

static void read_port_file(const char *root, const struct bench_rdma_port *port, const char *file,
                           char *text_out, size_t text_bytes)
{
    char path[256];
    (void)bench_read_text(root, bench_rdma_path(port, file, path), text_out, text_bytes);
}

static void read_port(const char *root, const char *device, int number,
                      struct bench_rdma_port *port)
{
    char path[192], word[16];
    snprintf(port->device, sizeof(port->device), "%.63s", device);
    port->port = number;
    snprintf(port->name, sizeof(port->name), "%.63s:%d", device, number);
    read_port_file(root, port, "state", port->state, sizeof(port->state));
    read_port_file(root, port, "phys_state", port->physical, sizeof(port->physical));
    read_port_file(root, port, "rate", port->rate, sizeof(port->rate));
    read_port_file(root, port, "link_layer", port->layer, sizeof(port->layer));
    char sysfs[PATH_MAX];
    snprintf(sysfs, sizeof(sysfs), "%.4000s/sys", root);
    (void)gyre_topo_port_netdev(sysfs, device, number, port->netdev, sizeof(port->netdev));
    read_device_file(root, device, "fw_ver", port->firmware, sizeof(port->firmware));
    read_device_file(root, device, "board_id", port->board, sizeof(port->board));
    char *rest;
    port->gbit_per_s = gyre_text_to_double(port->rate, &rest);
    (void)sscanf(rest, " Gb/sec (%d%1[X]", &port->width, word);
    snprintf(path, sizeof(path), "/sys/class/infiniband/%.63s/device", device);
    if (bench_read_link(root, path, port->bus_id, sizeof(port->bus_id)) != BENCH_READ_OK ||
        strchr(port->bus_id, ':') == NULL)
        port->bus_id[0] = '\0';
    snprintf(path, sizeof(path), "/sys/class/infiniband/%.63s/parent", device);
    port->is_soft = port->bus_id[0] == '\0' || bench_exists(root, path);
    port->is_active = strcmp(port->state, "4: ACTIVE") == 0;
    port->is_roce = strcmp(port->layer, "Ethernet") == 0;
}

bool bench_rdma_read(struct bench_machine *machine)
{
    char(*devices)[BENCH_NAME_BYTES];
    machine->n_rdma_devices = bench_read_names(machine->root, "/sys/class/infiniband", &devices);
    bool has_memory = true;
    for (int i = 0; has_memory && i < machine->n_rdma_devices; i++) {
        char path[192];
        char(*ports)[BENCH_NAME_BYTES];
        snprintf(path, sizeof(path), "/sys/class/infiniband/%.63s/ports", devices[i]);
        const int n = bench_read_names(machine->root, path, &ports);
        for (int j = 0; j < n && has_memory; j++) {
            int64_t number = 0;
            if (!bench_text_to_number(ports[j], &number) || number <= 0 || number >= 256)
                continue;
            void *more = bench_grow(machine->ports, machine->n_ports, sizeof(*machine->ports));
            has_memory = more != NULL;
            machine->ports = has_memory ? more : machine->ports;
            if (has_memory)
                read_port(machine->root, devices[i], (int)number,
                          &machine->ports[machine->n_ports++]);
        }
        free(ports);
    }
    free(devices);
    return has_memory;
}

const char *bench_rdma_off(const struct gyre_params *params, char *text_out)
{
    const char *transport = gyre_param_text(params, GYRE_PARAM_TRANSPORT);
    enum gyre_param_id id = GYRE_N_PARAMS;
    if (gyre_param_number(params, GYRE_PARAM_IB_DISABLE) == 1)
        id = GYRE_PARAM_IB_DISABLE;
    else if (gyre_text_same(gyre_param_text(params, GYRE_PARAM_NET), "Socket"))
        id = GYRE_PARAM_NET;
    else if (transport[0] != '\0' && !gyre_text_same(transport, "ib"))
        id = GYRE_PARAM_TRANSPORT;
    if (id == GYRE_N_PARAMS)
        return NULL;
    snprintf(text_out, 96, "%s=%.40s", gyre_param_source(params, id), gyre_param_text(params, id));
    return text_out;
}

static bool is_idle(const struct bench_machine *machine, const struct bench_rdma_port *port)
{
    const struct bench_netdev *device = bench_net_find(machine, port->netdev);
    return !port->is_active && (port->is_roce ? device != NULL && !device->is_up
                                              : strncmp(port->physical, "3:", 2) == 0);
}

void bench_rdma_find_unused(const struct gyre_params *params, int n_expected,
                            struct bench_machine *machine)
{
    char off[96];
    struct gyre_ib_hca_rule rule;
    const char *hca = gyre_param_text(params, GYRE_PARAM_IB_HCA), *widened;
    const bool is_off = bench_rdma_off(params, off) != NULL;
    const bool has_rule = hca[0] != '\0' && gyre_ib_hca_parse(hca, &rule) == GYRE_SUCCESS;
    int n_active = 0;
    for (int i = 0; i < machine->n_ports; i++) {
        struct bench_rdma_port *port = &machine->ports[i];
        const bool is_taken =
            !has_rule || gyre_ib_hca_takes(&rule, port->device, port->port, &widened);
        if (n_expected == 0)
            snprintf(port->why_unused, sizeof(port->why_unused), "not expected");
        else if (is_off)
            snprintf(port->why_unused, sizeof(port->why_unused), "%s", off);
        else if (!is_taken)
            snprintf(port->why_unused, sizeof(port->why_unused), "left out by %.80s",
                     gyre_param_source(params, GYRE_PARAM_IB_HCA));
        n_active += port->is_active && port->why_unused[0] == '\0';
    }
    for (int i = 0; i < machine->n_ports; i++) {
        struct bench_rdma_port *port = &machine->ports[i];
        const bool is_named = has_rule && !rule.is_inverted;
        if (port->why_unused[0] == '\0' && !port->is_active && n_expected >= 0 &&
            n_active >= n_expected)
            snprintf(port->why_unused, sizeof(port->why_unused), "not expected");
        else if (port->why_unused[0] == '\0' && !is_named && n_active > 0 && is_idle(machine, port))
            snprintf(port->why_unused, sizeof(port->why_unused), "%s, and nobody has enabled it",
                     port->state);
        machine->n_used_ports += port->why_unused[0] == '\0';
    }
}

/* ---- GID tables ---------------------------------------------------------------------------- */

/* Reads "fe80:0000:0000:0000:5054:00ff:fe12:3456". */
static bool parse_gid(const char *text, uint8_t raw_out[16])
{
    unsigned words[8];
    char end;
    if (sscanf(text, "%4x:%4x:%4x:%4x:%4x:%4x:%4x:%4x%c", &words[0], &words[1], &words[2],
               &words[3], &words[4], &words[5], &words[6], &words[7], &end) != 8)
        return false;
    for (int i = 0; i < 8; i++) {
        raw_out[2 * i] = (uint8_t)(words[i] >> 8);
        raw_out[2 * i + 1] = (uint8_t)words[i];
    }
    return true;
}

/* The kernel shows neither type nor interface of an empty row, nor in a container those of a row of
 * another network namespace. */
static void read_row(const struct bench_machine *machine, const struct bench_rdma_port *port,
                     struct gyre_ib_gid_row *row)
{
    const char *root = machine->root;
    char file[64], type[32], path[64];
    snprintf(file, sizeof(file), "gid_attrs/types/%u", row->index);
    read_port_file(root, port, file, type, sizeof(type));
    row->type = strcmp(type, "RoCE v2") == 0      ? GYRE_IB_GID_ROCE_V2
                : strcmp(type, "IB/RoCE v1") == 0 ? GYRE_IB_GID_ROCE_V1
                                                  : GYRE_IB_GID_UNREADABLE;
    snprintf(file, sizeof(file), "gid_attrs/ndevs/%u", row->index);
    read_port_file(root, port, file, row->netdev, sizeof(row->netdev));
    const struct bench_netdev *device = bench_net_find(machine, row->netdev);
    row->is_netdev_down = device != NULL && !device->is_up;
    row->vlan = 0;
    snprintf(path, sizeof(path), "/proc/net/vlan/%s", row->netdev);
    char text[256];
    if (row->netdev[0] != '\0' &&
        bench_read_text(root, path, text, sizeof(text)) == BENCH_READ_OK) {
        const char *id = strstr(text, "VID:");
        row->vlan = id == NULL ? 0 : (uint16_t)strtoul(id + 4, NULL, 10);
    }
}

int bench_rdma_gids(const struct bench_machine *machine, const struct bench_rdma_port *port,
                    struct gyre_ib_gid_row **rows_out)
{
    char path[256], text[64];
    char(*names)[BENCH_NAME_BYTES];
    int n_rows = 0;
    const int n = bench_read_names(machine->root, bench_rdma_path(port, "gids", path), &names);
    *rows_out = calloc((size_t)n + 1, sizeof(**rows_out));
    if (*rows_out == NULL)
        n_rows = -1;
    for (int i = 0; i < n && n_rows >= 0; i++) {
        struct gyre_ib_gid_row *row = &(*rows_out)[n_rows];
        int64_t index = 0;
        char file[96];
        memset(row, 0, sizeof(*row));
        snprintf(file, sizeof(file), "gids/%s", names[i]);
        const enum bench_read result =
            bench_read_text(machine->root, bench_rdma_path(port, file, path), text, sizeof(text));
        if (result == BENCH_READ_ABSENT)
            continue;
        if (result != BENCH_READ_OK || !bench_text_to_number(names[i], &index) ||
            !parse_gid(text, row->raw)) {
            n_rows = -1;
            break;
        }
        row->index = (uint32_t)index;
        if (gyre_ib_gid_classify(row->raw) == GYRE_IB_GID_ZERO)
            continue;
        read_row(machine, port, row);
        n_rows++;
    }
    free(names);
    return n_rows;
}

/* ---- counters ------------------------------------------------------------------------------ */

/* Sysfs does not show them. */
static int ask(int fd, const char *netdev, void *command)
{
    struct ifreq request;
    memset(&request, 0, sizeof(request));
    snprintf(request.ifr_name, sizeof(request.ifr_name), "%.15s", netdev);
    request.ifr_data = command;
    return ioctl(fd, SIOCETHTOOL, &request);
}

static enum bench_read format_statistics(int fd, const char *netdev, uint32_t n, char **text_out)
{
    struct ethtool_gstrings *names = calloc(1, sizeof(*names) + (size_t)n * ETH_GSTRING_LEN);
    struct ethtool_stats *numbers = calloc(1, sizeof(*numbers) + (size_t)n * sizeof(uint64_t));
    char *text = malloc((size_t)n * (ETH_GSTRING_LEN + 32) + 1);
    enum bench_read result = BENCH_READ_BROKEN;
    if (names == NULL || numbers == NULL || text == NULL)
        goto done;
    names->cmd = ETHTOOL_GSTRINGS;
    names->string_set = ETH_SS_STATS;
    names->len = n;
    numbers->cmd = ETHTOOL_GSTATS;
    numbers->n_stats = n;
    if (ask(fd, netdev, names) != 0 || ask(fd, netdev, numbers) != 0 || names->len > n)
        goto done;
    size_t used = 0;
    text[0] = '\0';
    for (uint32_t i = 0; i < names->len; i++)
        used += (size_t)sprintf(text + used, "     %.*s: %" PRIu64 "\n", ETH_GSTRING_LEN - 1,
                                (const char *)names->data + (size_t)i * ETH_GSTRING_LEN,
                                (uint64_t)numbers->data[i]);
    result = BENCH_READ_OK;
    *text_out = text;
    text = NULL;
done:
    free(names);
    free(numbers);
    free(text);
    return result;
}

static uint32_t count_statistics(int fd, const char *netdev)
{
    struct ethtool_sset_info *sets = calloc(1, sizeof(*sets) + sizeof(uint32_t));
    uint32_t n = 0;
    if (sets == NULL)
        return 0;
    sets->cmd = ETHTOOL_GSSET_INFO;
    sets->sset_mask = 1ULL << ETH_SS_STATS;
    if (ask(fd, netdev, sets) == 0 && sets->sset_mask != 0)
        n = sets->data[0];
    free(sets);
    return n < MOST_STATISTICS ? n : 0;
}

enum bench_read bench_ethtool_read(const char *root, const char *netdev, char **text_out)
{
    char path[64];
    *text_out = NULL;
    if (root[0] != '\0') {
        snprintf(path, sizeof(path), "/ethtool/%.15s", netdev);
        return bench_read_all(root, path, text_out);
    }
    const int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return BENCH_READ_BROKEN;
    const uint32_t n = count_statistics(fd, netdev);
    const enum bench_read result =
        n > 0 ? format_statistics(fd, netdev, n, text_out) : BENCH_READ_ABSENT;
    close(fd);
    return result;
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

struct counter {
    char name[128];
    const struct bench_rdma_port *port;
    int64_t value;
    const struct bench_meaning *meaning;
};

struct bench_counters {
    struct counter *list;
    int n;
};

static void add(struct bench_counters *counters, const struct bench_rdma_port *port,
                const char *source, const char *name, int64_t value,
                const struct bench_meaning *meaning)
{
    void *more =
        value < 0 ? NULL : bench_grow(counters->list, counters->n, sizeof(*counters->list));
    if (more == NULL)
        return;
    counters->list = more;
    struct counter *counter = &counters->list[counters->n++];
    snprintf(counter->name, sizeof(counter->name), "%.60s %s%.50s", port->name, source, name);
    counter->port = port;
    counter->value = value;
    counter->meaning = meaning;
}

/* @pattern: # is any digit. */
static bool matches(const char *pattern, const char *name)
{
    while (*pattern != '\0' &&
           (*pattern == *name || (*pattern == '#' && *name >= '0' && *name <= '9'))) {
        pattern++;
        name++;
    }
    return *pattern == '\0' && *name == '\0';
}

static void read_counters(struct bench_counters *counters, const char *root,
                          const struct bench_rdma_port *port)
{
    char *text = NULL;
    for (int i = 0; i < bench_n_meanings; i++) {
        char path[256];
        int64_t value = 0;
        if (strchr(bench_meanings[i].name, '/') != NULL &&
            bench_read_number(root, bench_rdma_path(port, bench_meanings[i].name, path), &value) ==
                BENCH_READ_OK)
            add(counters, port, "", bench_meanings[i].name, value, &bench_meanings[i]);
    }
    if (port->netdev[0] == '\0' || bench_ethtool_read(root, port->netdev, &text) != BENCH_READ_OK)
        return;
    char *rest = text;
    for (char *line; (line = bench_next_line(&rest)) != NULL;) {
        char name[64];
        long long value = 0;
        if (sscanf(line, " %63[^:]: %lld", name, &value) != 2)
            continue;
        for (int i = 0; i < bench_n_meanings; i++)
            if (matches(bench_meanings[i].name, name))
                add(counters, port, "(ethtool) ", name, value, &bench_meanings[i]);
    }
    free(text);
}

struct bench_counters *bench_counters_read(const struct bench_machine *machine)
{
    struct bench_counters *counters = calloc(1, sizeof(*counters));
    for (int i = 0; counters != NULL && i < machine->n_ports; i++)
        read_counters(counters, machine->root, &machine->ports[i]);
    return counters;
}

void bench_counters_free(struct bench_counters *counters)
{
    if (counters != NULL)
        free(counters->list);
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
            *rise = (struct bench_rise){
                .n = new->value - old->value, .meaning = new->meaning, .port = new->port};
            memcpy(rise->name, new->name, sizeof(rise->name));
        }
    return n;
}
