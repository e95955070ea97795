/* SPDX-License-Identifier: Apache-2.0
 *
 * Checks of the host: the limits of its control group, huge pages, its name, its clock.
 */
#include "bench/doctor/doctor.h"
#include "bench/doctor/pci.h"
#include "bench/launch/memory.h"
#include "core/foundation/base/text.h"

#include <arpa/inet.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MIB ((uint64_t)1 << 20)

/* ---- host.cgroup --------------------------------------------------------------------------- */

/* The folder of this process's group below /sys/fs/cgroup, for control groups of version 2. */
static enum bench_read find_group(const char *root, char *path_out, size_t path_bytes)
{
    char *text = NULL;
    const enum bench_read result = bench_read_all(root, "/proc/self/cgroup", &text);
    if (result != BENCH_READ_OK)
        return result;
    char *rest = text;
    bool is_understood = false;
    path_out[0] = '\0';
    for (char *line; (line = bench_next_line(&rest)) != NULL;) {
        is_understood = is_understood || strchr(line, ':') != NULL;
        if (strncmp(line, "0::", 3) == 0)
            snprintf(path_out, path_bytes, "%s", strcmp(line + 3, "/") == 0 ? "" : line + 3);
    }
    free(text);
    return is_understood ? BENCH_READ_OK : BENCH_READ_BROKEN;
}

static void check_memory(struct bench_doctor *doctor)
{
    static const char fix[] = "end other programs, or raise the limit: docker run --memory, "
                              "MemoryMax= of systemd, --mem of sbatch";
    const char *what = "";
    const uint64_t bytes = bench_memory_find_free(doctor->root, &what);
    if (bytes == UINT64_MAX)
        bench_say_unreadable(doctor, "memory", "/proc/meminfo (MemAvailable)", BENCH_READ_BROKEN);
    else
        bench_say(doctor,
                  bytes < 256 * MIB    ? BENCH_FAIL
                  : bytes < 1024 * MIB ? BENCH_WARN
                                       : BENCH_OK,
                  "memory", bytes < 1024 * MIB ? fix : NULL,
                  "%s: %" PRIu64
                  " MiB can still be had; a rank needs 64 to 256 MiB and its buffers",
                  what, bytes / MIB);
}

static void check_processes(struct bench_doctor *doctor, const char *group)
{
    char path[512], text[64];
    int64_t most = 0;
    snprintf(path, sizeof(path), "/sys/fs/cgroup%.400s/pids.max", group);
    const enum bench_read result = bench_read_text(doctor->root, path, text, sizeof(text));
    if (result == BENCH_READ_ABSENT || strcmp(text, "max") == 0)
        return;
    if (result != BENCH_READ_OK || !bench_text_to_number(text, &most))
        bench_say_unreadable(doctor, "processes", path,
                             result == BENCH_READ_OK ? BENCH_READ_BROKEN : result);
    else if (most < 512)
        bench_say(doctor, BENCH_WARN, "processes",
                  "docker run --pids-limit=-1, or TasksMax=infinity of systemd",
                  "%s: %" PRId64 "; each rank has several threads, and CUDA has more", path, most);
}

static void check_processors(struct bench_doctor *doctor, const char *group)
{
    char path[512], text[64];
    char *rest;
    snprintf(path, sizeof(path), "/sys/fs/cgroup%.400s/cpu.max", group);
    const enum bench_read result = bench_read_text(doctor->root, path, text, sizeof(text));
    if (result == BENCH_READ_ABSENT || strncmp(text, "max ", 4) == 0 || strcmp(text, "max") == 0)
        return;
    const double quota = gyre_text_to_double(text, &rest);
    const double period = gyre_text_to_double(rest, NULL);
    if (result != BENCH_READ_OK || quota <= 0 || period <= 0)
        bench_say_unreadable(doctor, "processors", path,
                             result == BENCH_READ_OK ? BENCH_READ_BROKEN : result);
    else if (quota / period < doctor->launcher.n_local_processes)
        bench_say(doctor, BENCH_WARN, "processors",
                  "docker run --cpus, or CPUQuota= of systemd: at least one processor a rank",
                  "%s: %s: %.2f processors for %d ranks; the kernel stops them for the rest of "
                  "each period",
                  path, text, quota / period, doctor->launcher.n_local_processes);
}

void bench_check_host_cgroup(struct bench_doctor *doctor)
{
    char group[400];
    const enum bench_read result = find_group(doctor->root, group, sizeof(group));
    check_memory(doctor);
    if (result == BENCH_READ_ABSENT && bench_exists(doctor->root, "/sys/fs/cgroup"))
        bench_say_unreadable(doctor, NULL, "/proc/self/cgroup", result);
    if (result == BENCH_READ_DENIED || result == BENCH_READ_BROKEN)
        bench_say_unreadable(doctor, NULL, "/proc/self/cgroup", result);
    if (result != BENCH_READ_OK)
        return;
    check_processes(doctor, group);
    check_processors(doctor, group);
}

/* ---- host.hugepages ------------------------------------------------------------------------ */

static bool find_field(const char *text, const char *name, int64_t *number_out)
{
    long long number = 0;
    const char *line = strstr(text, name);
    if (line == NULL || sscanf(line + strlen(name), "%lld", &number) != 1 || number < 0)
        return false;
    *number_out = number;
    return true;
}

void bench_check_host_hugepages(struct bench_doctor *doctor)
{
    char text[4096];
    int64_t total_kib = 0, n_pages = 0, page_kib = 0;
    const enum bench_read result =
        bench_read_text(doctor->root, "/proc/meminfo", text, sizeof(text));
    if (result != BENCH_READ_OK) {
        bench_say_unreadable(doctor, NULL, "/proc/meminfo", result);
        return;
    }
    if (!find_field(text, "MemTotal:", &total_kib) || total_kib == 0) {
        bench_say_unreadable(doctor, NULL, "/proc/meminfo (MemTotal)", BENCH_READ_BROKEN);
        return;
    }
    if (!find_field(text, "HugePages_Total:", &n_pages) ||
        !find_field(text, "Hugepagesize:", &page_kib)) {
        bench_say(doctor, BENCH_OK, NULL, NULL, "/proc/meminfo: this kernel has no huge pages");
        return;
    }
    const bool is_much = page_kib > 0 && n_pages > total_kib / 2 / page_kib;
    bench_say(doctor, is_much ? BENCH_WARN : BENCH_OK, NULL,
              is_much ? "sysctl -w vm.nr_hugepages=0" : NULL,
              "/proc/meminfo: %" PRId64 " pages of %" PRId64 " kB are reserved, of %" PRId64
              " MiB of memory; gyre uses none of them%s",
              n_pages, page_kib, total_kib / 1024,
              is_much ? ", and more than half of the memory is lost to it" : "");
}

/* ---- host.hostname ------------------------------------------------------------------------- */

static bool is_address(const char *text)
{
    unsigned char bytes[16];
    return inet_pton(AF_INET, text, bytes) == 1 || inet_pton(AF_INET6, text, bytes) == 1;
}

/* The address of the first line of /etc/hosts that has the name, or "". Returns false if no line
 * begins with an address. */
static bool find_address(char *hosts, const char *name, char *address_out, size_t address_bytes)
{
    bool is_understood = false;
    address_out[0] = '\0';
    for (char *line; (line = bench_next_line(&hosts)) != NULL;) {
        char *rest = line;
        line[strcspn(line, "#")] = '\0';
        const char *address = strsep(&rest, " \t");
        if (!is_address(address))
            continue;
        is_understood = true;
        for (char *word; rest != NULL && (word = strsep(&rest, " \t")) != NULL;)
            if (strcmp(word, name) == 0 && address_out[0] == '\0')
                snprintf(address_out, address_bytes, "%s", address);
    }
    return is_understood;
}

void bench_check_host_hostname(struct bench_doctor *doctor)
{
    char name[64], address[64], fix[256];
    char *hosts = NULL;
    enum bench_read result =
        bench_read_text(doctor->root, "/proc/sys/kernel/hostname", name, sizeof(name));
    if (result != BENCH_READ_OK) {
        bench_say_unreadable(doctor, NULL, "/proc/sys/kernel/hostname", result);
        return;
    }
    result = bench_read_all(doctor->root, "/etc/hosts", &hosts);
    if (result != BENCH_READ_OK) {
        bench_say_unreadable(doctor, NULL, "/etc/hosts", result);
        return;
    }
    const bool is_understood = find_address(hosts, name, address, sizeof(address));
    free(hosts);
    if (!is_understood) {
        bench_say_unreadable(doctor, NULL, "/etc/hosts", BENCH_READ_BROKEN);
        return;
    }
    const char *master = bench_variable(doctor, "MASTER_ADDR");
    const bool is_master = master != NULL && strcmp(master, name) == 0;
    snprintf(fix, sizeof(fix),
             "in /etc/hosts give %.63s its address in the network of the job instead of %s, or set "
             "MASTER_ADDR to that address",
             name, address);
    if (strncmp(address, "127.", 4) == 0 || strcmp(address, "::1") == 0)
        bench_say(doctor, is_master ? BENCH_FAIL : BENCH_WARN, NULL, fix,
                  "/etc/hosts: %s is %s. A program that listens at its host's name cannot be "
                  "reached from other hosts%s",
                  name, address, is_master ? ", and MASTER_ADDR is this name" : "");
    else if (address[0] == '\0')
        bench_say(doctor, BENCH_OK, NULL, NULL, "/etc/hosts: %s is not in it; DNS answers", name);
    else
        bench_say(doctor, BENCH_OK, NULL, NULL, "/etc/hosts: %s is %s", name, address);
}

/* ---- host.clock, host.numa_balancing ------------------------------------------------------- */

void bench_check_host_clock(struct bench_doctor *doctor)
{
    static const char path[] = "/sys/devices/system/clocksource/clocksource0/current_clocksource";
    static const char *const slow[] = {"hpet", "acpi_pm", "jiffies", "refined-jiffies", "pit"};
    char name[64];
    const enum bench_read result = bench_read_text(doctor->root, path, name, sizeof(name));
    if (result != BENCH_READ_OK) {
        bench_say_unreadable(doctor, NULL, path, result);
        return;
    }
    for (size_t i = 0; i < sizeof(slow) / sizeof(slow[0]); i++)
        if (strcmp(name, slow[i]) == 0) {
            bench_say(doctor, BENCH_WARN, NULL,
                      "dmesg | grep -i tsc says why; boot with clocksource=tsc tsc=reliable if the "
                      "vendor says that the TSC is sound",
                      "%s: %s: each reading of the clock takes about a microsecond, and waits read "
                      "it often",
                      path, name);
            return;
        }
    if (strchr(name, ' ') != NULL || strlen(name) > 30)
        bench_say_unreadable(doctor, NULL, path, BENCH_READ_BROKEN);
    else
        bench_say(doctor, BENCH_OK, NULL, NULL, "%s: %s", path, name);
}

void bench_check_host_numa_balancing(struct bench_doctor *doctor)
{
    static const char path[] = "/proc/sys/kernel/numa_balancing";
    int64_t value = 0;
    const enum bench_read result = bench_read_number(doctor->root, path, &value);
    if (!bench_pci_has_gpu(doctor->root))
        bench_say(doctor, BENCH_SKIPPED, NULL, NULL, "matters for GPUs, and there is none");
    else if (result == BENCH_READ_ABSENT)
        bench_say(doctor, BENCH_OK, NULL, NULL, "%s is absent: this kernel does not move pages",
                  path);
    else if (result != BENCH_READ_OK)
        bench_say_unreadable(doctor, NULL, path, result);
    else
        bench_say(doctor, value == 0 ? BENCH_OK : BENCH_WARN, NULL,
                  value == 0 ? NULL : "sysctl -w kernel.numa_balancing=0", "%s: %" PRId64 "%s",
                  path, value,
                  value == 0 ? ""
                             : "; the kernel takes pages away for a moment to see who uses them, "
                               "and GPU work that touches them waits");
}
