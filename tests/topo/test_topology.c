/* SPDX-License-Identifier: Apache-2.0 */
#include "core/foundation/base/param.h"
#include "core/foundation/topo/topo.h"
#include "tests/support/files.h"
#include "tests/support/ranks.h"
#include "transport/transport.h"

#ifdef GYRE_WITH_LIBXML2
static const char machine_xml[] =
    "<system version='1'><cpu numaid='0'><pci busid='0000:10:00.0' class='0x060400'>"
    "<pci busid='0000:12:00.0' class='0x030200'><gpu dev='0' sm='90'/></pci>"
    "<pci busid='0000:13:00.0' class='0x030200'><gpu dev='1' sm='90'/></pci>"
    "<pci busid='0000:14:00.0' class='0x020700'><nic><net name='mlx5_0' dev='0' port='1' "
    "speed='400000'/></nic></pci></pci></cpu>"
    "<cpu numaid='1'><pci busid='0000:83:00.0' class='0x030200'><gpu dev='2' sm='90'/></pci></cpu>"
    "</system>";
#endif

struct bad_init {
    const char *variable;
    const char *value;
    const char *expected;
    int only_rank; /* -1 = all */
};

static void init_badly(const gyre_unique_id *id, int rank, int n_ranks, void *argument)
{
    const struct bad_init *bad = argument;
    const gyre_config config = test_host_config();
    gyre_comm *comm;
    if (bad->only_rank < 0 || bad->only_rank == rank)
        setenv(bad->variable, bad->value, 1);
    CHECK(gyre_comm_init_rank(&comm, n_ranks, id, rank, &config) != GYRE_SUCCESS);
    CHECK_HAS(gyre_last_error(), bad->expected);
}

/* Each of three ranks fails with the expected words. */
static void run_bad_init(struct bad_init bad)
{
    test_on_inits(3, init_badly, &bad);
}

TEST_CASE("a bad level word fails on every rank and lists the legal ones")
{
    run_bad_init((struct bad_init){"GYRE_P2P_LEVEL", "NEAR", "PHB", -1});
    run_bad_init((struct bad_init){"GYRE_P2P_LEVEL", "NEAR", "PHB", 2});
}

TEST_CASE("a bad topology file fails on every rank")
{
    run_bad_init((struct bad_init){"GYRE_TOPO_FILE", "/nowhere/topo.xml", "/nowhere/topo.xml", 1});
    const char *path = test_put("<system version='1'>\n<cpu numaid='0'>", "cut.xml");
    run_bad_init((struct bad_init){"GYRE_TOPO_FILE", path, "GYRE_TOPO_FILE", -1});
#ifdef GYRE_WITH_LIBXML2
    run_bad_init((struct bad_init){"GYRE_TOPO_FILE", path, "not well-formed", 2});
#endif
}

TEST_CASE("a dump that cannot be written fails on every rank")
{
    run_bad_init(
        (struct bad_init){"GYRE_TOPO_DUMP_FILE", "/nowhere/dump.xml", "GYRE_TOPO_DUMP_FILE", -1});
}

TEST_RANK(nothing) {}

TEST_CASE("what is read is dumped once a host")
{
#ifdef GYRE_WITH_LIBXML2
    const char *path = test_put(machine_xml, "machine.xml"), *dump = test_path("dumped/dump.xml");
    struct gyre_topo read, dumped;
    setenv("GYRE_TOPO_FILE", path, 1);
    setenv("GYRE_TOPO_DUMP_FILE", dump, 1);
    test_on_processes(3, nothing, NULL);
    unsetenv("GYRE_TOPO_FILE");
    unsetenv("GYRE_TOPO_DUMP_FILE");
    CHECK_OK(gyre_topo_xml_read(path, &read));
    CHECK_OK(gyre_topo_xml_read(dump, &dumped));
    CHECK(gyre_topo_count(&dumped, GYRE_TOPO_GPU) == 3);
    CHECK(gyre_topo_hash(&dumped) == gyre_topo_hash(&read));
    gyre_topo_fini(&read);
    gyre_topo_fini(&dumped);
    CHECK(unlink(dump) == 0 && rmdir(test_path("dumped")) == 0); /* nothing half written is left */
#else
    test_skip_case("built without libxml2");
#endif
}

TEST_CASE("the machine is dumped when no file is given")
{
    const char *dump = test_path("dumped/dump.xml");
    struct stat stats;
    setenv("GYRE_TOPO_DUMP_FILE", dump, 1);
    test_on_processes(2, nothing, NULL);
    unsetenv("GYRE_TOPO_DUMP_FILE");
    CHECK(stat(dump, &stats) == 0 && stats.st_size > 0);
    CHECK(unlink(dump) == 0 && rmdir(test_path("dumped")) == 0);
}

#ifdef GYRE_WITH_LIBXML2

static struct gyre_peer_info made_up_gpu(uint32_t rank, const char *bus_id)
{
    struct gyre_peer_info info;
    memset(&info, 0, sizeof(info));
    info.rank = rank;
    info.process_id = rank;
    info.device.kind = GYRE_DEVICE_CUDA;
    info.path_level = GYRE_PEER_PATH_UNKNOWN;
    snprintf(info.device.pci_bus_id, sizeof(info.device.pci_bus_id), "%s", bus_id);
    return info;
}

/* Other reasons (a build without CUDA) do not count. */
static bool is_ruled_out(const char *level, const struct gyre_peer_info *mine,
                         const struct gyre_peer_info *peer)
{
    struct gyre_params params;
    char text[64], why[160] = "";
    char *environment[] = {text, NULL};
    snprintf(text, sizeof(text), "GYRE_P2P_LEVEL=%s", level);
    CHECK_OK(gyre_params_from(environment, &params));
    return !gyre_transport_p2p.reachable(&params, mine, peer, why, sizeof(why)) &&
           strstr(why, "GYRE_P2P_LEVEL allows") != NULL;
}

TEST_CASE("P2P_LEVEL limits the path between GPUs")
{
    struct gyre_topo topo;
    CHECK_OK(gyre_topo_xml_parse("test", machine_xml, sizeof(machine_xml) - 1, &topo));
    const struct gyre_peer_info mine = made_up_gpu(0, "0000:12:00.0");
    struct gyre_peer_info near = made_up_gpu(1, "0000:13:00.0");
    struct gyre_peer_info far = made_up_gpu(2, "0000:83:00.0");
    struct gyre_peer_info stranger = made_up_gpu(3, "0000:99:00.0");
    struct gyre_peer_info remote = made_up_gpu(4, "0000:13:00.0");
    remote.host_hash = 1;
    gyre_peer_info_measure(&topo, &mine, &near);
    gyre_peer_info_measure(&topo, &mine, &far);
    gyre_peer_info_measure(&topo, &mine, &stranger);
    gyre_peer_info_measure(&topo, &mine, &remote);
    CHECK(near.path_level == GYRE_TOPO_PIX);
    CHECK(far.path_level == GYRE_TOPO_SYS);
    CHECK(stranger.path_level == GYRE_PEER_PATH_UNKNOWN);
    CHECK(remote.path_level == GYRE_PEER_PATH_UNKNOWN);
    CHECK(!is_ruled_out("PIX", &mine, &near));
    CHECK(!is_ruled_out("1", &mine, &near));
    CHECK(is_ruled_out("NVL", &mine, &near));
    CHECK(is_ruled_out("0", &mine, &near));
    CHECK(is_ruled_out("PHB", &mine, &far));
    CHECK(is_ruled_out("3", &mine, &far));
    CHECK(!is_ruled_out("SYS", &mine, &far));
    CHECK(!is_ruled_out("5", &mine, &far));
    CHECK(is_ruled_out("PHB", &mine, &stranger));
    CHECK(!is_ruled_out("SYS", &mine, &stranger));
    gyre_topo_fini(&topo);
}

#else

TEST_RUNS("P2P_LEVEL limits the path between GPUs", test_skip_case("built without libxml2"))

#endif
