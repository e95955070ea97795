/* SPDX-License-Identifier: Apache-2.0 */
#include "core/engine/plan/tuner/rows.h"

#include "core/foundation/base/text.h"
#include "core/foundation/base/util.h"

#include <assert.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static const char *const fact_names[] = {
#define NAME(id, name) #name,
    GYRE_ROW_FACT_TABLE(NAME)
#undef NAME
};

static const char *const kind_names[] = {
#define NAME(id, name, result, facts) #name,
    GYRE_ROW_KIND_TABLE(NAME)
#undef NAME
};

static const struct {
    uint32_t result, facts;
} kinds[] = {
#define KIND(id, name, result, facts) {GYRE_RESULT_##result, GYRE_ROW_FACTS_##facts},
    GYRE_ROW_KIND_TABLE(KIND)
#undef KIND
};

static const char *const form_names[] = {
#define NAME(id, name) #name,
    GYRE_RULE_TABLE(NAME)
#undef NAME
};

/* Only the rank itself knows them. */
static const char *const local_names[] = {"aligned", "in_place", "recorded", "traced", "captured"};

struct reader {
    const char *file;
    uint32_t line;
    const char *text;
    const char *measured;
    struct gyre_row row;
};

__attribute__((format(printf, 2, 3))) static gyre_status refuse(const struct reader *reader,
                                                                const char *format, ...)
{
    char text[256];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT, "%s:%u: %s", reader->file, reader->line, text);
}

static gyre_status refuse_word(const struct reader *reader, const char *word,
                               const char *const *legal, size_t n_legal)
{
    char names[200] = "";
    for (size_t i = 0; i < n_legal; i++)
        gyre_text_append(names, sizeof(names), " %s", legal[i]);
    return refuse(reader, "\"%.40s\" is none of:%s", word, names);
}

/* With K, M or G behind it, or nothing. Returns the rest; NULL if there is no number. */
static const char *read_number(const char *text, uint64_t *number_out)
{
    uint64_t number = 0;
    const char *at = text;
    for (; *at >= '0' && *at <= '9'; at++) {
        if (number > UINT64_MAX / 16)
            return NULL;
        number = number * 10 + (uint64_t)(*at - '0');
    }
    if (at == text || number > UINT64_MAX >> 30)
        return NULL;
    const char *unit = *at == '\0' ? NULL : strchr("KMG", *at);
    *number_out = unit == NULL ? number : number << 10 * (*unit == 'K' ? 1 : *unit == 'M' ? 2 : 3);
    return unit == NULL ? at : at + 1;
}

/* "<=8", "<8", ">=8", ">8", "=8" or "=3..4". */
static gyre_status read_bounds(const struct reader *reader, const char *word, const char *at,
                               struct gyre_bounds *bounds)
{
    const bool is_least = at[0] == '>', is_equal = at[1] == '=';
    const bool is_exact = at[0] == '=';
    uint64_t first = 0;
    const char *end = read_number(at + (is_exact ? 1 : 1 + is_equal), &first);
    uint64_t last = first;
    if (end != NULL && is_exact && strncmp(end, "..", 2) == 0)
        end = read_number(end + 2, &last);
    if (end == NULL || *end != '\0' || (at[0] == '<' && !is_equal && first == 0))
        return refuse(reader, "\"%.40s\": expected a name, then <=, <, >=, > or =, then a number",
                      word);
    if (is_least || is_exact)
        bounds->least = gyre_max_u64(bounds->least, is_least && !is_equal ? first + 1 : first);
    if (!is_least)
        bounds->most = gyre_min_u64(bounds->most, is_exact || is_equal ? last : last - 1);
    return bounds->least <= bounds->most
               ? GYRE_SUCCESS
               : refuse(reader, "\"%.40s\" leaves no number that fits", word);
}

static gyre_status read_condition(struct reader *reader, const char *word)
{
    struct gyre_when *when = &reader->row.when;
    const size_t n_name = strcspn(word, "<>=");
#define READ_BOUNDS(member, name)                                                           \
    if (word[n_name] != '\0' && strlen(name) == n_name && strncmp(word, name, n_name) == 0) \
        return read_bounds(reader, word, word + n_name, &when->member);
    GYRE_ROW_NUMBER_TABLE(READ_BOUNDS)
#undef READ_BOUNDS
    const bool is_refused = word[0] == '!';
    const int fact = gyre_name_find(fact_names, GYRE_N_ROW_FACTS, word + is_refused);
    if (gyre_name_find(local_names, GYRE_ARRAY_LENGTH(local_names), word + is_refused) >= 0)
        return refuse(reader,
                      "only one rank knows whether its call is %s: ranks would not choose "
                      "alike",
                      word + is_refused);
    if (fact < 0)
        return refuse_word(reader, word, fact_names, GYRE_N_ROW_FACTS);
    if ((kinds[reader->row.kind].facts >> fact & 1U) == 0)
        return refuse(reader, "rows of kind %s are asked before it is known whether a call is %s",
                      kind_names[reader->row.kind], fact_names[fact]);
    *(is_refused ? &when->refuses : &when->needs) |= 1U << fact;
    return GYRE_SUCCESS;
}

/* "bytes/ranks/128K >=32": a form, its divisors, then bounds and other words. */
static gyre_status read_rule(struct reader *reader, char *const *words, int n_words)
{
    struct gyre_rule rule = {.number = 1, .most = UINT64_MAX, .unit_bytes = 512};
    const char *at = n_words > 0 ? words[0] : "";
    const size_t n_name = strcspn(at, "/*");
    for (uint8_t form = GYRE_RULE_BLOCK; form < GYRE_N_RULE_FORMS; form++)
        if (strlen(form_names[form]) == n_name && strncmp(form_names[form], at, n_name) == 0)
            rule.form = form;
    at = rule.form == GYRE_RULE_NUMBER ? read_number(at, &rule.number) : at + n_name;
    if (at == NULL || (kinds[reader->row.kind].result >> 3 >> rule.form & 1U) == 0)
        return refuse(reader, "\"%.40s\": rows of kind %s do not say this behind \"->\"",
                      n_words > 0 ? words[0] : "", kind_names[reader->row.kind]);
    rule.by_ranks = strncmp(at, "/ranks", 6) == 0;
    at += rule.by_ranks ? 6 : 0;
    if ((*at == '/' && (rule.form == GYRE_RULE_BLOCK || rule.form == GYRE_RULE_BYTES)) ||
        (*at == '*' && rule.form == GYRE_RULE_CHAIN))
        at = read_number(at + 1, &rule.number);
    if (at == NULL || *at != '\0' || rule.number == 0)
        return refuse(reader, "\"%.40s\": expected a number at the end", words[0]);
    for (int i = 1; i < n_words; i++) {
        uint64_t unit = rule.unit_bytes;
        const char *end = words[i] + strlen(words[i]);
        if (strncmp(words[i], ">=", 2) == 0)
            end = read_number(words[i] + 2, &rule.least);
        else if (strncmp(words[i], "<=", 2) == 0)
            end = read_number(words[i] + 2, &rule.most);
        else if (strncmp(words[i], "unit=", 5) == 0)
            end = read_number(words[i] + 5, &unit);
        else if (strcmp(words[i], "down") == 0)
            rule.rounds_down = true;
        else if (strcmp(words[i], "one_tile") == 0)
            rule.one_tile = true;
        else
            end = NULL;
        if (end == NULL || *end != '\0' || unit == 0 || unit % 16 != 0)
            return refuse(reader, "\"%.40s\" is none of: >=N <=N unit=N down one_tile", words[i]);
        rule.unit_bytes = (uint32_t)unit;
    }
    reader->row.rule = rule;
    return GYRE_SUCCESS;
}

/* "ring simple", one of the two, "staged", or a rule. */
static gyre_status read_result(struct reader *reader, char *const *words, int n_words)
{
    struct gyre_row *row = &reader->row;
    const uint32_t result = kinds[row->kind].result;
    const bool has_algorithm = (result & GYRE_RESULT_ALGORITHM) != 0;
    const bool has_proto = (result & GYRE_RESULT_PROTO) != 0;
    if (result == GYRE_RESULT_STAGED)
        return n_words == 1 && strcmp(words[0], "staged") == 0
                   ? GYRE_SUCCESS
                   : refuse(reader, "expected \"staged\" behind \"->\"");
    if (!has_algorithm && !has_proto)
        return read_rule(reader, words, n_words);
    if (n_words != has_algorithm + has_proto)
        return refuse(reader, "expected %s%s%s behind \"->\"", has_algorithm ? "an algorithm" : "",
                      has_algorithm && has_proto ? " and " : "", has_proto ? "a protocol" : "");
    if (has_algorithm)
        row->algorithm = gyre_algorithm_find(words[0]);
    if (has_algorithm && row->algorithm == NULL)
        return refuse(reader, "\"%.40s\" is no algorithm", words[0]);
    if (has_algorithm && (row->when.colls & ~row->algorithm->collectives) != 0)
        return refuse(reader, "algorithm %s does not have this collective", words[0]);
    if (!has_proto)
        return GYRE_SUCCESS;
    const int proto = gyre_name_find(gyre_proto_names, GYRE_N_PROTOS, words[n_words - 1]);
    if (proto < 0)
        return refuse_word(reader, words[n_words - 1], gyre_proto_names, GYRE_N_PROTOS);
    row->proto = (enum gyre_proto)proto;
    return GYRE_SUCCESS;
}

static gyre_status read_row(struct reader *reader, char *line)
{
    static const struct gyre_bounds any = {0, UINT64_MAX};
    const struct gyre_when everything = {
        .ranks = any, .hosts = any, .channels = any, .sms = any, .bytes = any, .block = any};
    char *words[24] = {line};
    char *rest = NULL;
    int n = 0, arrow = 0;
    for (char *word = strtok_r(line, " ", &rest); word != NULL && n < 24;
         word = strtok_r(NULL, " ", &rest))
        words[n++] = word;
    while (arrow < n && strcmp(words[arrow], "->") != 0)
        arrow++;
    const int kind = gyre_name_find(kind_names, GYRE_N_ROW_KINDS, words[0]);
    if (kind < 0)
        return refuse_word(reader, words[0], kind_names, GYRE_N_ROW_KINDS);
    if (arrow < 2 || arrow == n)
        return refuse(reader, "expected: kind, collectives, conditions, \"->\", result");
    if (reader->measured == NULL)
        return refuse(reader, "no line \"measured\" stands above this row");
    reader->row = (struct gyre_row){.when = everything,
                                    .file = reader->file,
                                    .text = reader->text,
                                    .measured = reader->measured,
                                    .line = reader->line,
                                    .kind = (enum gyre_row_kind)kind};
    const bool has_all = strcmp(words[1], "*") == 0; /* else names with commas */
    if (has_all)
        reader->row.when.colls = (1U << GYRE_N_COLLECTIVES) - 1;
    for (char *name = has_all ? NULL : strtok_r(words[1], ",", &rest); name != NULL;
         name = strtok_r(NULL, ",", &rest)) {
        const int coll = gyre_collective_find(name);
        if (coll < 0)
            return refuse(reader, "\"%.40s\" is no collective", name);
        reader->row.when.colls |= 1U << coll;
    }
    for (int i = 2; i < arrow; i++)
        GYRE_TRY(read_condition(reader, words[i]));
    return read_result(reader, &words[arrow + 1], n - arrow - 1);
}

gyre_status gyre_rows_parse(const char *text, const char *file, struct gyre_rows *rows_out)
{
    struct reader reader = {.file = file};
    char line[200];
    rows_out->file = file;
    rows_out->n_rows = 0;
    for (const char *at = text; *at != '\0'; at += at[0] == '\n') {
        const size_t n = strcspn(at, "\n");
        reader.line++;
        reader.text = at;
        at += n;
        if (n == 0 || reader.text[0] == '#')
            continue;
        if (strncmp(reader.text, "measured ", 9) == 0) {
            reader.measured = reader.text + 9;
            continue;
        }
        if (n >= sizeof(line))
            return refuse(&reader, "more than %zu letters", sizeof(line) - 1);
        memcpy(line, reader.text, n);
        line[n] = '\0';
        if (line[strspn(line, " ")] == '\0')
            continue;
        if (rows_out->n_rows == GYRE_MAX_ROWS)
            return refuse(&reader, "more than %d rows", GYRE_MAX_ROWS);
        GYRE_TRY(read_row(&reader, line + strspn(line, " ")));
        rows_out->rows[rows_out->n_rows++] = reader.row;
    }
    return GYRE_SUCCESS;
}

uint64_t gyre_row_hash(const struct gyre_row *row)
{
    const char *name = row->algorithm != NULL ? row->algorithm->name : "";
    const uint32_t rest[] = {(uint32_t)row->kind, (uint32_t)row->proto};
    uint64_t hash = gyre_hash(GYRE_HASH_INIT, &row->when, sizeof(row->when));
    hash = gyre_hash(hash, &row->rule, sizeof(row->rule));
    hash = gyre_hash(hash, name, strlen(name));
    return gyre_hash(hash, rest, sizeof(rest));
}

static struct gyre_rows shipped[GYRE_N_ROW_FILES]; /* written once, by parse_shipped() */
static pthread_once_t shipped_once = PTHREAD_ONCE_INIT;

static void parse_shipped(void)
{
    static const struct {
        const char *name;
        const struct gyre_rows_embedded *text;
    } files[GYRE_N_ROW_FILES] = {
        [GYRE_ROWS_H200] = {"h200.rows", &gyre_rows_h200_rows},
        [GYRE_ROWS_GPU_HOST_MEMORY] = {"gpu_host_memory.rows", &gyre_rows_gpu_host_memory_rows},
        [GYRE_ROWS_HOST] = {"host.rows", &gyre_rows_host_rows},
        [GYRE_ROWS_HOSTS] = {"hosts.rows", &gyre_rows_hosts_rows},
    };
    for (int i = 0; i < GYRE_N_ROW_FILES; i++) {
        const gyre_status status =
            gyre_rows_parse((const char *)files[i].text->bytes, files[i].name, &shipped[i]);
        assert(status == GYRE_SUCCESS); /* tests/plan/test_rows.c */
        (void)status;
    }
}

const struct gyre_rows *gyre_rows_of(enum gyre_row_file file)
{
    pthread_once(&shipped_once, parse_shipped);
    return &shipped[file];
}

static bool holds(const struct gyre_bounds *bounds, uint64_t value)
{
    return value >= bounds->least && value <= bounds->most;
}

void gyre_why_add(struct gyre_why *why, const struct gyre_row *row, const char *reason)
{
    if (why == NULL || why->n == GYRE_ARRAY_LENGTH(why->lost))
        return;
    for (size_t i = 0; i < why->n; i++)
        if (why->lost[i].row == row)
            return;
    why->lost[why->n].row = row;
    snprintf(why->lost[why->n++].reason, sizeof(why->lost[0].reason), "%s", reason);
}

/* The first that does not hold. */
static void record_misfit(const struct gyre_row *row, const struct gyre_row_call *call)
{
    const struct gyre_when *when = &row->when;
    char reason[64];
    if (row->kind != call->kind || (when->colls >> call->coll & 1U) == 0 ||
        (call->algorithm != NULL && row->algorithm != NULL && row->algorithm != call->algorithm) ||
        (call->protos >> row->proto & 1U) == 0)
        return; /* the question was about other rows */
    for (int fact = 0; fact < GYRE_N_ROW_FACTS; fact++) {
        const bool is_missing = ((when->needs & ~call->facts) >> fact & 1U) != 0;
        snprintf(reason, sizeof(reason), "%s%s", is_missing ? "not " : "", fact_names[fact]);
        if (is_missing || ((when->refuses & call->facts) >> fact & 1U) != 0) {
            gyre_why_add(call->why, row, reason);
            return;
        }
    }
#define RECORD_BOUNDS(member, name)                                                        \
    if (!holds(&when->member, call->member)) {                                             \
        const bool is_less = call->member < when->member.least;                            \
        snprintf(reason, sizeof(reason), "%s %" PRIu64 " %s %" PRIu64, name, call->member, \
                 is_less ? "<" : ">", is_less ? when->member.least : when->member.most);   \
        gyre_why_add(call->why, row, reason);                                              \
        return;                                                                            \
    }
    GYRE_ROW_NUMBER_TABLE(RECORD_BOUNDS)
#undef RECORD_BOUNDS
}

const struct gyre_row *gyre_rows_find(const struct gyre_rows *rows,
                                      const struct gyre_row_call *call,
                                      const struct gyre_row *after)
{
    const struct gyre_row *const end = &rows->rows[rows->n_rows];
    for (const struct gyre_row *row = after == NULL ? rows->rows : after + 1; row < end; row++) {
        const struct gyre_when *when = &row->when;
        if (row->kind == call->kind && (when->colls >> call->coll & 1U) != 0 &&
            (call->algorithm == NULL || row->algorithm == NULL ||
             row->algorithm == call->algorithm) &&
            (call->protos >> row->proto & 1U) != 0 && (when->needs & ~call->facts) == 0 &&
            (when->refuses & call->facts) == 0 && holds(&when->ranks, call->ranks) &&
            holds(&when->hosts, call->hosts) && holds(&when->sms, call->sms) &&
            (call->any_size ||
             (holds(&when->channels, call->channels) && holds(&when->bytes, call->bytes) &&
              holds(&when->block, call->block))))
            return row;
        else if (call->why != NULL)
            record_misfit(row, call);
    }
    return NULL;
}
