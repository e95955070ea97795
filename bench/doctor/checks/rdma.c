/* SPDX-License-Identifier: Apache-2.0
 *
 * Checks of RDMA devices and ports.
 */
#include "bench/doctor/rdma.h"

#include "bench/doctor/net.h"
#include "bench/doctor/pci.h"
#include "transport/ib/rules/ib_hca.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define VENDOR_MELLANOX 0x15b3
/* A frame must hold 4096 bytes and the headers for RoCE's packets of 4096 bytes. The kernel uses
 * the largest power of two that fits (rdma/ib_addr.h, iboe_get_mtu). */
#define NETDEV_MTU_OF_4096 4200

/* ---- rdma.devices, rdma.device_files ------------------------------------------------------- */

static int count_mellanox(const char *root)
{
    struct bench_pci *list;
    int n_found = 0;
    const int n = bench_pci_list(root, &list);
    for (int i = 0; i < n; i++)
        n_found += list[i].vendor == VENDOR_MELLANOX && list[i].class >> 16 == 0x02;
    free(list);
    return n_found;
}

void bench_check_rdma_devices(struct bench_doctor *doctor)
{
    struct bench_rdma *rdma = bench_rdma_read(doctor->root);
    const int n_mellanox = count_mellanox(doctor->root);
    if (rdma == NULL)
        return;
    for (int i = 0; i < rdma->n_ports; i++) {
        const struct bench_rdma_port *port = &rdma->ports[i];
        char fix[BENCH_FIX_BYTES];
        if (port->is_soft)
            bench_say(doctor, BENCH_WARN, port->name,
                      bench_fix_of_port("do not measure with it: GYRE_IB_HCA=^DEVICE leaves it out",
                                        port->device, port->netdev, fix),
                      "/sys/class/infiniband/%s: a software device; it is for tests and slower "
                      "than TCP",
                      port->device);
        else
            bench_say(doctor, BENCH_OK, port->name, NULL, "%s, %s, %s, firmware %s, PCI %s",
                      port->layer, port->rate, port->netdev[0] == '\0' ? "no netdev" : port->netdev,
                      port->firmware, port->bus_id);
    }
    if (rdma->n_devices > 0 && rdma->n_ports == 0)
        bench_say_unreadable(doctor, NULL, "/sys/class/infiniband/*/ports", BENCH_READ_ABSENT);
    else if (rdma->n_devices == 0 && n_mellanox > 0)
        bench_say(doctor, BENCH_WARN, NULL, "modprobe mlx5_ib; apt install rdma-core",
                  "%d network functions of NVIDIA (Mellanox) are on PCI, but "
                  "/sys/class/infiniband is empty: the RDMA driver is not loaded, and TCP is used",
                  n_mellanox);
    else if (rdma->n_devices == 0)
        bench_say(doctor, BENCH_SKIPPED, NULL, NULL, "no RDMA device in /sys/class/infiniband");
    free(rdma);
}

void bench_check_rdma_device_files(struct bench_doctor *doctor)
{
    static const char fix[] = "modprobe ib_uverbs; containers: docker run --device /dev/infiniband "
                              "--cap-add IPC_LOCK --network host";
    struct bench_rdma *rdma = bench_rdma_read(doctor->root);
    char(*names)[BENCH_NAME_BYTES];
    int n_good = 0;
    if (bench_rdma_skip(doctor, rdma)) {
        free(rdma);
        return;
    }
    free(rdma);
    const int n = bench_read_names(doctor->root, "/sys/class/infiniband_verbs", &names);
    for (int i = 0; i < n; i++) {
        char path[96];
        if (strncmp(names[i], "uverbs", 6) != 0)
            continue;
        snprintf(path, sizeof(path), "/dev/infiniband/%s", names[i]);
        const bool exists = bench_exists(doctor->root, path);
        if (exists && bench_can_open(doctor->root, path))
            n_good++;
        else
            bench_say(doctor, BENCH_FAIL, names[i],
                      exists ? "chmod 666 /dev/infiniband/uverbs*, or put the user into the group "
                               "rdma"
                             : fix,
                      "%s: %s; gyre falls back to TCP", path,
                      exists ? "no permission to open it" : "there is no such file");
    }
    free(names);
    if (n == 0)
        bench_say(doctor, BENCH_FAIL, NULL, fix,
                  "/sys/class/infiniband_verbs is empty: programs cannot open the RDMA devices");
    else if (bench_said(doctor) < 0)
        bench_say(doctor, BENCH_OK, NULL, NULL, "/dev/infiniband: %d devices can be opened",
                  n_good);
}

/* ---- rdma.ports ---------------------------------------------------------------------------- */

static const char *fix_of_state(const struct bench_rdma_port *port)
{
    if (bench_rdma_is_roce(port))
        return "ip link set dev NETDEV up; look at cable and switch port: ethtool NETDEV, "
               "mlxlink -d DEVICE";
    return strstr(port->physical, "LinkUp") != NULL
               ? "start a subnet manager: systemctl start opensm on one host, or the switch's own"
               : "look at the cable and the switch port: ibstat, iblinkinfo";
}

void bench_check_rdma_ports(struct bench_doctor *doctor)
{
    struct bench_rdma *rdma = bench_rdma_read(doctor->root);
    int n_active = 0;
    if (bench_rdma_skip(doctor, rdma)) {
        free(rdma);
        return;
    }
    for (int i = 0; i < rdma->n_ports; i++)
        n_active += bench_rdma_is_active(&rdma->ports[i]);
    for (int i = 0; i < rdma->n_ports; i++) {
        const struct bench_rdma_port *port = &rdma->ports[i];
        char path[256], fix[BENCH_FIX_BYTES];
        bench_rdma_path(port, "state", path);
        if (bench_rdma_is_active(port))
            bench_say(doctor, BENCH_OK, port->name, NULL, "%s: %s", path, port->state);
        else if (port->state[0] < '1' || port->state[0] > '5' || port->state[1] != ':')
            bench_say_unreadable(doctor, port->name, path, BENCH_READ_BROKEN);
        else
            bench_say(doctor, n_active == 0 ? BENCH_FAIL : BENCH_WARN, port->name,
                      bench_fix_of_port(fix_of_state(port), port->device, port->netdev, fix),
                      "%s: %s (%s)%s", path, port->state, port->physical,
                      n_active == 0 ? "; no port is active, so RDMA is not used" : "");
    }
    free(rdma);
}

/* ---- rdma.hca ------------------------------------------------------------------------------ */

void bench_check_rdma_hca(struct bench_doctor *doctor)
{
    struct bench_rdma *rdma = bench_rdma_read(doctor->root);
    struct gyre_ib_hca_rule rule;
    const char *text = gyre_param_text(&doctor->params, GYRE_PARAM_IB_HCA);
    const char *source = gyre_param_source(&doctor->params, GYRE_PARAM_IB_HCA);
    char taken[512] = "", all[512] = "";
    if (bench_rdma_skip(doctor, rdma)) {
        free(rdma);
        return;
    }
    if (gyre_ib_hca_parse(text, &rule) != GYRE_SUCCESS) {
        bench_say(doctor, BENCH_FAIL, NULL, "unset the variable, or write [^][=]name[:port],...",
                  "%s: %s", source, gyre_cause());
        free(rdma);
        return;
    }
    for (int i = 0; i < rdma->n_ports; i++) {
        const char *widened = NULL;
        const struct bench_rdma_port *port = &rdma->ports[i];
        const bool takes = gyre_ib_hca_takes(&rule, port->device, port->port, &widened);
        const size_t n_all = strlen(all), n_taken = strlen(taken);
        snprintf(all + n_all, sizeof(all) - n_all, " %s", port->name);
        if (takes && bench_rdma_is_active(port))
            snprintf(taken + n_taken, sizeof(taken) - n_taken, " %s", port->name);
        if (takes && widened != NULL)
            bench_say(doctor, BENCH_WARN, port->name,
                      "write = in front of the list for whole names",
                      "%s=%s also takes %s, because %s is the beginning of its name", source, text,
                      port->name, widened);
    }
    if (text[0] == '\0')
        bench_say(doctor, BENCH_OK, NULL, NULL,
                  "GYRE_IB_HCA is unset: every active port is used:%s",
                  taken[0] == '\0' ? " none" : taken);
    else if (taken[0] == '\0')
        bench_say(doctor, BENCH_FAIL, NULL, "unset the variable, or name a port of the list",
                  "%s=%s takes no active port; the ports are:%s", source, text, all);
    else
        bench_say(doctor, BENCH_OK, NULL, NULL, "%s=%s takes%s, of%s", source, text, taken, all);
    free(rdma);
}

/* ---- rdma.rate, rdma.mtu ------------------------------------------------------------------- */

static const char *fix_of_slow_port(const struct bench_rdma_port *port, char *text_out)
{
    snprintf(
        text_out, BENCH_FIX_BYTES,
        "look at the cable, the switch port and the firmware's setting of the port; if the port "
        "is meant for storage, leave it out: GYRE_IB_HCA=^%s",
        port->name);
    return text_out;
}

void bench_check_rdma_rate(struct bench_doctor *doctor)
{
    struct bench_rdma *rdma = bench_rdma_read(doctor->root);
    double most = 0;
    char rates[160] = "";
    if (bench_rdma_skip(doctor, rdma)) {
        free(rdma);
        return;
    }
    for (int i = 0; i < rdma->n_ports; i++)
        if (bench_rdma_is_active(&rdma->ports[i]) && rdma->ports[i].gbit_per_s > most)
            most = rdma->ports[i].gbit_per_s;
    for (int i = 0; i < rdma->n_ports; i++) {
        const struct bench_rdma_port *port = &rdma->ports[i];
        char path[256], fix[BENCH_FIX_BYTES];
        const size_t used = strlen(rates);
        bench_rdma_path(port, "rate", path);
        if (!bench_rdma_is_active(port))
            continue;
        snprintf(rates + used, sizeof(rates) - used, "%s%.4g", used > 0 ? "," : "",
                 port->gbit_per_s);
        if (port->gbit_per_s <= 0)
            bench_say_unreadable(doctor, port->name, path, BENCH_READ_BROKEN);
        else if (!bench_rdma_is_roce(port) && port->width > 0 && port->width < 4)
            bench_say(doctor, BENCH_WARN, port->name,
                      bench_fix_of_port("seat the cable again, replace it; then mlxlink -d DEVICE",
                                        port->device, port->netdev, fix),
                      "%s: %s: %d of 4 lanes work", path, port->rate, port->width);
        else if (port->gbit_per_s < most)
            bench_say(doctor, BENCH_WARN, port->name, fix_of_slow_port(port, fix),
                      "%s: %s, but other ports of this host have %.4g Gbit/s: rings over all NICs "
                      "wait for the slowest",
                      path, port->rate, most);
        else
            bench_say(doctor, BENCH_OK, port->name, NULL, "%s: %s", path, port->rate);
    }
    bench_set_fact(doctor, BENCH_FACT_RATE, "%s Gbit/s", rates[0] == '\0' ? "0" : rates);
    if (bench_said(doctor) < 0)
        bench_say(doctor, BENCH_SKIPPED, NULL, NULL, "no RDMA port is active");
    free(rdma);
}

void bench_check_rdma_mtu(struct bench_doctor *doctor)
{
    struct bench_rdma *rdma = bench_rdma_read(doctor->root);
    struct bench_net *net = bench_net_read(doctor);
    if (net == NULL || bench_rdma_skip(doctor, rdma)) {
        free(rdma);
        free(net);
        return;
    }
    for (int i = 0; i < rdma->n_ports; i++) {
        const struct bench_rdma_port *port = &rdma->ports[i];
        const struct bench_netdev *device = bench_net_find(net, port->netdev);
        char fix[BENCH_FIX_BYTES];
        if (!bench_rdma_is_roce(port) || !bench_rdma_is_active(port))
            continue;
        if (device == NULL || device->mtu == 0)
            bench_say(doctor, BENCH_UNKNOWN, port->name, NULL,
                      "/sys/class/net/%s/mtu cannot be read, so RoCE's packet size is not known",
                      port->netdev[0] == '\0' ? "?" : port->netdev);
        else if (device->mtu < NETDEV_MTU_OF_4096)
            bench_say(doctor, BENCH_WARN, port->name,
                      bench_fix_of_port("ip link set dev NETDEV mtu 9000, likewise on every host "
                                        "and switch port of this network",
                                        port->device, port->netdev, fix),
                      "/sys/class/net/%s/mtu: %" PRId64 ": RoCE sends packets of %d bytes instead "
                      "of 4096",
                      port->netdev, device->mtu,
                      device->mtu >= 2100   ? 2048
                      : device->mtu >= 1100 ? 1024
                                            : 512);
        else
            bench_say(doctor, BENCH_OK, port->name, NULL,
                      "/sys/class/net/%s/mtu: %" PRId64 ": room for packets of 4096 bytes",
                      port->netdev, device->mtu);
    }
    if (bench_said(doctor) < 0)
        bench_say(doctor, BENCH_SKIPPED, NULL, NULL,
                  "no active RoCE port; on InfiniBand the subnet manager decides");
    free(rdma);
    free(net);
}

/* ---- rdma.firmware ------------------------------------------------------------------------- */

void bench_check_rdma_firmware(struct bench_doctor *doctor)
{
    struct bench_rdma *rdma = bench_rdma_read(doctor->root);
    char versions[160] = "";
    if (bench_rdma_skip(doctor, rdma)) {
        free(rdma);
        return;
    }
    for (int i = 0; i < rdma->n_ports; i++) {
        const struct bench_rdma_port *port = &rdma->ports[i];
        const size_t used = strlen(versions);
        char one[140];
        if (port->is_soft)
            continue;
        snprintf(one, sizeof(one), "%s %s", port->board, port->firmware);
        if (strstr(versions, one) == NULL)
            snprintf(versions + used, sizeof(versions) - used, "%s%s", used > 0 ? ", " : "", one);
        for (int j = 0; j < i; j++)
            if (!rdma->ports[j].is_soft && strcmp(port->board, rdma->ports[j].board) == 0 &&
                strcmp(port->firmware, rdma->ports[j].firmware) != 0) {
                bench_say(doctor, BENCH_WARN, port->name,
                          "mlxfwmanager --online -u -d BUS_ID, then reboot",
                          "/sys/class/infiniband/*/fw_ver: %s has %s, but %s, the same board (%s), "
                          "has %s",
                          port->name, port->firmware, rdma->ports[j].name, port->board,
                          rdma->ports[j].firmware);
                break;
            }
        if (port->firmware[0] == '\0')
            bench_say_unreadable(doctor, port->name, "/sys/class/infiniband/*/fw_ver",
                                 BENCH_READ_BROKEN);
    }
    bench_set_fact(doctor, BENCH_FACT_FIRMWARE, "%s", versions);
    if (versions[0] == '\0' && bench_said(doctor) < 0)
        bench_say(doctor, BENCH_SKIPPED, NULL, NULL, "no RDMA device with firmware");
    else if (bench_said(doctor) < 0)
        bench_say(doctor, BENCH_OK, NULL, NULL, "/sys/class/infiniband/*/fw_ver: %s", versions);
    free(rdma);
}
