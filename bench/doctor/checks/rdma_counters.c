/* SPDX-License-Identifier: Apache-2.0
 *
 * Counters begin when the driver is loaded, so a few errors among very many packets are no finding.
 */
#include "bench/doctor/doctor.h"

#include <inttypes.h>
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
