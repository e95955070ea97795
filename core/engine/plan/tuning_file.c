/* SPDX-License-Identifier: Apache-2.0
 *
 * Reads GYRE_TUNING_FILE, and computes constants between hosts from a line rate, a latency and the
 * parts below, which also give the shipped constants.
 */
#include "core/engine/plan/plan.h"

#include "core/foundation/base/file.h"
#include "core/foundation/base/util.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_FILE_BYTES 16383

/* The rows refer to the text. */
struct own_rows {
    struct gyre_rows rows; /* first, because struct gyre_tuning frees it */
    char file[128];
    char text[MAX_FILE_BYTES + 1];
};

/* Makes comments of lines that are rows, or of all others. */
static void leave_out(char *text, bool leaves_out_rows)
{
    for (char *line = text; *line != '\0'; line += *line == '\n') {
        const size_t n = strcspn(line, "\n");
        const char *arrow = strstr(line, "->");
        const bool is_row = strncmp(line + strspn(line, " "), "measured ", 9) == 0 ||
                            (arrow != NULL && (size_t)(arrow - line) < n);
        if (n > 0 && is_row == leaves_out_rows)
            line[0] = '#';
        line += n;
    }
}

gyre_status gyre_tuning_load(const char *path, struct gyre_tuning *tuning_out)
{
    GYRE_FREED char *text = NULL;
    struct gyre_tuning tuning = {.is_set = false};
    GYRE_TRY(gyre_file_read(path, MAX_FILE_BYTES, &text, NULL));
    const char *slash = strrchr(path, '/');
    struct own_rows *own = calloc(1, sizeof(*own));
    gyre_status status = own == NULL ? gyre_fail_errno(ENOMEM, "rows") : GYRE_SUCCESS;
    if (own != NULL) {
        snprintf(own->file, sizeof(own->file), "%s", slash != NULL ? slash + 1 : path);
        snprintf(own->text, sizeof(own->text), "%s", text);
        leave_out(own->text, false);
        status = gyre_rows_parse(own->text, own->file, &own->rows);
        if (status != GYRE_SUCCESS || own->rows.n_rows == 0)
            free(own);
        else
            tuning.rows = &own->rows;
    }
    leave_out(text, true);
    if (status == GYRE_SUCCESS)
        status = gyre_cost_from_text(text, &gyre_cost_host, &tuning.cost);
    tuning.is_set = tuning.rows == NULL;
    for (const char *line = text; *line != '\0' && !tuning.is_set; line += *line == '\n') {
        const size_t n = strcspn(line, "\n"), n_blank = strspn(line, " \t\r");
        tuning.is_set = n_blank < n && line[n_blank] != '#';
        line += n;
    }
    if (status != GYRE_SUCCESS) {
        gyre_tuning_free(&tuning);
        return gyre_fail_context(status, "%s", path);
    }
    if (tuning.is_set)
        tuning.hash = gyre_hash(GYRE_HASH_INIT, &tuning.cost, sizeof(tuning.cost));
    *tuning_out = tuning;
    return GYRE_SUCCESS;
}

void gyre_tuning_free(struct gyre_tuning *tuning)
{
    free(tuning->rows);
    *tuning = (struct gyre_tuning){.is_set = false};
}

/* Of a NIC's line rate: 49 of 50 GB/s over RDMA (perftest, 1 QP), 1.15 of 1.25 GB/s over TCP. */
#define RDMA_PART   0.98
#define SOCKET_PART 0.92

/* Of the network behind the shipped constants of RDMA. */
#define RDMA_WIRE_NS 2000

/* That proxies, notifications and waking add. */
#define RDMA_HOP_NS      9000
#define RDMA_CREDIT_NS   700
#define SOCKET_HOP_NS    10000
#define SOCKET_CREDIT_NS 10000

/* On GPUs the slots lie in host memory: with lines the sender has no fence over PCIe, and the
 * receiver's poll reads the data. Predicted; measured were 2.5 to 4.4 us in calls of 1 KiB (2 H100,
 * 2026-11). */
#define SOCKET_LINES_GAIN_NS 2000

static bool has_faster_lines(const struct gyre_cost *cost)
{
    return cost->hop_ns[GYRE_PROTO_LL][GYRE_LINK_NETWORK] <
           cost->hop_ns[GYRE_PROTO_SIMPLE][GYRE_LINK_NETWORK];
}

struct gyre_cost gyre_network_cost(const struct gyre_cost *base, const struct gyre_network *network)
{
    struct gyre_cost cost = *base;
    const bool is_rdma = network->is_rdma;
    if (network->nic_mbit_per_s > 0) {
        cost.nic_bytes_per_ns =
            network->nic_mbit_per_s / 8000.0 * (is_rdma ? RDMA_PART : SOCKET_PART);
        cost.egress_bytes_per_ns[GYRE_LINK_NETWORK] = 0; /* the NIC is the limit */
        cost.ingress_bytes_per_ns[GYRE_LINK_NETWORK] = 0;
    }
    /* A host that has lost a port bounds every call that all hosts take part in. */
    if (network->least_ports > 0 && network->least_ports < network->most_ports) {
        const double part = (double)network->least_ports / network->most_ports;
        cost.nic_bytes_per_ns *= part;
        cost.egress_bytes_per_ns[GYRE_LINK_NETWORK] *= part;
        cost.ingress_bytes_per_ns[GYRE_LINK_NETWORK] *= part;
    }
    if (network->latency_ns > 0) {
        const double wire_ns = (double)network->latency_ns;
        cost.hop_ns[GYRE_PROTO_SIMPLE][GYRE_LINK_NETWORK] =
            wire_ns + (is_rdma ? RDMA_HOP_NS : SOCKET_HOP_NS);
        if (is_rdma && has_faster_lines(base)) {
            for (int proto = GYRE_PROTO_SIMPLE + 1; proto < GYRE_N_PROTOS; proto++)
                cost.hop_ns[proto][GYRE_LINK_NETWORK] =
                    base->hop_ns[proto][GYRE_LINK_NETWORK] + wire_ns - RDMA_WIRE_NS;
        } else if (!is_rdma) {
            cost.hop_ns[GYRE_PROTO_LL][GYRE_LINK_NETWORK] =
                cost.hop_ns[GYRE_PROTO_SIMPLE][GYRE_LINK_NETWORK] -
                (has_faster_lines(base) ? SOCKET_LINES_GAIN_NS : 0);
        }
        cost.credit_ns[GYRE_LINK_NETWORK] = wire_ns + (is_rdma ? RDMA_CREDIT_NS : SOCKET_CREDIT_NS);
    }
    return cost;
}
