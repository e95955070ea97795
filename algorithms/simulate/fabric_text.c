/* SPDX-License-Identifier: Apache-2.0
 *
 * Passes read the lines, which may stand in any order: first how much there is of everything, last
 * what changes one link.
 */
#include "algorithms/simulate/fabric.h"

#include "core/foundation/base/status.h"
#include "core/foundation/base/text.h"
#include "core/foundation/base/util.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_VALUES     6
#define MAX_KEYWORDS   16
#define MAX_TORI       16
#define MAX_LATENCY_NS 1e6
#define MAX_RATE       1e6
#define LINE_BYTES     128
#define LINE_WORDS     16

struct line {
    int number;
    char text[LINE_BYTES];
    const char *words[LINE_WORDS];
    int n_words;
};

struct value {
    uint32_t first, last;
    double number;
};

static gyre_status cut_line(const char *text, size_t n_bytes, struct line *line)
{
    line->n_words = 0;
    if (n_bytes >= sizeof(line->text))
        return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT, "line %d: longer than %zu characters",
                         line->number, sizeof(line->text) - 1);
    memcpy(line->text, text, n_bytes);
    line->text[n_bytes] = '\0';
    char *rest = line->text;
    for (;;) {
        rest += strspn(rest, " \t\r");
        if (*rest == '\0')
            return GYRE_SUCCESS;
        if (line->n_words == LINE_WORDS)
            return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT, "line %d: more than %d words",
                             line->number, LINE_WORDS);
        line->words[line->n_words++] = rest;
        rest += strcspn(rest, " \t\r");
        if (*rest != '\0')
            *rest++ = '\0';
    }
}

/* Returns the rest of the text; NULL = no digits, or the number is large. */
static const char *read_digits(const char *text, uint32_t *number_out)
{
    uint32_t number = 0;
    if (!isdigit((unsigned char)*text))
        return NULL;
    for (; isdigit((unsigned char)*text); text++) {
        number = number * 10 + (uint32_t)(*text - '0');
        if (number > 1000000)
            return NULL;
    }
    *number_out = number;
    return text;
}

/* In every locale. */
static bool read_decimal(const char *text, double *number_out)
{
    uint32_t whole;
    double unit = 1, part = 0;
    const char *rest = read_digits(text, &whole);
    if (rest != NULL && *rest == '.')
        for (rest++; isdigit((unsigned char)*rest); rest++) {
            unit /= 10;
            part += (*rest - '0') * unit;
        }
    if (rest == NULL || *rest != '\0')
        return false;
    *number_out = whole + part;
    return true;
}

static bool read_value(char kind, const char *word, struct value *value)
{
    if (kind == 'X')
        return read_decimal(word, &value->number);
    const char *rest = read_digits(word, &value->first);
    value->last = value->first;
    if (rest != NULL && kind == 'R' && *rest == '-')
        rest = read_digits(rest + 1, &value->last);
    return rest != NULL && *rest == '\0' && value->last >= value->first;
}

/* @form: such as "leaves N". N is a count, R a number or a range, X a decimal number. */
static bool matches(const struct line *line, const char *form, struct value *values_out)
{
    int n_values = 0, word = 0;
    for (const char *at = form; *at != '\0'; word++) {
        const size_t n = strcspn(at, " ");
        if (word == line->n_words)
            return false;
        if (n == 1 && *at >= 'A' && *at <= 'Z') {
            if (!read_value(*at, line->words[word], &values_out[n_values++]))
                return false;
        } else if (strlen(line->words[word]) != n || strncmp(line->words[word], at, n) != 0) {
            return false;
        }
        at += n + (at[n] == ' ');
    }
    return word == line->n_words;
}

static gyre_status fail_form(const struct line *line, const char *forms)
{
    return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT,
                     "line %d: \"%s ...\": expected %s, where N is a number, R a number or a "
                     "range like 0-3, X a decimal number above 0",
                     line->number, line->words[0], forms);
}

static gyre_status check_range(const struct line *line, const char *what, const struct value *range,
                               uint32_t n)
{
    if (range->last < n)
        return GYRE_SUCCESS;
    return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT,
                     "line %d: there is no %s %u: there are %u, counted from 0", line->number, what,
                     range->last, n);
}

static gyre_status check_rate(const struct line *line, double rate)
{
    if (rate > 0 && rate <= MAX_RATE)
        return GYRE_SUCCESS;
    return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT,
                     "line %d: %g: expected a rate in GB/s, above 0 and at most %g", line->number,
                     rate, MAX_RATE);
}

enum pass { COUNTS, WIRES, RATES, LINKS };

struct torus {
    uint32_t n_dims, n_hosts;
    uint32_t dims[GYRE_FABRIC_MAX_DIMS];
    double rate;
};

struct reader {
    struct gyre_fabric *fabric;
    struct line line;
    struct torus tori[MAX_TORI];
    uint32_t n_tori;
    uint32_t hosts_of_leaf;               /* 0 = by the number of leaves */
    double uplink_rate, oversubscription; /* the latter if the former is 0 */
    bool is_given[MAX_KEYWORDS];
};

static gyre_status grow(void *array_address, size_t n, size_t elem_bytes)
{
    void *array;
    memcpy(&array, array_address, sizeof(array));
    array = realloc(array, n * elem_bytes + 1);
    if (array == NULL)
        return gyre_fail(GYRE_ERROR_OUT_OF_MEMORY, "cannot allocate a fabric");
    memcpy(array_address, &array, sizeof(array));
    return GYRE_SUCCESS;
}

static gyre_status take_hosts(struct reader *reader)
{
    struct value values[MAX_VALUES];
    struct gyre_fabric *fabric = reader->fabric;
    static const char form[] = "hosts N gpus N nics N rate X";
    if (!matches(&reader->line, form, values))
        return fail_form(&reader->line, form);
    const uint32_t n_hosts = values[0].first, n_gpus = values[1].first, n_nics = values[2].first;
    const uint64_t n_ranks = fabric->n_ranks + (uint64_t)n_hosts * n_gpus;
    GYRE_TRY(check_rate(&reader->line, values[3].number));
    if (n_hosts == 0 || n_gpus == 0 || n_nics == 0 || n_nics > GYRE_FABRIC_MAX_NICS ||
        n_ranks > GYRE_FABRIC_MAX_RANKS)
        return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT,
                         "line %d: %u hosts of %u GPUs and %u NICs: expected at least one of each, "
                         "at most %d GPUs in all and %d NICs a host",
                         reader->line.number, n_hosts, n_gpus, n_nics, GYRE_FABRIC_MAX_RANKS,
                         GYRE_FABRIC_MAX_NICS);
    const uint32_t n_all_nics = fabric->n_nics + n_hosts * n_nics;
    GYRE_TRY(grow(&fabric->hosts, fabric->n_hosts + (size_t)n_hosts, sizeof(*fabric->hosts)));
    GYRE_TRY(grow(&fabric->bytes_per_ns, 2 * (size_t)n_all_nics, sizeof(*fabric->bytes_per_ns)));
    for (uint32_t link = 2 * fabric->n_nics; link < 2 * n_all_nics; link++)
        fabric->bytes_per_ns[link] = values[3].number;
    for (uint32_t i = 0; i < n_hosts; i++) {
        fabric->hosts[fabric->n_hosts++] =
            (struct gyre_fabric_host){fabric->n_ranks, n_gpus, fabric->n_nics, n_nics};
        fabric->n_ranks += n_gpus;
        fabric->n_nics += n_nics;
    }
    return GYRE_SUCCESS;
}

static gyre_status take_switches(struct reader *reader)
{
    struct value values[MAX_VALUES];
    const struct line *line = &reader->line;
    const bool is_leaves = strcmp(line->words[0], "leaves") == 0;
    const bool has_groups = matches(line, "dragonfly groups of N hosts", values);
    if ((has_groups || matches(line, "leaves of N hosts", values)) && values[0].first > 0) {
        reader->hosts_of_leaf = values[0].first;
        reader->fabric->kind = has_groups ? GYRE_FABRIC_DRAGONFLY : reader->fabric->kind;
        return GYRE_SUCCESS;
    }
    if (strcmp(line->words[0], "dragonfly") == 0)
        return fail_form(line, "dragonfly groups of N hosts");
    if (!matches(line, is_leaves ? "leaves N" : "spines N", values))
        return fail_form(line, is_leaves ? "\"leaves N\" or \"leaves of N hosts\"" : "spines N");
    if ((is_leaves && values[0].first == 0) || values[0].first > GYRE_FABRIC_MAX_SWITCHES)
        return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT, "line %d: %u %s: expected %d to %d",
                         line->number, values[0].first, line->words[0], is_leaves ? 1 : 0,
                         GYRE_FABRIC_MAX_SWITCHES);
    *(is_leaves ? &reader->fabric->n_leaves : &reader->fabric->n_spines) = values[0].first;
    return GYRE_SUCCESS;
}

static gyre_status take_torus(struct reader *reader)
{
    const struct line *line = &reader->line;
    struct torus torus = {.n_dims = (uint32_t)line->n_words - 3, .n_hosts = 1};
    bool ok = line->n_words >= 4 && torus.n_dims <= GYRE_FABRIC_MAX_DIMS &&
              strcmp(line->words[line->n_words - 2], "rate") == 0 &&
              read_decimal(line->words[line->n_words - 1], &torus.rate) &&
              reader->n_tori < MAX_TORI;
    for (uint32_t dim = 0; ok && dim < torus.n_dims; dim++) {
        const char *rest = read_digits(line->words[1 + dim], &torus.dims[dim]);
        ok = rest != NULL && *rest == '\0' && torus.dims[dim] > 0 &&
             torus.dims[dim] <= GYRE_FABRIC_MAX_RANKS / torus.n_hosts;
        torus.n_hosts *= ok ? torus.dims[dim] : 1;
    }
    if (!ok)
        return fail_form(line, "torus N N ... rate X, of 1 to 6 dimensions");
    GYRE_TRY(check_rate(line, torus.rate));
    reader->tori[reader->n_tori++] = torus;
    return GYRE_SUCCESS;
}

static gyre_status open_fabric(struct reader *reader)
{
    struct gyre_fabric *fabric = reader->fabric;
    if (fabric->n_hosts == 0)
        return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT,
                         "no line says \"hosts N gpus N nics N rate X\"");
    if (reader->n_tori > 0) { /* a file may give a torus for each of several numbers of hosts */
        const struct torus *torus = reader->tori, *end = &reader->tori[reader->n_tori];
        while (torus < end && torus->n_hosts != fabric->n_hosts)
            torus++;
        if (torus == end)
            return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT, "no torus has %u hosts", fabric->n_hosts);
        if (reader->hosts_of_leaf > 0 || fabric->n_leaves > 1 || fabric->n_spines > 0)
            return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT,
                             "a torus has neither leaves nor spines nor groups");
        fabric->kind = GYRE_FABRIC_TORUS;
        fabric->n_dims = torus->n_dims;
        memcpy(fabric->dims, torus->dims, sizeof(fabric->dims));
        fabric->n_leaves = fabric->n_hosts;
        reader->uplink_rate = torus->rate;
    }
    if (reader->hosts_of_leaf > 0)
        fabric->n_leaves =
            gyre_min_u32((fabric->n_hosts + reader->hosts_of_leaf - 1) / reader->hosts_of_leaf,
                         GYRE_FABRIC_MAX_SWITCHES);
    const uint32_t n_peers =
        fabric->kind == GYRE_FABRIC_LEAVES ? fabric->n_spines : fabric->n_leaves;
    if (fabric->kind != GYRE_FABRIC_TORUS &&
        (uint64_t)fabric->n_leaves * n_peers > GYRE_FABRIC_MAX_UPLINKS)
        return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT,
                         "%u leaves and %u spines have over %d links between them",
                         fabric->n_leaves, n_peers, GYRE_FABRIC_MAX_UPLINKS);
    fabric->n_links = 2 * fabric->n_nics + gyre_fabric_n_uplinks(fabric);
    GYRE_TRY(grow(&fabric->bytes_per_ns, fabric->n_links, sizeof(*fabric->bytes_per_ns)));
    GYRE_TRY(grow(&fabric->leaf_of_nic, fabric->n_nics, sizeof(*fabric->leaf_of_nic)));
    GYRE_TRY(grow(&fabric->nic_of_rank, fabric->n_ranks, sizeof(*fabric->nic_of_rank)));
    GYRE_TRY(grow(&fabric->host_of_rank, fabric->n_ranks, sizeof(*fabric->host_of_rank)));
    /* Unless a line says otherwise, each leaf has one block of hosts. */
    for (uint32_t h = 0; h < fabric->n_hosts; h++)
        for (uint32_t i = 0; i < fabric->hosts[h].n_nics; i++)
            fabric->leaf_of_nic[fabric->hosts[h].first_nic + i] =
                reader->hosts_of_leaf > 0
                    ? gyre_min_u32(h / reader->hosts_of_leaf, fabric->n_leaves - 1)
                    : (uint32_t)((uint64_t)h * fabric->n_leaves / fabric->n_hosts);
    return GYRE_SUCCESS;
}

static gyre_status take_wire(struct reader *reader)
{
    struct value values[MAX_VALUES];
    const struct line *line = &reader->line;
    struct gyre_fabric *fabric = reader->fabric;
    static const char attach_form[] = "attach hosts R nics R leaf N";
    if (fabric->kind != GYRE_FABRIC_LEAVES)
        return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT,
                         "line %d: %s: a torus or a dragonfly has no leaves to choose",
                         line->number, line->words[0]);
    if (strcmp(line->words[0], "attach") == 0) {
        if (!matches(line, attach_form, values))
            return fail_form(line, attach_form);
        GYRE_TRY(check_range(line, "host", &values[0], fabric->n_hosts));
        GYRE_TRY(check_range(line, "leaf", &values[2], fabric->n_leaves));
        for (uint32_t h = values[0].first; h <= values[0].last; h++) {
            GYRE_TRY(check_range(line, "nic", &values[1], fabric->hosts[h].n_nics));
            for (uint32_t i = values[1].first; i <= values[1].last; i++)
                fabric->leaf_of_nic[fabric->hosts[h].first_nic + i] = values[2].first;
        }
        return GYRE_SUCCESS;
    }
    if (matches(line, "wiring hosts", values))
        return GYRE_SUCCESS;
    if (!matches(line, "wiring rails", values))
        return fail_form(line, "\"wiring hosts\" (the hosts in one block for each leaf) or "
                               "\"wiring rails\" (NIC n on leaf n)");
    for (uint32_t h = 0; h < fabric->n_hosts; h++)
        for (uint32_t i = 0; i < fabric->hosts[h].n_nics; i++)
            fabric->leaf_of_nic[fabric->hosts[h].first_nic + i] = i % fabric->n_leaves;
    return GYRE_SUCCESS;
}

static gyre_status take_uplinks(struct reader *reader)
{
    struct value values[MAX_VALUES];
    if (matches(&reader->line, "uplinks rate X", values)) {
        reader->uplink_rate = values[0].number;
        return check_rate(&reader->line, reader->uplink_rate);
    }
    if (!matches(&reader->line, "uplinks oversubscription X", values) || !(values[0].number > 0))
        return fail_form(&reader->line,
                         "\"uplinks rate X\" (GB/s of one leaf to one spine) or \"uplinks "
                         "oversubscription X\" (the NICs of a leaf carry X times as much as its "
                         "uplinks)");
    reader->uplink_rate = 0;
    reader->oversubscription = values[0].number;
    return GYRE_SUCCESS;
}

static gyre_status take_route(struct reader *reader)
{
    struct value values[MAX_VALUES];
    reader->fabric->routes_by_rail = matches(&reader->line, "route rail", values);
    return reader->fabric->routes_by_rail || matches(&reader->line, "route hash", values)
               ? GYRE_SUCCESS
               : fail_form(&reader->line, "\"route hash\" or \"route rail\"");
}

static gyre_status take_latency(struct reader *reader)
{
    struct value values[MAX_VALUES];
    static const char form[] = "latency nic X uplink X";
    if (!matches(&reader->line, form, values))
        return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT,
                         "line %d: latency needs both: %s, in ns, 0 or more and at most %.0f",
                         reader->line.number, form, MAX_LATENCY_NS);
    if (values[0].number > MAX_LATENCY_NS || values[1].number > MAX_LATENCY_NS)
        return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT, "line %d: latencies are in ns, at most %.0f",
                         reader->line.number, MAX_LATENCY_NS);
    reader->fabric->nic_latency_ns = values[0].number;
    reader->fabric->uplink_latency_ns = values[1].number;
    return GYRE_SUCCESS;
}

static gyre_status take_link(struct reader *reader)
{
    struct value values[MAX_VALUES] = {{0}};
    struct gyre_fabric *fabric = reader->fabric;
    const struct line *line = &reader->line;
    const bool is_dead = strcmp(line->words[line->n_words - 1], "dead") == 0;
    const bool is_nic =
        matches(line, is_dead ? "link host R nic R dead" : "link host R nic R rate X", values);
    if (!is_nic &&
        !matches(line, is_dead ? "link leaf R spine R dead" : "link leaf R spine R rate X", values))
        return fail_form(line, "\"link host R nic R\" or \"link leaf R spine R\" and then \"dead\" "
                               "or \"rate X\"");
    if (!is_dead)
        GYRE_TRY(check_rate(line, values[2].number));
    GYRE_TRY(check_range(line, is_nic ? "host" : "leaf", &values[0],
                         is_nic ? fabric->n_hosts : fabric->n_leaves));
    for (uint32_t i = values[0].first; i <= values[0].last; i++) {
        GYRE_TRY(check_range(line, is_nic ? "nic" : "spine", &values[1],
                             is_nic ? fabric->hosts[i].n_nics : fabric->n_spines));
        for (uint32_t k = values[1].first; k <= values[1].last; k++)
            for (int way = 0; way < 2; way++) {
                const uint32_t link =
                    is_nic ? gyre_fabric_nic_link(fabric->hosts[i].first_nic + k, way == 1)
                           : gyre_fabric_uplink(fabric, i, k, way == 1);
                fabric->bytes_per_ns[link] = is_dead ? 0 : values[2].number;
            }
    }
    return GYRE_SUCCESS;
}

static const struct {
    const char *word;
    enum pass pass;
    gyre_status (*take)(struct reader *);
    bool is_single;
} keywords[] = {
    {"hosts", COUNTS, take_hosts, false},       {"leaves", COUNTS, take_switches, true},
    {"spines", COUNTS, take_switches, true},    {"wiring", WIRES, take_wire, true},
    {"attach", WIRES, take_wire, false},        {"uplinks", RATES, take_uplinks, true},
    {"latency", RATES, take_latency, true},     {"route", RATES, take_route, true},
    {"link", LINKS, take_link, false},          {"torus", COUNTS, take_torus, false},
    {"dragonfly", COUNTS, take_switches, true},
};
_Static_assert(GYRE_ARRAY_LENGTH(keywords) <= MAX_KEYWORDS, "is_given has one flag for each");
bool gyre_fabric_has_word(const char *word)
{
    for (size_t i = 0; i < GYRE_ARRAY_LENGTH(keywords); i++)
        if (strcmp(word, keywords[i].word) == 0)
            return true;
    return false;
}

static gyre_status take_pass(struct reader *reader, const char *text, enum pass pass)
{
    struct line *line = &reader->line;
    for (line->number = 1; *text != '\0'; line->number++) {
        GYRE_TRY(cut_line(text, strcspn(text, "#\n"), line));
        text += strcspn(text, "\n");
        text += *text == '\n';
        char legal[160] = "";
        size_t i = 0;
        if (line->n_words == 0)
            continue;
        while (i < GYRE_ARRAY_LENGTH(keywords) && strcmp(line->words[0], keywords[i].word) != 0)
            gyre_text_append(legal, sizeof(legal), " %s", keywords[i++].word);
        if (i == GYRE_ARRAY_LENGTH(keywords))
            return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT, "line %d: \"%.40s\" is none of:%s",
                             line->number, line->words[0], legal);
        if (keywords[i].pass != pass)
            continue;
        if (keywords[i].is_single && reader->is_given[i])
            return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT, "line %d: %s is given twice",
                             line->number, keywords[i].word);
        reader->is_given[i] = true;
        GYRE_TRY(keywords[i].take(reader));
    }
    return GYRE_SUCCESS;
}

static gyre_status read_text(struct reader *reader, const char *text)
{
    if (strlen(text) > GYRE_FABRIC_MAX_TEXT)
        return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT, "the text is longer than %d bytes",
                         GYRE_FABRIC_MAX_TEXT);
    GYRE_TRY(take_pass(reader, text, COUNTS));
    GYRE_TRY(open_fabric(reader));
    GYRE_TRY(take_pass(reader, text, WIRES));
    GYRE_TRY(take_pass(reader, text, RATES));
    GYRE_TRY(
        gyre_fabric_set_uplinks(reader->fabric, reader->uplink_rate, reader->oversubscription));
    GYRE_TRY(take_pass(reader, text, LINKS));
    return gyre_fabric_assign_nics(reader->fabric);
}

gyre_status gyre_fabric_from_text(const char *text, struct gyre_fabric **fabric_out)
{
    struct reader reader = {.fabric = calloc(1, sizeof(*reader.fabric)), .oversubscription = 1};
    if (reader.fabric == NULL)
        return gyre_fail(GYRE_ERROR_OUT_OF_MEMORY, "cannot allocate a fabric");
    reader.fabric->n_leaves = 1;
    const gyre_status status = read_text(&reader, text);
    if (status != GYRE_SUCCESS)
        gyre_fabric_free(reader.fabric);
    else
        *fabric_out = reader.fabric;
    return status;
}
