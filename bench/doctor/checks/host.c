/* SPDX-License-Identifier: Apache-2.0 */
#include "bench/doctor/doctor.h"

#include "bench/launch/launcher.h"
#include "core/foundation/base/text.h"

#include <arpa/inet.h>
#include <inttypes.h>
#include <string.h>

#define MIB              ((int64_t)1 << 20)
#define CAP_IPC_LOCK_BIT 14 /* linux/capability.h */

/* A rank registers up to 64 MiB of slots, and 256 MiB with GPUs behind a network. */
#define MEMLOCK_LEAST (256 * MIB)
#define NOFILE_BASE   64 /* besides connections */
#define SHM_LEAST     (1024 * MIB)

static enum bench_read read_limit(const char *name, int64_t *soft_out)
{
    char text[4096], word[32];
    const enum bench_read result = bench_read_text("/proc/self/limits", text, sizeof(text));
    if (result != BENCH_READ_OK)
        return result;
    const char *line = strstr(text, name);
    if (line == NULL || sscanf(line + strlen(name), "%31s", word) != 1)
        return BENCH_READ_BROKEN;
    *soft_out = INT64_MAX;
    if (strcmp(word, "unlimited") == 0 || (bench_text_to_number(word, soft_out) && *soft_out >= 0))
        return BENCH_READ_OK;
    return BENCH_READ_BROKEN;
}

/* The capability counts only in the first user namespace, whose map holds every id. */
static bool may_lock_all(void)
{
    char *text = NULL;
    char map[128];
    unsigned long long capabilities = 0;
    unsigned long long inside = 1, outside = 1, n_ids = 0;
    if (bench_read_all("/proc/self/status", &text) != BENCH_READ_OK)
        return false;
    const char *line = strstr(text, "CapEff:");
    if (line != NULL)
        capabilities = strtoull(line + strlen("CapEff:"), NULL, 16);
    return (capabilities >> CAP_IPC_LOCK_BIT & 1) != 0 &&
           bench_read_text("/proc/self/uid_map", map, sizeof(map)) == BENCH_READ_OK &&
           sscanf(map, "%llu %llu %llu", &inside, &outside, &n_ids) == 3 && outside == 0 &&
           n_ids == 4294967295ULL;
}

void bench_check_host_memlock(struct bench_doctor *doctor)
{
    const bool has_devices = doctor->machine.n_rdma_devices > 0;
    int64_t soft = 0;
    const enum bench_read result = read_limit("Max locked memory", &soft);
    if (result != BENCH_READ_OK)
        bench_say_unreadable(doctor, NULL, "/proc/self/limits (Max locked memory)", result);
    else if (soft == INT64_MAX)
        bench_ok(doctor, NULL, "/proc/self/limits: Max locked memory unlimited");
    else if (!has_devices || (doctor->machine.n_ports > 0 && doctor->machine.n_used_ports == 0))
        bench_ok(doctor, NULL,
                 "/proc/self/limits: Max locked memory %" PRId64 " bytes; no RDMA %s more", soft,
                 has_devices ? "port is used that would need" : "device is here that would need");
    else if (may_lock_all())
        bench_ok(doctor, NULL,
                 "/proc/self/limits: Max locked memory %" PRId64
                 " bytes, but CAP_IPC_LOCK in /proc/self/status lifts the limit",
                 soft);
    else
        bench_say(
            doctor, soft < MEMLOCK_LEAST ? BENCH_FAIL : BENCH_WARN, NULL,
            "printf '%s - memlock unlimited\\n' '*' root > /etc/security/limits.d/99-memlock.conf, "
            "then log in and start the launcher's daemon again (slurmd, sshd: "
            "LimitMEMLOCK=infinity); containers: docker run --ulimit memlock=-1",
            "/proc/self/limits: Max locked memory %" PRId64
            " bytes, and RDMA devices are here: registering up to %" PRId64
            " MiB a communicator fails with ENOMEM",
            soft, MEMLOCK_LEAST / MIB);
}

void bench_check_host_nofile(struct bench_doctor *doctor)
{
    static const char fix[] = "ulimit -n 65536 in the shell of the launcher, or echo '* - nofile "
                              "65536' > /etc/security/limits.d/99-nofile.conf";
    int64_t soft = 0;
    /* Each other rank has connections for data and a few more. */
    const int64_t n_socks = gyre_param_number(&doctor->params, GYRE_PARAM_SOCKET_NSOCKS);
    const int64_t needed =
        NOFILE_BASE + (2 + (n_socks > 0 ? n_socks : 2)) * doctor->launcher.n_processes;
    const enum bench_read result = read_limit("Max open files", &soft);
    if (result != BENCH_READ_OK)
        bench_say_unreadable(doctor, NULL, "/proc/self/limits (Max open files)", result);
    else if (soft < needed)
        bench_fail(doctor, NULL, fix,
                   "/proc/self/limits: Max open files %" PRId64 ", %d ranks need about %" PRId64,
                   soft, doctor->launcher.n_processes, needed);
    else if (soft < 1024)
        bench_warn(doctor, NULL, fix,
                   "/proc/self/limits: Max open files %" PRId64 "; 1024 is usual", soft);
    else if (soft == INT64_MAX)
        bench_ok(doctor, NULL, "/proc/self/limits: Max open files unlimited");
    else
        bench_ok(doctor, NULL, "/proc/self/limits: Max open files %" PRId64, soft);
}

static bool parse_size(const char *text, int64_t memory_bytes, int64_t *bytes_out)
{
    char *end = NULL;
    const long long number = strtoll(text, &end, 10);
    if (end == text || number < 0 || number > INT64_MAX >> 31)
        return false;
    if (*end == '%') {
        *bytes_out = memory_bytes / 100 * number;
        return memory_bytes > 0;
    }
    const char *const units = "kmg", *unit = *end == '\0' ? NULL : strchr(units, *end);
    *bytes_out = unit == NULL ? number : number << 10 * (unit - units + 1);
    return unit != NULL || *end == '\0' || *end == ',' || *end == ' ';
}

void bench_check_host_shm(struct bench_doctor *doctor)
{
    static const char fix[] =
        "mount -o remount,size=50% /dev/shm; containers: docker run --shm-size=8g, or --ipc=host; "
        "Kubernetes: an emptyDir with medium Memory at /dev/shm";
    static const char needs[] = "gyre needs none of it, but NCCL and PyTorch's data loaders do";
    char *mounts = bench_get(doctor, NULL, "/proc/mounts"), meminfo[256];
    const char *line = NULL; /* the last one for /dev/shm is in force */
    int64_t bytes = 0;
    if (mounts == NULL)
        return;
    BENCH_EACH_LINE(mounts, mount)
    line = strstr(mount, " /dev/shm ") != NULL ? mount : line;
    int64_t total = 0; /* 0 = unknown */
    long long kib = 0;
    if (bench_read_text("/proc/meminfo", meminfo, sizeof(meminfo)) == BENCH_READ_OK &&
        sscanf(meminfo, "MemTotal: %lld kB", &kib) == 1 && kib > 0 && kib <= INT64_MAX >> 10)
        total = (int64_t)kib << 10;
    const char *option = line == NULL ? NULL : strstr(line, "size=");
    if (line == NULL)
        bench_warn(doctor, NULL, "mount -t tmpfs tmpfs /dev/shm",
                   "/proc/mounts: nothing is mounted at /dev/shm; %s", needs);
    else if (option != NULL && !parse_size(option + strlen("size="), total, &bytes))
        bench_unknown(doctor, NULL, NULL,
                      "/proc/mounts: the size of /dev/shm is not understood: %.200s", line);
    else if (option == NULL && total == 0)
        bench_say_unreadable(doctor, NULL, "/proc/meminfo (MemTotal)", BENCH_READ_BROKEN);
    else {
        if (option == NULL)
            bytes = total / 2; /* tmpfs' default */
        /* Machines with little memory have a small /dev/shm by default. */
        const bool is_small = bytes < SHM_LEAST && (total == 0 || bytes < total / 4);
        bench_say(doctor, is_small ? BENCH_WARN : BENCH_OK, NULL, fix,
                  "/proc/mounts: /dev/shm has %" PRId64 " MiB%s%s", bytes / MIB,
                  is_small ? "; " : "", is_small ? needs : "");
    }
}

void bench_check_host_cgroup(struct bench_doctor *doctor)
{
    static const char fix[] = "end other programs, or raise the limit: docker run --memory, "
                              "MemoryMax= of systemd, --mem of sbatch";
    const char *what = "", *group = "";
    char *text = NULL;
    bool is_understood = false;
    const uint64_t mib = bench_memory_find_free(bench_root, &what) / (uint64_t)MIB;
    if (mib == UINT64_MAX / (uint64_t)MIB)
        bench_say_unreadable(doctor, "memory", "/proc/meminfo (MemAvailable)", BENCH_READ_BROKEN);
    else
        bench_say(doctor,
                  mib < 256    ? BENCH_FAIL
                  : mib < 1024 ? BENCH_WARN
                               : BENCH_OK,
                  "memory", fix,
                  "%s: %" PRIu64
                  " MiB can still be had; a rank needs 64 to 256 MiB and its buffers",
                  what, mib);
    enum bench_read result = bench_read_all("/proc/self/cgroup", &text);
    BENCH_EACH_LINE(text, line)
    {
        is_understood = is_understood || strchr(line, ':') != NULL;
        if (strncmp(line, "0::", 3) == 0)
            group = strcmp(line + 3, "/") == 0 ? "" : line + 3;
    }
    if (!is_understood) {
        if (result != BENCH_READ_ABSENT || bench_exists("/sys/fs/cgroup"))
            bench_say_unreadable(doctor, NULL, "/proc/self/cgroup",
                                 result == BENCH_READ_OK ? BENCH_READ_BROKEN : result);
        return;
    }
    const char *path = bench_text("/sys/fs/cgroup%s/pids.max", group);
    char limit[64], *rest;
    int64_t most = 0;
    result = bench_read_text(path, limit, sizeof(limit));
    const bool is_limited = result != BENCH_READ_ABSENT && strcmp(limit, "max") != 0;
    if (is_limited && (result != BENCH_READ_OK || !bench_text_to_number(limit, &most)))
        bench_say_unreadable(doctor, "processes", path, result);
    else if (is_limited && most < 512)
        bench_warn(doctor, "processes",
                   "docker run --pids-limit=-1, or TasksMax=infinity of systemd",
                   "%s: %" PRId64 "; each rank has several threads, and CUDA has more", path, most);
    path = bench_text("/sys/fs/cgroup%s/cpu.max", group);
    result = bench_read_text(path, limit, sizeof(limit));
    if (result == BENCH_READ_ABSENT || strncmp(limit, "max ", 4) == 0 || strcmp(limit, "max") == 0)
        return;
    const double quota = gyre_text_to_double(limit, &rest);
    const double period = gyre_text_to_double(rest, NULL);
    if (result != BENCH_READ_OK || quota <= 0 || period <= 0)
        bench_say_unreadable(doctor, "processors", path, result);
    else if (quota / period < doctor->launcher.n_local_processes)
        bench_warn(doctor, "processors",
                   "docker run --cpus, or CPUQuota= of systemd: at least one processor a rank",
                   "%s: %s: %.2f processors for %d ranks; the kernel stops them for the rest of "
                   "each period",
                   path, limit, quota / period, doctor->launcher.n_local_processes);
}

void bench_check_host_hugepages(struct bench_doctor *doctor)
{
    char *text = bench_get(doctor, NULL, "/proc/meminfo");
    long long total_kib = 0, n_pages = -1, page_kib = -1;
    if (text == NULL)
        return;
    BENCH_EACH_LINE(text, line)
    {
        (void)sscanf(line, "MemTotal: %lld", &total_kib);
        (void)sscanf(line, "HugePages_Total: %lld", &n_pages);
        (void)sscanf(line, "Hugepagesize: %lld", &page_kib);
    }
    const bool is_much = page_kib > 0 && n_pages > total_kib / 2 / page_kib;
    if (total_kib <= 0)
        bench_say_unreadable(doctor, NULL, "/proc/meminfo (MemTotal)", BENCH_READ_BROKEN);
    else if (n_pages < 0 || page_kib < 0)
        bench_ok(doctor, NULL, "/proc/meminfo: this kernel has no huge pages");
    else
        bench_say(doctor, is_much ? BENCH_WARN : BENCH_OK, NULL, "sysctl -w vm.nr_hugepages=0",
                  "/proc/meminfo: %lld pages of %lld kB are reserved, of %lld MiB of memory; gyre "
                  "uses none of them%s",
                  n_pages, page_kib, total_kib / 1024,
                  is_much ? ", and more than half of the memory is lost to it" : "");
}

void bench_check_host_hostname(struct bench_doctor *doctor)
{
    const char *name = bench_get(doctor, NULL, "/proc/sys/kernel/hostname");
    char *hosts = name == NULL ? NULL : bench_get(doctor, NULL, "/etc/hosts");
    char address[64] = ""; /* "" = no line has the name */
    bool is_understood = false;
    if (hosts == NULL)
        return;
    name = bench_text("%.63s", name);
    BENCH_EACH_LINE(hosts, line)
    {
        unsigned char bytes[16];
        char *rest = line;
        line[strcspn(line, "#")] = '\0';
        const char *first = strsep(&rest, " \t");
        if (inet_pton(AF_INET, first, bytes) != 1 && inet_pton(AF_INET6, first, bytes) != 1)
            continue;
        is_understood = true;
        for (char *word; rest != NULL && (word = strsep(&rest, " \t")) != NULL;)
            if (strcmp(word, name) == 0 && address[0] == '\0')
                snprintf(address, sizeof(address), "%s", first);
    }
    const char *master = bench_variable(doctor, "MASTER_ADDR");
    const bool is_master = master != NULL && strcmp(master, name) == 0;
    if (!is_understood)
        bench_say_unreadable(doctor, NULL, "/etc/hosts", BENCH_READ_BROKEN);
    else if (strncmp(address, "127.", 4) == 0 || strcmp(address, "::1") == 0)
        bench_warn(
            doctor, NULL,
            bench_text("in /etc/hosts give %.63s its address in the network of the job instead of "
                       "%s, or set MASTER_ADDR to that address",
                       name, address),
            "/etc/hosts: %s is %s. A program that listens at its host's name cannot be reached "
            "from other hosts%s",
            name, address,
            is_master
                ? "; MASTER_ADDR is this name. gyre copes, because it listens at all addresses"
                : "");
    else if (address[0] == '\0')
        bench_ok(doctor, NULL, "/etc/hosts: %s is not in it; DNS answers", name);
    else
        bench_ok(doctor, NULL, "/etc/hosts: %s is %s", name, address);
}

void bench_check_host_clock(struct bench_doctor *doctor)
{
    static const char path[] = "/sys/devices/system/clocksource/clocksource0/current_clocksource";
    static const char *const slow[] = {"hpet", "acpi_pm", "jiffies", "refined-jiffies", "pit"};
    const char *name = bench_get(doctor, NULL, path);
    if (name == NULL)
        return;
    for (size_t i = 0; i < sizeof(slow) / sizeof(slow[0]); i++)
        if (strcmp(name, slow[i]) == 0) {
            bench_warn(doctor, NULL,
                       "dmesg | grep -i tsc says why; boot with clocksource=tsc tsc=reliable if "
                       "the vendor says that the TSC is sound",
                       "%s: %s: each reading of the clock takes about a microsecond, and waits "
                       "read it often",
                       path, name);
            return;
        }
    if (strchr(name, ' ') != NULL || strlen(name) > 30)
        bench_say_unreadable(doctor, NULL, path, BENCH_READ_BROKEN);
    else
        bench_ok(doctor, NULL, "%s: %s", path, name);
}

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
        gyre_text_append(found, sizeof(found), " %s (control %04x)", pci->bus_id, control);
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
            gyre_text_append(found, sizeof(found), " %s", pci->bus_id);
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
