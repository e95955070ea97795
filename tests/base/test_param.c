/* SPDX-License-Identifier: Apache-2.0 */
#include "core/foundation/base/param.h"
#include "tests/support/check.h"

static struct gyre_params params;

static gyre_status load(char *a, char *b, char *c)
{
    char *environment[] = {a, a == NULL ? NULL : b, b == NULL ? NULL : c, NULL};
    return gyre_params_from(environment, &params);
}

TEST_CASE("defaults hold without an environment")
{
    CHECK_OK(load(NULL, NULL, NULL));
    CHECK(gyre_param_number(&params, GYRE_PARAM_BOOTSTRAP_TIMEOUT) == 120);
    CHECK(gyre_param_number(&params, GYRE_PARAM_IB_TC) == INT64_MIN);
    CHECK(gyre_param_number(&params, GYRE_PARAM_DEBUG) == 2); /* WARN */
    CHECK(!gyre_param_is_set(&params, GYRE_PARAM_DEBUG));
    CHECK(strcmp(gyre_param_text(&params, GYRE_PARAM_SOCKET_IFNAME), "") == 0);
}

TEST_CASE("GYRE names come before NCCL names")
{
    CHECK_OK(load("NCCL_IB_TC=8", "GYRE_IB_TC=106", "NCCL_IB_SL=3"));
    CHECK(gyre_param_number(&params, GYRE_PARAM_IB_TC) == 106);
    CHECK(strcmp(params.values[GYRE_PARAM_IB_TC].source, "GYRE_IB_TC") == 0);
    CHECK(gyre_param_number(&params, GYRE_PARAM_IB_SL) == 3);
    CHECK(strcmp(params.values[GYRE_PARAM_IB_SL].source, "NCCL_IB_SL") == 0);
    CHECK(gyre_param_is_set(&params, GYRE_PARAM_IB_SL));
    /* An empty value is none; TRANSPORT is not NCCL's. */
    CHECK_OK(load("GYRE_IB_TC=", "NCCL_IB_TC=8", "NCCL_TRANSPORT=x"));
    CHECK(gyre_param_number(&params, GYRE_PARAM_IB_TC) == 8);
    CHECK(!gyre_param_is_set(&params, GYRE_PARAM_TRANSPORT));
}

TEST_CASE("NCCL's -1 means unset")
{
    CHECK_OK(load("NCCL_IB_TC=-1", NULL, NULL));
    CHECK(!gyre_param_is_set(&params, GYRE_PARAM_IB_TC));
    CHECK_BAD_ARGUMENT(load("GYRE_IB_TC=-1", NULL, NULL), "0..255");
}

TEST_CASE("numbers are decimal, whole and in range")
{
    CHECK_OK(load("GYRE_IB_TIMEOUT=010", NULL, NULL));
    CHECK(gyre_param_number(&params, GYRE_PARAM_IB_TIMEOUT) == 10); /* octal would be 8 */
    CHECK_BAD_ARGUMENT(load("GYRE_IB_TIMEOUT=abc", NULL, NULL),
                       "GYRE_IB_TIMEOUT=abc is not legal: expected 1..31");
    CHECK_BAD_ARGUMENT(load("GYRE_IB_TIMEOUT=22ms", NULL, NULL), "22ms");
    CHECK_BAD_ARGUMENT(load("GYRE_IB_TIMEOUT=0x10", NULL, NULL), "0x10");
    CHECK_BAD_ARGUMENT(load("GYRE_IB_TIMEOUT= 8", NULL, NULL), "1..31");
    CHECK_BAD_ARGUMENT(load("GYRE_IB_TIMEOUT=32", NULL, NULL), "1..31");
    CHECK_BAD_ARGUMENT(load("GYRE_IB_TIMEOUT=99999999999999999999999", NULL, NULL), "1..31");
}

TEST_CASE("bytes take K, M and G")
{
    CHECK_OK(load("GYRE_BUFFSIZE=64K", NULL, NULL));
    CHECK(gyre_param_number(&params, GYRE_PARAM_BUFFSIZE) == 65536);
    CHECK_OK(load("GYRE_BUFFSIZE=4m", NULL, NULL));
    CHECK(gyre_param_number(&params, GYRE_PARAM_BUFFSIZE) == 4194304);
    CHECK_OK(load("NCCL_BUFFSIZE=1048576", NULL, NULL));
    CHECK(gyre_param_number(&params, GYRE_PARAM_BUFFSIZE) == 1048576);
    CHECK_BAD_ARGUMENT(load("GYRE_BUFFSIZE=1G", NULL, NULL), "67108864");
    CHECK_BAD_ARGUMENT(load("GYRE_BUFFSIZE=4MB", NULL, NULL), "K M G");
    CHECK_BAD_ARGUMENT(load("GYRE_BUFFSIZE=500000000000000000G", NULL, NULL), "K M G");
}

TEST_CASE("words ignore case")
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
    CHECK_BAD_ARGUMENT(load("GYRE_IB_DISABLE=2", NULL, NULL), "true false");
    CHECK_BAD_ARGUMENT(load("GYRE_TRANSPORT=so", NULL, NULL), "p2p shm ib socket");
}

TEST_CASE("a set has a bit for each word")
{
    CHECK_OK(load(NULL, NULL, NULL));
    CHECK(!gyre_param_has(&params, GYRE_PARAM_CHECK, GYRE_CHECK_CALLS));
    CHECK_OK(load("GYRE_CHECK=calls", NULL, NULL));
    CHECK(gyre_param_has(&params, GYRE_PARAM_CHECK, GYRE_CHECK_CALLS));
    CHECK(!gyre_param_has(&params, GYRE_PARAM_CHECK, GYRE_CHECK_PROGRAMS));
    CHECK_OK(load("GYRE_CHECK=Programs,calls", NULL, NULL));
    CHECK(gyre_param_has(&params, GYRE_PARAM_CHECK, GYRE_CHECK_CALLS));
    CHECK(gyre_param_has(&params, GYRE_PARAM_CHECK, GYRE_CHECK_PROGRAMS));
    CHECK_OK(load("GYRE_CHECK=programs , calls,", NULL, NULL)); /* blanks and empty words */
    CHECK(gyre_param_has(&params, GYRE_PARAM_CHECK, GYRE_CHECK_CALLS));
    CHECK(gyre_param_has(&params, GYRE_PARAM_CHECK, GYRE_CHECK_PROGRAMS));
    CHECK_BAD_ARGUMENT(load("GYRE_CHECK=,", NULL, NULL), "a list of");
    CHECK_BAD_ARGUMENT(load("GYRE_CHECK=call", NULL, NULL), "a list of: calls programs");
}

TEST_CASE("an unknown name is told with the nearest")
{
    CHECK_BAD_ARGUMENT(load("GYRE_IB_HCAS=mlx5_0", NULL, NULL),
                       "unknown variable GYRE_IB_HCAS: did you mean GYRE_IB_HCA?");
    CHECK_BAD_ARGUMENT(load("GYRE_=1", NULL, NULL), "unknown");
    CHECK_OK(load("NCCL_IB_HCAS=mlx5_0", "GYRATE=1", "XGYRE_FOO=1"));
}

TEST_CASE("a value too long is refused")
{
    char entry[1100] = "GYRE_SOCKET_IFNAME=";
    memset(entry + 19, 'x', GYRE_PARAM_MAX_BYTES - 1);
    CHECK_OK(load(entry, NULL, NULL));
    entry[19 + GYRE_PARAM_MAX_BYTES - 1] = 'x';
    CHECK_BAD_ARGUMENT(load(entry, NULL, NULL), "at most 1023");
    memcpy(entry, "NCCL", 4);
    CHECK_OK(load(entry, NULL, NULL));
    CHECK(!gyre_param_is_set(&params, GYRE_PARAM_SOCKET_IFNAME));
    CHECK_HAS(params.notes, "NCCL_SOCKET_IFNAME=xxx");
}

TEST_CASE("every default is legal and every row is in the help")
{
    char help[65536] = "";
    FILE *file = fmemopen(help, sizeof(help), "w");
    CHECK(file != NULL);
    gyre_params_print_help(file);
    fclose(file);
    for (int id = 0; id < GYRE_N_PARAMS; id++) {
        char name[64];
        snprintf(name, sizeof(name), "GYRE_%s ", gyre_param_name((enum gyre_param_id)id));
        CHECK_HAS(help, name);
    }
    for (const char *line = help; *line != '\0';) {
        const size_t n_line = strcspn(line, "\n");
        CHECK_MSG(n_line <= 100, "%.*s", (int)n_line, line);
        line += n_line + (line[n_line] == '\n');
    }
    CHECK_HAS(help, "1..31; default 17 [NCCL]");
}

/* `used`: the text that counts; "" = the default. `noted`: a part of the note; NULL = none. */
static const struct {
    const char *name, *value, *used, *noted;
} of_nccl[] = {
    /* Numbers are C's numbers: strtoll() with base 0 (NCCL 2.28, src/misc/param.cc). */
    {"BUFFSIZE", "0x400000", "4194304", NULL},
    {"BUFFSIZE", " 4194304\r", "4194304", NULL},
    {"BUFFSIZE", "\"4194304\"", "4194304", NULL},
    {"BUFFSIZE", "'4M'", "4194304", NULL},
    {"BUFFSIZE", "4MB", "4194304", NULL},
    {"BUFFSIZE", "4MiB", "4194304", NULL},
    {"BUFFSIZE", "-1", "", NULL},
    {"BUFFSIZE", "-2", "", NULL},
    {"BUFFSIZE", "0", "", "is ignored: at least 4096"},
    {"BUFFSIZE", "1024", "4096", "4096 is used instead"},
    {"BUFFSIZE", "134217728", "67108864", "67108864 is used instead"},
    {"BUFFSIZE", "9000000000G", "67108864", "67108864 is used instead"},
    {"BUFFSIZE", "99999999999999999999", "", "is no number"},
    {"BUFFSIZE", "default", "", "is no number"},
    {"IB_TC", "0x6a", "106", NULL},
    {"IB_TC", "0152", "106", NULL}, /* octal */
    {"IB_TC", "+106", "106", NULL},
    {"IB_TC", "300", "", "is ignored: it is outside of 0..255"},
    {"IB_TC", "-7", "", "is ignored"},
    {"IB_TC", "106;", "106", "is read as 106"},
    {"IB_TIMEOUT", "22ms", "22", "is read as 22"},
    {"IB_TIMEOUT", "0", "17", "is ignored"}, /* 0 means for ever */
    {"IB_TIMEOUT", "1.5", "1", "is read as 1"},
    {"IB_QPS_PER_CONNECTION", "32", "16", "outside of 1..16"},
    {"MAX_NCHANNELS", "128", "64", "outside of 1..64"},
    {"MIN_NCHANNELS", "0x2", "2", NULL},
    {"CROSS_NIC", "3", "2", "outside of 0..2"},
    {"IB_ROCE_VERSION_NUM", "2", "2", NULL},
    {"IB_DISABLE", "2", "1", "outside of 0..1"},
    {"IB_DISABLE", "0x1", "1", NULL},
    {"IB_DISABLE", "TRUE", "TRUE", NULL},
    {"IB_DISABLE", " no ", "no", NULL},
    {"IB_DISABLE", "-1", "0", NULL},
    {"IB_DISABLE", "enabled", "0", "is no number"},
    {"DEBUG", "version", "version", NULL},
    {"DEBUG", "Trace ", "Trace", NULL},
    {"DEBUG", "ABORT", "ABORT", NULL},
    {"DEBUG", "DEBUG", "WARN", "expected one of NONE VERSION"},
    {"DEBUG", "3", "WARN", "is ignored"},
    {"DEBUG_SUBSYS", "INIT, NET", "INIT,NET", NULL},
    {"DEBUG_SUBSYS", "^INIT,COLL", "^INIT,COLL", NULL},
    {"DEBUG_SUBSYS", "INIT,RAS,FOO,BAR", "INIT,RAS", "gyre does not have: FOO, BAR"},
    {"DEBUG_SUBSYS", "FOO", "", "FOO"},
    {"DEBUG_SUBSYS", "all", "all", NULL},
    {"SOCKET_FAMILY", "AF_INET6", "AF_INET6", NULL},
    {"SOCKET_FAMILY", "IPv6", "", "expected one of AF_INET AF_INET6"},
    {"NET", "ib", "ib", NULL},
    {"NET", "Socket", "Socket", NULL},
    {"NET", "AWS Libfabric", "", "expected one of IB Socket"},
    {"P2P_LEVEL", "NVL", "NVL", NULL},
    {"P2P_LEVEL", "7", "5", "outside of 0..5"},
    {"P2P_LEVEL", "-2", "", NULL},
    {"IB_GID_INDEX", "-1", "", NULL},
    {"IB_GID_INDEX", "0x3", "3", NULL},
    {"IB_GID_INDEX", "mlx5_0=3,mlx5_1=5", "mlx5_0=3,mlx5_1=5", NULL},
    {"SOCKET_IFNAME", " =eth0,eth1 ", "=eth0,eth1", NULL},
    {"TOPO_FILE", "\"/a b/c.xml\"", "/a b/c.xml", NULL},
    {"TOPO_FILE", "   ", "", NULL},
    {"TOPO_FILE", "\"\"", "", NULL},
};

TEST_CASE("a value that NCCL takes is never an error")
{
    for (size_t i = 0; i < sizeof(of_nccl) / sizeof(of_nccl[0]); i++) {
        char entry[128];
        int id = 0;
        snprintf(entry, sizeof(entry), "NCCL_%s=%s", of_nccl[i].name, of_nccl[i].value);
        while (strcmp(gyre_param_name((enum gyre_param_id)id), of_nccl[i].name) != 0)
            id++;
        CHECK_OK(load(entry, NULL, NULL));
        const char *text = gyre_param_text(&params, (enum gyre_param_id)id);
        CHECK_MSG(strcmp(text, of_nccl[i].used) == 0, "%s: \"%s\"", entry, text);
        CHECK_MSG((params.notes[0] != '\0') == (of_nccl[i].noted != NULL), "%s: note \"%s\"", entry,
                  params.notes);
        if (of_nccl[i].noted != NULL)
            CHECK_MSG(strstr(params.notes, of_nccl[i].noted) != NULL &&
                          strncmp(params.notes, entry, strcspn(entry, "=")) == 0,
                      "%s: note \"%s\"", entry, params.notes);
    }
}

TEST_CASE("every row takes any text of NCCL")
{
    static const char *const texts[] = {
        "",   "0", "1", "-1", "-2147483648", "0x7fffffff", "1e6",  "auto",
        "\"", "^", "=", ",",  "a,b; c:d/e",  "none",       "%n%s", "\xff"};
    for (int id = 0; id < GYRE_N_PARAMS; id++) {
        if ((gyre_param_flags((enum gyre_param_id)id) & GYRE_PARAM_NCCL) == 0)
            continue;
        for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
            char entry[128];
            snprintf(entry, sizeof(entry), "NCCL_%s=%s", gyre_param_name((enum gyre_param_id)id),
                     texts[i]);
            CHECK_OK(load(entry, NULL, NULL));
        }
    }
}

static gyre_status load_file(char *const *environment, const char *text, size_t n_bytes)
{
    struct gyre_param_sources sources;
    char path[] = "/tmp/gyre_test_param.XXXXXX";
    const int fd = mkstemp(path);
    CHECK(fd >= 0 && write(fd, text, n_bytes) == (ssize_t)n_bytes);
    close(fd);
    setenv("NCCL_CONF_FILE", path, 1);
    gyre_param_sources_open(&sources);
    CHECK(sources.n >= 2 && strcmp(sources.list[1].file, path) == 0);
    sources.list[0].entries = environment;
    sources.n = 2; /* without this machine's /etc/nccl.conf */
    const gyre_status status = gyre_params_take(&sources, &params);
    gyre_param_sources_close(&sources);
    unlink(path);
    return status;
}

TEST_CASE("a file of NCCL is read where the environment is silent")
{
    static const char text[] = "# NCCL_IB_SL=1\n"
                               "  # NCCL_IB_SL=2\n"
                               "NCCL_IB_TIMEOUT=20\r\n"
                               "NCCL_IB_TIMEOUT=21\n" /* the first line counts */
                               "no equals sign\n"
                               "\n"
                               "=5\n"
                               "LD_LIBRARY_PATH=/x\n"
                               " NCCL_IB_RETRY_CNT = 5 \n"
                               "NCCL_SOCKET_IFNAME==ens1f0\n"
                               "NCCL_HOSTID=\"a b\"\n"
                               "NCCL_BUFFSIZE=999999999\n"
                               "GYRE_IB_TC=106\n"
                               "NCCL_IB_FIFO_TC=8\n"
                               "NCCL_DEBUG=INFO\n"
                               "NCCL_IB_ROCE_VERSION_NUM=1"; /* no newline */
    char *const environment[] = {"NCCL_IB_TC=8", "NCCL_IB_FIFO_TC=", "GYRE_DEBUG=NONE", NULL};
    CHECK_OK(load_file(environment, text, sizeof(text) - 1));
    CHECK(gyre_param_number(&params, GYRE_PARAM_IB_TIMEOUT) == 20);
    CHECK(gyre_param_number(&params, GYRE_PARAM_IB_RETRY_CNT) == 5);
    CHECK(gyre_param_number(&params, GYRE_PARAM_IB_ROCE_VERSION_NUM) == 1);
    CHECK(gyre_param_number(&params, GYRE_PARAM_BUFFSIZE) == 67108864);
    CHECK_HAS(params.notes, "NCCL_BUFFSIZE=999999999 ");
    CHECK(strcmp(gyre_param_text(&params, GYRE_PARAM_SOCKET_IFNAME), "=ens1f0") == 0);
    CHECK(strcmp(gyre_param_text(&params, GYRE_PARAM_HOSTID), "a b") == 0);
    CHECK(!gyre_param_is_set(&params, GYRE_PARAM_IB_SL));
    /* Even an empty value of the environment comes before the file. */
    CHECK(gyre_param_number(&params, GYRE_PARAM_IB_TC) == 8);
    CHECK(!gyre_param_is_set(&params, GYRE_PARAM_IB_FIFO_TC));
    CHECK(strcmp(gyre_param_text(&params, GYRE_PARAM_DEBUG), "NONE") == 0);
}

TEST_CASE("a file that cannot be read is told and ends nothing")
{
    static const char *const paths[] = {"/tmp", "/nonexistent/nccl.conf", "/dev/zero"};
    char *const nothing[] = {NULL};
    static const char wrong[] = "GYRE_IB_TC=999\n", unknown[] = "GYRE_IB_TCC=1\n";
    static const char zeros[] = "NCCL_IB_SL=3\n\0\0\nNCCL_IB_TC=7\0\n";
    static const char marked[] = "\xef\xbb\xbf"
                                 "NCCL_IB_SL=4\nNCCL_IB_TC=9\n";
    struct gyre_param_sources sources;
    for (size_t i = 0; i < sizeof(paths) / sizeof(paths[0]); i++) {
        setenv("NCCL_CONF_FILE", paths[i], 1);
        gyre_param_sources_open(&sources);
        CHECK_MSG(strstr(sources.problem, "NCCL_CONF_FILE is not read: ") != NULL &&
                      strstr(sources.problem, paths[i]) != NULL,
                  "%s: %s", paths[i], sources.problem);
        const int n = sources.n;
        sources.list[0].entries = nothing;
        sources.n = 1;
        CHECK_OK(gyre_params_take(&sources, &params));
        CHECK_MSG(strncmp(params.notes, sources.problem, strlen(sources.problem)) == 0, "%s",
                  params.notes);
        sources.n = n;
        gyre_param_sources_close(&sources);
    }
    CHECK_OK(load_file(nothing, zeros, sizeof(zeros) - 1));
    CHECK(gyre_param_number(&params, GYRE_PARAM_IB_SL) == 3);
    CHECK(gyre_param_number(&params, GYRE_PARAM_IB_TC) == 7);
    CHECK_OK(load_file(nothing, marked, sizeof(marked) - 1));
    CHECK(gyre_param_number(&params, GYRE_PARAM_IB_SL) == 4);
    CHECK(gyre_param_number(&params, GYRE_PARAM_IB_TC) == 9);
    /* GYRE_* is as strict in a file, which the error names. */
    CHECK_BAD_ARGUMENT(load_file(nothing, wrong, sizeof(wrong) - 1), "/tmp/gyre_test_param.");
    CHECK_BAD_ARGUMENT(load_file(nothing, unknown, sizeof(unknown) - 1),
                       ": unknown variable GYRE_IB_TCC");
}

TEST_CASE("messages name the variable that the user set")
{
    CHECK_OK(load("NCCL_IB_HCA=a", "GYRE_IB_SL=1", NULL));
    CHECK(strcmp(gyre_param_called(&params, GYRE_PARAM_IB_HCA), "NCCL_IB_HCA") == 0);
    CHECK(strcmp(gyre_param_called(&params, GYRE_PARAM_IB_SL), "GYRE_IB_SL") == 0);
    CHECK(strcmp(gyre_param_called(&params, GYRE_PARAM_IB_TC), "GYRE_IB_TC") == 0);
    /* Only NCCL's variables are forgiven. */
    CHECK_OK(gyre_param_forgive(&params, GYRE_PARAM_IB_HCA, GYRE_ERROR_SYSTEM));
    CHECK(gyre_param_forgive(&params, GYRE_PARAM_IB_SL, GYRE_ERROR_SYSTEM) == GYRE_ERROR_SYSTEM);
    CHECK(gyre_param_forgive(&params, GYRE_PARAM_IB_TC, GYRE_ERROR_SYSTEM) == GYRE_ERROR_SYSTEM);
}
