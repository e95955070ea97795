/* SPDX-License-Identifier: Apache-2.0
 *
 * The library's own rules judge each row of a RoCE port's GID table.
 */
#include "bench/doctor/doctor.h"

struct table {
    struct gyre_ib_gid_row *rows;
    char (*reasons)[GYRE_IB_GID_REASON_BYTES];
    int n;      /* -1 = a row is unreadable */
    int chosen; /* -1 = none */
    struct gyre_ib_gid_rules rules;
    gyre_status status; /* of the choice, with gyre_cause() */
};

static const char *type_name(const struct gyre_ib_gid_row *row)
{
    return row->type == GYRE_IB_GID_ROCE_V2   ? "RoCE v2"
           : row->type == GYRE_IB_GID_ROCE_V1 ? "RoCE v1"
                                              : "type not readable";
}

static struct table read_table(const struct bench_doctor *doctor,
                               const struct bench_rdma_port *port)
{
    struct table table = {.chosen = -1, .rules = {.forced_index = -1}};
    table.n = bench_rdma_gids(&doctor->machine, port, &table.rows);
    if (table.n < 0)
        return table;
    table.reasons = bench_keep((size_t)table.n, sizeof(*table.reasons));
    table.status = gyre_ib_gid_rules_from(&doctor->params, port->device, &table.rules);
    if (table.status == GYRE_SUCCESS)
        table.status =
            gyre_ib_gid_choose(table.rows, table.n, &table.rules, &table.chosen, table.reasons);
    return table;
}

void bench_fact_of_gids(const struct bench_doctor *doctor, char *text, size_t text_bytes)
{
    BENCH_EACH_PORT(doctor, port)
    {
        if (!port->is_roce || !port->is_active)
            continue;
        const struct table table = read_table(doctor, port);
        if (table.n >= 0 && table.status == GYRE_SUCCESS) {
            const struct gyre_ib_gid_row *row = &table.rows[table.chosen];
            const enum gyre_ib_gid_class class = gyre_ib_gid_classify(row->raw);
            bench_append(text, text_bytes, "%s%s %s %s", text[0] == '\0' ? "" : ", ", port->name,
                         type_name(row),
                         class == GYRE_IB_GID_IPV4         ? "IPv4"
                         : class == GYRE_IB_GID_LINK_LOCAL ? "link-local"
                                                           : "IPv6");
        }
    }
}

static void check_forced(struct bench_doctor *doctor, const struct bench_rdma_port *port,
                         const struct table *table, const char *rows)
{
    struct gyre_ib_gid_rules free_rules = table->rules;
    const char *reason = table->reasons[table->chosen];
    int best = -1;
    free_rules.forced_index = -1;
    const bool has_best =
        gyre_ib_gid_choose(table->rows, table->n, &free_rules, &best, NULL) == GYRE_SUCCESS;
    const char *source = gyre_param_source(&doctor->params, GYRE_PARAM_IB_GID_INDEX);
    if (reason[0] == '\0' && has_best && best == table->chosen)
        bench_ok(doctor, port->name,
                 "%s=%d, which the rules choose too; the index may move after a link failure%s",
                 source, table->rules.forced_index, rows);
    else
        bench_say(
            doctor, reason[0] != '\0' ? BENCH_FAIL : BENCH_WARN, port->name,
            bench_text("unset %s: the rules choose%s", source, has_best ? " a row that works" : ""),
            "%s=%d forces a row that the rules would not use: %s%s", source,
            table->rules.forced_index, reason[0] != '\0' ? reason : "another one is better", rows);
}

void bench_check_rdma_gid(struct bench_doctor *doctor, const struct bench_rdma_port *port)
{
    static const char fix[] = "give the interface an IPv4 address: ip addr add A.B.C.D/24 dev "
                              "NETDEV; for RoCE v2: cma_roce_mode -d DEVICE -m 2";
    char rows[1200];
    if (!port->is_roce || !port->is_active)
        return;
    const struct table table = read_table(doctor, port);
    rows[0] = '\0';
    for (int i = 0; i < table.n; i++) {
        char address[48], verdict[GYRE_IB_GID_REASON_BYTES];
        const struct gyre_ib_gid_row *row = &table.rows[i];
        snprintf(verdict, sizeof(verdict), "%s", i == table.chosen ? "used" : table.reasons[i]);
        if (verdict[0] == '\0' && table.chosen >= 0)
            snprintf(verdict, sizeof(verdict), "would do, but row %u is %s",
                     table.rows[table.chosen].index,
                     table.rules.forced_index >= 0 ? "forced" : "better");
        bench_append(rows, sizeof(rows), "\n[%u] %s, %s%s%s: %s", row->index,
                     gyre_ib_gid_to_text(row->raw, address, sizeof(address)), type_name(row),
                     row->netdev[0] != '\0' ? ", " : "", row->netdev, verdict);
    }
    if (table.n < 0)
        bench_say_unreadable(doctor, port->name, bench_rdma_path(port, "gids/*"),
                             BENCH_READ_BROKEN);
    else if (table.status != GYRE_SUCCESS)
        bench_fail(doctor, port->name,
                   table.rules.forced_index >= 0
                       ? "unset GYRE_IB_GID_INDEX and NCCL_IB_GID_INDEX: the rules choose"
                       : fix,
                   "%.300s%s", gyre_cause(), rows);
    else if (table.rules.forced_index >= 0)
        check_forced(doctor, port, &table, rows);
    else if (gyre_ib_gid_classify(table.rows[table.chosen].raw) == GYRE_IB_GID_LINK_LOCAL)
        bench_warn(doctor, port->name, fix,
                   "only a link-local address can be used, which works within one switched network "
                   "at best%s",
                   rows);
    else
        bench_ok(doctor, port->name, "row %u is used%s", table.rows[table.chosen].index, rows);
}
