/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GYRE_IB_HCA_H
#define GYRE_IB_HCA_H

#include "core/foundation/base/param.h"
#include "core/foundation/base/status.h"

#define GYRE_IB_MAX_HCA_ITEMS 256

/* IB_HCA = [^][=]name[:port],... */
struct gyre_ib_hca_rule {
    bool is_inverted; /* ^ */
    bool is_exact;    /* = */
    int n_items;      /* 0: all ports */
    struct {
        char name[64];
        int port; /* -1 = all */
    } items[GYRE_IB_MAX_HCA_ITEMS];
};

/** Ignores blanks around names. Errors: INVALID_ARGUMENT, without the variable's name. */
gyre_status gyre_ib_hca_parse(const char *text, struct gyre_ib_hca_rule *rule_out);

/** @widened_out: the item, if the rule is not exact and the item only begins the name, as mlx5_1
 * does mlx5_10; else NULL. */
bool gyre_ib_hca_takes(const struct gyre_ib_hca_rule *rule, const char *name, int port,
                       const char **widened_out);

#endif
