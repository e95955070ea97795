/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/check.h"
#include "transport/ib/rules/ib_gid.h"
#include "transport/ib/ib_qp.h"

#include <arpa/inet.h>
#include <errno.h>

static struct gyre_ib_gid_row row(uint32_t index, int version, const char *address,
                                  const char *netdev)
{
    struct gyre_ib_gid_row made;
    memset(&made, 0, sizeof(made));
    made.index = index;
    made.type = version == 2   ? GYRE_IB_GID_ROCE_V2
                : version == 1 ? GYRE_IB_GID_ROCE_V1
                               : GYRE_IB_GID_UNREADABLE;
    if (inet_pton(AF_INET, address, made.raw + 12) == 1)
        made.raw[10] = made.raw[11] = 0xff;
    else
        CHECK(address[0] == '\0' || inet_pton(AF_INET6, address, made.raw) == 1);
    snprintf(made.netdev, sizeof(made.netdev), "%s", netdev);
    return made;
}

static struct gyre_ib_gid_rules any_rules(void)
{
    return (struct gyre_ib_gid_rules){.forced_index = -1, .version = 2};
}

static int chosen(const struct gyre_ib_gid_row *rows, int n, const struct gyre_ib_gid_rules *rules)
{
    int position = -1;
    return gyre_ib_gid_choose(rows, n, rules, &position, NULL) == GYRE_SUCCESS
               ? (int)rows[position].index
               : -1;
}

/* Words of index/version/address[/interface]. */
static int read_rows(const char *text, struct gyre_ib_gid_row *rows)
{
    int n = 0, n_chars, version;
    unsigned index;
    char address[48], netdev[16] = "eth0";
    for (; sscanf(text, " %u/%d/%47[^ /]%n/%15[^ ]%n", &index, &version, address, &n_chars, netdev,
                  &n_chars) >= 3;
         text += n_chars) {
        rows[n] = row(index, version, address, netdev);
        rows[n].is_netdev_down = strcmp(netdev, "down") == 0;
        rows[n++].vlan = strcmp(netdev, "eth0.100") == 0 ? 100 : 0;
        strcpy(netdev, "eth0");
    }
    return n;
}

#define THREE  "0/2/192.168.1.5 1/2/10.2.0.5 2/2/10.3.0.5"
#define IPV6   "0/1/fe80::1 1/2/fe80::1 2/1/fd00:1::5 3/2/fd00:1::5"
#define TAGGED "0/2/10.1.0.1/eth0.100 1/2/10.0.0.1"

TEST_CASE("the best row of the version, the family and the range is chosen, or none")
{
    static const struct {
        const char *rows, *range;
        int version, family, expected;
    } choices[] = {
        /* IPv4 over v2 in the usual table */
        {"0/1/fe80::1 1/2/fe80::1 2/1/10.0.0.1 3/2/10.0.0.1", "", 2, 0, 3},
        /* of several IPv4 addresses the range decides */
        {THREE, "", 2, 0, 0},
        {THREE, "10.3.0.0/16", 2, 0, 2},
        {THREE, "10.2.0.4/30", 2, 0, 1},
        {THREE, "10.2.0.5", 2, 0, 1},
        {THREE, "0.0.0.0/0", 2, 0, 0},
        /* a fabric of IPv6 needs no variable */
        {IPV6, "", 2, 0, 3},
        {IPV6, "fd00::/8", 2, 0, 3},
        {IPV6, "", 2, AF_INET, -1},
        /* link-local where there is nothing else */
        {"0/1/fe80::1 1/2/fe80::1", "", 2, 0, 1},
        /* a forced family wins over the order of classes */
        {"0/2/10.0.0.1 1/2/fd00::1", "", 2, AF_INET6, 1},
        /* v1 where it is asked for */
        {"0/1/fe80::1 1/1/10.0.0.1", "", 2, 0, -1},
        {"0/1/fe80::1 1/1/10.0.0.1", "", 1, 0, 1},
        /* index zero for what it is only */
        {"0/2/10.0.0.1", "", 2, 0, 0},
        {"0/0/::", "", 2, 0, -1},
        {"", "", 2, 0, -1},
        {"0/2/10.0.0.1 1/2/10.9.0.1", "10.9.0.0/16", 2, 0, 1},
        /* a bond, but no interface that is down */
        {"0/2/10.0.0.1/down 1/2/10.0.0.2/bond0", "", 2, 0, 1},
        /* the port's own interface before a VLAN */
        {TAGGED, "", 2, 0, 1},
        {TAGGED, "10.1.0.0/24", 2, 0, 0},
    };
    for (size_t i = 0; i < sizeof(choices) / sizeof(choices[0]); i++) {
        struct gyre_ib_gid_rules rules = {.forced_index = -1, .version = choices[i].version};
        struct gyre_ib_gid_row rows[4];
        const int n = read_rows(choices[i].rows, rows);
        rules.family = choices[i].family;
        if (choices[i].range[0] != '\0')
            CHECK_OK(gyre_ib_gid_parse_range(choices[i].range, &rules));
        const int index = chosen(rows, n, &rules);
        CHECK_MSG(index == choices[i].expected, "%d of %s in %s", index, choices[i].rows,
                  choices[i].range);
    }
}

TEST_CASE("a sparse table of a container gives the row that can be read")
{
    const struct gyre_ib_gid_row rows[] = {
        row(0, 0, "fe80::1", ""), row(2, 0, "10.0.0.7", ""), row(6, 1, "10.1.0.1", "eth0"),
        row(7, 2, "10.1.0.1", "eth0"), row(9, 0, "10.1.0.9", "")};
    const struct gyre_ib_gid_rules rules = any_rules();
    char reasons[5][GYRE_IB_GID_REASON_BYTES];
    int position = -1;
    CHECK_OK(gyre_ib_gid_choose(rows, 5, &rules, &position, reasons));
    CHECK(position == 3);
    CHECK_HAS(reasons[1], "network namespace");
    CHECK(reasons[3][0] == '\0');
}

TEST_CASE("a range that matches nothing is an error with every reason")
{
    const struct gyre_ib_gid_row rows[] = {
        row(0, 1, "fe80::1", "eth0"), row(1, 2, "fe80::1", "eth0"), row(3, 2, "10.0.0.1", "eth0")};
    struct gyre_ib_gid_rules rules = any_rules();
    int position = 42;
    CHECK_OK(gyre_ib_gid_parse_range("172.16.0.0/12", &rules));
    CHECK_FAILS(gyre_ib_gid_choose(rows, 3, &rules, &position, NULL), GYRE_ERROR_UNSUPPORTED,
                "[0] fe80::1 v1 eth0: RoCE v1, asked for v2; [1] fe80::1 v2 eth0: outside "
                "GYRE_IB_ADDR_RANGE; [3] 10.0.0.1 v2 eth0: outside GYRE_IB_ADDR_RANGE");
    CHECK(position == 42);
}

TEST_CASE("a forced index must exist and be usable")
{
    const struct gyre_ib_gid_row rows[] = {row(0, 1, "fe80::1", "eth0"), row(2, 0, "10.0.0.1", "")};
    struct gyre_ib_gid_rules rules = any_rules();
    int position;
    rules.forced_index = 0;
    CHECK(chosen(rows, 2, &rules) == 0);
    rules.forced_index = 2;
    CHECK_BAD_ARGUMENT(gyre_ib_gid_choose(rows, 2, &rules, &position, NULL),
                       "IB_GID_INDEX=2: that row is not usable: its type cannot be read");
    rules.forced_index = 5;
    CHECK_BAD_ARGUMENT(gyre_ib_gid_choose(rows, 2, &rules, &position, NULL),
                       "no such usable row. GIDs: [0] fe80::1 v1 eth0");
}

TEST_CASE("the index may differ per device")
{
    int index;
    CHECK_OK(gyre_ib_gid_parse_index("", "mlx5_0", &index));
    CHECK(index == -1);
    CHECK_OK(gyre_ib_gid_parse_index("-1", "mlx5_0", &index));
    CHECK(index == -1);
    CHECK_OK(gyre_ib_gid_parse_index("3", "mlx5_0", &index));
    CHECK(index == 3);
    CHECK_OK(gyre_ib_gid_parse_index("mlx5_0=3,mlx5_1=5", "mlx5_1", &index));
    CHECK(index == 5);
    CHECK_OK(gyre_ib_gid_parse_index("mlx5_0=3,mlx5_1=5", "mlx5_10", &index));
    CHECK(index == -1);
    CHECK_BAD_ARGUMENT(gyre_ib_gid_parse_index("three", "x", &index), "three");
    CHECK_BAD_ARGUMENT(gyre_ib_gid_parse_index("mlx5_0=", "x", &index),
                       "\"mlx5_0=\" is not device=number");
    CHECK_BAD_ARGUMENT(gyre_ib_gid_parse_index("mlx5_0=1,2", "x", &index),
                       "\"2\" is not device=number");
}

TEST_CASE("a range that does not parse is refused")
{
    static const char *const wrong[] = {"10.0.0.0/33", "10.0.0/8",    "fd00::/129", "eth0",
                                        "10.0.0.0/",   "10.0.0.0/8x", "/8",         "10.0.0.0/-1"};
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        struct gyre_ib_gid_rules rules = any_rules();
        CHECK_BAD_ARGUMENT(gyre_ib_gid_parse_range(wrong[i], &rules), wrong[i]);
        CHECK(!rules.has_range);
    }
}

TEST_CASE("a pair prefers one subnet whatever the order")
{
    const struct gyre_ib_gid_row a[] = {row(3, 2, "10.0.1.1", "eth0"),
                                        row(5, 2, "10.0.2.1", "eth0")};
    const struct gyre_ib_gid_row b[] = {row(1, 2, "10.0.2.9", "eth0"),
                                        row(7, 2, "10.0.7.9", "eth0")};
    int x = -1;
    int y = -1;
    CHECK_OK(gyre_ib_gid_pair(a, 2, b, 2, &x, &y));
    CHECK(x == 1 && y == 0);
    CHECK_OK(gyre_ib_gid_pair(b, 2, a, 2, &y, &x));
    CHECK(x == 1 && y == 0);
}

TEST_CASE("a pair falls back to the family that both have")
{
    const struct gyre_ib_gid_row a[] = {row(3, 2, "10.0.1.1", "eth0"), row(5, 2, "fd00::1", "eth0"),
                                        row(1, 2, "fe80::1", "eth0")};
    const struct gyre_ib_gid_row b[] = {row(1, 2, "fd00:9::2", "eth0"),
                                        row(0, 2, "fe80::2", "eth0")};
    int x = -1;
    int y = -1;
    CHECK_OK(gyre_ib_gid_pair(a, 3, b, 1, &x, &y));
    CHECK(x == 1 && y == 0);
    CHECK_OK(gyre_ib_gid_pair(a + 2, 1, b, 2, &x, &y));
    CHECK(x == 0 && y == 1);
}

TEST_CASE("a pair that does not fit prints both tables")
{
    const struct gyre_ib_gid_row a[] = {row(3, 2, "10.0.1.1", "eth0")};
    const struct gyre_ib_gid_row b[] = {row(1, 2, "fd00::2", "eth0")};
    const struct gyre_ib_gid_row c[] = {row(1, 1, "10.0.1.2", "eth0")};
    int x;
    int y;
    CHECK_FAILS(gyre_ib_gid_pair(a, 1, b, 1, &x, &y), GYRE_ERROR_UNSUPPORTED,
                "one has [3] 10.0.1.1 v2 eth0; the other [1] fd00::2 v2 eth0");
    CHECK_FAILS(gyre_ib_gid_pair(a, 1, c, 1, &x, &y), GYRE_ERROR_UNSUPPORTED, "v1");
}

TEST_CASE("timers are four microseconds times a power of two")
{
    CHECK(gyre_ib_ack_timeout_ns(0) == 0);
    CHECK(gyre_ib_ack_timeout_ns(14) == 67108864);   /* 67 ms */
    CHECK(gyre_ib_ack_timeout_ns(16) == 268435456);  /* 0.27 s */
    CHECK(gyre_ib_ack_timeout_ns(20) == 4294967296); /* 4.3 s */
    CHECK(gyre_ib_retry_window_ns(16, 6) == 7 * 268435456ULL);
    CHECK(gyre_ib_retry_window_ns(16, 0) == 268435456ULL);
}

TEST_CASE("traffic classes are decoded")
{
    char text[64];
    CHECK(strcmp(gyre_ib_class_to_text(106, text, sizeof(text)), "TC 106 = DSCP 26 + ECT(0)") == 0);
    CHECK(strcmp(gyre_ib_class_to_text(104, text, sizeof(text)), "TC 104 = DSCP 26 + Not-ECT") ==
          0);
    CHECK(strcmp(gyre_ib_class_to_text(5, text, sizeof(text)), "TC 5 = DSCP 1 + ECT(1)") == 0);
    CHECK(strcmp(gyre_ib_class_to_text(255, text, sizeof(text)), "TC 255 = DSCP 63 + CE") == 0);
}

TEST_CASE("classes that hardly mean what they say are explained")
{
    char text[320];
    CHECK(gyre_ib_class_warning(106, true, text, sizeof(text)) == NULL);
    CHECK(gyre_ib_class_warning(104, true, text, sizeof(text)) == NULL);
    CHECK_HAS(gyre_ib_class_warning(5, true, text, sizeof(text)), "not priority 5");
    CHECK_HAS(gyre_ib_class_warning(0, false, text, sizeof(text)), "the default");
    CHECK(strstr(gyre_ib_class_warning(0, true, text, sizeof(text)), "the default") == NULL);
    CHECK_HAS(gyre_ib_class_warning(107, true, text, sizeof(text)), "104 or 106");
}

TEST_CASE("a bad number in one of NCCL's variables is ignored")
{
    char *const values[] = {"NCCL_IB_GID_INDEX=x", "NCCL_IB_GID_INDEX=mlx5_0=3,mlx5_1"};
    for (size_t i = 0; i < GYRE_ARRAY_LENGTH(values); i++) {
        char *environment[] = {values[i], NULL};
        struct gyre_params params;
        struct gyre_ib_gid_rules rules;
        CHECK_OK(gyre_params_from(environment, &params));
        CHECK_OK(gyre_ib_gid_rules_from(&params, "mlx5_0", &rules));
        CHECK(rules.forced_index == -1 && !rules.has_range);
    }
}

TEST_CASE("every completion status has a name and a hint")
{
    static const enum ibv_wc_status statuses[] = {
        IBV_WC_LOC_LEN_ERR,  IBV_WC_LOC_QP_OP_ERR,  IBV_WC_LOC_PROT_ERR,      IBV_WC_WR_FLUSH_ERR,
        IBV_WC_BAD_RESP_ERR, IBV_WC_LOC_ACCESS_ERR, IBV_WC_REM_INV_REQ_ERR,   IBV_WC_REM_ACCESS_ERR,
        IBV_WC_REM_OP_ERR,   IBV_WC_RETRY_EXC_ERR,  IBV_WC_RNR_RETRY_EXC_ERR, IBV_WC_FATAL_ERR};
    for (size_t i = 0; i < sizeof(statuses) / sizeof(statuses[0]); i++) {
        CHECK(strcmp(gyre_ib_wc_name(statuses[i]), "unknown status") != 0);
        CHECK(strlen(gyre_ib_wc_hint(statuses[i])) > 10);
    }
    CHECK(strcmp(gyre_ib_wc_name(IBV_WC_RETRY_EXC_ERR), "RETRY_EXC") == 0);
}

TEST_CASE("path MTUs are bytes")
{
    CHECK(gyre_ib_mtu_bytes(IBV_MTU_256) == 256 && gyre_ib_mtu_bytes(IBV_MTU_1024) == 1024);
    CHECK(gyre_ib_mtu_bytes(IBV_MTU_4096) == 4096 && gyre_ib_mtu_bytes((enum ibv_mtu)0) == 0);
}

TEST_CASE("random PSNs have 24 bits and differ")
{
    uint32_t all = 0;
    uint32_t first;
    CHECK_OK(gyre_ib_random_psn(&first));
    for (int i = 0; i < 64; i++) {
        uint32_t psn;
        CHECK_OK(gyre_ib_random_psn(&psn));
        CHECK(psn <= 0xffffff);
        all |= psn ^ first;
    }
    CHECK(all > 0xffff);
}
