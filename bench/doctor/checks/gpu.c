/* SPDX-License-Identifier: Apache-2.0
 *
 * Checks of NVIDIA GPUs and their driver, from procfs, sysfs and the kernel's log.
 */
#include "bench/command/version.h"
#include "bench/doctor/doctor.h"
#include "bench/doctor/pci.h"
#include "core/foundation/topo/topo_nvml.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DRIVER_PATH "/proc/driver/nvidia/version"

/* Says "skipped" if there is neither a GPU nor a driver. */
static bool skip_without_gpu(struct bench_doctor *doctor)
{
    if (bench_pci_has_gpu(doctor->root) || bench_exists(doctor->root, DRIVER_PATH))
        return false;
    bench_say(doctor, BENCH_SKIPPED, NULL, NULL, "no NVIDIA GPU on PCI");
    return true;
}

/* ---- gpu.driver ---------------------------------------------------------------------------- */

/* The version behind "Module" or "for x86_64": "580.65.06". */
static bool find_version(const char *text, char *version_out, size_t version_bytes)
{
    const char *at = strstr(text, "NVRM version:");
    while (at != NULL && (at = strchr(at, ' ')) != NULL) {
        at += strspn(at, " ");
        const size_t n = strspn(at, "0123456789.");
        if (n >= 3 && isdigit((unsigned char)at[0]) && memchr(at, '.', n) != NULL &&
            (at[n] == ' ' || at[n] == '\n' || at[n] == '\0')) {
            snprintf(version_out, version_bytes, "%.*s", (int)n, at);
            return true;
        }
    }
    return false;
}

/* NVIDIA, CUDA Compatibility: the oldest driver branch of each major version. */
static int oldest_driver(int cuda_major)
{
    return cuda_major >= 13 ? 580 : cuda_major == 12 ? 525 : cuda_major == 11 ? 450 : 0;
}

/* Find the driver of the GPUs' PCI functions if it is not NVIDIA's. */
static void find_other_driver(const char *root, char *name_out, size_t name_bytes)
{
    struct bench_pci *list;
    const int n = bench_pci_list(root, &list);
    name_out[0] = '\0';
    for (int i = 0; i < n; i++) {
        char path[192], name[BENCH_NAME_BYTES];
        if (list[i].is_gpu &&
            bench_read_link(root, bench_pci_path(list[i].bus_id, "driver", path), name,
                            sizeof(name)) == BENCH_READ_OK &&
            strcmp(name, "nvidia") != 0)
            snprintf(name_out, name_bytes, "%s", name);
    }
    free(list);
}

/* The library of the driver must have the version of the kernel module; otherwise NVML refuses to
 * work. */
static void check_nvml(struct bench_doctor *doctor)
{
    struct gyre_nvml_gpu *gpus = NULL;
    size_t n = 0;
    if (doctor->root[0] != '\0')
        return;
    const gyre_status status = gyre_nvml_scan("libnvidia-ml.so.1", &gpus, &n);
    free(gpus);
    if (status == GYRE_ERROR_DEVICE)
        bench_say(doctor, BENCH_FAIL, NULL,
                  "reboot, or unload and load the module: the library and the module are of two "
                  "versions after an update; in containers use the host's library",
                  "%s", gyre_cause());
    else if (status != GYRE_SUCCESS)
        bench_say(doctor, BENCH_WARN, NULL,
                  "install the driver's library: apt install "
                  "libnvidia-compute-580",
                  "%s", gyre_cause());
}

void bench_check_gpu_driver(struct bench_doctor *doctor)
{
    char text[1024], version[64] = "", other[BENCH_NAME_BYTES];
    if (skip_without_gpu(doctor))
        return;
    find_other_driver(doctor->root, other, sizeof(other));
    const enum bench_read result = bench_read_text(doctor->root, DRIVER_PATH, text, sizeof(text));
    const int cuda_major = bench_version_cuda() / 10;
    if (other[0] != '\0' && result == BENCH_READ_ABSENT)
        bench_say(doctor, BENCH_FAIL, NULL,
                  "install NVIDIA's driver; for nouveau: echo 'blacklist nouveau' > "
                  "/etc/modprobe.d/nouveau.conf && update-initramfs -u, then reboot",
                  "the GPUs belong to the driver %s, not to nvidia", other);
    else if (result == BENCH_READ_ABSENT)
        bench_say(doctor, BENCH_FAIL, NULL,
                  "modprobe nvidia; if that fails, install the driver: apt install "
                  "nvidia-open; containers: docker run --gpus all",
                  DRIVER_PATH ": absent, though NVIDIA GPUs are on PCI: the driver is not loaded");
    else if (result != BENCH_READ_OK || !find_version(text, version, sizeof(version)))
        bench_say_unreadable(doctor, NULL, DRIVER_PATH,
                             result == BENCH_READ_OK ? BENCH_READ_BROKEN : result);
    else if (atoi(version) < oldest_driver(cuda_major))
        bench_say(doctor, BENCH_FAIL, NULL, "install a newer driver, or build for an older CUDA",
                  DRIVER_PATH
                  ": %s, but CUDA %d, with which this gyre was built, needs %d or newer",
                  version, cuda_major, oldest_driver(cuda_major));
    if (version[0] != '\0') {
        bench_set_fact(doctor, BENCH_FACT_DRIVER, "%s", version);
        check_nvml(doctor);
    }
    if (bench_said(doctor) < 0)
        bench_say(doctor, BENCH_OK, NULL, NULL, DRIVER_PATH ": %s, %s%s", version,
                  strstr(text, "Open Kernel Module") != NULL ? "open" : "closed",
                  cuda_major == 0 ? "; this gyre was built without CUDA" : "");
}

void bench_check_gpu_device_files(struct bench_doctor *doctor)
{
    static const char *const files[] = {"/dev/nvidiactl", "/dev/nvidia-uvm"};
    int n_gpus = 0;
    if (skip_without_gpu(doctor))
        return;
    if (!bench_exists(doctor->root, DRIVER_PATH)) {
        bench_say(doctor, BENCH_SKIPPED, NULL, NULL, "the driver is not loaded (gpu.driver)");
        return;
    }
    for (int i = 0; i < 64; i++) {
        char path[32];
        snprintf(path, sizeof(path), "/dev/nvidia%d", i);
        n_gpus += bench_can_open(doctor->root, path);
    }
    for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++)
        if (!bench_can_open(doctor->root, files[i]))
            bench_say(doctor, BENCH_FAIL, NULL,
                      "nvidia-modprobe -u -c 0; containers: docker run --gpus all",
                      "%s: absent, or no permission: CUDA does not start", files[i]);
    if (n_gpus == 0)
        bench_say(doctor, BENCH_FAIL, NULL,
                  "nvidia-modprobe -c 0; containers: docker run --gpus all",
                  "/dev/nvidia0 and so on: none can be opened");
    if (bench_said(doctor) < 0)
        bench_say(doctor, BENCH_OK, NULL, NULL, "/dev/nvidia*: %d GPUs can be opened", n_gpus);
}

/* ---- gpu.pcie ------------------------------------------------------------------------------ */

void bench_check_gpu_pcie(struct bench_doctor *doctor)
{
    struct bench_pci *list;
    const int n = bench_pci_list(doctor->root, &list);
    for (int i = 0; i < n; i++) {
        struct bench_pci_link link;
        if (!list[i].is_gpu)
            continue;
        const enum bench_read result = bench_pci_read_link(doctor->root, list[i].bus_id, &link);
        if (result == BENCH_READ_ABSENT)
            continue; /* the link of a GPU in a virtual machine may be hidden */
        if (result != BENCH_READ_OK)
            bench_say_unreadable(doctor, list[i].bus_id, "its PCI link (current_link_width, ...)",
                                 result);
        else if (link.width < link.most_width)
            bench_say(doctor, BENCH_WARN, list[i].bus_id,
                      "seat the GPU again, or in a slot with all lanes; look at the slot's setting "
                      "in the firmware",
                      "/sys/bus/pci/devices/%s: x%d, could be x%d: %.4g instead of %.4g Gbit/s",
                      list[i].bus_id, link.width, link.most_width,
                      bench_pci_gbit_per_s(link.width, link.most_gt_per_s),
                      bench_pci_gbit_per_s(link.most_width, link.most_gt_per_s));
        else
            bench_say(doctor, BENCH_OK, list[i].bus_id, NULL,
                      "/sys/bus/pci/devices/%s: x%d at %.4g of %.4g GT/s%s", list[i].bus_id,
                      link.width, link.gt_per_s, link.most_gt_per_s,
                      link.gt_per_s < link.most_gt_per_s ? "; an idle GPU slows its link down"
                                                         : "");
    }
    free(list);
    if (bench_said(doctor) < 0)
        bench_say(doctor, BENCH_SKIPPED, NULL, NULL, "no NVIDIA GPU with a PCI link of its own");
}

/* ---- gpu.xid ------------------------------------------------------------------------------- */

/* Does the GPU need a reset or a repair after this error (NVIDIA, "XID Errors")? */
static bool is_grave(int xid)
{
    static const int grave[] = {48, 64, 74, 79, 95, 119, 120, 140};
    for (size_t i = 0; i < sizeof(grave) / sizeof(grave[0]); i++)
        if (xid == grave[i])
            return true;
    return false;
}

void bench_check_gpu_xid(struct bench_doctor *doctor)
{
    char *text = NULL;
    char last[256] = "";
    int n_errors = 0, n_grave = 0;
    if (skip_without_gpu(doctor))
        return;
    const enum bench_read result = bench_read_all(doctor->root, "/dev/kmsg", &text);
    if (result == BENCH_READ_ABSENT) {
        bench_say(doctor, BENCH_SKIPPED, NULL, NULL,
                  "/dev/kmsg is not here; on the host: dmesg | grep Xid");
        return;
    }
    if (result != BENCH_READ_OK) {
        bench_say_unreadable(doctor, NULL, "/dev/kmsg", result);
        return;
    }
    char *rest = text;
    for (char *line; (line = bench_next_line(&rest)) != NULL;) {
        int xid = 0;
        const char *at = strstr(line, "NVRM: Xid (");
        const char *end = at == NULL ? NULL : strstr(at, "): ");
        if (end == NULL || sscanf(end, "): %d", &xid) != 1)
            continue;
        n_errors++;
        n_grave += is_grave(xid);
        if (n_grave == 0 || is_grave(xid))
            snprintf(last, sizeof(last), "%.250s", at);
    }
    free(text);
    if (n_errors == 0)
        bench_say(doctor, BENCH_OK, NULL, NULL, "/dev/kmsg: no Xid of a GPU since the start");
    else
        bench_say(doctor, n_grave > 0 ? BENCH_FAIL : BENCH_WARN, NULL,
                  "look the number up in NVIDIA's list of XID errors; nvidia-smi -q -d ECC; reset "
                  "the GPU (nvidia-smi -r) or have it replaced",
                  "/dev/kmsg: %d Xid errors, %d of them grave; for example: %s", n_errors, n_grave,
                  last);
}

/* ---- gpu.nvlink ---------------------------------------------------------------------------- */

void bench_check_gpu_nvlink(struct bench_doctor *doctor)
{
    struct gyre_nvml_gpu *gpus = NULL;
    size_t n = 0;
    uint32_t most = 0;
    if (skip_without_gpu(doctor))
        return;
    if (doctor->root[0] != '\0' || gyre_nvml_scan("libnvidia-ml.so.1", &gpus, &n) != GYRE_SUCCESS ||
        n == 0) {
        bench_say(doctor, BENCH_SKIPPED, NULL, NULL, "NVML does not answer here (gpu.driver)");
        free(gpus);
        return;
    }
    for (size_t i = 0; i < n; i++)
        most = gpus[i].n_links > most ? gpus[i].n_links : most;
    for (size_t i = 0; i < n; i++)
        if (gpus[i].n_links < most)
            bench_say(doctor, BENCH_WARN, gpus[i].bus_id,
                      "nvidia-smi nvlink -s -i GPU; dmesg | grep Xid; systemctl status "
                      "nvidia-fabricmanager",
                      "NVML: %u active NVLinks, other GPUs have %u", gpus[i].n_links, most);
    if (bench_said(doctor) < 0)
        bench_say(doctor, BENCH_OK, NULL, NULL, "NVML: %u active NVLinks on each of %zu GPUs", most,
                  n);
    free(gpus);
}
