/* SPDX-License-Identifier: Apache-2.0
 *
 * The ports that IB_HCA allows. Pure functions.
 */
#ifndef GYRE_IB_HCA_H
#define GYRE_IB_HCA_H

#include "core/foundation/base/param.h"
#include "core/foundation/base/status.h"

#define GYRE_IB_MAX_HCA_ITEMS 256

/* IB_HCA = [^][=]name[:port],... */
struct gyre_ib_hca_rule {
    bool is_inverted; /* ^ */
    bool is_exact;    /* = */
    int n_items;      /* 0: every port is allowed */
    struct {
        char name[64];
        int port; /* -1 = all */
    } items[GYRE_IB_MAX_HCA_ITEMS];
};

/** gyre_ib_hca_parse - blanks around names do not count. Errors: INVALID_ARGUMENT naming the
 * problem, but not the variable. */
gyre_status gyre_ib_hca_parse(const char *text, struct gyre_ib_hca_rule *rule_out);

/** gyre_ib_hca_takes - @widened_out: the item, if the rule is not exact and the item is only the
 * beginning of the name, as mlx5_1 is of mlx5_10; else NULL. */
bool gyre_ib_hca_takes(const struct gyre_ib_hca_rule *rule, const char *name, int port,
                       const char **widened_out);

#endif
