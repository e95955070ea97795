/* SPDX-License-Identifier: Apache-2.0
 *
 * Chooses the GID of a RoCE port (docs/roce.md gives the reasons):
 *
 *   1. A row whose address is zero or whose type cannot be read is not usable.
 *   2. A forced index (IB_GID_INDEX) must be a usable row; nothing else is asked of it.
 *   3. The row must have the RoCE version asked for (2), a network interface that is up, the family
 *      and an address inside the range asked for, if they were.
 *   4. Of those: IPv4 before global or unique-local IPv6 before link-local IPv6; a row of the
 *      port's own interface before one of a VLAN on it; then the lowest index.
 *   5. If no row is left, the error gives the reason against every row. Index 0 is no default.
 */
#ifndef GYRE_IB_GID_H
#define GYRE_IB_GID_H

#include "core/foundation/base/param.h"
#include "core/foundation/base/status.h"

enum gyre_ib_gid_type {
    GYRE_IB_GID_UNREADABLE, /* empty, or of another network namespace (EINVAL) */
    GYRE_IB_GID_ROCE_V1,    /* or InfiniBand: sysfs names both alike */
    GYRE_IB_GID_ROCE_V2
};

enum gyre_ib_gid_class {
    GYRE_IB_GID_ZERO,
    GYRE_IB_GID_LINK_LOCAL,
    GYRE_IB_GID_MULTICAST,
    GYRE_IB_GID_IPV6, /* global or unique-local */
    GYRE_IB_GID_IPV4  /* ::ffff:a.b.c.d */
};

struct gyre_ib_gid_row {
    uint32_t index;
    enum gyre_ib_gid_type type;
    uint8_t raw[16];
    char netdev[16]; /* "" unknown */
    uint16_t vlan;   /* 0 = none */
    bool is_netdev_down;
};

struct gyre_ib_gid_rules {
    int forced_index; /* -1 = none */
    int family;       /* AF_INET, AF_INET6; 0 = any */
    int version;      /* 1 or 2 */
    bool has_range;
    uint8_t range[16]; /* IPv4 as ::ffff:a.b.c.d */
    unsigned range_bits;
    const char *index_name, *range_name; /* for messages; NULL = GYRE_IB_... */
};

#define GYRE_IB_GID_REASON_BYTES 80

enum gyre_ib_gid_class gyre_ib_gid_classify(const uint8_t raw[16]);

/** "10.0.0.1" or "fe80::1". @text_out: >= 48 bytes. */
const char *gyre_ib_gid_to_text(const uint8_t raw[16], char *text_out, size_t text_bytes);

/** "10.0.0.0/24", "fd00::/8", or one address. Errors: INVALID_ARGUMENT, without the variable's
 * name. */
gyre_status gyre_ib_gid_parse_range(const char *text, struct gyre_ib_gid_rules *rules);

/** "3" for all devices or "mlx5_0=3,mlx5_1=5". @index_out: -1 = other devices only. Errors: as
 * gyre_ib_gid_parse_range(). */
gyre_status gyre_ib_gid_parse_index(const char *text, const char *device, int *index_out);

/** The IB_GID_*, IB_ADDR_* and IB_ROCE_* variables. Errors: INVALID_ARGUMENT. */
gyre_status gyre_ib_gid_rules_from(const struct gyre_params *params, const char *device,
                                   struct gyre_ib_gid_rules *rules_out);

/** @chosen_out: index into @rows. @reasons_out: for each row, why rules 1 to 3 rule it out, or "".
 * May be NULL. Errors: UNSUPPORTED with the table and the reasons. */
gyre_status gyre_ib_gid_choose(const struct gyre_ib_gid_row *rows, int n,
                               const struct gyre_ib_gid_rules *rules, int *chosen_out,
                               char (*reasons_out)[GYRE_IB_GID_REASON_BYTES]);

/** Rule 4: > 0 if a is better. */
int gyre_ib_gid_prefer(const struct gyre_ib_gid_row *a, const struct gyre_ib_gid_row *b);

/** Of rows that passed rule 3. Both ranks must pass the lower rank's rows as a. Rows fit if they
 * have the same type and family, and both or neither are link-local. Of those, two in one subnet
 * (/24 of IPv4, /64 of IPv6) come first; then rule 4 decides, then the order. Errors: UNSUPPORTED
 * printing both tables. */
gyre_status gyre_ib_gid_pair(const struct gyre_ib_gid_row *a, int n_a,
                             const struct gyre_ib_gid_row *b, int n_b, int *a_out, int *b_out);

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
