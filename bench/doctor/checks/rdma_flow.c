/* SPDX-License-Identifier: Apache-2.0
 *
 * Losses, flow control, and adapters' firmware. Counters begin when the driver is loaded, so a few
 * errors among very many packets are no finding. Only NVIDIA's driver package has files for PFC, so
 * `mlnx_qos` or `dcb` is asked.
 */
#include "bench/doctor/doctor.h"

#include "core/foundation/base/text.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define TOLERATED_OF_PACKETS 1000000 /* packets for each tolerated error */

/* -1 = not counted. */
static int64_t read_counter(const struct bench_rdma_port *port, const char *file)
{
    int64_t number = -1;
    const enum bench_read result = bench_read_number(bench_rdma_path(port, file), &number);
    return result == BENCH_READ_OK && number >= 0 ? number : -1;
}

static int64_t tolerated(const struct bench_rdma_port *port)
{
    const int64_t sent = read_counter(port, "counters/port_xmit_packets");
    const int64_t received = read_counter(port, "counters/port_rcv_packets");
    return 10 + (sent > 0 ? sent / TOLERATED_OF_PACKETS : 0) +
           (received > 0 ? received / TOLERATED_OF_PACKETS : 0);
}

void bench_check_rdma_counters(struct bench_doctor *doctor)
{
    int n_read = 0;
    BENCH_EACH_PORT(doctor, port)
    for (int k = 0; k < bench_n_meanings; k++) {
        const struct bench_meaning *meaning = &bench_meanings[k];
        const char *path = bench_rdma_path(port, meaning->name);
        int64_t number = 0;
        enum bench_read result =
            meaning->is_total ? bench_read_number(path, &number) : BENCH_READ_ABSENT;
        if (result == BENCH_READ_OK && number < 0)
            result = BENCH_READ_BROKEN;
        n_read += result == BENCH_READ_OK;
        if (result != BENCH_READ_OK && result != BENCH_READ_ABSENT)
            bench_say_unreadable(doctor, port->name, path, result);
        else if (number > tolerated(port))
            bench_warn(doctor, port->name, meaning->fix, "%s: %" PRId64 ": %s", path, number,
                       meaning->meaning);
    }
    if (bench_said(doctor))
        return;
    if (n_read > 0)
        bench_ok(doctor, NULL,
                 "/sys/class/infiniband/*/ports/*/{counters,hw_counters}: no losses to speak of "
                 "(%d counters)",
                 n_read);
    else
        bench_skip(doctor, "the ports have none of the counters of errors that this check knows");
}

struct flow_control {
    int64_t pauses;
    int64_t discards; /* by full buffers */
    bool has_pauses, has_discards;
};

static struct flow_control add_up(char *text)
{
    struct flow_control sum = {0, 0, false, false};
    BENCH_EACH_LINE(text, line)
    {
        char name[64];
        long long number = 0;
        int priority = 0;
        if (sscanf(line, " %63[^:]: %lld", name, &number) != 2 || number < 0)
            continue;
        const bool has_priority = sscanf(name, "%*1[rt]x_prio%d_", &priority) == 1;
        const size_t n_name = strlen(name);
        if (has_priority && n_name > 6 && strcmp(name + n_name - 6, "_pause") == 0) {
            sum.pauses += number;
            sum.has_pauses = true;
        } else if (strcmp(name, "rx_discards_phy") == 0 || strcmp(name, "tx_discards_phy") == 0 ||
                   (has_priority && strstr(name, "_discards") != NULL)) {
            sum.discards += number;
            sum.has_discards = true;
        }
    }
    return sum;
}

void bench_check_rdma_congestion(struct bench_doctor *doctor, const struct bench_rdma_port *port)
{
    char *text = NULL;
    if (!port->is_roce || port->netdev[0] == '\0')
        return;
    const enum bench_read result = bench_ethtool_read(port->netdev, &text);
    if (result == BENCH_READ_ABSENT)
        return;
    if (result != BENCH_READ_OK) {
        bench_say_unreadable(doctor, port->name, "ethtool -S of its netdev", result);
        return;
    }
    const struct flow_control sum = add_up(text);
    const int64_t sent = read_counter(port, "hw_counters/np_cnp_sent");
    const int64_t handled = read_counter(port, "hw_counters/rp_cnp_handled");
    if (!sum.has_pauses && !sum.has_discards && sent < 0 && handled < 0)
        return;
    const bool has_no_notification = (sent == 0 && handled <= 0) || (handled == 0 && sent <= 0);
    if (sum.discards > tolerated(port)) {
        bench_warn(doctor, port->name,
                   "mlnx_qos -i NETDEV --trust dscp --pfc 0,0,0,1,0,0,0,0, the same on the switch; "
                   "GYRE_IB_TC names the class: " BENCH_TRAFFIC_CLASS,
                   "ethtool -S %s: %" PRId64 " frames were thrown away for lack of buffers%s",
                   port->netdev, sum.discards,
                   sum.has_pauses && sum.pauses == 0
                       ? ", and there was no pause frame at all: PFC is off here or on the switch"
                       : "");
    } else if (sum.pauses > tolerated(port) && has_no_notification) {
        bench_warn(doctor, port->name,
                   "switch ECN on: echo 1 > /sys/class/net/NETDEV/ecn/roce_np/enable/3 (and "
                   "roce_rp), and on the switch's queue of that class",
                   "ethtool -S %s: %" PRId64
                   " pause frames, but not one congestion notification (np_cnp_sent, "
                   "rp_cnp_handled): PFC works alone, and stops the network for all",
                   port->netdev, sum.pauses);
    } else {
        const char *frames = "neither pause frames nor discards are counted";
        const char *notifications = "congestion notifications are not counted";
        if (sum.has_pauses || sum.has_discards)
            frames = bench_text("%" PRId64 " pause frames, %" PRId64 " thrown away", sum.pauses,
                                sum.discards);
        if (sent >= 0 && handled >= 0)
            notifications = bench_text(
                "%" PRId64 " congestion notifications sent, %" PRId64 " handled", sent, handled);
        bench_ok(doctor, port->name, "ethtool -S %s: %s; %s", port->netdev, frames, notifications);
    }
}

void bench_check_job_rail_counters(struct bench_doctor *doctor)
{
    struct bench_counter rises[16];
    if (doctor->before_load == NULL || doctor->after_load == NULL) {
        bench_skip(doctor, "job.rails put no load on ports of this rank");
        return;
    }
    const int n = bench_counters_compare(doctor->before_load, doctor->after_load, rises, 16);
    const int n_read = doctor->after_load->n;
    for (int i = 0; i < n; i++) {
        const struct bench_meaning *meaning = rises[i].meaning;
        const struct bench_rdma_port *port = rises[i].port;
        bench_say(doctor, meaning->is_loss ? BENCH_WARN : BENCH_OK, doctor->host,
                  bench_fix_of_port(meaning->fix, port->device, port->netdev),
                  "%s rose by %" PRId64 " while job.rails ran: %s", rises[i].name, rises[i].value,
                  meaning->meaning);
    }
    if (n == 0 && n_read == 0)
        bench_skip(doctor, "the ports have no counters in sysfs");
    else if (n == 0)
        bench_ok(doctor, NULL,
                 "none of %d counters of losses and flow control rose while job.rails ran", n_read);
}

#define VENDOR_MELLANOX 0x15b3
#define N_PRIORITIES    8
#define N_DSCP          64

/* -1 = not known. */
struct qos {
    int trusts_dscp;
    int pfc; /* a bit a priority */
    int priority_of[N_DSCP];
    int64_t notifies, reacts; /* ECN at one priority: roce_np, roce_rp */
};

/* "enabled 0 0 0 1 0 0 0 0" or "0:off 1:off 2:off 3:on". */
static int parse_pfc(const char *text)
{
    int mask = 0, n = 0, used = 0;
    char word[8];
    while (sscanf(text, " %7s%n", word, &used) == 1) {
        const char *colon = strchr(word, ':');
        mask |= (strcmp(word, "1") == 0 || (colon != NULL && strcmp(colon, ":on") == 0)) << n++;
        text += used;
        if (n == N_PRIORITIES)
            return mask;
    }
    return -1;
}

static int64_t read_ecn(const char *netdev, const char *part, int priority)
{
    int64_t value = -1;
    const char *path = bench_text("/sys/class/net/%s/ecn/%s/enable/%d", netdev, part, priority);
    return bench_read_number(path, &value) == BENCH_READ_OK ? value : -1;
}

static struct qos read_qos(const char *netdev)
{
    struct qos qos = {.trusts_dscp = -1, .pfc = -1, .notifies = -1, .reacts = -1};
    char *text = NULL, *app = NULL;
    for (int dscp = 0; dscp < N_DSCP; dscp++) /* mlx5's default */
        qos.priority_of[dscp] = dscp / N_PRIORITIES;
    if (bench_read_program(bench_text("mlnx_qos -i %s", netdev), &text) == BENCH_READ_OK) {
        bool is_pfc = false;
        BENCH_EACH_LINE(text, line)
        {
            char word[16];
            int priority = 0, used = 0;
            if (sscanf(line, " Priority trust state: %15s", word) == 1)
                qos.trusts_dscp = strcmp(word, "dscp") == 0;
            is_pfc = is_pfc || strncmp(line, "PFC configuration:", 18) == 0;
            line += strspn(line, " \t");
            if (is_pfc && strncmp(line, "enabled", 7) == 0)
                qos.pfc = parse_pfc(line + 7);
            if (sscanf(line, "prio:%d dscp:%n", &priority, &used) != 1 || used == 0 ||
                priority < 0 || priority >= N_PRIORITIES)
                continue;
            for (char *at = line + used, *end; *at != '\0'; at = end + (*end == ',')) {
                const long dscp = strtol(at, &end, 10);
                if (end == at)
                    break;
                if (dscp >= 0 && dscp < N_DSCP)
                    qos.priority_of[dscp] = priority;
            }
        }
    } else {
        (void)bench_read_program(bench_text("dcb pfc show dev %s", netdev), &text);
        (void)bench_read_program(bench_text("dcb -N app show dev %s", netdev), &app);
        const char *at = text == NULL ? NULL : strstr(text, "prio-pfc ");
        int dscp = 0, priority = 0, used = 0;
        if (at != NULL)
            qos.pfc = parse_pfc(at + strlen("prio-pfc "));
        if (app != NULL) {
            at = strstr(app, "dscp-prio ");
            qos.trusts_dscp = at != NULL;
            at = at == NULL ? "" : at + strlen("dscp-prio ");
            for (; sscanf(at, " %d:%d%n", &dscp, &priority, &used) == 2; at += used)
                if (dscp >= 0 && dscp < N_DSCP && priority >= 0 && priority < N_PRIORITIES)
                    qos.priority_of[dscp] = priority;
        }
    }
    return qos;
}

/* A class whose DSCP has PFC: 26 if possible, else the least. 0 = none. */
static int class_with_pfc(const struct qos *qos)
{
    if ((qos->pfc >> qos->priority_of[26] & 1) != 0)
        return 26 * 4 + 2;
    for (int dscp = 0; dscp < N_DSCP; dscp++)
        if ((qos->pfc >> qos->priority_of[dscp] & 1) != 0)
            return dscp * 4 + 2;
    return 0;
}

static const char *state_text(int64_t state)
{
    return state < 0 ? "not known" : state == 0 ? "off" : "on";
}

void bench_check_rdma_qos(struct bench_doctor *doctor, const struct bench_rdma_port *port)
{
    if (!port->is_roce || port->is_soft || port->netdev[0] == '\0' || !port->is_active)
        return;
    const bool is_set = gyre_param_is_set(&doctor->params, GYRE_PARAM_IB_TC);
    const int64_t class = is_set ? gyre_param_number(&doctor->params, GYRE_PARAM_IB_TC) : 0;
    const char *netdev = port->netdev;
    struct qos qos = read_qos(netdev);
    const char *chosen = "GYRE_IB_TC is unset (DSCP 0)";
    char with_pfc[32] = "";
    const int dscp = (int)(class >> 2), priority = qos.trusts_dscp == 0 ? 0 : qos.priority_of[dscp];
    qos.notifies = read_ecn(netdev, "roce_np", priority);
    qos.reacts = read_ecn(netdev, "roce_rp", priority);
    const bool is_ecn_off = qos.notifies == 0 || qos.reacts == 0;
    if (qos.pfc < 0 && qos.trusts_dscp < 0 && qos.notifies < 0 && qos.reacts < 0)
        return;
    if (is_set)
        chosen = bench_text("%s=%" PRId64 " (DSCP %d)",
                            gyre_param_source(&doctor->params, GYRE_PARAM_IB_TC), class, dscp);
    for (int i = 0; i < N_PRIORITIES; i++)
        if (qos.pfc > 0 && (qos.pfc >> i & 1) != 0)
            gyre_text_append(with_pfc, sizeof(with_pfc), "%s%d", with_pfc[0] != '\0' ? "," : "", i);
    if (qos.trusts_dscp == 0 && dscp != 0)
        bench_warn(doctor, port->name, "mlnx_qos -i NETDEV --trust dscp",
                   "%s has no effect: the port trusts PCP, so packets without a VLAN are in "
                   "priority 0 (PFC is on for: %s)",
                   chosen, with_pfc[0] != '\0' ? with_pfc : "none");
    else if (qos.pfc > 0 && (qos.pfc >> priority & 1) == 0)
        bench_warn(doctor, port->name,
                   class_with_pfc(&qos) > 0 && qos.trusts_dscp != 0
                       ? bench_text("export GYRE_IB_TC=%d", class_with_pfc(&qos))
                       : "mlnx_qos -i NETDEV --trust dscp; export GYRE_IB_TC=106",
                   "%s puts RoCE into priority %d, and PFC is on for priority %s: its packets are "
                   "thrown away when a buffer is full",
                   chosen, priority, with_pfc);
    else if (qos.pfc == 0 && (is_set || is_ecn_off))
        bench_warn(doctor, port->name,
                   "mlnx_qos -i NETDEV --trust dscp --pfc 0,0,0,1,0,0,0,0, the same on the switch; "
                   "GYRE_IB_TC names the class: " BENCH_TRAFFIC_CLASS,
                   "%s puts RoCE into priority %d, and PFC is off for all priorities; ECN: roce_np "
                   "%s, roce_rp %s",
                   chosen, priority, state_text(qos.notifies), state_text(qos.reacts));
    else if (is_ecn_off)
        bench_warn(doctor, port->name,
                   bench_text("echo 1 > /sys/class/net/%s/ecn/roce_np/enable/%d; echo 1 > "
                              "/sys/class/net/%s/ecn/roce_rp/enable/%d; and on the switch's queue",
                              netdev, priority, netdev, priority),
                   "/sys/class/net/%s/ecn: roce_np %s, roce_rp %s for priority %d, which %s uses: "
                   "without ECN senders do not slow down before buffers are full",
                   netdev, state_text(qos.notifies), state_text(qos.reacts), priority, chosen);
    else
        bench_ok(doctor, port->name,
                 "%s: priority %d; trust %s, PFC %s, ECN: roce_np %s, roce_rp %s", chosen, priority,
                 qos.trusts_dscp < 0    ? "not known"
                 : qos.trusts_dscp == 0 ? "pcp"
                                        : "dscp",
                 qos.pfc < 0    ? "not known (mlnx_qos and dcb tell nothing)"
                 : qos.pfc == 0 ? "off: the network may lose packets"
                                : "on for it",
                 state_text(qos.notifies), state_text(qos.reacts));
}

/* NVIDIA, "MFT: supported configurations and their parameters". # is the port. */
static const struct setting {
    const char *name;
    const char *layer; /* of its ports, NULL = all */
    const char *bad;
    const char *words, *fix;
} settings[] = {
    {"ROCE_CC_PRIO_MASK_P#", "Ethernet", "0", "senders slow down (ECN) in no priority",
     "ROCE_CC_PRIO_MASK_P#=255"},
    {"ROCE_CONTROL", "Ethernet", "ROCE_DISABLE", "RoCE is off after the next start",
     "ROCE_CONTROL=2"},
    {"LINK_TYPE_P#", "Ethernet", "IB", "the port becomes InfiniBand at the next start",
     "LINK_TYPE_P#=2"},
    {"LINK_TYPE_P#", "InfiniBand", "ETH", "the port becomes Ethernet at the next start",
     "LINK_TYPE_P#=1"},
};

static const char *put_port(const char *text, int port)
{
    const char *at = strchr(text, '#');
    return at == NULL ? text : bench_text("%.*s%d%s", (int)(at - text), text, port, at + 1);
}

/* False if the firmware lacks the setting. */
static bool find_value(const char *text, const char *name, char *value_out)
{
    const size_t n_name = strlen(name);
    for (const char *at = text; (at = strstr(at, name)) != NULL; at += n_name)
        if ((at == text || strchr(" \t\n", at[-1]) != NULL) && strchr(" \t", at[n_name]) != NULL)
            return sscanf(at + n_name, "%63s", value_out) == 1;
    return false;
}

static bool check_settings(struct bench_doctor *doctor, const struct bench_rdma_port *port)
{
    static const char *const tools[] = {"mlxconfig", "mstconfig"};
    char *text = NULL, good[256] = "";
    const char *tool = NULL, *command = NULL;
    const int n_before = doctor->findings.n;
    for (int i = 0; i < 2 && text == NULL; i++) {
        tool = tools[i];
        command = bench_text("%s -d %s query", tool, port->bus_id);
        (void)bench_read_program(command, &text);
    }
    if (text == NULL)
        return false;
    for (size_t i = 0; i < sizeof(settings) / sizeof(settings[0]); i++) {
        const struct setting *setting = &settings[i];
        const char *name = put_port(setting->name, port->port);
        char value[64] = "";
        if (strcmp(setting->layer, port->layer) != 0 || !find_value(text, name, value))
            continue;
        if (strncmp(value, setting->bad, strcspn(value, "(")) == 0 &&
            strlen(setting->bad) == strcspn(value, "("))
            bench_warn(doctor, port->name,
                       bench_text("%s -d %s set %s, then mlxfwreset -d %s reset, or reboot", tool,
                                  port->bus_id, put_port(setting->fix, port->port), port->bus_id),
                       "%s: %s is %s: %s", command, name, value, setting->words);
        else
            gyre_text_append(good, sizeof(good), " %s=%s", name, value);
    }
    if (strstr(text, "Configurations") == NULL)
        bench_say_unreadable(doctor, port->name, command, BENCH_READ_BROKEN);
    else if (doctor->findings.n == n_before)
        bench_ok(doctor, port->name, "%s:%s", command,
                 good[0] != '\0' ? good : " none of the settings that this check knows");
    return true;
}

void bench_check_rdma_settings(struct bench_doctor *doctor)
{
    const struct bench_machine *machine = &doctor->machine;
    if (doctor->launcher.local_process != 0) {
        bench_skip(doctor, "the first process of the host asks");
        return;
    }
    BENCH_EACH_PORT(doctor, port)
    {
        bool is_mellanox = false;
        for (int k = 0; k < machine->n_pci; k++)
            is_mellanox = is_mellanox || (machine->pci[k].vendor == VENDOR_MELLANOX &&
                                          strcmp(machine->pci[k].bus_id, port->bus_id) == 0);
        if (is_mellanox && !check_settings(doctor, port))
            break; /* the tool fails for the others too */
    }
    if (!bench_said(doctor))
        bench_skip(doctor, "neither mlxconfig nor mstconfig tells settings (they need root)");
}
