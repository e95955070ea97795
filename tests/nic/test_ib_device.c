/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/check.h"
#include "tests/nic/verbs_memory.h"
#include "transport/ib/ib_device.h"

static bool takes(const char *text, const char *name, int port)
{
    struct gyre_ib_hca_rule rule;
    const char *widened;
    CHECK_OK(gyre_ib_hca_parse(text, &rule));
    return gyre_ib_hca_takes(&rule, name, port, &widened);
}

static const char *widened_by(const char *text, const char *name)
{
    static struct gyre_ib_hca_rule rule;
    const char *widened;
    CHECK_OK(gyre_ib_hca_parse(text, &rule));
    gyre_ib_hca_takes(&rule, name, 1, &widened);
    return widened;
}

TEST_CASE("names are prefixes unless exact")
{
    CHECK(takes("", "mlx5_0", 1));
    CHECK(takes("mlx5", "mlx5_3", 1) && !takes("mlx5", "rxe0", 1));
    CHECK(takes("mlx5_1", "mlx5_1", 1) && takes("mlx5_1", "mlx5_10", 1));
    CHECK(takes("=mlx5_1", "mlx5_1", 1) && !takes("=mlx5_1", "mlx5_10", 1));
    CHECK(takes("=mlx5_1,mlx5_10", "mlx5_10", 1));
    CHECK(!takes("^mlx5_1", "mlx5_1", 1) && takes("^mlx5_1", "mlx5_2", 1));
    static const char *const alike[] = {"mlx5_0,rxe0",   "mlx5_0, rxe0", "mlx5_0 ,rxe0",
                                        " mlx5_0,rxe0 ", "mlx5_0,,rxe0", ",mlx5_0,rxe0,"};
    for (size_t i = 0; i < sizeof(alike) / sizeof(alike[0]); i++)
        CHECK_MSG(takes(alike[i], "mlx5_0", 1) && takes(alike[i], "rxe0", 1) &&
                      !takes(alike[i], "mlx4_0", 1),
                  "%s", alike[i]);
    CHECK(!takes(" ^ mlx5_0", "mlx5_0", 1) && takes("^ mlx5_0", "rxe0", 1));
    CHECK(!takes("^mlx5_1", "mlx5_10", 1) && takes("^=mlx5_1", "mlx5_10", 1));
}

TEST_CASE("ports are part of the rule")
{
    CHECK(takes("mlx5_0:1", "mlx5_0", 1) && !takes("mlx5_0:1", "mlx5_0", 2));
    CHECK(takes("mlx5_0:", "mlx5_0", 2));
    CHECK(takes("mlx5_0:1,mlx5_0:2", "mlx5_0", 2));
    CHECK(!takes("^mlx5_0:2", "mlx5_0", 2) && takes("^mlx5_0:2", "mlx5_0", 1));
}

TEST_CASE("a prefix that catches more than it names is noticed")
{
    CHECK(widened_by("mlx5_1", "mlx5_10") != NULL);
    CHECK(strcmp(widened_by("mlx5_1", "mlx5_10"), "mlx5_1") == 0);
    CHECK(widened_by("mlx5_1", "mlx5_1") == NULL);
    CHECK(widened_by("mlx5", "mlx5_10") == NULL);
    CHECK(widened_by("=mlx5_1", "mlx5_1") == NULL);
    CHECK(widened_by("mlx5_1,mlx5_10", "mlx5_10") == NULL);
}

TEST_CASE("what does not parse is refused")
{
    static const char *const wrong[] = {"^",          "=",           "^,",
                                        "=^mlx5_0",   "mlx5_0:zero", "mlx5_0:0",
                                        "mlx5_0:1:2", "mlx5_0:256",  "^^mlx5_0"};
    struct gyre_ib_hca_rule rule;
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++)
        CHECK_MSG(gyre_ib_hca_parse(wrong[i], &rule) == GYRE_ERROR_INVALID_ARGUMENT, "%s",
                  wrong[i]);
}

#define GOOD_PORT                                                                                 \
    {                                                                                             \
        .state = IBV_PORT_ACTIVE, .active_mtu = IBV_MTU_1024, .max_msg_bytes = 8 << 20, .gids = { \
            {"10.0.0.1", 2}                                                                       \
        }                                                                                         \
    }

static const struct vm_device two_devices[] = {
    {.name = "mlx5_1", .n_ports = 2, .ports = {GOOD_PORT, {.state = IBV_PORT_DOWN}}},
    {.name = "mlx5_0", .n_ports = 1, .ports = {{.state = IBV_PORT_ACTIVE, .is_infiniband = true}}},
    {.name = NULL},
};

static void scan(char *variable, const char *expected)
{
    char *environment[] = {variable, NULL};
    struct gyre_params params;
    struct gyre_ib_scan found;
    char words[256];
    CHECK(vm_install(two_devices));
    CHECK_OK(gyre_params_from(environment, &params));
    const gyre_status status = gyre_ib_scan_open(&params, &found);
    const char *text =
        status == GYRE_SUCCESS ? gyre_ib_scan_to_text(&found, words, sizeof(words)) : gyre_cause();
    CHECK_MSG(strcmp(text, expected) == 0, "%s: \"%s\"", variable, text);
    if (status == GYRE_SUCCESS)
        gyre_ib_scan_close(&found);
    CHECK(vm_uninstall());
}

TEST_CASE("active ports are listed in one order everywhere")
{
    scan("GYRE_IB_HCA=mlx5", "[0]mlx5_0:1/IB [1]mlx5_1:1/RoCE");
    scan("GYRE_IB_HCA=^mlx5_0", "[0]mlx5_1:1/RoCE");
    scan("NCCL_IB_HCA==mlx5_0:1", "[0]mlx5_0:1/IB");
}

TEST_RUNS("why no port is left is said of each",
          scan("GYRE_IB_HCA=mlx5_1:2",
               "no usable RDMA port: mlx5_1:1 is left out by GYRE_IB_HCA, mlx5_1:2 is "
               "not active, mlx5_0:1 is left out by GYRE_IB_HCA"))

TEST_CASE("distances follow the PCI tree")
{
    const char *gpu = "/sys/devices/pci0000:17/0000:17:01.0/0000:18:00.0/0000:19:00.0/0000:1a:00.0";
    CHECK(gyre_ib_distance("", -1, gpu, 0) == GYRE_IB_DISTANCE_LOC);
    /* two ports of one switch */
    CHECK(gyre_ib_distance(
              gpu, 0, "/sys/devices/pci0000:17/0000:17:01.0/0000:18:00.0/0000:19:01.0/0000:1b:00.0",
              0) == GYRE_IB_DISTANCE_PIX);
    /* a device and the bridge above it */
    CHECK(gyre_ib_distance("/sys/devices/pci0000:17/0000:17:01.0", 0,
                           "/sys/devices/pci0000:17/0000:17:01.0/0000:18:00.0",
                           0) == GYRE_IB_DISTANCE_PIX);
    /* behind a further switch */
    CHECK(gyre_ib_distance(gpu, 0,
                           "/sys/devices/pci0000:17/0000:17:01.0/0000:18:00.0/0000:19:01.0/"
                           "0000:1b:00.0/0000:1c:00.0/0000:1d:00.0",
                           0) == GYRE_IB_DISTANCE_PXB);
    /* another root port of the same bridge, another bridge of the same node, another node */
    CHECK(gyre_ib_distance(gpu, 0, "/sys/devices/pci0000:17/0000:17:02.0/0000:20:00.0", 0) ==
          GYRE_IB_DISTANCE_PHB);
    CHECK(gyre_ib_distance(gpu, 0, "/sys/devices/pci0000:3a/0000:3a:02.0/0000:3b:00.0", 0) ==
          GYRE_IB_DISTANCE_PHB);
    /* a GPU of the processor itself: another PCI domain (as in DGX Spark) */
    CHECK(gyre_ib_distance("/sys/devices/pci000f:00/000f:00:00.0/000f:01:00.0", 0,
                           "/sys/devices/pci0000:00/0000:00:00.0/0000:01:00.0",
                           0) == GYRE_IB_DISTANCE_PHB);
    CHECK(gyre_ib_distance(gpu, 0, "/sys/devices/pci0000:ae/0000:ae:02.0/0000:af:00.0", 1) ==
          GYRE_IB_DISTANCE_SYS);
}

TEST_CASE("distances have names and legacy numbers")
{
    enum gyre_ib_distance distance;
    CHECK_OK(gyre_ib_parse_distance("pxb", &distance));
    CHECK(distance == GYRE_IB_DISTANCE_PXB);
    CHECK_OK(gyre_ib_parse_distance("4", &distance));
    CHECK(distance == GYRE_IB_DISTANCE_SYS);
    CHECK_OK(gyre_ib_parse_distance("0", &distance));
    CHECK(distance == GYRE_IB_DISTANCE_LOC);
    CHECK_BAD_ARGUMENT(gyre_ib_parse_distance("6", &distance), "\"6\": legal are LOC");
    CHECK_BAD_ARGUMENT(gyre_ib_parse_distance("NEAR", &distance), "NEAR");
}
