/* SPDX-License-Identifier: Apache-2.0
 *
 * Shows which row of its GID table each RoCE port uses. Every row is listed with its type, its
 * address, and the reason why it is used or not. The library's own rules make the choice
 * (transport/ib/rules/ib_gid.h).
 */
#include "bench/doctor/rdma.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct table {
    struct gyre_ib_gid_row rows[BENCH_MAX_GIDS];
    char reasons[BENCH_MAX_GIDS][GYRE_IB_GID_REASON_BYTES];
    int n;
    int chosen; /* position in rows; -1 = none */
};

static const char *type_name(const struct gyre_ib_gid_row *row)
{
    return row->type == GYRE_IB_GID_ROCE_V2   ? "RoCE v2"
           : row->type == GYRE_IB_GID_ROCE_V1 ? "RoCE v1"
                                              : "type not readable";
}

static void list_rows(const struct table *table, bool is_forced, char *text_out, size_t text_bytes)
{
    size_t used = 0;
    text_out[0] = '\0';
    for (int i = 0; i < table->n && used < text_bytes; i++) {
        char address[48], verdict[GYRE_IB_GID_REASON_BYTES];
        const struct gyre_ib_gid_row *row = &table->rows[i];
        snprintf(verdict, sizeof(verdict), "%s", table->reasons[i]);
        if (i == table->chosen)
            snprintf(verdict, sizeof(verdict), "used");
        else if (verdict[0] == '\0' && table->chosen >= 0)
            snprintf(verdict, sizeof(verdict), "would do, but row %u is %s",
                     table->rows[table->chosen].index, is_forced ? "forced" : "better");
        used += (size_t)snprintf(
            text_out + used, text_bytes - used, "\n[%u] %s, %s%s%s: %s", row->index,
            gyre_ib_gid_to_text(row->raw, address, sizeof(address)), type_name(row),
            row->netdev[0] != '\0' ? ", " : "", row->netdev, verdict);
    }
}

/* Reports the effect of a forced index, to which the rules do not apply. */
static void check_forced(struct bench_doctor *doctor, const struct bench_rdma_port *port,
                         const struct gyre_ib_gid_rules *rules, const struct table *table,
                         const char *rows)
{
    struct gyre_ib_gid_rules free_rules = *rules;
    int best = -1;
    char fix[128];
    free_rules.forced_index = -1;
    const bool has_best =
        gyre_ib_gid_choose(table->rows, table->n, &free_rules, &best, NULL) == GYRE_SUCCESS;
    const char *source = gyre_param_source(&doctor->params, GYRE_PARAM_IB_GID_INDEX);
    snprintf(fix, sizeof(fix), "unset %s: the rules choose%s", source,
             has_best ? " a row that works" : "");
    if (table->reasons[table->chosen][0] == '\0' && has_best && best == table->chosen)
        bench_say(doctor, BENCH_OK, port->name, NULL,
                  "%s=%d, which the rules choose too; the index may move after a link failure%s",
                  source, rules->forced_index, rows);
    else
        bench_say(doctor, table->reasons[table->chosen][0] != '\0' ? BENCH_FAIL : BENCH_WARN,
                  port->name, fix, "%s=%d forces a row that the rules would not use: %s%s", source,
                  rules->forced_index,
                  table->reasons[table->chosen][0] != '\0' ? table->reasons[table->chosen]
                                                           : "another one is better",
                  rows);
}

static void check_port(struct bench_doctor *doctor, const struct bench_rdma_port *port,
                       struct table *table)
{
    struct gyre_ib_gid_rules rules = {.forced_index = -1};
    char rows[1200], path[256], fix[BENCH_FIX_BYTES];
    bench_fix_of_port("give the interface an IPv4 address: ip addr add A.B.C.D/24 dev NETDEV; for "
                      "RoCE v2: cma_roce_mode -d DEVICE -m 2",
                      port->device, port->netdev, fix);
    table->chosen = -1;
    memset(table->reasons, 0, sizeof(table->reasons));
    table->n = bench_rdma_gids(doctor, port, table->rows);
    if (table->n < 0) {
        bench_say_unreadable(doctor, port->name, bench_rdma_path(port, "gids/*", path),
                             BENCH_READ_BROKEN);
        return;
    }
    gyre_status status = gyre_ib_gid_rules_from(&doctor->params, port->device, &rules);
    if (status == GYRE_SUCCESS)
        status = gyre_ib_gid_choose(table->rows, table->n, &rules, &table->chosen, table->reasons);
    list_rows(table, rules.forced_index >= 0, rows, sizeof(rows));
    if (status != GYRE_SUCCESS) {
        bench_say(doctor, BENCH_FAIL, port->name,
                  rules.forced_index >= 0 ? "unset GYRE_IB_GID_INDEX and NCCL_IB_GID_INDEX: the "
                                            "rules choose"
                                          : fix,
                  "%.300s%s", gyre_cause(), rows);
        return;
    }
    const struct gyre_ib_gid_row *row = &table->rows[table->chosen];
    const enum gyre_ib_gid_class class = gyre_ib_gid_classify(row->raw);
    const size_t used = strlen(doctor->facts.texts[BENCH_FACT_GID]);
    char fact[128];
    snprintf(fact, sizeof(fact), "%s %s %s", port->name, type_name(row),
             class == GYRE_IB_GID_IPV4         ? "IPv4"
             : class == GYRE_IB_GID_LINK_LOCAL ? "link-local"
                                               : "IPv6");
    if (used + strlen(fact) + 2 < sizeof(doctor->facts.texts[0]))
        snprintf(doctor->facts.texts[BENCH_FACT_GID] + used, sizeof(doctor->facts.texts[0]) - used,
                 "%s%s", used > 0 ? ", " : "", fact);
    if (rules.forced_index >= 0)
        check_forced(doctor, port, &rules, table, rows);
    else if (class == GYRE_IB_GID_LINK_LOCAL)
        bench_say(doctor, BENCH_WARN, port->name, fix,
                  "only a link-local address can be used, which works within one switched network "
                  "at best%s",
                  rows);
    else
        bench_say(doctor, BENCH_OK, port->name, NULL, "row %u is used%s", row->index, rows);
}

void bench_check_rdma_gid(struct bench_doctor *doctor)
{
    struct bench_rdma *rdma = bench_rdma_read(doctor->root);
    struct table *table = calloc(1, sizeof(*table));
    if (table == NULL || bench_rdma_skip(doctor, rdma)) {
        free(rdma);
        free(table);
        return;
    }
    for (int i = 0; i < rdma->n_ports; i++)
        if (bench_rdma_is_roce(&rdma->ports[i]) && bench_rdma_is_active(&rdma->ports[i]))
            check_port(doctor, &rdma->ports[i], table);
    if (bench_said(doctor) < 0)
        bench_say(doctor, BENCH_SKIPPED, NULL, NULL,
                  "no active RoCE port; InfiniBand addresses ports by LID");
    free(rdma);
    free(table);
}
