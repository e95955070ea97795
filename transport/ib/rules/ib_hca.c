/* SPDX-License-Identifier: Apache-2.0
 *
 * The rules of IB_HCA: pure functions, which builds without verbs have too.
 */
#include "transport/ib/rules/ib_hca.h"

#include "core/foundation/base/util.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static gyre_status parse_item(const char *whole, char *item, struct gyre_ib_hca_rule *rule)
{
    int port = -1;
    char *colon = strchr(item, ':');
    if (colon != NULL) {
        *colon = '\0';
        char *end;
        const long number = strtol(colon + 1, &end, 10);
        if (colon[1] != '\0' &&
            (!isdigit((unsigned char)colon[1]) || *end != '\0' || number < 1 || number > 255))
            return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT, "\"%s\": \"%s\" is not a port (1..255)",
                             whole, colon + 1);
        port = colon[1] != '\0' ? (int)number : -1;
    }
    if (item[0] == '\0' || strpbrk(item, "^= ") != NULL ||
        strlen(item) >= sizeof(rule->items[0].name))
        return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT,
                         "\"%s\": \"%s\" is not a device name; the form is "
                         "[^][=]name[:port],... with ^ and = once, in this order, in front",
                         whole, item);
    if (rule->n_items == GYRE_IB_MAX_HCA_ITEMS)
        return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT, "\"%s\": more than %d entries", whole,
                         GYRE_IB_MAX_HCA_ITEMS);
    memcpy(rule->items[rule->n_items].name, item, strlen(item) + 1);
    rule->items[rule->n_items++].port = port;
    return GYRE_SUCCESS;
}

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
        GYRE_TRY(parse_item(text, item, &rule));
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
        /* A user who writes mlx5 wants mlx5_0 too, but a user who writes mlx5_1 hardly ever wants
         * mlx5_10. */
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
