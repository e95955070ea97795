/* SPDX-License-Identifier: Apache-2.0
 *
 * Checks the counters of RDMA ports for lost packets, for links that went down, and for signs that
 * flow control works. Counters begin when the driver is loaded, so a few errors among very many
 * packets are no finding.
 */
#include "bench/doctor/counters.h"
#include "bench/doctor/rdma.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TOLERATED_OF_PACKETS 1000000 /* one error among so many packets */
#define TOLERATED_FLAPS      4       /* drivers count some when they start */

static enum bench_read read_counter(const char *root, const struct bench_rdma_port *port,
                                    const char *file, int64_t *number_out)
{
    char path[256];
    const enum bench_read result =
        bench_read_number(root, bench_rdma_path(port, file, path), number_out);
    return result == BENCH_READ_OK && *number_out < 0 ? BENCH_READ_BROKEN : result;
}

/* The number of errors that are tolerated, from the number of the port's packets. */
static int64_t tolerated(const char *root, const struct bench_rdma_port *port)
{
    int64_t sent = 0, received = 0;
    (void)read_counter(root, port, "counters/port_xmit_packets", &sent);
    (void)read_counter(root, port, "counters/port_rcv_packets", &received);
    return 10 + sent / TOLERATED_OF_PACKETS + received / TOLERATED_OF_PACKETS;
}

static const struct {
    const char *file, *meaning, *fix;
} loss_counters[] = {
    {"hw_counters/local_ack_timeout_err", "acknowledgements did not come in time: packets are lost",
     "look at PFC and ECN on the way (mlnx_qos -i NETDEV, switch), then at the cables"},
    {"hw_counters/packet_seq_err", "packets of this port were lost on the way",
     "look at PFC and ECN on the way (mlnx_qos -i NETDEV, switch), then at the cables"},
    {"hw_counters/out_of_sequence", "packets to this port were lost or overtook each other",
     "look at PFC and ECN on the way; switches must not spread one flow over several paths"},
    {"hw_counters/roce_adp_retrans", "the adapter sent packets again",
     "look at PFC and ECN on the way (mlnx_qos -i NETDEV, switch), then at the cables"},
    {"hw_counters/rnr_nak_retry_err", "a receiver had no buffer ready", "update the firmware"},
    /* names of Soft-RoCE */
    {"hw_counters/completer_retry_err", "packets were sent again",
     "look for losses on the interface: ip -s link"},
    {"hw_counters/out_of_seq_request", "packets to this port were lost or overtook each other",
     "look for losses on the interface: ip -s link"},
    {"hw_counters/rcvd_seq_err", "packets of this port were lost on the way",
     "look for losses on the interface: ip -s link"},
    {"counters/symbol_error", "the link damages symbols", "clean or replace the cable"},
    {"counters/port_rcv_errors", "damaged packets came in", "clean or replace the cable"},
    {"counters/link_error_recovery", "the link had to recover", "clean or replace the cable"},
};

void bench_check_rdma_counters(struct bench_doctor *doctor)
{
    struct bench_rdma *rdma = bench_rdma_read(doctor->root);
    int n_read = 0;
    if (bench_rdma_skip(doctor, rdma)) {
        free(rdma);
        return;
    }
    for (int i = 0; i < rdma->n_ports; i++) {
        const struct bench_rdma_port *port = &rdma->ports[i];
        const int64_t most = tolerated(doctor->root, port);
        for (size_t k = 0; k < sizeof(loss_counters) / sizeof(loss_counters[0]); k++) {
            int64_t number = 0;
            char path[256], fix[BENCH_FIX_BYTES];
            const enum bench_read result =
                read_counter(doctor->root, port, loss_counters[k].file, &number);
            bench_rdma_path(port, loss_counters[k].file, path);
            if (result == BENCH_READ_BROKEN || result == BENCH_READ_DENIED)
                bench_say_unreadable(doctor, port->name, path, result);
            else if (result == BENCH_READ_OK && number > most)
                bench_say(doctor, BENCH_WARN, port->name,
                          bench_fix_of_port(loss_counters[k].fix, port->device, port->netdev, fix),
                          "%s: %" PRId64 ": %s", path, number, loss_counters[k].meaning);
            n_read += result == BENCH_READ_OK;
        }
    }
    if (bench_said(doctor) < 0 && n_read > 0)
        bench_say(doctor, BENCH_OK, NULL, NULL,
                  "/sys/class/infiniband/*/ports/*/{counters,hw_counters}: no losses to speak of "
                  "(%d counters)",
                  n_read);
    else if (bench_said(doctor) < 0)
        bench_say(doctor, BENCH_SKIPPED, NULL, NULL,
                  "the ports have none of the counters of errors that this check knows");
    free(rdma);
}

void bench_check_rdma_flaps(struct bench_doctor *doctor)
{
    struct bench_rdma *rdma = bench_rdma_read(doctor->root);
    int n_read = 0;
    if (bench_rdma_skip(doctor, rdma)) {
        free(rdma);
        return;
    }
    for (int i = 0; i < rdma->n_ports; i++) {
        const struct bench_rdma_port *port = &rdma->ports[i];
        int64_t number = 0;
        char path[256];
        const enum bench_read result =
            read_counter(doctor->root, port, "counters/link_downed", &number);
        bench_rdma_path(port, "counters/link_downed", path);
        if (result == BENCH_READ_BROKEN || result == BENCH_READ_DENIED)
            bench_say_unreadable(doctor, port->name, path, result);
        else if (result == BENCH_READ_OK && number > TOLERATED_FLAPS)
            bench_say(doctor, BENCH_WARN, port->name,
                      "seat or replace the cable and the transceiver; rows of the GID table move "
                      "when the link comes back, so leave GYRE_IB_GID_INDEX unset",
                      "%s: the link went away %" PRId64 " times", path, number);
        n_read += result == BENCH_READ_OK;
    }
    if (bench_said(doctor) < 0)
        bench_say(doctor, n_read > 0 ? BENCH_OK : BENCH_SKIPPED, NULL, NULL,
                  n_read > 0 ? "/sys/class/infiniband/*/ports/*/counters/link_downed: the links "
                               "stay up"
                             : "the ports do not count how often their link goes away");
    free(rdma);
}

/* ---- rdma.congestion ----------------------------------------------------------------------- */

struct flow_control {
    int64_t pauses;   /* frames that ask this host, or its switch, to wait */
    int64_t discards; /* frames that a full buffer threw away */
    bool has_pauses, has_discards;
};

/* Adds up "rx_prio3_pause: 12", "tx_prio3_pause: 0", "rx_prio3_discards: 0", "rx_discards_phy: 0".
 */
static struct flow_control add_up(char *text)
{
    struct flow_control sum = {0, 0, false, false};
    for (char *line; (line = bench_next_line(&text)) != NULL;) {
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

/* @sent, @handled: congestion notifications, or -1 where the driver does not count them. */
static void say_no_congestion(struct bench_doctor *doctor, const struct bench_rdma_port *port,
                              const struct flow_control *sum, int64_t sent, int64_t handled)
{
    char frames[96] = "neither pause frames nor discards are counted";
    char notifications[96] = "congestion notifications are not counted";
    if (sum->has_pauses || sum->has_discards)
        snprintf(frames, sizeof(frames), "%" PRId64 " pause frames, %" PRId64 " thrown away",
                 sum->pauses, sum->discards);
    if (sent >= 0 && handled >= 0)
        snprintf(notifications, sizeof(notifications),
                 "%" PRId64 " congestion notifications sent, %" PRId64 " handled", sent, handled);
    bench_say(doctor, BENCH_OK, port->name, NULL, "ethtool -S %s: %s; %s", port->netdev, frames,
              notifications);
}

static void check_flow_control(struct bench_doctor *doctor, const struct bench_rdma_port *port)
{
    char *text = NULL, fix[BENCH_FIX_BYTES];
    int64_t sent = -1, handled = -1;
    const enum bench_read result = bench_ethtool_read(doctor->root, port->netdev, &text);
    if (result == BENCH_READ_ABSENT)
        return; /* the driver has no statistics */
    if (result != BENCH_READ_OK) {
        bench_say_unreadable(doctor, port->name, "ethtool -S of its netdev", result);
        return;
    }
    const struct flow_control sum = add_up(text);
    free(text);
    (void)read_counter(doctor->root, port, "hw_counters/np_cnp_sent", &sent);
    (void)read_counter(doctor->root, port, "hw_counters/rp_cnp_handled", &handled);
    if (!sum.has_pauses && !sum.has_discards && sent < 0 && handled < 0)
        return; /* nothing is counted */
    const bool has_no_notification = (sent == 0 && handled <= 0) || (handled == 0 && sent <= 0);
    if (sum.discards > tolerated(doctor->root, port))
        bench_say(doctor, BENCH_WARN, port->name,
                  bench_fix_of_port("mlnx_qos -i NETDEV --trust dscp --pfc 0,0,0,1,0,0,0,0, the "
                                    "same on the switch; GYRE_IB_TC names the class: 106 is DSCP "
                                    "26, priority 3",
                                    port->device, port->netdev, fix),
                  "ethtool -S %s: %" PRId64 " frames were thrown away for lack of buffers%s",
                  port->netdev, sum.discards,
                  sum.has_pauses && sum.pauses == 0
                      ? ", and there was no pause frame at all: PFC is off here or on the switch"
                      : "");
    else if (sum.pauses > tolerated(doctor->root, port) && has_no_notification)
        bench_say(doctor, BENCH_WARN, port->name,
                  bench_fix_of_port("switch ECN on: echo 1 > "
                                    "/sys/class/net/NETDEV/ecn/roce_np/enable/3 (and roce_rp), and "
                                    "on the switch's queue of that class",
                                    port->device, port->netdev, fix),
                  "ethtool -S %s: %" PRId64 " pause frames, but not one congestion notification "
                  "(np_cnp_sent, rp_cnp_handled): PFC works alone, and stops the network for all",
                  port->netdev, sum.pauses);
    else
        say_no_congestion(doctor, port, &sum, sent, handled);
}

void bench_check_rdma_congestion(struct bench_doctor *doctor)
{
    struct bench_rdma *rdma = bench_rdma_read(doctor->root);
    if (bench_rdma_skip(doctor, rdma)) {
        free(rdma);
        return;
    }
    for (int i = 0; i < rdma->n_ports; i++)
        if (bench_rdma_is_roce(&rdma->ports[i]) && rdma->ports[i].netdev[0] != '\0')
            check_flow_control(doctor, &rdma->ports[i]);
    if (bench_said(doctor) < 0)
        bench_say(doctor, BENCH_SKIPPED, NULL, NULL,
                  "no RoCE port whose driver counts pause frames and discards");
    free(rdma);
}

/* ---- job.rail_counters ---------------------------------------------------------------------- */

void bench_check_job_rail_counters(struct bench_doctor *doctor)
{
    struct bench_rise rises[16];
    if (doctor->before_load == NULL || doctor->after_load == NULL) {
        bench_say(doctor, BENCH_SKIPPED, NULL, NULL, "job.rails put no load on ports of this rank");
        return;
    }
    const int n = bench_counters_compare(doctor->before_load, doctor->after_load, rises, 16);
    const int n_read = bench_counters_n(doctor->after_load);
    for (int i = 0; i < n; i++)
        bench_say(doctor, rises[i].is_loss ? BENCH_WARN : BENCH_OK, doctor->facts.host,
                  rises[i].fix, "%s rose by %" PRId64 " while job.rails ran: %s", rises[i].name,
                  rises[i].n, rises[i].meaning);
    if (n == 0 && n_read == 0)
        bench_say(doctor, BENCH_SKIPPED, NULL, NULL, "the ports have no counters in sysfs");
    else if (n == 0)
        bench_say(doctor, BENCH_OK, NULL, NULL,
                  "none of %d counters of losses and flow control rose while job.rails ran",
                  n_read);
}
