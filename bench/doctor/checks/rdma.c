/* SPDX-License-Identifier: Apache-2.0
 *
 * Ports of RDMA adapters. The library's own rules choose among each RoCE port's GIDs.
 */
#include "bench/doctor/doctor.h"

#include "core/foundation/base/text.h"

#include <inttypes.h>
#include <string.h>

#define VENDOR_MELLANOX   0x15b3
#define LIBRARY_MAX_PORTS 256 /* as GYRE_IB_MAX_PORTS */
/* Room for RoCE's 4096 bytes and headers. The kernel takes the largest power of two that fits
 * (rdma/ib_addr.h, iboe_get_mtu). */
#define NETDEV_MTU_OF_4096 4200

void bench_check_rdma_devices(struct bench_doctor *doctor)
{
    const struct bench_machine *machine = &doctor->machine;
    int n_mellanox = 0;
    for (int i = 0; i < machine->n_pci; i++)
        n_mellanox +=
            machine->pci[i].vendor == VENDOR_MELLANOX && machine->pci[i].class >> 16 == 0x02;
    for (int i = 0; i < machine->n_ports; i++) {
        const struct bench_rdma_port *port = &machine->ports[i];
        if (port->is_soft && port->why_unused[0] != '\0')
            bench_ok(doctor, port->name, "a software device, which no job uses: %s",
                     port->why_unused);
        else if (port->is_soft)
            bench_warn(
                doctor, port->name, "do not measure with it: GYRE_IB_HCA=^DEVICE leaves it out",
                "/sys/class/infiniband/%s: a software device; it is for tests and slower than TCP",
                port->device);
        else
            bench_ok(doctor, port->name, "%s, %s, %s, firmware %s, PCI %s", port->layer, port->rate,
                     port->netdev[0] == '\0' ? "no netdev" : port->netdev,
                     port->firmware[0] == '\0' ? "unknown" : port->firmware, port->bus_id);
    }
    if (machine->n_rdma_devices > 0 && machine->n_ports == 0)
        bench_say_unreadable(doctor, NULL, "/sys/class/infiniband/*/ports", BENCH_READ_ABSENT);
    else if (machine->n_rdma_devices == 0 && n_mellanox > 0)
        bench_warn(doctor, NULL, "modprobe mlx5_ib; apt install rdma-core",
                   "%d network functions of NVIDIA (Mellanox) are on PCI, but "
                   "/sys/class/infiniband is empty: the RDMA driver is not loaded, and TCP is used",
                   n_mellanox);
    else if (machine->n_rdma_devices == 0)
        bench_skip(doctor, "no RDMA device in /sys/class/infiniband");
}

void bench_check_rdma_device_files(struct bench_doctor *doctor)
{
    static const char fix[] = "modprobe ib_uverbs; containers: docker run --device /dev/infiniband "
                              "--cap-add IPC_LOCK --network host";
    char(*names)[BENCH_NAME_BYTES];
    int n_good = 0;
    const int n = bench_read_names("/sys/class/infiniband_verbs", &names);
    for (int i = 0; i < n; i++) {
        if (strncmp(names[i], "uverbs", 6) != 0)
            continue;
        const char *path = bench_text("/dev/infiniband/%s", names[i]);
        const bool exists = bench_exists(path);
        if (exists && bench_can_open(path))
            n_good++;
        else
            bench_fail(
                doctor, names[i],
                exists ? "chmod 666 /dev/infiniband/uverbs*, or put the user into the group rdma"
                       : fix,
                "%s: %s; gyre falls back to TCP", path,
                exists ? "no permission to open it" : "there is no such file");
    }
    if (n == 0)
        bench_fail(doctor, NULL, fix,
                   "/sys/class/infiniband_verbs is empty: programs cannot open the RDMA devices");
    else if (!bench_said(doctor))
        bench_ok(doctor, NULL, "/dev/infiniband: %d devices can be opened", n_good);
}

void bench_check_rdma_ports(struct bench_doctor *doctor)
{
    const struct bench_machine *machine = &doctor->machine;
    char unused[1024] = "";
    int n_active = 0, n_unused = machine->n_ports - machine->n_used_ports;
    for (int i = 0; i < machine->n_ports; i++)
        n_active += machine->ports[i].is_active && machine->ports[i].why_unused[0] == '\0';
    for (int i = 0; i < machine->n_ports; i++) {
        const struct bench_rdma_port *port = &machine->ports[i];
        const char *path = bench_rdma_path(port, "state");
        if (port->state[0] < '1' || port->state[0] > '5' || port->state[1] != ':')
            bench_say_unreadable(doctor, port->name, path, BENCH_READ_BROKEN);
        else if (port->why_unused[0] != '\0')
            gyre_text_append(unused, sizeof(unused), "%s%s (%s)", unused[0] == '\0' ? "" : ", ",
                             port->name, port->why_unused);
        else if (port->is_active)
            bench_ok(doctor, port->name, "%s: %s", path, port->state);
        else
            bench_say(doctor, n_active == 0 ? BENCH_FAIL : BENCH_WARN, port->name,
                      port->is_roce ? "ip link set dev NETDEV up; look at cable and switch port: "
                                      "ethtool NETDEV, mlxlink -d DEVICE"
                      : strstr(port->physical, "LinkUp") != NULL
                          ? "start a subnet manager: systemctl start opensm on one host, or the "
                            "switch's own"
                          : "look at the cable and the switch port: ibstat, iblinkinfo",
                      "%s: %s (%s)%s", path, port->state, port->physical,
                      n_active == 0 ? "; no port is active, so RDMA is not used" : "");
    }
    if (unused[0] != '\0')
        bench_ok(doctor, NULL, "ports that no job uses, %d of %d: %s", n_unused, machine->n_ports,
                 unused);
}

void bench_check_rdma_hca(struct bench_doctor *doctor)
{
    const struct bench_machine *machine = &doctor->machine;
    struct gyre_ib_hca_rule rule;
    const char *text = gyre_param_text(&doctor->params, GYRE_PARAM_IB_HCA);
    const char *source = gyre_param_source(&doctor->params, GYRE_PARAM_IB_HCA);
    const char *off = bench_rdma_off(&doctor->params);
    char taken[512] = "", all[512] = "";
    int n_taken = 0;
    if (off != NULL) {
        bench_skip(doctor, "%s: no RDMA port is used", off);
        return;
    }
    if (gyre_ib_hca_parse(text, &rule) != GYRE_SUCCESS) {
        bench_fail(doctor, NULL, "unset the variable, or write [^][=]name[:port],...", "%s: %s",
                   source, gyre_cause());
        return;
    }
    for (int i = 0; i < machine->n_ports; i++) {
        const struct bench_rdma_port *port = &machine->ports[i];
        const char *widened = NULL;
        const bool takes = gyre_ib_hca_takes(&rule, port->device, port->port, &widened);
        gyre_text_append(all, sizeof(all), " %s", port->name);
        if (takes && port->is_active) {
            gyre_text_append(taken, sizeof(taken), " %s", port->name);
            n_taken++;
        }
        if (takes && widened != NULL)
            bench_warn(doctor, port->name, "write = in front of the list for whole names",
                       "%s=%s also takes %s, because %s is the beginning of its name", source, text,
                       port->name, widened);
    }
    if (n_taken > LIBRARY_MAX_PORTS)
        bench_warn(doctor, NULL, "name the ports to use in GYRE_IB_HCA",
                   "%d ports are active, and gyre takes %d of them", n_taken, LIBRARY_MAX_PORTS);
    if (text[0] == '\0')
        bench_ok(doctor, NULL, "GYRE_IB_HCA is unset: every active port is used:%s",
                 taken[0] == '\0' ? " none" : taken);
    else if (taken[0] == '\0' && rule.is_inverted)
        bench_ok(doctor, NULL,
                 "%s=%s leaves out all active ports, so RDMA is not used; the ports are:%s", source,
                 text, all);
    else if (taken[0] == '\0')
        bench_fail(doctor, NULL, "unset the variable, or name a port of the list",
                   "%s=%s takes no active port; the ports are:%s", source, text, all);
    else
        bench_ok(doctor, NULL, "%s=%s takes%s, of%s", source, text, taken, all);
}

void bench_check_rdma_rate(struct bench_doctor *doctor, const struct bench_rdma_port *port)
{
    const char *path = bench_rdma_path(port, "rate");
    double most = 0;
    BENCH_EACH_PORT(doctor, other)
    most = other->is_active && other->gbit_per_s > most ? other->gbit_per_s : most;
    if (!port->is_active)
        return;
    if (port->gbit_per_s <= 0)
        bench_say_unreadable(doctor, port->name, path, BENCH_READ_BROKEN);
    else if (!port->is_roce && port->width > 0 && port->width < 4)
        bench_warn(doctor, port->name, "seat the cable again, replace it; then mlxlink -d DEVICE",
                   "%s: %s: %d of 4 lanes work", path, port->rate, port->width);
    else if (port->gbit_per_s < most)
        bench_warn(
            doctor, port->name,
            bench_text("look at the cable, the switch port and the firmware's setting of the port; "
                       "if the port is meant for storage, leave it out: GYRE_IB_HCA=^%s",
                       port->name),
            "%s: %s, but other ports of this host have %.4g Gbit/s: rings over all NICs wait for "
            "the slowest",
            path, port->rate, most);
    else
        bench_ok(doctor, port->name, "%s: %s", path, port->rate);
}

void bench_check_rdma_mtu(struct bench_doctor *doctor, const struct bench_rdma_port *port)
{
    const struct bench_netdev *device = bench_net_find(&doctor->machine, port->netdev);
    const int64_t mtu = device == NULL ? 0 : device->mtu;
    if (!port->is_roce || !port->is_active)
        return;
    if (mtu == 0)
        bench_unknown(doctor, port->name, NULL,
                      "/sys/class/net/%s/mtu cannot be read, so RoCE's packet size is not known",
                      port->netdev[0] == '\0' ? "?" : port->netdev);
    else if (mtu < NETDEV_MTU_OF_4096)
        bench_warn(doctor, port->name,
                   "ip link set dev NETDEV mtu 9000, likewise on every host and switch port of "
                   "this network",
                   "/sys/class/net/%s/mtu: %" PRId64
                   ": RoCE sends packets of %d bytes instead of 4096",
                   port->netdev, mtu,
                   mtu >= 2100   ? 2048
                   : mtu >= 1100 ? 1024
                                 : 512);
    else
        bench_ok(doctor, port->name,
                 "/sys/class/net/%s/mtu: %" PRId64 ": room for packets of 4096 bytes", port->netdev,
                 mtu);
}

void bench_check_rdma_firmware(struct bench_doctor *doctor)
{
    const char *versions = doctor->facts[BENCH_FACT_OF(firmware)];
    BENCH_EACH_PORT(doctor, port)
    {
        bool is_named = port->is_soft;
        if (!port->is_soft && port->firmware[0] == '\0')
            bench_say_unreadable(doctor, port->name, "/sys/class/infiniband/*/fw_ver",
                                 BENCH_READ_BROKEN);
        BENCH_EACH_PORT(doctor, other)
        if (other < port && !is_named && !other->is_soft &&
            strcmp(port->board, other->board) == 0 &&
            strcmp(port->firmware, other->firmware) != 0) {
            is_named = true;
            bench_warn(
                doctor, port->name, "mlxfwmanager --online -u -d BUS_ID, then reboot",
                "/sys/class/infiniband/*/fw_ver: %s has %s, but %s, the same board (%s), has %s",
                port->name, port->firmware, other->name, port->board, other->firmware);
        }
    }
    if (bench_said(doctor))
        return;
    if (versions[0] == '\0')
        bench_skip(doctor, "no RDMA device with firmware");
    else
        bench_ok(doctor, NULL, "/sys/class/infiniband/*/fw_ver: %s", versions);
}

void bench_check_rdma_pcie(struct bench_doctor *doctor, const struct bench_rdma_port *port)
{
    struct bench_pci_link link;
    const enum bench_read result =
        port->bus_id[0] == '\0' ? BENCH_READ_ABSENT : bench_pci_read_link(port->bus_id, &link);
    if (result == BENCH_READ_ABSENT)
        return; /* virtual functions have no link */
    if (result != BENCH_READ_OK) {
        bench_say_unreadable(doctor, port->name, "its PCI link (current_link_speed, ...)", result);
        return;
    }
    const double gbit_per_s = bench_pci_gbit_per_s(link.width, link.gt_per_s);
    if (link.width < link.most_width || link.gt_per_s < link.most_gt_per_s)
        bench_warn(
            doctor, port->name,
            "seat the adapter in a slot with all lanes; look at the slot's setting in the "
            "firmware: lspci -vv -s BUS_ID | grep LnkSta",
            "/sys/bus/pci/devices/%s: x%d at %.4g GT/s, could be x%d at %.4g: %.4g of %.4g Gbit/s",
            port->bus_id, link.width, link.gt_per_s, link.most_width, link.most_gt_per_s,
            gbit_per_s, port->gbit_per_s);
    else if (gbit_per_s < port->gbit_per_s)
        bench_warn(doctor, port->name,
                   "nothing can be set; a slot of a newer generation, or with more lanes, could "
                   "carry the port's rate",
                   "/sys/bus/pci/devices/%s: x%d at %.4g GT/s carries %.4g Gbit/s, less than the "
                   "port's %.4g",
                   port->bus_id, link.width, link.gt_per_s, gbit_per_s, port->gbit_per_s);
    else
        bench_ok(doctor, port->name, "/sys/bus/pci/devices/%s: x%d at %.4g GT/s", port->bus_id,
                 link.width, link.gt_per_s);
}

struct table {
    struct gyre_ib_gid_row *rows;
    char (*reasons)[GYRE_IB_GID_REASON_BYTES];
    int n;      /* -1 = a row is unreadable */
    int chosen; /* -1 = none */
    struct gyre_ib_gid_rules rules;
    gyre_status status; /* of the choice, with gyre_cause() */
};

static const char *type_name(const struct gyre_ib_gid_row *row)
{
    return row->type == GYRE_IB_GID_ROCE_V2   ? "RoCE v2"
           : row->type == GYRE_IB_GID_ROCE_V1 ? "RoCE v1"
                                              : "type not readable";
}

static struct table read_table(const struct bench_doctor *doctor,
                               const struct bench_rdma_port *port)
{
    struct table table = {.chosen = -1, .rules = {.forced_index = -1}};
    table.n = bench_rdma_gids(&doctor->machine, port, &table.rows);
    if (table.n < 0)
        return table;
    table.reasons = bench_keep((size_t)table.n, sizeof(*table.reasons));
    table.status = gyre_ib_gid_rules_from(&doctor->params, port->device, &table.rules);
    if (table.status == GYRE_SUCCESS)
        table.status =
            gyre_ib_gid_choose(table.rows, table.n, &table.rules, &table.chosen, table.reasons);
    return table;
}

void bench_fact_of_gids(const struct bench_doctor *doctor, char *text, size_t text_bytes)
{
    BENCH_EACH_PORT(doctor, port)
    {
        if (!port->is_roce || !port->is_active)
            continue;
        const struct table table = read_table(doctor, port);
        if (table.n >= 0 && table.status == GYRE_SUCCESS) {
            const struct gyre_ib_gid_row *row = &table.rows[table.chosen];
            const enum gyre_ib_gid_class class = gyre_ib_gid_classify(row->raw);
            gyre_text_append(text, text_bytes, "%s%s %s %s", text[0] == '\0' ? "" : ", ",
                             port->name, type_name(row),
                             class == GYRE_IB_GID_IPV4         ? "IPv4"
                             : class == GYRE_IB_GID_LINK_LOCAL ? "link-local"
                                                               : "IPv6");
        }
    }
}

void bench_check_rdma_gid(struct bench_doctor *doctor, const struct bench_rdma_port *port)
{
    static const char fix[] = "give the interface an IPv4 address: ip addr add A.B.C.D/24 dev "
                              "NETDEV; for RoCE v2: cma_roce_mode -d DEVICE -m 2";
    char rows[1200];
    if (!port->is_roce || !port->is_active)
        return;
    const struct table table = read_table(doctor, port);
    rows[0] = '\0';
    for (int i = 0; i < table.n; i++) {
        char address[48], verdict[GYRE_IB_GID_REASON_BYTES];
        const struct gyre_ib_gid_row *row = &table.rows[i];
        snprintf(verdict, sizeof(verdict), "%s", i == table.chosen ? "used" : table.reasons[i]);
        if (verdict[0] == '\0' && table.chosen >= 0)
            snprintf(verdict, sizeof(verdict), "would do, but row %u is %s",
                     table.rows[table.chosen].index,
                     table.rules.forced_index >= 0 ? "forced" : "better");
        gyre_text_append(rows, sizeof(rows), "\n[%u] %s, %s%s%s: %s", row->index,
                         gyre_ib_gid_to_text(row->raw, address, sizeof(address)), type_name(row),
                         row->netdev[0] != '\0' ? ", " : "", row->netdev, verdict);
    }
    struct gyre_ib_gid_rules free_rules = table.rules;
    const char *source = gyre_param_source(&doctor->params, GYRE_PARAM_IB_GID_INDEX);
    const char *reason = table.chosen >= 0 ? table.reasons[table.chosen] : "";
    int best = -1; /* without a forced row */
    free_rules.forced_index = -1;
    const bool has_best =
        table.rules.forced_index >= 0 && table.chosen >= 0 &&
        gyre_ib_gid_choose(table.rows, table.n, &free_rules, &best, NULL) == GYRE_SUCCESS;
    if (table.n < 0)
        bench_say_unreadable(doctor, port->name, bench_rdma_path(port, "gids/*"),
                             BENCH_READ_BROKEN);
    else if (table.status != GYRE_SUCCESS)
        bench_fail(doctor, port->name,
                   table.rules.forced_index >= 0
                       ? "unset GYRE_IB_GID_INDEX and NCCL_IB_GID_INDEX: the rules choose"
                       : fix,
                   "%.300s%s", gyre_cause(), rows);
    else if (table.rules.forced_index >= 0 && reason[0] == '\0' && has_best && best == table.chosen)
        bench_ok(doctor, port->name,
                 "%s=%d, which the rules choose too; the index may move after a link failure%s",
                 source, table.rules.forced_index, rows);
    else if (table.rules.forced_index >= 0)
        bench_say(
            doctor, reason[0] != '\0' ? BENCH_FAIL : BENCH_WARN, port->name,
            bench_text("unset %s: the rules choose%s", source, has_best ? " a row that works" : ""),
            "%s=%d forces a row that the rules would not use: %s%s", source,
            table.rules.forced_index, reason[0] != '\0' ? reason : "another one is better", rows);
    else if (gyre_ib_gid_classify(table.rows[table.chosen].raw) == GYRE_IB_GID_LINK_LOCAL)
        bench_warn(doctor, port->name, fix,
                   "only a link-local address can be used, which works within one switched network "
                   "at best%s",
                   rows);
    else
        bench_ok(doctor, port->name, "row %u is used%s", table.rows[table.chosen].index, rows);
}

void bench_check_rdma_peermem(struct bench_doctor *doctor)
{
    char *version = NULL;
    const char *level = gyre_param_text(&doctor->params, GYRE_PARAM_NET_GDR_LEVEL);
    if (gyre_text_same(level, "LOC") || strcmp(level, "0") == 0) {
        bench_skip(doctor, "%s=%s: no adapter is to reach GPU memory",
                   gyre_param_source(&doctor->params, GYRE_PARAM_NET_GDR_LEVEL), level);
        return;
    }
    const enum bench_read result = bench_read_all(BENCH_DRIVER_PATH, &version);
    const bool is_open = version != NULL && strstr(version, "Open Kernel Module") != NULL;
    if (bench_exists("/sys/module/nvidia_peermem") ||
        bench_exists("/sys/kernel/mm/memory_peers/nv_mem"))
        bench_ok(doctor, NULL,
                 "/sys/module/nvidia_peermem: loaded%s; gyre proves it by a trial registration",
                 is_open ? ", and the open driver offers dma-buf" : "");
    else if (is_open)
        bench_ok(doctor, NULL,
                 "/proc/driver/nvidia/version: the open driver, which offers dma-buf; "
                 "nvidia_peermem is not needed");
    else if (result != BENCH_READ_OK)
        bench_say_unreadable(doctor, NULL, BENCH_DRIVER_PATH, result);
    else
        bench_warn(doctor, NULL,
                   "modprobe nvidia-peermem (echo nvidia-peermem > "
                   "/etc/modules-load.d/nvidia-peermem.conf), or install the open driver",
                   "neither /sys/module/nvidia_peermem nor the open NVIDIA driver: NICs cannot "
                   "reach GPU memory, and every byte goes through host memory");
}

/* Ports that only a topology file shows count as used. */
static bool is_used(const struct bench_machine *machine, const struct gyre_topo_node *net)
{
    for (int i = 0; i < machine->n_ports; i++)
        if (strcmp(machine->ports[i].device, net->name) == 0 && machine->ports[i].port == net->port)
            return machine->ports[i].why_unused[0] == '\0';
    return true;
}

/* @limit: names GPUDirect's limit @farthest. */
static void check_gpu(struct bench_doctor *doctor, const struct gyre_topo *topo, int32_t gpu,
                      enum gyre_topo_level farthest, const char *limit)
{
    int32_t nets[64], net = -1; /* the nearest one that jobs use */
    const int32_t n = gyre_topo_nearest_nets(topo, gpu, true, 64, nets);
    for (int32_t i = 0; i < n && net < 0; i++)
        if (is_used(&doctor->machine, &topo->nodes[nets[i]]))
            net = nets[i];
    const bool is_near = net >= 0;
    for (int32_t other = gyre_topo_next(topo, GYRE_TOPO_NET, 0); !is_near && other >= 0;
         other = gyre_topo_next(topo, GYRE_TOPO_NET, other + 1))
        if (topo->nodes[other].is_rdma && is_used(&doctor->machine, &topo->nodes[other]) &&
            (net < 0 ||
             gyre_topo_level_between(topo, gpu, other) < gyre_topo_level_between(topo, gpu, net)))
            net = other;
    const char *bus_id = topo->nodes[gpu].bus_id;
    if (net < 0)
        return;
    const enum gyre_topo_level level = gyre_topo_level_between(topo, gpu, net);
    const char *name = topo->nodes[net].name;
    if (level == GYRE_TOPO_SYS)
        bench_warn(doctor, bus_id,
                   "bind the rank to the NUMA node of its GPU, and look whether an adapter of that "
                   "node is missing: gyre topo",
                   "its nearest RDMA port, %s, is on another NUMA node (SYS): GPUDirect crosses "
                   "the processors' link",
                   name);
    else if (level > farthest)
        bench_ok(doctor, bus_id,
                 "nearest RDMA port %s%s, which is beyond %s: bytes go through host memory", name,
                 level == GYRE_TOPO_PHB ? ", through the processor's host bridge (PHB)" : "",
                 limit);
    else
        bench_ok(doctor, bus_id, "nearest RDMA port %s (%s)", name, gyre_topo_level_name(level));
}

void bench_check_rdma_gpu_distance(struct bench_doctor *doctor)
{
    struct gyre_topo topo;
    enum gyre_topo_level farthest = GYRE_TOPO_PXB;
    const char *limit = "the default of GYRE_NET_GDR_LEVEL (PXB)";
    const char *level = gyre_param_text(&doctor->params, GYRE_PARAM_NET_GDR_LEVEL);
    const char *source = gyre_param_called(&doctor->params, GYRE_PARAM_NET_GDR_LEVEL);
    if (level[0] != '\0' && gyre_topo_level_parse(source, level, &farthest) == GYRE_SUCCESS)
        limit = bench_text("%s=%s", source, level);
    const char *file = gyre_param_text(&doctor->params, GYRE_PARAM_TOPO_FILE);
    const struct gyre_topo_detect_options options = {.sysfs_root = bench_text("%s/sys", bench_root),
                                                     .nvml_library =
                                                         bench_root[0] != '\0' ? "" : NULL};
    if ((file[0] != '\0' && gyre_topo_xml_read(file, &topo) == GYRE_SUCCESS
             ? GYRE_SUCCESS
             : gyre_topo_detect(&options, &topo)) != GYRE_SUCCESS) {
        bench_unknown(doctor, NULL, NULL, "/sys/bus/pci/devices: %s", gyre_cause());
        return;
    }
    for (int32_t gpu = gyre_topo_next(&topo, GYRE_TOPO_GPU, 0); gpu >= 0;
         gpu = gyre_topo_next(&topo, GYRE_TOPO_GPU, gpu + 1))
        if (!bench_gpu_is_hidden(&doctor->machine, topo.nodes[gpu].bus_id))
            check_gpu(doctor, &topo, gpu, farthest, limit);
    gyre_topo_fini(&topo);
}
