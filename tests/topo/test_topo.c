/* SPDX-License-Identifier: Apache-2.0 */
#include "core/foundation/topo/topo.h"
#include "core/foundation/topo/topo_nvml.h"
#include "tests/support/files.h"
#include "tests/support/locale.h"

static int32_t find_net(const struct gyre_topo *in, const char *name, int port)
{
    for (int32_t i = 0; i < in->n_nodes; i++) {
        const struct gyre_topo_node *node = &in->nodes[i];
        if (node->kind == GYRE_TOPO_NET && strcmp(node->name, name) == 0 &&
            (port == 0 || node->port == port))
            return i;
    }
    return -1;
}

static struct gyre_topo topo; /* of the case */

#define PUT(text, ...)                                \
    do {                                              \
        char line_[128];                              \
        snprintf(line_, sizeof(line_), "%s\n", text); \
        test_put(line_, __VA_ARGS__);                 \
    } while (0)

static void put_symlink(const char *target, const char *link)
{
    CHECK(symlink(test_path("%s", target), test_path("%s", link)) == 0);
}

static void begin_tree(int n_numa)
{
    test_remove_files();
    for (int i = 0; i < n_numa; i++) {
        PUT(i == 0 ? "0-3" : "4-7", "devices/system/node/node%d/cpulist", i);
        PUT(i == 0 ? "0f" : "f0", "devices/system/node/node%d/cpumap", i);
    }
}

/* At devices/<path>, whose last part is its bus id. */
static void put_pci(const char *path, const char *class, const char *vendor, int numa)
{
    char link[128], target[PATH_MAX], number[16];
    const char *bus_id = strrchr(path, '/') + 1;
    PUT(class, "devices/%s/class", path);
    PUT(vendor, "devices/%s/vendor", path);
    snprintf(number, sizeof(number), "%d", numa);
    PUT(number, "devices/%s/numa_node", path);
    PUT("32.0 GT/s PCIe", "devices/%s/max_link_speed", path);
    PUT("16", "devices/%s/max_link_width", path);
    snprintf(link, sizeof(link), "bus/pci/devices/%s", bus_id);
    snprintf(target, sizeof(target), "devices/%s", path);
    put_symlink(target, link);
}

static void put_gpu(const char *path, int numa)
{
    put_pci(path, "0x030200", "0x10de", numa);
}

static void put_rdma(const char *path, const char *name, int numa)
{
    char target[PATH_MAX], link[128];
    put_pci(path, "0x020700", "0x15b3", numa);
    PUT("400 Gb/sec (4X NDR)", "class/infiniband/%s/ports/1/rate", name);
    PUT("4: ACTIVE", "class/infiniband/%s/ports/1/state", name);
    PUT("b83f:d203:0012:3456", "class/infiniband/%s/sys_image_guid", name);
    snprintf(target, sizeof(target), "devices/%s", path);
    snprintf(link, sizeof(link), "class/infiniband/%s/device", name);
    put_symlink(target, link);
}

static void detect(const char *nvml, struct gyre_topo *topo_out)
{
    const struct gyre_topo_detect_options options = {test_root(), nvml, NULL, 0};
    gyre_topo_init(topo_out);
    CHECK_OK(gyre_topo_detect(&options, topo_out));
}

static enum gyre_topo_level level(const struct gyre_topo *in, const char *a, const char *b)
{
    int32_t from = gyre_topo_find_bus_id(in, a), to = gyre_topo_find_bus_id(in, b);
    from = from >= 0 ? from : find_net(in, a, 0);
    to = to >= 0 ? to : find_net(in, b, 0);
    CHECK_MSG(from >= 0 && to >= 0, "%s %s", a, b);
    return gyre_topo_level_between(in, from, to);
}

#define CHECK_LEVEL(in, a, b, expected)                                  \
    do {                                                                 \
        CHECK_MSG(level(in, a, b) == (expected), "%s to %s is %s", a, b, \
                  gyre_topo_level_name(level(in, a, b)));                \
        CHECK_MSG(level(in, b, a) == (expected), "%s to %s is %s", b, a, \
                  gyre_topo_level_name(level(in, b, a)));                \
    } while (0)

TEST_CASE("two GPUs behind one switch are PIX")
{
    begin_tree(1);
#define SWITCH "pci0000:00/0000:00:01.0/0000:01:00.0"
    put_pci("pci0000:00/0000:00:01.0", "0x060400", "0x8086", 0);
    put_pci(SWITCH, "0x060400", "0x1000", 0);
    put_gpu(SWITCH "/0000:02:00.0/0000:03:00.0", 0);
    put_gpu(SWITCH "/0000:02:01.0/0000:04:00.0", 0);
    put_rdma(SWITCH "/0000:02:02.0/0000:05:00.0", "mlx5_0", 0);
    put_gpu(SWITCH "/0000:02:03.0/0000:06:00.0/0000:07:00.0/0000:08:00.0", 0);
    detect("", &topo);
    CHECK(gyre_topo_count(&topo, GYRE_TOPO_GPU) == 3);
    CHECK(topo.nodes[gyre_topo_find_bus_id(&topo, "03:00.0")].link_width == 16);
    CHECK_LEVEL(&topo, "03:00.0", "04:00.0", GYRE_TOPO_PIX);
    CHECK_LEVEL(&topo, "03:00.0", "mlx5_0", GYRE_TOPO_PIX);
    CHECK_LEVEL(&topo, "03:00.0", "08:00.0", GYRE_TOPO_PXB);
    CHECK_LEVEL(&topo, "03:00.0", "03:00.0", GYRE_TOPO_LOC);
    struct gyre_topo_path path;
    CHECK_OK(gyre_topo_path_find(&topo, gyre_topo_find_bus_id(&topo, "03:00.0"),
                                 gyre_topo_find_bus_id(&topo, "04:00.0"), &path));
    CHECK(path.n_hops == 2);
    /* Gen 5 x16: 32 / 8 * 16 * 128 / 130 = 63.0 GB/s, less what packets cost. */
    CHECK_MSG(path.bytes_per_ns > 50.0 && path.bytes_per_ns < 63.1, "%f", path.bytes_per_ns);
}

static void build_dgx(void)
{
    begin_tree(2);
    for (int i = 1; i <= 8; i++) {
        char path[128], name[16];
        const int numa = i > 4;
        snprintf(path, sizeof(path), "pci0000:%d0/0000:%d0:01.0", i, i);
        put_pci(path, "0x060400", "0x8086", numa);
        snprintf(path, sizeof(path), "pci0000:%d0/0000:%d0:01.0/0000:%d1:00.0", i, i, i);
        put_pci(path, "0x060400", "0x1000", numa);
        snprintf(path, sizeof(path),
                 "pci0000:%d0/0000:%d0:01.0/0000:%d1:00.0/0000:%d2:00.0/0000:%d3:00.0", i, i, i, i,
                 i);
        put_gpu(path, numa);
        snprintf(path, sizeof(path),
                 "pci0000:%d0/0000:%d0:01.0/0000:%d1:00.0/0000:%d2:01.0/0000:%d4:00.0", i, i, i, i,
                 i);
        snprintf(name, sizeof(name), "mlx5_%d", i - 1);
        put_rdma(path, name, numa);
    }
}

TEST_CASE("an NVSwitch host has NVL between GPUs and a NIC each")
{
    build_dgx();
    detect(FAKE_NVML, &topo);
    CHECK(gyre_topo_count(&topo, GYRE_TOPO_GPU) == 8);
    CHECK(gyre_topo_count(&topo, GYRE_TOPO_NVSWITCH) == 1);
    CHECK(gyre_topo_count(&topo, GYRE_TOPO_NET) == 8);
    CHECK(topo.n_links == 8);
    CHECK(topo.n_links > 0 && topo.links[0].n_lanes == 17); /* the 18th is down */
    CHECK_LEVEL(&topo, "13:00.0", "83:00.0", GYRE_TOPO_NVL);
    CHECK_LEVEL(&topo, "13:00.0", "mlx5_0", GYRE_TOPO_PIX);
    CHECK_LEVEL(&topo, "13:00.0", "mlx5_1", GYRE_TOPO_PHB);
    CHECK_LEVEL(&topo, "13:00.0", "mlx5_7", GYRE_TOPO_SYS);
    for (int i = 0; i < 8; i++) {
        char bus_id[16], name[16];
        int32_t nets[4] = {-1, -1, -1, -1};
        snprintf(bus_id, sizeof(bus_id), "%d3:00.0", i + 1);
        snprintf(name, sizeof(name), "mlx5_%d", i);
        const int32_t gpu = gyre_topo_find_bus_id(&topo, bus_id);
        CHECK(topo.nodes[gpu].arch_sm == 90);
        CHECK(gyre_topo_nearest_nets(&topo, gpu, true, 4, nets) == 1);
        CHECK(nets[0] == find_net(&topo, name, 1));
    }
}

TEST_CASE("equal machines hash equal and others do not")
{
    struct gyre_topo a, b, without_nvlink;
    build_dgx();
    detect(FAKE_NVML, &a);
    detect(FAKE_NVML, &b);
    detect("", &without_nvlink);
    for (int32_t i = 0; i < b.n_nodes; i++) { /* another machine of the same build */
        b.nodes[i].guid ^= 0x1234;
        b.nodes[i].ordinal += 3;
        snprintf(b.nodes[i].netdev, sizeof(b.nodes[i].netdev), "other%d", i);
    }
    CHECK(gyre_topo_hash(&a) == gyre_topo_hash(&b));
    CHECK(gyre_topo_hash(&a) != gyre_topo_hash(&without_nvlink));
    const int32_t net = find_net(&b, "mlx5_3", 1);
    b.nodes[net].speed_mbit_per_s = 100000;
    CHECK(gyre_topo_hash(&a) != gyre_topo_hash(&b));
    gyre_topo_fini(&a);
    gyre_topo_fini(&b);
    gyre_topo_fini(&without_nvlink);
}

TEST_CASE("a PC has its GPU and its interface at PHB")
{
    begin_tree(0);
    put_pci("pci0000:00/0000:00:02.0", "0x030000", "0x8086", -1); /* graphics of the processor */
    put_pci("pci0000:00/0000:00:01.0", "0x060400", "0x8086", -1);
    put_gpu("pci0000:00/0000:00:01.0/0000:01:00.0", -1);
    const char *path = "pci0000:00/0000:00:1c.0/0000:02:00.0";
    const char *name = "enp2s0";
    char target[PATH_MAX], link[128];
    put_pci(path, "0x020000", "0x8086", 0);
    PUT("1000", "class/net/%s/speed", name);
    snprintf(target, sizeof(target), "devices/%s", path);
    snprintf(link, sizeof(link), "class/net/%s/device", name);
    put_symlink(target, link);
    PUT("1000", "class/net/docker0/speed"); /* no device: virtual */
    detect("", &topo);
    CHECK(gyre_topo_count(&topo, GYRE_TOPO_CPU) == 1);
    CHECK(gyre_topo_count(&topo, GYRE_TOPO_GPU) == 1);
    CHECK(gyre_topo_count(&topo, GYRE_TOPO_NET) == 1);
    CHECK_LEVEL(&topo, "01:00.0", "enp2s0", GYRE_TOPO_PHB);
    int32_t net;
    const int32_t gpu = gyre_topo_next(&topo, GYRE_TOPO_GPU, 0);
    CHECK(gyre_topo_nearest_nets(&topo, gpu, true, 1, &net) == 0);
    CHECK(gyre_topo_nearest_nets(&topo, gpu, false, 1, &net) == 1);
}

/* As DGX Spark (GB10): one GPU, and one NIC that shows itself in two other PCI domains, by four
 * lanes each. GPU and NIC meet in the processor, farther apart than GPUDirect RDMA goes by default
 * (PXB), so slots lie in host memory. */
TEST_CASE("a GPU in the processor is at PHB of its NICs")
{
    static const char gpu_path[] = "pci000f:00/000f:00:00.0/000f:01:00.0";
    static const char nic_path[] = "pci0000:00/0000:00:00.0/0000:01:00.0";
    static const char other_nic_path[] = "pci0002:00/0002:00:00.0/0002:01:00.0";
    begin_tree(1);
    put_pci("pci000f:00/000f:00:00.0", "0x060400", "0x10de", 0);
    put_pci("pci0000:00/0000:00:00.0", "0x060400", "0x10de", 0);
    put_pci("pci0002:00/0002:00:00.0", "0x060400", "0x10de", 0);
    put_gpu(gpu_path, 0);
    put_rdma(nic_path, "rocep1s0f0", 0);
    put_rdma(other_nic_path, "roceP2p1s0f0", 0);
    detect("", &topo);
    CHECK(gyre_topo_count(&topo, GYRE_TOPO_GPU) == 1);
    CHECK(gyre_topo_count(&topo, GYRE_TOPO_NET) == 2);
    CHECK_LEVEL(&topo, "000f:01:00.0", "rocep1s0f0", GYRE_TOPO_PHB);
    CHECK_LEVEL(&topo, "000f:01:00.0", "roceP2p1s0f0", GYRE_TOPO_PHB);
    int32_t nets[2];
    const int32_t gpu = gyre_topo_next(&topo, GYRE_TOPO_GPU, 0);
    CHECK(gyre_topo_nearest_nets(&topo, gpu, true, 2, nets) == 2);
}

TEST_CASE("a VM with one bus spreads its GPUs over its NICs")
{
    int32_t nets[2][2] = {{-1, -1}, {-1, -1}};
    begin_tree(1);
    put_gpu("pci0000:00/0000:00:04.0", -1);
    put_gpu("pci0000:00/0000:00:05.0", -1);
    put_rdma("pci0000:00/0000:00:06.0", "mlx5_0", -1);
    put_rdma("pci0000:00/0000:00:07.0", "mlx5_1", -1);
    detect("/nonexistent/libnvml.so", &topo); /* NVML missing: sysfs answers */
    CHECK(gyre_topo_count(&topo, GYRE_TOPO_GPU) == 2);
    CHECK_LEVEL(&topo, "00:04.0", "00:05.0", GYRE_TOPO_PHB);
    CHECK(gyre_topo_nearest_nets(&topo, gyre_topo_find_bus_id(&topo, "00:04.0"), true, 2,
                                 nets[0]) == 2);
    CHECK(gyre_topo_nearest_nets(&topo, gyre_topo_find_bus_id(&topo, "00:05.0"), true, 2,
                                 nets[1]) == 2);
    CHECK(nets[0][0] == find_net(&topo, "mlx5_0", 1));
    CHECK(nets[1][0] == find_net(&topo, "mlx5_1", 1));
}

TEST_CASE("a caller's bus ids decide which GPUs and their order")
{
    const char *ids[] = {"83:00.0", "00000000:13:00.0"};
    build_dgx();
    struct gyre_topo_detect_options options = {test_root(), FAKE_NVML, ids, 2};
    CHECK_OK(gyre_topo_detect(&options, &topo));
    CHECK(gyre_topo_count(&topo, GYRE_TOPO_GPU) == 2);
    CHECK(topo.nodes[gyre_topo_find_bus_id(&topo, "83:00.0")].ordinal == 0);
    CHECK_LEVEL(&topo, "83:00.0", "13:00.0", GYRE_TOPO_NVL);
    gyre_topo_fini(&topo);
    ids[0] = "not a bus id";
    CHECK_BAD_ARGUMENT(gyre_topo_detect(&options, &topo), "not a bus id");
}

TEST_CASE("levels parse as words and legacy numbers")
{
    enum gyre_topo_level at = GYRE_TOPO_LOC;
    const struct {
        const char *text;
        enum gyre_topo_level expected;
    } good[] = {{"LOC", GYRE_TOPO_LOC}, {"nvl", GYRE_TOPO_NVL}, {"NVB", GYRE_TOPO_NVB},
                {"C2C", GYRE_TOPO_C2C}, {"PIX", GYRE_TOPO_PIX}, {"Pxb", GYRE_TOPO_PXB},
                {"P2C", GYRE_TOPO_P2C}, {"PXN", GYRE_TOPO_PXN}, {"PHB", GYRE_TOPO_PHB},
                {"SYS", GYRE_TOPO_SYS}, {"0", GYRE_TOPO_LOC},   {"1", GYRE_TOPO_PIX},
                {"2", GYRE_TOPO_PXB},   {"3", GYRE_TOPO_PHB},   {"4", GYRE_TOPO_SYS},
                {"5", GYRE_TOPO_SYS},   {"99", GYRE_TOPO_SYS}};
    for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
        CHECK_OK(gyre_topo_level_parse("X", good[i].text, &at));
        CHECK_MSG(at == good[i].expected, "%s gave %s", good[i].text, gyre_topo_level_name(at));
    }
    const char *bad[] = {"", "PIXX", "-1", "1x", " 1", "99999999999"};
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        CHECK_BAD_ARGUMENT(gyre_topo_level_parse("GYRE_P2P_LEVEL", bad[i], &at),
                           "LOC NVL NVB C2C PIX PXB P2C PXN PHB SYS");
        CHECK_HAS(gyre_cause(), "GYRE_P2P_LEVEL");
    }
}

TEST_CASE("bus ids have one form")
{
    char id[GYRE_TOPO_BUS_ID_BYTES];
    CHECK_OK(gyre_topo_bus_id_parse("00000000:1A:00.0", id));
    CHECK(strcmp(id, "0000:1a:00.0") == 0);
    CHECK_OK(gyre_topo_bus_id_parse("10000:e1:1f.7", id));
    CHECK(strcmp(id, "10000:e1:1f.7") == 0);
    const char *bad[] = {"", "18:00", "0000:18:00.8", "0000:18:20.0", "0000:18:00.0x", "-1:0:0.0"};
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        CHECK_MSG(gyre_topo_bus_id_parse(bad[i], id) == GYRE_ERROR_INVALID_ARGUMENT, "%s", bad[i]);
}

TEST_CASE("a port's interface is that of the first row that names one")
{
    begin_tree(1);
    put_rdma("pci0000:00/0000:11:00.0", "mlx5_bond_0", 0);
    put_rdma("pci0000:00/0000:12:00.0", "mlx5_1", 0);
    PUT("", "class/infiniband/mlx5_bond_0/ports/1/gid_attrs/ndevs/0"); /* an empty row */
    PUT("vlan7", "class/infiniband/mlx5_bond_0/ports/1/gid_attrs/ndevs/10");
    PUT("bond0", "class/infiniband/mlx5_bond_0/ports/1/gid_attrs/ndevs/9");
    PUT("", "class/infiniband/mlx5_1/ports/1/gid_attrs/ndevs/0");
    PUT("4: ACTIVE", "class/infiniband/mlx5_1/ports/3/state"); /* port 2 is not shown */
    PUT("eth3", "class/infiniband/mlx5_1/ports/3/gid_attrs/ndevs/1");
    detect("", &topo);
    const int32_t bond = find_net(&topo, "mlx5_bond_0", 1);
    const int32_t first = find_net(&topo, "mlx5_1", 1);
    const int32_t third = find_net(&topo, "mlx5_1", 3);
    CHECK(bond >= 0 && first >= 0 && third >= 0);
    CHECK_MSG(strcmp(topo.nodes[bond].netdev, "bond0") == 0, "%s", topo.nodes[bond].netdev);
    CHECK(topo.nodes[first].netdev[0] == '\0' && strcmp(topo.nodes[third].netdev, "eth3") == 0);
}

TEST_CASE("numbers of sysfs are read in every locale")
{
    begin_tree(1);
    put_rdma("pci0000:00/0000:11:00.0", "mlx5_0", 0);
    PUT("2.5 Gb/sec (1X SDR)", "class/infiniband/mlx5_0/ports/1/rate");
    PUT("2.5 GT/s PCIe", "devices/pci0000:00/0000:11:00.0/max_link_speed");
    (void)test_enter_locale(); /* without it, a plain test */
    detect("", &topo);
    setlocale(LC_ALL, "C");
    CHECK(topo.nodes[gyre_topo_find_bus_id(&topo, "11:00.0")].link_mt_per_s == 2500);
    CHECK(topo.nodes[find_net(&topo, "mlx5_0", 1)].speed_mbit_per_s == 2500);
}

#ifdef GYRE_WITH_LIBXML2

static gyre_status parse(const char *text, struct gyre_topo *topo_out)
{
    return gyre_topo_xml_parse("test.xml", text, strlen(text), topo_out);
}

TEST_CASE("what is written reads back equal")
{
    struct gyre_topo again = {0};
    char *first = NULL, *second = NULL;
    build_dgx();
    detect(FAKE_NVML, &topo);
    const char *path = test_path("dump.xml");
    CHECK_OK(gyre_topo_xml_write(&topo, path));
    CHECK_OK(gyre_topo_xml_read(path, &again));
    CHECK_OK(gyre_topo_xml_format(&topo, &first));
    CHECK_OK(gyre_topo_xml_format(&again, &second));
    CHECK(first != NULL && second != NULL && strcmp(first, second) == 0);
    CHECK(topo.n_nodes == again.n_nodes && topo.n_links == again.n_links);
    CHECK_LEVEL(&again, "13:00.0", "83:00.0", GYRE_TOPO_NVL);
    CHECK_LEVEL(&again, "13:00.0", "mlx5_7", GYRE_TOPO_SYS);
    free(first);
    free(second);
    gyre_topo_fini(&again);
}

TEST_CASE("a dump replaces files and nothing else")
{
    struct gyre_topo again = {0};
    struct stat there;
    build_dgx();
    detect(FAKE_NVML, &topo);
    const char *file = test_path("old.xml"), *link = test_path("link"), *pipe = test_path("pipe");
    CHECK_OK(gyre_topo_xml_write(&topo, file));
    CHECK(symlink("old.xml", link) == 0 && mkfifo(pipe, 0600) == 0);
    CHECK_BAD_ARGUMENT(gyre_topo_xml_write(&topo, pipe), "not a regular file");
    CHECK(lstat(pipe, &there) == 0 && S_ISFIFO(there.st_mode));
    CHECK(truncate(file, 0) == 0);
    CHECK_OK(gyre_topo_xml_write(&topo, link));
    CHECK(lstat(link, &there) == 0 && S_ISLNK(there.st_mode));
    CHECK_OK(gyre_topo_xml_read(file, &again));
    CHECK(unlink(link) == 0 && unlink(pipe) == 0);
    gyre_topo_fini(&again);
}

TEST_CASE("GPUs joined by bridges and package links have NVB, C2C and P2C")
{
#define GPU(bus, links)                                                            \
    "<pci busid='0000:" bus ":00.0' class='0x030200' link_speed='16.0 GT/s PCIe' " \
    "link_width='16'><gpu dev='0' sm='80' rank='0' gdr='1'>" links "</gpu></pci>"
#define NVLINK(bus) "<nvlink target='0000:" bus ":00.0' count='2' tclass='0x030200'/>"
    CHECK_OK(parse(
        "<system version='1'><cpu numaid='0'>" GPU("01", NVLINK("02") NVLINK("99"))
            GPU("02", NVLINK("01") NVLINK("03")) "</cpu><cpu numaid='1'>" GPU(
                "03", NVLINK("02") "<c2c count='1' bw='200000'/>") "<nic><net name='eth0' dev='0' "
                                                                   "speed='10000' port='1' "
                                                                   "guid='0x0'/></nic>"
                                                                   "<unknown/></cpu></system>",
        &topo));
    CHECK_LEVEL(&topo, "01:00.0", "02:00.0", GYRE_TOPO_NVL);
    CHECK_LEVEL(&topo, "01:00.0", "03:00.0", GYRE_TOPO_NVB);
    CHECK_LEVEL(&topo, "03:00.0", "eth0", GYRE_TOPO_P2C);
    CHECK_LEVEL(&topo, "01:00.0", "eth0", GYRE_TOPO_SYS);
    CHECK(gyre_topo_level_between(&topo, gyre_topo_find_bus_id(&topo, "03:00.0"),
                                  gyre_topo_find_numa(&topo, 1)) == GYRE_TOPO_C2C);
    CHECK(!topo.nodes[find_net(&topo, "eth0", 1)].is_rdma);
}

TEST_CASE("malformed XML is refused with a reason")
{
    const struct {
        const char *text, *words;
    } bad[] = {
        {"", "is empty"},
        {"<system><cpu numaid='0'>", "not well-formed"},
        {"<graph/>", "no <system>"},
        {"<system version='1'/>", "no <cpu>"},
        {"<!DOCTYPE system [<!ENTITY a SYSTEM 'file:///etc/passwd'>]>"
         "<system><cpu numaid='0'/></system>",
         "document type"},
    };
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        CHECK_BAD_ARGUMENT(parse(bad[i].text, &topo), bad[i].words);
    }
}

#define NIC_OF(bus, name)                                                               \
    "<pci busid='" bus "' class='0x020000' keep='1'><nic><net name='" name "' dev='0' " \
    "speed='100000' port='1' latency='0.0' coll='1' keep='1'/></nic></pci>"

TEST_CASE("what is not needed is skipped and counted")
{
    const struct {
        const char *inside; /* <system> */
        int n_gpus, n_nets, n_links;
        const char *skipped;
    } files[] = {
        {"<cpu numaid='0'>" NIC_OF("0:1:0.0", "a") "</cpu>", 0, 1, 0, ""},
        {"<cpu numaid='zero' arch='an architecture of 28 bytes'/>", 0, 0, 0,
         "1 attributes whose values are not understood, 1 ends of long names"},
        {"<cpu numaid='99999999999999999999'/>", 0, 0, 0, "1 attributes whose"},
        /* one NUMA node in two elements, and a device twice */
        {"<cpu numaid='0'>" NIC_OF("0:1:0.0", "a") "</cpu><cpu numaid='0'>" NIC_OF(
             "0000:02:00.0", "b") NIC_OF("00000000:01:00.0", "c") "</cpu>",
         0, 2, 0, "1 devices that stand there twice"},
        {"<cpu numaid='0'><pci busid='x'><gpu/></pci><pci><gpu/></pci></cpu>", 2, 0, 0,
         "1 attributes"},
        {"<cpu numaid='0'><nic><net dev='0'/><net name='n' speed='' guid='?'/></nic></cpu>", 0, 1,
         0, "1 network ports without a name, 1 attributes"},
        {"<cpu/><graph/><cpu numaid='1'><power/><pci busid='1:0.0'><pcilink "
         "target='x'/></pci></cpu>",
         0, 0, 0, "2 elements of unknown names"},
        /* a partitioned GPU with a NIC, and no link between its parts */
        {"<cpu><pci busid='C:1F.0' class='0X120000'><gpu dev='0' sm='94'><xgmi target='C:1F.0' "
         "count='1'/></gpu><gpu dev='1' sm='94'/><nic><net name='n'/></nic><nic><net name='m'/>"
         "</nic></pci></cpu>",
         2, 2, 0, ""},
        /* a link that is absent, one of a strange count, one to nothing, one to the other GPU */
        {"<cpu><pci busid='1:0.0'><gpu><nvlink target='2:0.0' count='0'/><nvlink target='2:0.0' "
         "count='many'/><nvlink target='3:0.0' count='1'/></gpu></pci><pci busid='2:0.0'><gpu>"
         "<nvlink target='1:0.0' count='0x2'/><hyperlink/></gpu></pci></cpu>",
         2, 0, 1,
         "1 elements of unknown names, 1 links to what is no GPU or switch in the file, 2 "
         "attributes"},
        /* a virtual machine's: functions only, told by their classes */
        {"<cpu><pci busid='ffff:ff:01.0' class='0x060400'><pci busid='0001:00:00.0' "
         "class='0x030200' link_speed='16 GT/s'/><pci busid='0101:00:00.0' class='0x020700'/><pci "
         "busid='0002:00:00.0' class='0x120000'/></pci></cpu>",
         2, 0, 0, ""},
        /* two switches of one name, as in a model of RCCL's */
        {"<cpu><pci busid='5:0.0'>" NIC_OF("6:0.0", "a") "</pci><pci busid='5:0.0'>" NIC_OF(
             "7:0.0", "b") "</pci></cpu>",
         0, 2, 0, ""},
        /* two hosts */
        {"<cpu host_hash='0x1' numaid='0'>" NIC_OF(
             "1:0.0", "a") "</cpu><cpu host_hash='0x2' "
                           "numaid='0'>" NIC_OF("1:0.0",
                                                "b") "</cpu><cpu host_hash='0x1' numaid='1'/>",
         0, 1, 0, "1 CPUs of other hosts"},
    };
    for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++) {
        struct gyre_topo again;
        char text[1024], *written = NULL;
        snprintf(text, sizeof(text), "<system version='2'>%s</system>", files[i].inside);
        CHECK_OK(parse(text, &topo));
        CHECK_MSG(strncmp(topo.skipped, files[i].skipped, strlen(files[i].skipped)) == 0 &&
                      (topo.skipped[0] == '\0') == (files[i].skipped[0] == '\0'),
                  "file %zu: skipped \"%s\"", i, topo.skipped);
        CHECK_MSG(gyre_topo_count(&topo, GYRE_TOPO_GPU) == files[i].n_gpus &&
                      gyre_topo_count(&topo, GYRE_TOPO_NET) == files[i].n_nets &&
                      topo.n_links == files[i].n_links,
                  "file %zu: %d %d %d", i, gyre_topo_count(&topo, GYRE_TOPO_GPU),
                  gyre_topo_count(&topo, GYRE_TOPO_NET), topo.n_links);
        /* It can be written and read again. */
        CHECK_OK(gyre_topo_xml_format(&topo, &written));
        CHECK_OK(parse(written, &again));
        CHECK_MSG(again.skipped[0] == '\0', "file %zu: %s\n%s", i, again.skipped, written);
        CHECK_MSG(again.n_nodes == topo.n_nodes && gyre_topo_hash(&again) == gyre_topo_hash(&topo),
                  "file %zu:\n%s", i, written);
        free(written);
        gyre_topo_fini(&topo);
        gyre_topo_fini(&again);
    }
}

TEST_CASE("parts of a GPU are the same device, and xGMI has its own rate")
{
    CHECK_OK(
        parse("<system version='2'><cpu><pci busid='c:0.0'><gpu dev='0' gcn='gfx942'><xgmi "
              "target='d:0.0' count='2'/></gpu><gpu dev='1' sm='94'/></pci><pci busid='d:0.0'>"
              "<gpu dev='2' gcn='910'><xgmi target='c:0.0' count='1'/></gpu></pci></cpu></system>",
              &topo));
    const int32_t part = gyre_topo_find_bus_id(&topo, "c:0.0");
    CHECK(gyre_topo_level_between(&topo, part, part + 1) == GYRE_TOPO_LOC);
    CHECK_LEVEL(&topo, "c:0.0", "d:0.0", GYRE_TOPO_NVL);
    CHECK(topo.links[0].bytes_per_ns == 2 * 48 && topo.links[1].bytes_per_ns == 36);
}

TEST_CASE("XML of any encoding is read")
{
    static const char ascii[] = "<system>\r\n<cpu numaid='0' vendor='v'/>\r\n</system>\r\n";
    char utf16[2 * sizeof(ascii)] = "\xff\xfe", text[256];
    for (size_t i = 0; i + 1 < sizeof(ascii); i++)
        utf16[2 + 2 * i] = ascii[i];
    CHECK_OK(gyre_topo_xml_parse("utf16.xml", utf16, sizeof(utf16), &topo));
    CHECK(strcmp(topo.nodes[0].vendor, "v") == 0);
    gyre_topo_fini(&topo);
    snprintf(text, sizeof(text), "\xef\xbb\xbf<!DOCTYPE system SYSTEM 'x.dtd'>%s", ascii);
    CHECK_OK(parse(text, &topo));
    gyre_topo_fini(&topo);
    /* Latin-1, and a name cut between characters: 62 of one byte, then 2 of two. */
    snprintf(
        text, sizeof(text),
        "<?xml version='1.0' encoding='ISO-8859-1'?><system><cpu><nic><net name='%062d\xe9\xe9'/>"
        "</nic></cpu></system>",
        0);
    CHECK_OK(parse(text, &topo));
    CHECK(strlen(topo.nodes[2].name) == 62 && strstr(topo.skipped, "1 ends of long names") != NULL);
}

TEST_CASE("huge XML is refused")
{
    const size_t n_bytes = (4u << 20) + 1;
    char *text = malloc(n_bytes);
    memset(text, ' ', n_bytes);
    CHECK_BAD_ARGUMENT(gyre_topo_xml_parse("big.xml", text, n_bytes, &topo), "larger than");
    size_t used = (size_t)sprintf(text, "<system><cpu numaid='0'>");
    for (int i = 0; i < 5000; i++)
        used += (size_t)sprintf(text + used, "<nic/>");
    used += (size_t)sprintf(text + used, "</cpu></system>");
    CHECK_BAD_ARGUMENT(gyre_topo_xml_parse("many.xml", text, used, &topo), "more than 1024 nodes");
    used = (size_t)sprintf(text, "<system><cpu numaid='0'>");
    for (int i = 0; i < 40; i++)
        used += (size_t)sprintf(text + used, "<pci busid='0:%x:0.0'>", i);
    used += (size_t)sprintf(text + used, "<pci busid='0:99:0.0'><nic><net name='n'/></nic></pci>");
    for (int i = 0; i < 40; i++)
        used += (size_t)sprintf(text + used, "</pci>");
    used += (size_t)sprintf(text + used, "</cpu></system>");
    CHECK_OK(gyre_topo_xml_parse("deep.xml", text, used, &topo));
    CHECK_HAS(topo.skipped, "switches that nest too deeply");
    CHECK(gyre_topo_count(&topo, GYRE_TOPO_NET) == 1);
    gyre_topo_fini(&topo);
    free(text);
}

TEST_CASE("damaged XML never breaks the reader")
{
    char *text = NULL;
    uint64_t state = 42; /* fixed: the same 2000 files in every run */
    int n_refused = 0;
    build_dgx();
    detect(FAKE_NVML, &topo);
    CHECK_OK(gyre_topo_xml_format(&topo, &text));
    gyre_topo_fini(&topo);
    const size_t n_bytes = strlen(text);
    for (int i = 0; i < 2000; i++) {
        char *damaged = strdup(text);
        for (int j = 0; j < 3; j++) {
            state = state * 6364136223846793005u + 1442695040888963407u;
            damaged[(state >> 20) % n_bytes] = (char)(state >> 56);
        }
        if (gyre_topo_xml_parse("damaged", damaged, n_bytes, &topo) == GYRE_SUCCESS)
            gyre_topo_fini(&topo);
        else
            n_refused++;
        free(damaged);
    }
    CHECK_MSG(n_refused > 100 && n_refused < 2000, "%d", n_refused);
    free(text);
}

#else

TEST_RUNS("without libxml2 reading names the fix",
          CHECK_FAILS(gyre_topo_xml_read("x", &topo), GYRE_ERROR_UNSUPPORTED, "libxml2-dev"))

#endif

TEST_CASE("clocks are those of the GPU that was asked for")
{
    struct gyre_nvml_clocks *clocks = NULL;
    unsigned sm_mhz = 0, memory_mhz = 0;
    CHECK_OK(gyre_nvml_clocks_open(FAKE_NVML, "0000:33:00.0", &clocks));
    CHECK_OK(gyre_nvml_clocks_read(clocks, &sm_mhz, &memory_mhz));
    CHECK_MSG(sm_mhz == 1003 && memory_mhz == 2003, "%u and %u", sm_mhz, memory_mhz);
    gyre_nvml_clocks_close(clocks);
    CHECK_FAILS(gyre_nvml_clocks_open(FAKE_NVML, "0000:99:00.0", &clocks), GYRE_ERROR_DEVICE,
                "0000:99:00.0");
    CHECK_FAILS(gyre_nvml_clocks_open("/nonexistent/libnvml.so", "0000:33:00.0", &clocks),
                GYRE_ERROR_UNSUPPORTED, "no NVML");
    gyre_nvml_clocks_close(NULL);
}
