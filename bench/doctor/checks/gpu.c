/* SPDX-License-Identifier: Apache-2.0 */
#include "bench/doctor/doctor.h"

#include "bench/command/command.h"
#include "bench/doctor/trial.h"
#include "core/foundation/base/text.h"
#include "core/foundation/topo/topo_nvml.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define TOLERATED_CORRECTED 1000 /* ECC errors since the driver was loaded */
#define TOLERATED_REPLAYS   1000

/* NVIDIA, "CUDA Compatibility": the oldest driver branch of each major version. */
static int oldest_driver(int cuda_major)
{
    return cuda_major >= 13 ? 580 : cuda_major == 12 ? 525 : cuda_major == 11 ? 450 : 0;
}

void bench_fact_of_driver(char *text, size_t text_bytes)
{
    char file[1024];
    (void)bench_read_text(BENCH_DRIVER_PATH, file, sizeof(file));
    const char *at = strstr(file, "NVRM version:");
    while (at != NULL && (at = strchr(at, ' ')) != NULL) {
        at += strspn(at, " ");
        const size_t n = strspn(at, "0123456789.");
        if (n >= 3 && isdigit((unsigned char)at[0]) && memchr(at, '.', n) != NULL &&
            (at[n] == ' ' || at[n] == '\n' || at[n] == '\0')) {
            snprintf(text, text_bytes, "%.*s", (int)n, at);
            return;
        }
    }
}

void bench_check_gpu_driver(struct bench_doctor *doctor)
{
    char text[1024], other[BENCH_NAME_BYTES];
    const char *version = doctor->facts[BENCH_FACT_OF(driver)];
    other[0] = '\0';
    for (int i = 0; i < doctor->machine.n_pci; i++) {
        char name[BENCH_NAME_BYTES];
        if (doctor->machine.pci[i].is_gpu &&
            bench_read_link(bench_pci_path(doctor->machine.pci[i].bus_id, "driver"), name,
                            sizeof(name)) == BENCH_READ_OK &&
            strcmp(name, "nvidia") != 0)
            snprintf(other, sizeof(other), "%s", name);
    }
    const enum bench_read result = bench_read_text(BENCH_DRIVER_PATH, text, sizeof(text));
    const int cuda_major = bench_version_cuda() / 10;
    if (other[0] != '\0' && result == BENCH_READ_ABSENT)
        bench_fail(doctor, NULL,
                   "install NVIDIA's driver; for nouveau: echo 'blacklist nouveau' > "
                   "/etc/modprobe.d/nouveau.conf && update-initramfs -u, then reboot",
                   "the GPUs belong to the driver %s, not to nvidia", other);
    else if (result == BENCH_READ_ABSENT)
        bench_fail(doctor, NULL,
                   "modprobe nvidia; if that fails, install the driver: apt install nvidia-open; "
                   "containers: docker run --gpus all",
                   BENCH_DRIVER_PATH
                   ": absent, though NVIDIA GPUs are on PCI: the driver is not loaded");
    else if (version[0] == '\0')
        bench_say_unreadable(doctor, NULL, BENCH_DRIVER_PATH, result);
    else if (atoi(version) < oldest_driver(cuda_major))
        bench_fail(doctor, NULL, "install a newer driver, or build for an older CUDA",
                   BENCH_DRIVER_PATH
                   ": %s, but CUDA %d, with which this gyre was built, needs %d or newer",
                   version, cuda_major, oldest_driver(cuda_major));
    if (version[0] != '\0') {
        struct gyre_nvml_gpu *gpus = NULL;
        size_t n = 0;
        if (bench_root[0] == '\0') {
            const gyre_status status = gyre_nvml_scan("libnvidia-ml.so.1", &gpus, &n);
            free(gpus);
            if (status == GYRE_ERROR_DEVICE)
                bench_fail(doctor, NULL,
                           "reboot, or unload and load the module: the library and the module are "
                           "of two versions after an update; in containers use the host's library",
                           "%s", gyre_cause());
            else if (status != GYRE_SUCCESS)
                bench_warn(doctor, NULL,
                           "install the driver's library: apt install libnvidia-compute-580", "%s",
                           gyre_cause());
        }
    }
    if (!bench_said(doctor))
        bench_ok(doctor, NULL, BENCH_DRIVER_PATH ": %s, %s%s", version,
                 strstr(text, "Open Kernel Module") != NULL ? "open" : "closed",
                 cuda_major == 0 ? "; this gyre was built without CUDA" : "");
}

void bench_check_gpu_toolkit(struct bench_doctor *doctor)
{
    static const char *const files[][2] = {{"version.json", "\"CUDA SDK\""}, /* the key before it */
                                           {"version.txt", "CUDA Version"}};
    const char *home = bench_variable(doctor, "CUDA_HOME");
    const char *folder = home != NULL ? home : "/usr/local/cuda";
    const char *driver = doctor->facts[BENCH_FACT_OF(driver)];
    const char *path = NULL; /* the file that has the version */
    int major = 0, minor = 0;
    for (int i = 0; i < 2 && path == NULL; i++) {
        const char *file = bench_text("%s/%s", folder, files[i][0]);
        char *text = NULL;
        (void)bench_read_all(file, &text);
        const char *at = text == NULL ? NULL : strstr(text, files[i][1]);
        at = at == NULL ? "" : at + strcspn(at, "0123456789");
        if (sscanf(at, "%d.%d", &major, &minor) == 2)
            path = file;
    }
    if (path == NULL) {
        if (home != NULL && !bench_exists(home))
            bench_warn(doctor, "CUDA_HOME", "correct the path, or unset CUDA_HOME",
                       "CUDA_HOME=%.400s: there is no such folder", home);
        else
            bench_skip(doctor, "%.400s: neither version.json nor version.txt names a CUDA toolkit",
                       folder);
        return;
    }
    const int needed = oldest_driver(major);
    if (driver[0] == '\0')
        bench_skip(doctor, "%s: CUDA %d.%d; the driver's version is not known (gpu.driver)", path,
                   major, minor);
    else if (atoi(driver) < needed)
        bench_warn(doctor, NULL,
                   bench_text("install driver %d or newer, or build with a toolkit that the driver "
                              "knows: export CUDA_HOME=/usr/local/cuda-MAJOR.MINOR",
                              needed),
                   "%s: CUDA %d.%d needs driver %d or newer, and %s is loaded: programs that this "
                   "toolkit builds do not start",
                   path, major, minor, needed, driver);
    else
        bench_ok(doctor, NULL, "%s: CUDA %d.%d, for which driver %s is new enough", path, major,
                 minor, driver);
}

void bench_check_gpu_build(struct bench_doctor *doctor)
{
    if (bench_version_cuda() == 0)
        bench_warn(doctor, NULL,
                   "build with -DGYRE_CUDA=ON where nvcc is installed (docs/install.md)",
                   "GPUs are here, but this gyre was built without CUDA: it cannot use them");
    else
        bench_ok(doctor, NULL, "built with CUDA %d.%d", bench_version_cuda() / 10,
                 bench_version_cuda() % 10);
}

void bench_check_gpu_device_files(struct bench_doctor *doctor)
{
    static const char *const files[] = {"/dev/nvidiactl", "/dev/nvidia-uvm"};
    int n_gpus = 0;
    if (!doctor->machine.has_gpu_driver) {
        bench_skip(doctor, "the driver is not loaded (gpu.driver)");
        return;
    }
    for (int i = 0; i < 64; i++)
        n_gpus += bench_can_open(bench_text("/dev/nvidia%d", i));
    for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++)
        if (!bench_can_open(files[i]))
            bench_fail(doctor, NULL, "nvidia-modprobe -u -c 0; containers: docker run --gpus all",
                       "%s: absent, or no permission: CUDA does not start", files[i]);
    if (n_gpus == 0)
        bench_fail(doctor, NULL, "nvidia-modprobe -c 0; containers: docker run --gpus all",
                   "/dev/nvidia0 and so on: none can be opened");
    if (!bench_said(doctor))
        bench_ok(doctor, NULL, "/dev/nvidia*: %d GPUs can be opened", n_gpus);
}

void bench_check_gpu_pcie(struct bench_doctor *doctor)
{
    for (int i = 0; i < doctor->machine.n_pci; i++) {
        const char *bus_id = doctor->machine.pci[i].bus_id;
        struct bench_pci_link link;
        if (!doctor->machine.pci[i].is_gpu || doctor->machine.pci[i].is_hidden)
            continue;
        const enum bench_read result = bench_pci_read_link(bus_id, &link);
        if (result == BENCH_READ_ABSENT)
            continue; /* a virtual machine may hide the link */
        if (result != BENCH_READ_OK)
            bench_say_unreadable(doctor, bus_id, "its PCI link (current_link_width, ...)", result);
        else if (link.width < link.most_width)
            bench_warn(doctor, bus_id,
                       "seat the GPU again, or in a slot with all lanes; look at the slot's "
                       "setting in the firmware",
                       "/sys/bus/pci/devices/%s: x%d, could be x%d: %.4g instead of %.4g Gbit/s",
                       bus_id, link.width, link.most_width,
                       bench_pci_gbit_per_s(link.width, link.most_gt_per_s),
                       bench_pci_gbit_per_s(link.most_width, link.most_gt_per_s));
        else
            bench_ok(doctor, bus_id, "/sys/bus/pci/devices/%s: x%d at %.4g of %.4g GT/s%s", bus_id,
                     link.width, link.gt_per_s, link.most_gt_per_s,
                     link.gt_per_s < link.most_gt_per_s ? "; an idle GPU slows its link down" : "");
    }
}

/* The GPU needs a reset or a repair (NVIDIA, "XID Errors"). */
static bool is_grave(int xid)
{
    static const int grave[] = {48, 64, 74, 79, 95, 119, 120, 140};
    bool is_in = false;
    for (size_t i = 0; i < sizeof(grave) / sizeof(grave[0]); i++)
        is_in = is_in || xid == grave[i];
    return is_in;
}

void bench_check_gpu_xid(struct bench_doctor *doctor)
{
    char *text = NULL;
    char last[256] = "";
    int n_errors = 0, n_grave = 0;
    const enum bench_read result = bench_read_all("/dev/kmsg", &text);
    if (result == BENCH_READ_ABSENT) {
        bench_skip(doctor, "/dev/kmsg is not here; on the host: dmesg | grep Xid");
        return;
    }
    if (result != BENCH_READ_OK) {
        bench_say_unreadable(doctor, NULL, "/dev/kmsg", result);
        return;
    }
    BENCH_EACH_LINE(text, line)
    {
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
    if (n_errors == 0)
        bench_ok(doctor, NULL, "/dev/kmsg: no Xid of a GPU since the start");
    else
        bench_say(doctor, n_grave > 0 ? BENCH_FAIL : BENCH_WARN, NULL,
                  "look the number up in NVIDIA's list of XID errors; nvidia-smi -q -d ECC; reset "
                  "the GPU (nvidia-smi -r) or have it replaced",
                  "/dev/kmsg: %d Xid errors, %d of them grave; for example: %s", n_errors, n_grave,
                  last);
}

void bench_check_gpu_nvlink(struct bench_doctor *doctor)
{
    struct gyre_nvml_gpu *gpus = NULL;
    size_t n = 0;
    uint32_t most = 0;
    if (bench_root[0] != '\0' || gyre_nvml_scan("libnvidia-ml.so.1", &gpus, &n) != GYRE_SUCCESS ||
        n == 0) {
        bench_skip(doctor, "NVML does not answer here (gpu.driver)");
        free(gpus);
        return;
    }
    for (size_t i = 0; i < n; i++)
        most = gpus[i].n_links > most ? gpus[i].n_links : most;
    for (size_t i = 0; i < n; i++)
        if (gpus[i].n_links < most && !bench_gpu_is_hidden(&doctor->machine, gpus[i].bus_id))
            bench_warn(doctor, gpus[i].bus_id,
                       "nvidia-smi nvlink -s -i GPU; dmesg | grep Xid; systemctl status "
                       "nvidia-fabricmanager",
                       "NVML: %u active NVLinks, other GPUs have %u", gpus[i].n_links, most);
    if (!bench_said(doctor))
        bench_ok(doctor, NULL, "NVML: %u active NVLinks on each of %zu GPUs", most, n);
    free(gpus);
}

static const struct bench_nvml *nvml_of(struct bench_doctor *doctor)
{
    struct bench_nvml *nvml = doctor->nvml;
    if (nvml == NULL) {
        nvml = doctor->nvml = bench_keep(1, sizeof(*nvml));
        if (bench_nvml_read(bench_root, nvml->gpus, &nvml->n) != GYRE_SUCCESS)
            snprintf(nvml->cause, sizeof(nvml->cause), "%.255s", gyre_cause());
    }
    for (int i = nvml->n - 1; i >= 0; i--)
        if (bench_gpu_is_hidden(&doctor->machine, nvml->gpus[i].bus_id))
            memmove(&nvml->gpus[i], &nvml->gpus[i + 1],
                    (size_t)(--nvml->n - i) * sizeof(nvml->gpus[0]));
    if (nvml->n == 0)
        bench_skip(doctor, "%s",
                   nvml->cause[0] != '\0' ? nvml->cause : "NVML shows no GPU to this process");
    return nvml->n > 0 ? nvml : NULL;
}

/* -1 = not told by NVML. */
static const char *number_of(int64_t number)
{
    return number < 0 ? "?" : bench_text("%" PRId64, number);
}

void bench_check_gpu_ecc(struct bench_doctor *doctor)
{
    const struct bench_nvml *nvml = nvml_of(doctor);
    for (int i = 0; nvml != NULL && i < nvml->n; i++) {
        const struct bench_nvml_gpu *gpu = &nvml->gpus[i];
        if (gpu->n_uncorrected > 0 || gpu->n_rows_failed > 0)
            bench_fail(doctor, gpu->bus_id,
                       "nvidia-smi -q -d ECC,ROW_REMAPPER -i GPU; reset the GPU (nvidia-smi -r -i "
                       "GPU); if errors come back, have it replaced",
                       "NVML: %s memory errors that ECC could not correct%s",
                       number_of(gpu->n_uncorrected),
                       gpu->n_rows_failed > 0 ? "; a row could not be replaced" : "");
        else if (gpu->n_rows_pending > 0)
            bench_warn(doctor, gpu->bus_id, "nvidia-smi -r -i GPU, or reboot",
                       "NVML: bad memory rows are replaced at the next reset of the GPU");
        else if (gpu->n_corrected > TOLERATED_CORRECTED)
            bench_warn(doctor, gpu->bus_id,
                       "nvidia-smi -q -d ECC,ROW_REMAPPER -i GPU; watch whether the number grows",
                       "NVML: ECC corrected %" PRId64 " memory errors since the driver was loaded",
                       gpu->n_corrected);
        else if (gpu->has_ecc < 0)
            bench_say(doctor, BENCH_SKIPPED, gpu->bus_id, NULL, "NVML: this GPU has no ECC");
        else if (gpu->has_ecc == 0)
            bench_say(
                doctor, BENCH_SKIPPED, gpu->bus_id, NULL,
                "NVML: ECC is off, so memory errors are not counted (nvidia-smi -e 1 -i GPU)");
        else if (gpu->n_corrected < 0 || gpu->n_uncorrected < 0)
            bench_unknown(doctor, gpu->bus_id, "nvidia-smi -q -d ECC -i GPU",
                          "NVML: ECC is on, but the number of memory errors cannot be read");
        else
            bench_ok(doctor, gpu->bus_id,
                     "NVML: ECC is on; errors since the driver was loaded: %" PRId64
                     " corrected, %" PRId64 " not",
                     gpu->n_corrected, gpu->n_uncorrected);
    }
}

/* nvml.h, nvmlClocksThrottleReasons, without idle. A bad one is a fault, not a setting. */
static const struct {
    int64_t bit;
    bool is_bad;
    const char *words;
} reasons_of_clocks[] = {
    {0x2, false, "application clocks are set"},
    {0x4, false, "at the power limit"},
    {0x8, true, "hardware slowdown"},
    {0x20, true, "too hot (software)"},
    {0x40, true, "too hot (hardware)"},
    {0x80, true, "power brake: the supply cannot keep up"},
    {0x100, false, "display clocks are set"},
};

void bench_check_gpu_clocks(struct bench_doctor *doctor)
{
    const struct bench_nvml *nvml = nvml_of(doctor);
    for (int i = 0; nvml != NULL && i < nvml->n; i++) {
        const struct bench_nvml_gpu *gpu = &nvml->gpus[i];
        char reasons[256] = "";
        bool is_bad = false;
        for (size_t k = 0; k < sizeof(reasons_of_clocks) / sizeof(reasons_of_clocks[0]); k++)
            if (gpu->reasons >= 0 && (gpu->reasons & reasons_of_clocks[k].bit) != 0) {
                is_bad = is_bad || reasons_of_clocks[k].is_bad;
                gyre_text_append(reasons, sizeof(reasons), "%s%s", reasons[0] != '\0' ? ", " : "",
                                 reasons_of_clocks[k].words);
            }
        if (gpu->sm_mhz < 0 || gpu->reasons < 0)
            bench_unknown(doctor, gpu->bus_id, NULL,
                          "NVML does not tell the clocks of this GPU, or why they are low");
        else
            bench_say(doctor, is_bad ? BENCH_WARN : BENCH_OK, gpu->bus_id,
                      "look at fans, air flow, power supplies and cables; nvidia-smi -q -d "
                      "PERFORMANCE,TEMPERATURE,POWER -i GPU",
                      "NVML: %" PRId64 " of %s MHz, %s degrees; %s%s", gpu->sm_mhz,
                      number_of(gpu->most_sm_mhz), number_of(gpu->celsius),
                      reasons[0] == '\0' ? "nothing but idleness holds the clocks down"
                                         : "the clocks are held down: ",
                      reasons);
    }
}

void bench_check_gpu_link(struct bench_doctor *doctor)
{
    const struct bench_nvml *nvml = nvml_of(doctor);
    for (int i = 0; nvml != NULL && i < nvml->n; i++) {
        const struct bench_nvml_gpu *gpu = &nvml->gpus[i];
        const bool is_bad = gpu->width < gpu->most_width || gpu->n_replays > TOLERATED_REPLAYS;
        const bool is_known = gpu->most_width >= 0 && gpu->n_replays >= 0;
        if (gpu->width < 0)
            bench_say(doctor, BENCH_SKIPPED, gpu->bus_id, NULL,
                      "NVML does not tell the PCI link of this GPU");
        else
            bench_say(doctor,
                      is_bad     ? BENCH_WARN
                      : is_known ? BENCH_OK
                                 : BENCH_UNKNOWN,
                      gpu->bus_id,
                      is_bad ? "seat the GPU and its riser again; look at the slot's setting in "
                               "the firmware; dmesg | grep -i aer"
                             : NULL,
                      "NVML: generation %s of %s, x%" PRId64
                      " of x%s, %s packets were sent again%s",
                      number_of(gpu->generation), number_of(gpu->most_generation), gpu->width,
                      number_of(gpu->most_width), number_of(gpu->n_replays),
                      is_known ? "" : "; NVML does not tell what stands as ?");
    }
}
