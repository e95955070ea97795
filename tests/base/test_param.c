/* SPDX-License-Identifier: Apache-2.0
 *
 * core/base/param: the environment against the table.
 */
#include "core/base/param.h"
#include "tests/support/check.h"

static struct gyre_params params;

/* Load from at most three entries (NULL = none). */
static gyre_status load(char *a, char *b, char *c)
{
    char *environment[] = {a, a == NULL ? NULL : b, b == NULL ? NULL : c, NULL};
    return gyre_params_from(environment, &params);
}

static void defaults_hold_without_an_environment(void)
{
    CHECK_OK(load(NULL, NULL, NULL));
    CHECK(gyre_param_number(&params, GYRE_PARAM_BOOTSTRAP_TIMEOUT) == 120);
    CHECK(gyre_param_number(&params, GYRE_PARAM_IB_TC) == INT64_MIN);
    CHECK(gyre_param_number(&params, GYRE_PARAM_DEBUG) == 2); /* WARN */
    CHECK(!gyre_param_is_set(&params, GYRE_PARAM_DEBUG));
    CHECK(strcmp(gyre_param_text(&params, GYRE_PARAM_SOCKET_IFNAME), "") == 0);
}

static void gyre_names_come_before_nccl_names(void)
{
    CHECK_OK(load("NCCL_IB_TC=8", "GYRE_IB_TC=106", "NCCL_IB_SL=3"));
    CHECK(gyre_param_number(&params, GYRE_PARAM_IB_TC) == 106);
    CHECK(strcmp(params.values[GYRE_PARAM_IB_TC].source, "GYRE_IB_TC") == 0);
    CHECK(gyre_param_number(&params, GYRE_PARAM_IB_SL) == 3);
    CHECK(strcmp(params.values[GYRE_PARAM_IB_SL].source, "NCCL_IB_SL") == 0);
    CHECK(gyre_param_is_set(&params, GYRE_PARAM_IB_SL));
    /* An empty value is no value; TRANSPORT is not NCCL's. */
    CHECK_OK(load("GYRE_IB_TC=", "NCCL_IB_TC=8", "NCCL_TRANSPORT=x"));
    CHECK(gyre_param_number(&params, GYRE_PARAM_IB_TC) == 8);
    CHECK(!gyre_param_is_set(&params, GYRE_PARAM_TRANSPORT));
}

static void nccls_minus_one_means_unset(void)
{
    CHECK_OK(load("NCCL_IB_TC=-1", NULL, NULL));
    CHECK(!gyre_param_is_set(&params, GYRE_PARAM_IB_TC));
    CHECK_FAILS(load("GYRE_IB_TC=-1", NULL, NULL), GYRE_ERROR_INVALID_ARGUMENT, "0..255");
}

static void numbers_are_decimal_whole_and_in_range(void)
{
    CHECK_OK(load("GYRE_IB_TIMEOUT=010", NULL, NULL));
    CHECK(gyre_param_number(&params, GYRE_PARAM_IB_TIMEOUT) == 10); /* octal would be 8 */
    CHECK_FAILS(load("GYRE_IB_TIMEOUT=abc", NULL, NULL), GYRE_ERROR_INVALID_ARGUMENT,
                "GYRE_IB_TIMEOUT=abc is not legal: expected 1..31");
    CHECK_FAILS(load("GYRE_IB_TIMEOUT=22ms", NULL, NULL), GYRE_ERROR_INVALID_ARGUMENT, "22ms");
    CHECK_FAILS(load("GYRE_IB_TIMEOUT=0x10", NULL, NULL), GYRE_ERROR_INVALID_ARGUMENT, "0x10");
    CHECK_FAILS(load("GYRE_IB_TIMEOUT= 8", NULL, NULL), GYRE_ERROR_INVALID_ARGUMENT, "1..31");
    CHECK_FAILS(load("GYRE_IB_TIMEOUT=32", NULL, NULL), GYRE_ERROR_INVALID_ARGUMENT, "1..31");
    CHECK_FAILS(load("NCCL_IB_TIMEOUT=0", NULL, NULL), GYRE_ERROR_INVALID_ARGUMENT, "NCCL_IB_TIME");
    CHECK_FAILS(load("GYRE_IB_TIMEOUT=99999999999999999999999", NULL, NULL),
                GYRE_ERROR_INVALID_ARGUMENT, "1..31");
}

static void bytes_take_k_m_and_g(void)
{
    CHECK_OK(load("GYRE_BUFFSIZE=64K", NULL, NULL));
    CHECK(gyre_param_number(&params, GYRE_PARAM_BUFFSIZE) == 65536);
    CHECK_OK(load("GYRE_BUFFSIZE=4m", NULL, NULL));
    CHECK(gyre_param_number(&params, GYRE_PARAM_BUFFSIZE) == 4194304);
    CHECK_OK(load("NCCL_BUFFSIZE=1048576", NULL, NULL));
    CHECK(gyre_param_number(&params, GYRE_PARAM_BUFFSIZE) == 1048576);
    CHECK_FAILS(load("GYRE_BUFFSIZE=1G", NULL, NULL), GYRE_ERROR_INVALID_ARGUMENT, "67108864");
    CHECK_FAILS(load("GYRE_BUFFSIZE=4MB", NULL, NULL), GYRE_ERROR_INVALID_ARGUMENT, "K M G");
    CHECK_FAILS(load("GYRE_BUFFSIZE=500000000000000000G", NULL, NULL), GYRE_ERROR_INVALID_ARGUMENT,
                "K M G");
}

static void words_ignore_case(void)
{
    static const struct {
        char *entry;
        int64_t value;
    } bools[] = {{"GYRE_IB_DISABLE=1", 1},    {"GYRE_IB_DISABLE=0", 0},
                 {"GYRE_IB_DISABLE=True", 1}, {"GYRE_IB_DISABLE=false", 0},
                 {"GYRE_IB_DISABLE=no", 0},   {"GYRE_IB_DISABLE=YES", 1},
                 {"GYRE_IB_DISABLE=on", 1},   {"GYRE_IB_DISABLE=Off", 0}};
    for (size_t i = 0; i < sizeof(bools) / sizeof(bools[0]); i++) {
        CHECK_OK(load(bools[i].entry, NULL, NULL));
        CHECK(gyre_param_number(&params, GYRE_PARAM_IB_DISABLE) == bools[i].value);
    }
    CHECK_OK(load("GYRE_TRANSPORT=Socket", NULL, NULL));
    CHECK(gyre_param_number(&params, GYRE_PARAM_TRANSPORT) == 3);
    CHECK(strcmp(gyre_param_text(&params, GYRE_PARAM_TRANSPORT), "Socket") == 0);
    CHECK_FAILS(load("GYRE_IB_DISABLE=2", NULL, NULL), GYRE_ERROR_INVALID_ARGUMENT, "true false");
    CHECK_FAILS(load("GYRE_TRANSPORT=so", NULL, NULL), GYRE_ERROR_INVALID_ARGUMENT,
                "p2p shm ib socket");
}

static void a_set_has_a_bit_for_each_word(void)
{
    CHECK_OK(load(NULL, NULL, NULL));
    CHECK(!gyre_param_has(&params, GYRE_PARAM_CHECK, GYRE_CHECK_CALLS));
    CHECK_OK(load("GYRE_CHECK=calls", NULL, NULL));
    CHECK(gyre_param_has(&params, GYRE_PARAM_CHECK, GYRE_CHECK_CALLS));
    CHECK(!gyre_param_has(&params, GYRE_PARAM_CHECK, GYRE_CHECK_PROGRAMS));
    CHECK_OK(load("GYRE_CHECK=Programs,calls", NULL, NULL));
    CHECK(gyre_param_has(&params, GYRE_PARAM_CHECK, GYRE_CHECK_CALLS));
    CHECK(gyre_param_has(&params, GYRE_PARAM_CHECK, GYRE_CHECK_PROGRAMS));
    CHECK_FAILS(load("GYRE_CHECK=calls,", NULL, NULL), GYRE_ERROR_INVALID_ARGUMENT,
                "a list of: calls programs");
    CHECK_FAILS(load("GYRE_CHECK=call", NULL, NULL), GYRE_ERROR_INVALID_ARGUMENT,
                "a list of: calls programs");
}

static void an_unknown_name_is_told_with_the_nearest(void)
{
    CHECK_FAILS(load("GYRE_IB_HCAS=mlx5_0", NULL, NULL), GYRE_ERROR_INVALID_ARGUMENT,
                "unknown variable GYRE_IB_HCAS: did you mean GYRE_IB_HCA?");
    CHECK_FAILS(load("GYRE_=1", NULL, NULL), GYRE_ERROR_INVALID_ARGUMENT, "unknown");
    CHECK_OK(load("NCCL_IB_HCAS=mlx5_0", "GYRATE=1", "XGYRE_FOO=1"));
}

static void a_value_too_long_is_refused(void)
{
    char entry[400] = "GYRE_SOCKET_IFNAME=";
    memset(entry + 19, 'x', 255);
    CHECK_OK(load(entry, NULL, NULL));
    entry[19 + 255] = 'x';
    CHECK_FAILS(load(entry, NULL, NULL), GYRE_ERROR_INVALID_ARGUMENT, "at most 255");
}

static void every_default_is_legal_and_every_row_is_in_the_help(void)
{
    char help[65536] = "";
    FILE *file = fmemopen(help, sizeof(help), "w");
    CHECK(file != NULL);
    gyre_params_print_help(file);
    fclose(file);
    for (int id = 0; id < GYRE_N_PARAMS; id++) {
        char name[64];
        snprintf(name, sizeof(name), "GYRE_%s ", gyre_param_name((enum gyre_param_id)id));
        CHECK_MSG(strstr(help, name) != NULL, "%s", name);
    }
    for (const char *line = help; *line != '\0';) {
        const size_t n_line = strcspn(line, "\n");
        CHECK_MSG(n_line <= 100, "%.*s", (int)n_line, line);
        line += n_line + (line[n_line] == '\n');
    }
    CHECK(strstr(help, "1..31; default 17 [NCCL]") != NULL);
}

static const struct test_case cases[] = {
    {"defaults hold without an environment", defaults_hold_without_an_environment},
    {"GYRE names come before NCCL names", gyre_names_come_before_nccl_names},
    {"NCCL's -1 means unset", nccls_minus_one_means_unset},
    {"numbers are decimal, whole and in range", numbers_are_decimal_whole_and_in_range},
    {"bytes take K, M and G", bytes_take_k_m_and_g},
    {"words ignore case", words_ignore_case},
    {"a set has a bit for each word", a_set_has_a_bit_for_each_word},
    {"an unknown name is told with the nearest", an_unknown_name_is_told_with_the_nearest},
    {"a value too long is refused", a_value_too_long_is_refused},
    {"every default is legal and every row is in the help",
     every_default_is_legal_and_every_row_is_in_the_help},
};

TEST_MAIN(cases)
