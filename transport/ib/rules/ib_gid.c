/* SPDX-License-Identifier: Apache-2.0 */
#include "transport/ib/rules/ib_gid.h"

#include "core/foundation/base/text.h"
#include "core/foundation/base/util.h"

#include <arpa/inet.h>
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

gyre_status gyre_ib_hca_parse(const char *text, struct gyre_ib_hca_rule *rule_out)
{
    struct gyre_ib_hca_rule rule;
    memset(&rule, 0, sizeof(rule));
    const char *at = text + strspn(text, " ");
    rule.is_inverted = *at == '^';
    at += rule.is_inverted;
    rule.is_exact = *at == '=';
    at += rule.is_exact;
    const char *word;
    size_t n_bytes;
    while (gyre_list_next(&at, &word, &n_bytes)) {
        char item[GYRE_PARAM_MAX_BYTES];
        snprintf(item, sizeof(item), "%.*s", (int)n_bytes, word);
        int port = -1;
        char *colon = strchr(item, ':');
        if (colon != NULL) {
            *colon = '\0';
            char *end;
            const long number = strtol(colon + 1, &end, 10);
            if (colon[1] != '\0' &&
                (!isdigit((unsigned char)colon[1]) || *end != '\0' || number < 1 || number > 255))
                return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT,
                                 "\"%s\": \"%s\" is not a port (1..255)", text, colon + 1);
            port = colon[1] != '\0' ? (int)number : -1;
        }
        if (item[0] == '\0' || strpbrk(item, "^= ") != NULL ||
            strlen(item) >= sizeof(rule.items[0].name))
            return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT,
                             "\"%s\": \"%s\" is not a device name; the form is "
                             "[^][=]name[:port],... with ^ and = once, in this order, in front",
                             text, item);
        if (rule.n_items == GYRE_IB_MAX_HCA_ITEMS)
            return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT, "\"%s\": more than %d entries", text,
                             GYRE_IB_MAX_HCA_ITEMS);
        memcpy(rule.items[rule.n_items].name, item, strlen(item) + 1);
        rule.items[rule.n_items++].port = port;
    }
    if (rule.n_items == 0 && (rule.is_inverted || rule.is_exact))
        return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT, "\"%s\": no device name", text);
    *rule_out = rule;
    return GYRE_SUCCESS;
}

bool gyre_ib_hca_takes(const struct gyre_ib_hca_rule *rule, const char *name, int port,
                       const char **widened_out)
{
    *widened_out = NULL;
    if (rule->n_items == 0)
        return true;
    bool is_listed = false;
    for (int i = 0; i < rule->n_items; i++) {
        const char *item = rule->items[i].name;
        const bool is_same = strcmp(item, name) == 0;
        const bool is_prefix = !rule->is_exact && strncmp(item, name, strlen(item)) == 0;
        if (!is_same && !is_prefix)
            continue;
        if (rule->items[i].port >= 0 && rule->items[i].port != port)
            continue;
        is_listed = true;
        /* "mlx5" means mlx5_0 too, but "mlx5_1" hardly ever mlx5_10. */
        const char next = name[strlen(item)];
        if (is_same)
            *widened_out = NULL;
        else if (isdigit((unsigned char)item[strlen(item) - 1]) && isdigit((unsigned char)next))
            *widened_out = item;
        if (is_same)
            break;
    }
    return is_listed != rule->is_inverted;
}

static const uint8_t ipv4_prefix[12] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};

enum gyre_ib_gid_class gyre_ib_gid_classify(const uint8_t raw[16])
{
    static const uint8_t zero[16];
    if (memcmp(raw, zero, 16) == 0)
        return GYRE_IB_GID_ZERO;
    if (memcmp(raw, ipv4_prefix, sizeof(ipv4_prefix)) == 0)
        return raw[12] >= 224 ? GYRE_IB_GID_MULTICAST : GYRE_IB_GID_IPV4;
    if (raw[0] == 0xff)
        return GYRE_IB_GID_MULTICAST;
    if (raw[0] == 0xfe && (raw[1] & 0xc0) == 0x80)
        return GYRE_IB_GID_LINK_LOCAL;
    return GYRE_IB_GID_IPV6;
}

const char *gyre_ib_gid_to_text(const uint8_t raw[16], char *text_out, size_t text_bytes)
{
    const bool is_ipv4 = memcmp(raw, ipv4_prefix, sizeof(ipv4_prefix)) == 0;
    if (inet_ntop(is_ipv4 ? AF_INET : AF_INET6, is_ipv4 ? raw + 12 : raw, text_out,
                  (socklen_t)text_bytes) == NULL)
        snprintf(text_out, text_bytes, "?");
    return text_out;
}

static bool parse_number(const char *text, long highest, long *number_out)
{
    if (!isdigit((unsigned char)text[0]))
        return false;
    char *end;
    const long number = strtol(text, &end, 10);
    if (*end != '\0' || number > highest)
        return false;
    *number_out = number;
    return true;
}

gyre_status gyre_ib_gid_parse_range(const char *text, struct gyre_ib_gid_rules *rules)
{
    char address[64];
    struct gyre_ib_gid_rules parsed = *rules;
    snprintf(address, sizeof(address), "%s", text);
    char *slash = strchr(address, '/');
    long bits = -1;
    if (slash != NULL)
        *slash = '\0';
    const bool is_ipv4 = inet_pton(AF_INET, address, parsed.range + 12) == 1;
    if (is_ipv4)
        memcpy(parsed.range, ipv4_prefix, sizeof(ipv4_prefix));
    else if (inet_pton(AF_INET6, address, parsed.range) != 1)
        return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT,
                         "\"%s\": not an address/prefix such as 10.0.0.0/24 or fd00::/8", text);
    const long highest = is_ipv4 ? 32 : 128;
    if (slash == NULL)
        bits = highest;
    else if (!parse_number(slash + 1, highest, &bits))
        return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT, "\"%s\": the prefix length is 0..%ld", text,
                         highest);
    parsed.range_bits = (unsigned)(is_ipv4 ? bits + 96 : bits);
    parsed.has_range = true;
    *rules = parsed;
    return GYRE_SUCCESS;
}

gyre_status gyre_ib_gid_parse_index(const char *text, const char *device, int *index_out)
{
    long number = -1;
    *index_out = -1;
    if (strchr(text, '=') == NULL) {
        if (strcmp(text, "-1") == 0 || text[0] == '\0')
            return GYRE_SUCCESS; /* -1: the rules choose, as in NCCL */
        if (!parse_number(text, 65535, &number))
            return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT,
                             "\"%s\": neither a number nor device=number,...", text);
        *index_out = (int)number;
        return GYRE_SUCCESS;
    }
    const char *word;
    size_t n_bytes;
    int index = -1;
    for (const char *at = text; gyre_list_next(&at, &word, &n_bytes);) {
        char item[GYRE_PARAM_MAX_BYTES];
        snprintf(item, sizeof(item), "%.*s", (int)n_bytes, word);
        char *equals = strchr(item, '=');
        if (equals == NULL || equals == item || !parse_number(equals + 1, 65535, &number))
            return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT, "\"%s\": \"%s\" is not device=number",
                             text, item);
        *equals = '\0';
        if (strcmp(item, device) == 0)
            index = (int)number;
    }
    *index_out = index;
    return GYRE_SUCCESS;
}

gyre_status gyre_ib_gid_rules_from(const struct gyre_params *params, const char *device,
                                   struct gyre_ib_gid_rules *rules_out)
{
    struct gyre_ib_gid_rules rules;
    const int64_t family = gyre_param_number(params, GYRE_PARAM_IB_ADDR_FAMILY);
    const char *range = gyre_param_text(params, GYRE_PARAM_IB_ADDR_RANGE);
    memset(&rules, 0, sizeof(rules));
    rules.version = (int)gyre_param_number(params, GYRE_PARAM_IB_ROCE_VERSION_NUM);
    rules.family = family == 0 ? AF_INET : family == 1 ? AF_INET6 : 0;
    rules.index_name = gyre_param_called(params, GYRE_PARAM_IB_GID_INDEX);
    rules.range_name = gyre_param_called(params, GYRE_PARAM_IB_ADDR_RANGE);
    gyre_status status = gyre_ib_gid_parse_index(gyre_param_text(params, GYRE_PARAM_IB_GID_INDEX),
                                                 device, &rules.forced_index);
    if (status != GYRE_SUCCESS) {
        gyre_fail_context(status, "%s", rules.index_name);
        GYRE_TRY(gyre_param_forgive(params, GYRE_PARAM_IB_GID_INDEX, status));
    }
    status = range[0] != '\0' ? gyre_ib_gid_parse_range(range, &rules) : GYRE_SUCCESS;
    if (status != GYRE_SUCCESS) {
        gyre_fail_context(status, "%s", rules.range_name);
        GYRE_TRY(gyre_param_forgive(params, GYRE_PARAM_IB_ADDR_RANGE, status));
    }
    *rules_out = rules;
    return GYRE_SUCCESS;
}

static const char *name_or(const char *name, const char *otherwise)
{
    return name != NULL ? name : otherwise;
}

static bool in_range(const uint8_t raw[16], const struct gyre_ib_gid_rules *rules)
{
    const unsigned n_bytes = rules->range_bits / 8;
    const unsigned n_bits = rules->range_bits % 8;
    if (memcmp(raw, rules->range, n_bytes) != 0)
        return false;
    const unsigned mask = n_bits == 0 ? 0 : 0xffU << (8 - n_bits);
    return n_bits == 0 || ((raw[n_bytes] ^ rules->range[n_bytes]) & mask & 0xffU) == 0;
}

/* Rule 1. */
static const char *why_unusable(const struct gyre_ib_gid_row *row)
{
    if (gyre_ib_gid_classify(row->raw) == GYRE_IB_GID_ZERO)
        return "empty";
    if (row->type == GYRE_IB_GID_UNREADABLE)
        return "its type cannot be read (empty, or of another network namespace)";
    if (gyre_ib_gid_classify(row->raw) == GYRE_IB_GID_MULTICAST)
        return "a multicast address";
    return NULL;
}

/* Rules 1 and 3. @reason_out: why the row lost, or "". */
static void judge(const struct gyre_ib_gid_row *row, const struct gyre_ib_gid_rules *rules,
                  char *reason_out)
{
    const size_t n = GYRE_IB_GID_REASON_BYTES;
    const char *unusable = why_unusable(row);
    const enum gyre_ib_gid_class class = gyre_ib_gid_classify(row->raw);
    const int version = row->type == GYRE_IB_GID_ROCE_V2 ? 2 : 1;
    const int family = class == GYRE_IB_GID_IPV4 ? AF_INET : AF_INET6;
    reason_out[0] = '\0';
    if (unusable != NULL)
        snprintf(reason_out, n, "%s", unusable);
    else if (version != rules->version)
        snprintf(reason_out, n, "RoCE v%d, asked for v%d", version, rules->version);
    else if (row->is_netdev_down)
        snprintf(reason_out, n, "interface %s is down", row->netdev);
    else if (rules->family != 0 && family != rules->family)
        snprintf(reason_out, n, "not %s", rules->family == AF_INET ? "AF_INET" : "AF_INET6");
    else if (rules->has_range && !in_range(row->raw, rules))
        snprintf(reason_out, n, "outside %s", name_or(rules->range_name, "GYRE_IB_ADDR_RANGE"));
}

int gyre_ib_gid_prefer(const struct gyre_ib_gid_row *a, const struct gyre_ib_gid_row *b)
{
    const int classes = (int)gyre_ib_gid_classify(a->raw) - (int)gyre_ib_gid_classify(b->raw);
    if (classes != 0)
        return classes;
    if ((a->vlan != 0) != (b->vlan != 0))
        return a->vlan == 0 ? 1 : -1;
    return a->index < b->index ? 1 : a->index > b->index ? -1 : 0;
}

static void describe(const struct gyre_ib_gid_row *rows, int n,
                     char (*reasons)[GYRE_IB_GID_REASON_BYTES], char *text_out, size_t text_bytes)
{
    text_out[0] = '\0';
    for (int i = 0; i < n; i++) {
        char address[48];
        if (gyre_ib_gid_classify(rows[i].raw) == GYRE_IB_GID_ZERO)
            continue;
        gyre_text_append(text_out, text_bytes, "%s[%u] %s %s%s%s%s%s",
                         text_out[0] != '\0' ? "; " : "", rows[i].index,
                         gyre_ib_gid_to_text(rows[i].raw, address, sizeof(address)),
                         rows[i].type == GYRE_IB_GID_ROCE_V2   ? "v2"
                         : rows[i].type == GYRE_IB_GID_ROCE_V1 ? "v1"
                                                               : "v?",
                         rows[i].netdev[0] != '\0' ? " " : "", rows[i].netdev,
                         reasons != NULL && reasons[i][0] != '\0' ? ": " : "",
                         reasons != NULL ? reasons[i] : "");
    }
    if (text_out[0] == '\0')
        snprintf(text_out, text_bytes, "all rows are empty");
}

gyre_status gyre_ib_gid_choose(const struct gyre_ib_gid_row *rows, int n,
                               const struct gyre_ib_gid_rules *rules, int *chosen_out,
                               char (*reasons_out)[GYRE_IB_GID_REASON_BYTES])
{
    char(*reasons)[GYRE_IB_GID_REASON_BYTES] = calloc((size_t)(n > 0 ? n : 1), sizeof(*reasons));
    if (reasons == NULL)
        return gyre_fail(GYRE_ERROR_OUT_OF_MEMORY, "GID table of %d rows", n);
    int best = -1;
    gyre_status status = GYRE_SUCCESS;
    for (int i = 0; i < n; i++) {
        judge(&rows[i], rules, reasons[i]);
        if (reasons[i][0] == '\0' && (best < 0 || gyre_ib_gid_prefer(&rows[i], &rows[best]) > 0))
            best = i;
    }
    if (rules->forced_index >= 0) {
        best = 0;
        while (best < n && rows[best].index != (uint32_t)rules->forced_index)
            best++;
        const char *why = best < n ? why_unusable(&rows[best]) : "";
        char table[700];
        describe(rows, n, NULL, table, sizeof(table));
        if (why != NULL)
            status = gyre_fail(GYRE_ERROR_INVALID_ARGUMENT, "%s=%d: %s%s. GIDs: %s",
                               name_or(rules->index_name, "GYRE_IB_GID_INDEX"), rules->forced_index,
                               best < n ? "that row is not usable: "
                                        : "the GID table has no such usable row",
                               why, table);
    } else if (best < 0) {
        char table[GYRE_CAUSE_MAX_BYTES - 64];
        describe(rows, n, reasons, table, sizeof(table));
        status = gyre_fail(GYRE_ERROR_UNSUPPORTED, "no usable GID: %s", table);
    }
    if (reasons_out != NULL)
        memcpy(reasons_out, reasons, (size_t)n * sizeof(*reasons));
    free(reasons);
    if (status == GYRE_SUCCESS)
        *chosen_out = best;
    return status;
}

gyre_status gyre_ib_gid_pair(const struct gyre_ib_gid_row *a, int n_a,
                             const struct gyre_ib_gid_row *b, int n_b, int *a_out, int *b_out)
{
    int best_a = -1;
    int best_b = -1;
    int best_score = -1;
    for (int i = 0; i < n_a; i++) {
        for (int j = 0; j < n_b; j++) {
            const enum gyre_ib_gid_class class = gyre_ib_gid_classify(a[i].raw);
            if (a[i].type != b[j].type || class != gyre_ib_gid_classify(b[j].raw))
                continue;
            /* First the subnet, then the class, then the VLAN. Ranks do not tell each other their
             * prefix lengths, so those of most fabrics serve: /24 and /64. A wrong answer only
             * changes the preference. */
            const bool is_one_subnet =
                memcmp(a[i].raw, b[j].raw, class == GYRE_IB_GID_IPV4 ? 15 : 8) == 0;
            const int score = (is_one_subnet ? 1000 : 0) + 10 * (int)class +
                              (a[i].vlan == 0 ? 1 : 0) + (b[j].vlan == 0 ? 1 : 0);
            if (score > best_score) {
                best_score = score;
                best_a = i;
                best_b = j;
            }
        }
    }
    if (best_a < 0) {
        char table_a[360];
        char table_b[360];
        describe(a, n_a, NULL, table_a, sizeof(table_a));
        describe(b, n_b, NULL, table_b, sizeof(table_b));
        return gyre_fail(GYRE_ERROR_UNSUPPORTED,
                         "no GID of one end fits one of the other (same RoCE version and family): "
                         "one has %s; the other %s",
                         table_a, table_b);
    }
    *a_out = best_a;
    *b_out = best_b;
    return GYRE_SUCCESS;
}
