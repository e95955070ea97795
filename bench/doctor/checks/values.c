/* SPDX-License-Identifier: Apache-2.0
 *
 * A row for each file, and one evaluator.
 */
#include "bench/doctor/doctor.h"

#include "core/foundation/base/text.h"

#include <inttypes.h>
#include <string.h>

/* Files of the host have a whole path and must exist. */
enum owner { HOST, CARD, INTERFACE, PORT };

static const struct row {
    enum bench_check_id check;
    enum owner owner;
    const char *path;
    const char *key; /* scanf's format, NULL = the file has the number alone */
    int64_t least, most;
    const char *before, *behind; /* around a bad number */
    const char *good;            /* HOST: behind a good number, else the whole sentence */
    const char *absent;          /* said without a file, NULL = it must exist */
    const char *fix;
} rows[] = {
    {BENCH_CHECK_host_numa_balancing, HOST, "/proc/sys/kernel/numa_balancing", NULL, 0, 0, "",
     "; the kernel takes pages away for a moment to see who uses them, and GPU work that touches "
     "them waits",
     "", "/proc/sys/kernel/numa_balancing is absent: this kernel does not move pages",
     "sysctl -w kernel.numa_balancing=0"},
    /* One connection at 100 Gbit/s over 0.3 ms. Linux' default is 6 MiB for reading and 4 MiB for
     * writing. */
    {BENCH_CHECK_net_buffers, HOST, "/proc/sys/net/ipv4/tcp_rmem", "%*d %*d %" SCNd64, 4 << 20,
     INT64_MAX, "at most ", " bytes a connection; a fast network needs 4 MiB or more on the way",
     " bytes", NULL,
     "sysctl -w net.ipv4.tcp_rmem='4096 131072 67108864' net.core.rmem_max=67108864"},
    {BENCH_CHECK_net_buffers, HOST, "/proc/sys/net/ipv4/tcp_wmem", "%*d %*d %" SCNd64, 4 << 20,
     INT64_MAX, "at most ", " bytes a connection; a fast network needs 4 MiB or more on the way",
     " bytes", NULL,
     "sysctl -w net.ipv4.tcp_wmem='4096 65536 67108864' net.core.wmem_max=67108864"},
/* Links may see a few correctable errors. */
#define PCI_ERRORS(file, total, most)                                                             \
    {                                                                                             \
        BENCH_CHECK_host_pci_errors, CARD, file, total " %" SCNd64, 0, most, total " ", "",       \
            "/sys/bus/pci/devices/*/aer_dev_*: no errors of GPUs and RDMA adapters to speak of",  \
            "no GPU or RDMA adapter whose errors the kernel counts "                              \
            "(/sys/bus/pci/devices/*/aer_dev_fatal)",                                             \
            "dmesg | grep -i aer; seat the card and its cable again, then have the slot and the " \
            "card "                                                                               \
            "looked at"                                                                           \
    }
    PCI_ERRORS("aer_dev_fatal", "TOTAL_ERR_FATAL", 0),
    PCI_ERRORS("aer_dev_nonfatal", "TOTAL_ERR_NONFATAL", 0),
    PCI_ERRORS("aer_dev_correctable", "TOTAL_ERR_COR", 1000),
#define FRAME_ERRORS(file)                                                                      \
    {                                                                                           \
        BENCH_CHECK_net_errors, INTERFACE, file, NULL, 0, 0, "", " since the interface exists", \
            "/sys/class/net/*/statistics: no damaged frames",                                   \
            "no adapter that counts damaged frames",                                            \
            "replace the cable or the transceiver; clean the fibre"                             \
    }
    FRAME_ERRORS("rx_crc_errors"),
    FRAME_ERRORS("rx_frame_errors"),
    FRAME_ERRORS("tx_carrier_errors"),
    /* Drivers count some at their start. */
    {BENCH_CHECK_rdma_flaps, PORT, "counters/link_downed", NULL, 0, 4, "the link went away ",
     " times", "/sys/class/infiniband/*/ports/*/counters/link_downed: the links stay up",
     "the ports do not count how often their link goes away",
     "seat or replace the cable and the transceiver; rows of the GID table move when the link "
     "comes back, so leave GYRE_IB_GID_INDEX unset"},
};

/* NULL = no job uses it. */
static const char *find_file(const struct bench_doctor *doctor, const struct row *row, int i,
                             const char **path_out)
{
    const struct bench_machine *machine = &doctor->machine;
    *path_out = row->path;
    if (row->owner == HOST)
        return "";
    if (row->owner == CARD) {
        const struct bench_pci *pci = &machine->pci[i];
        *path_out = bench_pci_path(pci->bus_id, row->path);
        return (pci->is_gpu && !pci->is_hidden) || pci->is_nic ? pci->bus_id : NULL;
    }
    if (row->owner == INTERFACE) {
        const struct bench_netdev *device = &machine->netdevs[i];
        *path_out = bench_text("/sys/class/net/%s/statistics/%s", device->name, row->path);
        return strcmp(device->kind, "physical") == 0 &&
                       bench_net_is_used(&doctor->params, machine, device)
                   ? device->name
                   : NULL;
    }
    *path_out = bench_rdma_path(&machine->ports[i], row->path);
    return machine->ports[i].why_unused[0] == '\0' ? machine->ports[i].name : NULL;
}

/* False if there is no number. */
static bool judge(struct bench_doctor *doctor, const struct row *row, const char *subject,
                  const char *path, char *good, size_t good_bytes)
{
    char text[2048];
    int64_t number = 0;
    enum bench_read result = bench_read_text(path, text, sizeof(text));
    const bool is_alone = row->key == NULL;
    const char *at = is_alone ? text : strstr(text, row->key[0] == '%' ? "" : row->before);
    const bool is_number = is_alone ? bench_text_to_number(text, &number)
                                    : at != NULL && sscanf(at, row->key, &number) == 1;
    if (result == BENCH_READ_OK && (!is_number || number < 0 || (row->least > 0 && number == 0)))
        result = BENCH_READ_BROKEN;
    if (result == BENCH_READ_ABSENT && row->absent != NULL)
        return false;
    if (result != BENCH_READ_OK)
        bench_say_unreadable(doctor, subject, path, result);
    else if (number < row->least || number > row->most)
        bench_warn(doctor, subject, row->fix, "%s: %s%" PRId64 "%s", path, row->before, number,
                   row->behind);
    else if (row->owner == HOST)
        gyre_text_append(good, good_bytes, "%s%s: %s%" PRId64 "%s", good[0] != '\0' ? "; " : "",
                         path, row->before, number, row->good);
    return result == BENCH_READ_OK;
}

void bench_check_values(struct bench_doctor *doctor)
{
    const struct bench_machine *machine = &doctor->machine;
    const int n_owners[] = {[HOST] = 1,
                            [CARD] = machine->n_pci,
                            [INTERFACE] = machine->n_netdevs,
                            [PORT] = machine->n_ports};
    char good[256] = "";
    const struct row *last = NULL;
    int n_read = 0;
    for (size_t k = 0; k < sizeof(rows) / sizeof(rows[0]); k++)
        if (rows[k].check == doctor->check)
            last = &rows[k];
    for (int i = 0; last != NULL && i < n_owners[last->owner]; i++)
        for (size_t k = 0; k < sizeof(rows) / sizeof(rows[0]); k++) {
            const char *path, *subject = NULL;
            if (rows[k].check == doctor->check)
                subject = find_file(doctor, &rows[k], i, &path);
            if (subject != NULL)
                n_read += judge(doctor, &rows[k], subject, path, good, sizeof(good));
        }
    if (bench_said(doctor) || last == NULL)
        return;
    if (last->owner == HOST)
        bench_ok(doctor, NULL, "%s", n_read > 0 ? good : last->absent);
    else
        bench_say(doctor, n_read > 0 ? BENCH_OK : BENCH_SKIPPED, NULL, NULL, "%s",
                  n_read > 0 ? last->good : last->absent);
}

static void check_mtu(struct bench_doctor *doctor, const char *subject,
                      const struct bench_netdev *device)
{
    if (device != NULL && device->mtu < doctor->expect.mtu_bytes)
        bench_warn(doctor, subject, "ip link set dev NETDEV mtu 9000, and on its switch port",
                   "/sys/class/net/%s/mtu: %" PRId64 "; %" PRId64 " were expected", device->name,
                   device->mtu, doctor->expect.mtu_bytes);
}

void bench_check_host_expected(struct bench_doctor *doctor)
{
    const struct bench_expect *expect = &doctor->expect;
    const struct bench_netdev *first = bench_net_first(&doctor->machine);
    int n_gpus = 0;
    for (int i = 0; i < doctor->machine.n_pci; i++)
        n_gpus += doctor->machine.pci[i].is_gpu;
    if (expect->n_gpus < 0 && expect->n_ports < 0 && expect->gbit_per_s < 0 &&
        expect->mtu_bytes < 0) {
        bench_skip(doctor, "nothing is expected: --expect gpus=8,ports=8,rate=400,mtu=4200");
        return;
    }
    if (n_gpus < expect->n_gpus)
        bench_fail(doctor, "GPUs", "look at gpu.xid; nvidia-smi; dmesg | grep -i -e nvrm -e pcie",
                   "/sys/bus/pci/devices: %d GPUs, %" PRId64 " were expected", n_gpus,
                   expect->n_gpus);
    char missing[512] = "";
    int n_active = 0;
    for (int i = 0; i < doctor->machine.n_ports; i++) {
        const struct bench_rdma_port *port = &doctor->machine.ports[i];
        if (port->why_unused[0] != '\0' || !port->is_active) {
            gyre_text_append(missing, sizeof(missing), " %s (%s)", port->name,
                             port->why_unused[0] != '\0' ? port->why_unused : port->state);
            continue;
        }
        n_active++;
        if (port->gbit_per_s < (double)expect->gbit_per_s)
            bench_warn(doctor, port->name,
                       "look at the cable and the switch port: mlxlink -d DEVICE",
                       "%s: %" PRId64 " Gbit/s were expected", port->rate, expect->gbit_per_s);
        if (port->is_roce)
            check_mtu(doctor, port->name, bench_net_find(&doctor->machine, port->netdev));
    }
    if (n_active < expect->n_ports)
        bench_fail(doctor, "ports", "look at rdma.devices, rdma.ports and rdma.hca",
                   "%d RDMA ports can be used, %" PRId64 " were expected; the others:%s", n_active,
                   expect->n_ports,
                   missing[0] != '\0' ? missing : " none is in /sys/class/infiniband");
    if (doctor->machine.n_used_ports == 0 && first != NULL)
        check_mtu(doctor, first->name, first);
    if (!bench_said(doctor))
        bench_ok(doctor, NULL, "all that --expect names is here: %d GPUs, %d RDMA ports in use",
                 n_gpus, doctor->machine.n_used_ports);
}
