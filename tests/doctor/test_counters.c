/* SPDX-License-Identifier: Apache-2.0 */
#include "bench/doctor/doctor.h"
#include "tests/support/files.h"

#define PORT "sys/class/infiniband/mlx5_0/ports/1"

static void prepare(void)
{
    test_put("7\n", PORT "/hw_counters/out_of_sequence");
    test_put("100\n", PORT "/hw_counters/np_cnp_sent");
    test_put("3\n", PORT "/counters/symbol_error");
    test_put("eth1\n", PORT "/gid_attrs/ndevs/0");
    test_put("NIC statistics:\n     rx_prio3_pause: 5\n     rx_prio3_discards: 0\n",
             "ethtool/eth1");
}

/* The last reading's ports stay. */
static struct bench_counters *read_counters(void)
{
    static struct bench_machine machines[2];
    static int turn;
    static char *const nothing[] = {NULL};
    struct gyre_params params;
    struct bench_machine *machine = &machines[turn++ % 2];
    CHECK_OK(gyre_params_from(nothing, &params));
    bench_root = test_root();
    bench_machine_read(&params, machine);
    return bench_counters_read(machine);
}

static const char *fix_of(const struct bench_counter *rise)
{
    return bench_fix_of_port(rise->meaning->fix, rise->port->device, rise->port->netdev);
}

TEST_CASE("without a load no counter rises")
{
    prepare();
    struct bench_counters *before = read_counters(), *after = read_counters();
    struct bench_counter rise;
    CHECK(before->n == 5);
    CHECK(bench_counters_compare(before, after, &rise, 1) == 0);
}

TEST_CASE("counters that rose are named with their meaning, losses first")
{
    prepare();
    struct bench_counter rises[8];
    struct bench_counters *before = read_counters();
    test_put("140\n", PORT "/hw_counters/np_cnp_sent");
    test_put("9\n", PORT "/hw_counters/out_of_sequence");
    test_put("NIC statistics:\n     rx_prio3_pause: 6\n     rx_prio3_discards: 2\n",
             "ethtool/eth1");
    struct bench_counters *after = read_counters();
    CHECK(bench_counters_compare(before, after, rises, 8) == 4);
    CHECK(strcmp(rises[0].name, "mlx5_0:1 hw_counters/out_of_sequence") == 0);
    CHECK(rises[0].value == 2 && rises[0].meaning->is_loss &&
          strstr(rises[0].meaning->meaning, "lost") != NULL);
    CHECK(strcmp(rises[1].name, "mlx5_0:1 (ethtool) rx_prio3_discards") == 0);
    CHECK(rises[1].value == 2 && rises[1].meaning->is_loss);
    const char *fix = fix_of(&rises[1]);
    CHECK_MSG(strstr(fix, "mlnx_qos -i eth1 --trust dscp --pfc") == fix, "%s", fix);
    CHECK(strcmp(rises[2].name, "mlx5_0:1 hw_counters/np_cnp_sent") == 0);
    CHECK(rises[2].value == 40 && !rises[2].meaning->is_loss);
    CHECK(strcmp(rises[3].name, "mlx5_0:1 (ethtool) rx_prio3_pause") == 0);
    CHECK(bench_counters_compare(before, after, rises, 1) == 1);
}

TEST_CASE("a counter that is garbage, new or smaller is left out")
{
    prepare();
    struct bench_counter rise;
    test_put("%s\n", PORT "/hw_counters/np_cnp_sent");
    test_put("9\n", PORT "/hw_counters/out_of_sequence");
    struct bench_counters *before = read_counters();
    CHECK(before->n == 4);
    test_put("200\n", PORT "/hw_counters/np_cnp_sent");
    test_put("0\n", PORT "/hw_counters/out_of_sequence");
    struct bench_counters *after = read_counters();
    CHECK(after->n == 5);
    CHECK(bench_counters_compare(before, after, &rise, 1) == 0);
}

TEST_CASE("a fix names the port that it is about")
{
    char longest[2 * BENCH_FIX_BYTES];
    CHECK(strcmp(bench_fix_of_port("ethtool NETDEV; mlxlink -d DEVICE -p NETDEV", "mlx5_1", "eth7"),
                 "ethtool eth7; mlxlink -d mlx5_1 -p eth7") == 0);
    /* It says where to find the name. */
    CHECK_HAS(bench_fix_of_port("ethtool NETDEV", "mlx5_1", ""), "rdma link show");
    CHECK(strcmp(bench_fix_of_port("mlxlink -d DEVICE", "", ""), "mlxlink -d DEVICE") == 0);
    CHECK(strcmp(bench_fix_of_port("update the firmware", "mlx5_1", ""), "update the firmware") ==
          0);
    memset(longest, 'x', sizeof(longest));
    longest[sizeof(longest) - 1] = '\0';
    CHECK(strlen(bench_fix_of_port(longest, "d", "n")) == BENCH_FIX_BYTES - 1);
}

TEST_CASE("a port whose interface is unknown has a fix in words")
{
    prepare();
    struct bench_counter rise;
    test_put("", PORT "/gid_attrs/ndevs/0");
    test_put("0\n", PORT "/hw_counters/packet_seq_err");
    struct bench_counters *before = read_counters();
    test_put("9\n", PORT "/hw_counters/packet_seq_err");
    struct bench_counters *after = read_counters();
    CHECK(bench_counters_compare(before, after, &rise, 1) == 1);
    const char *fix = fix_of(&rise);
    CHECK_MSG(strstr(fix, "rdma link show names it") != NULL, "%s", fix);
}

TEST_CASE("the interface is that of the first row that names one")
{
    prepare();
    test_put("", PORT "/gid_attrs/ndevs/0");
    test_put("eth1\n", PORT "/gid_attrs/ndevs/2");
    test_put("eth9\n", PORT "/gid_attrs/ndevs/10");
    struct bench_counter rise;
    struct bench_counters *before = read_counters();
    test_put("NIC statistics:\n     rx_prio3_pause: 5\n     rx_prio3_discards: 6\n",
             "ethtool/eth1");
    struct bench_counters *after = read_counters();
    CHECK(bench_counters_compare(before, after, &rise, 1) == 1 && rise.value == 6);
}

TEST_CASE("ranks are listed in ranges")
{
    static const bool is_in[] = {true, true, false, true, false, true, true, true};
    char text[64];
    bench_ranks_to_text(is_in, 8, text, sizeof(text));
    CHECK_MSG(strcmp(text, "0-1,3,5-7") == 0, "%s", text);
}
