/* SPDX-License-Identifier: Apache-2.0
 *
 * Bridges and IOMMUs, PCI errors, and interrupts.
 */
#include "bench/doctor/doctor.h"

#include <string.h>

/* PCI Express Base Specification 5.0, 7.6.3 and 7.7.8. The control register of Access Control
 * Services is 6 bytes behind the capability's header. */
#define CONFIG_BYTES       4096
#define CLASS_BRIDGE       0x0604 /* upper two bytes of the class */
#define FIRST_EXTENDED     0x100
#define CAPABILITY_ACS     0x000d
#define ACS_CONTROL_OFFSET 6
#define ACS_REDIRECT       0x000c /* traffic between peers goes to the root complex */

static enum bench_read read_acs(const char *bus_id, unsigned *control_out)
{
    unsigned char config[CONFIG_BYTES];
    size_t n = 0;
    const enum bench_read result =
        bench_read_bytes(bench_text("%s%s", bench_root, bench_pci_path(bus_id, "config")), config,
                         sizeof(config), &n);
    *control_out = 0;
    if (result != BENCH_READ_OK)
        return result;
    if (n < 64)
        return BENCH_READ_BROKEN;
    if (n < 256)
        return BENCH_READ_DENIED; /* only root sees more than 64 bytes */
    if (n == 256)
        return BENCH_READ_OK; /* conventional PCI has no extended capabilities */
    for (size_t at = FIRST_EXTENDED, steps = 0; at != 0 && steps < 64; steps++) {
        if (at + 8 > n || at < FIRST_EXTENDED)
            return BENCH_READ_BROKEN;
        if ((config[at] | config[at + 1] << 8) == CAPABILITY_ACS) {
            *control_out = (unsigned)(config[at + ACS_CONTROL_OFFSET] |
                                      config[at + ACS_CONTROL_OFFSET + 1] << 8);
            return BENCH_READ_OK;
        }
        at = (size_t)(config[at + 2] >> 4 | config[at + 3] << 4) & 0xffc;
    }
    return BENCH_READ_OK;
}

void bench_check_host_acs(struct bench_doctor *doctor)
{
    const struct bench_machine *machine = &doctor->machine;
    char found[512] = "";
    const char *first = "";
    int n_bridges = 0, n_unread = 0;
    enum bench_read worst = BENCH_READ_OK;
    for (int i = 0; i < machine->n_pci; i++) {
        const struct bench_pci *pci = &machine->pci[i];
        unsigned control = 0;
        if (pci->class >> 8 != CLASS_BRIDGE)
            continue;
        n_bridges++;
        const enum bench_read result = read_acs(pci->bus_id, &control);
        worst = result > worst ? result : worst;
        n_unread += result != BENCH_READ_OK;
        if (result != BENCH_READ_OK || (control & ACS_REDIRECT) == 0)
            continue;
        bench_append(found, sizeof(found), " %s (control %04x)", pci->bus_id, control);
        first = first[0] == '\0' ? pci->bus_id : first;
    }
    if (found[0] != '\0')
        bench_warn(doctor, NULL,
                   bench_text("setpci -s %s ECAP_ACS+0x6.w=0000 for each bridge, at every boot; or "
                              "switch ACS off in the firmware",
                              first),
                   "PCI bridges that send traffic between devices to the root complex, so that "
                   "direct copies between GPUs and NICs are slow or hang:%s",
                   found);
    else if (n_unread > 0)
        bench_say_unreadable(doctor, NULL, "/sys/bus/pci/devices/*/config of bridges", worst);
    else
        bench_ok(doctor, NULL, "%s: none of %d bridges redirects traffic between devices",
                 bench_pci_path("*", "config"), n_bridges);
}

void bench_check_host_iommu(struct bench_doctor *doctor)
{
    const struct bench_machine *machine = &doctor->machine;
    char found[512] = "";
    int n_cards = 0;
    for (int i = 0; i < machine->n_pci; i++) {
        const struct bench_pci *pci = &machine->pci[i];
        char group[BENCH_NAME_BYTES], type[32];
        if ((!pci->is_gpu || pci->is_hidden) && !pci->is_nic)
            continue;
        n_cards++;
        if (bench_read_link(bench_pci_path(pci->bus_id, "iommu_group"), group, sizeof(group)) !=
            BENCH_READ_OK)
            continue;
        const char *path = bench_text("/sys/kernel/iommu_groups/%s/type", group);
        const enum bench_read result = bench_read_text(path, type, sizeof(type));
        if (strncmp(type, "DMA", 3) == 0)
            bench_append(found, sizeof(found), " %s", pci->bus_id);
        else if (result != BENCH_READ_OK || strcmp(type, "identity") != 0)
            bench_say_unreadable(doctor, pci->bus_id, path, result);
    }
    if (found[0] != '\0')
        bench_warn(doctor, NULL,
                   "boot with iommu=pt (intel_iommu=on iommu=pt), or without an IOMMU",
                   "/sys/kernel/iommu_groups/*/type: the IOMMU translates the addresses of%s; "
                   "direct copies between devices then go through it",
                   found);
    else if (!bench_said(doctor))
        bench_ok(doctor, NULL,
                 "/sys/kernel/iommu_groups: no address of %d GPUs and RDMA adapters is translated",
                 n_cards);
}

/* A device without an interface counts as used. */
static bool is_used(const struct bench_doctor *doctor, const struct bench_pci *pci)
{
    const struct bench_machine *machine = &doctor->machine;
    bool has_interface = false;
    for (int i = 0; i < machine->n_netdevs; i++)
        if (strcmp(machine->netdevs[i].bus_id, pci->bus_id) == 0) {
            has_interface = true;
            if (bench_net_is_used(&doctor->params, machine, &machine->netdevs[i]))
                return true;
        }
    return pci->is_nic || !has_interface;
}

void bench_check_host_irq(struct bench_doctor *doctor)
{
    const struct bench_machine *machine = &doctor->machine;
    char(*nodes)[BENCH_NAME_BYTES], (*irqs)[BENCH_NAME_BYTES];
    int n_nodes = 0, n_nics = 0;
    const int n_entries = bench_read_names("/sys/devices/system/node", &nodes);
    for (int i = 0; i < n_entries; i++)
        n_nodes += strncmp(nodes[i], "node", 4) == 0;
    for (int i = 0; n_nodes > 1 && i < machine->n_pci; i++) {
        const struct bench_pci *pci = &machine->pci[i];
        char near_cpus[1024], cpus[1024];
        enum bench_read result = BENCH_READ_OK;
        int n_irqs = 0, n_near = 0;
        if (pci->class >> 16 != 0x02 || !is_used(doctor, pci) ||
            bench_read_text(bench_pci_path(pci->bus_id, "local_cpulist"), near_cpus,
                            sizeof(near_cpus)) != BENCH_READ_OK)
            continue;
        n_nics++;
        const int n = bench_read_names(bench_pci_path(pci->bus_id, "msi_irqs"), &irqs);
        for (int k = 0; k < n; k++) {
            const enum bench_read one = bench_read_text(
                bench_text("/proc/irq/%s/smp_affinity_list", irqs[k]), cpus, sizeof(cpus));
            if (one == BENCH_READ_ABSENT)
                continue;
            const int overlap = one == BENCH_READ_OK ? bench_cpus_overlap(cpus, near_cpus) : -1;
            if (overlap < 0)
                result = one == BENCH_READ_OK ? BENCH_READ_BROKEN : one;
            n_irqs += overlap >= 0;
            n_near += overlap == 1;
        }
        if (result != BENCH_READ_OK)
            bench_say_unreadable(doctor, pci->bus_id, "/proc/irq/*/smp_affinity_list", result);
        else if (n_irqs > 0 && n_near == 0)
            bench_warn(doctor, pci->bus_id,
                       "set_irq_affinity_bynode.sh NODE INTERFACE of the NIC's driver package, or "
                       "write the near processors to /proc/irq/*/smp_affinity_list",
                       "/proc/irq/*/smp_affinity_list: all %d interrupts go to processors of "
                       "another NUMA node; those near the adapter are %s",
                       n_irqs, near_cpus);
    }
    if (bench_said(doctor))
        return;
    if (n_nodes <= 1 || n_nics == 0)
        bench_skip(doctor, n_nodes <= 1 ? "one NUMA node: every processor is near"
                                        : "no network adapter on PCI");
    else
        bench_ok(
            doctor, NULL,
            "/proc/irq/*/smp_affinity_list: interrupts of %d adapters go to processors near them",
            n_nics);
}
