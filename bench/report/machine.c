/* SPDX-License-Identifier: Apache-2.0 */
#include "bench/report/output.h"

#include "bench/driver/rank.h"
#include "core/foundation/topo/topo_nvml.h"

#ifdef GYRE_WITH_CUDA

#include "core/foundation/device/cuda_error.h"

#include <stdio.h>

/* 13000 is 13.0. */
static void write_version(int version, char text_out[16])
{
    if (version > 0)
        snprintf(text_out, 16, "%d.%d", version / 1000, version % 1000 / 10);
}

static void find_versions(struct bench_machine *machine)
{
    int version = 0;
    if (cudaDriverGetVersion(&version) == cudaSuccess)
        write_version(version, machine->cuda_driver);
    version = 0;
    if (cudaRuntimeGetVersion(&version) == cudaSuccess)
        write_version(version, machine->cuda_runtime);
}

#else

static void find_versions(struct bench_machine *machine)
{
    (void)machine;
}

#endif

void bench_machine_open(const struct bench_rank *rank, struct bench_machine *machine_out)
{
    struct gyre_device_info info = {0};
    struct bench_machine machine = {.clocks = NULL};
    if (rank->device_kind == GYRE_DEVICE_CUDA &&
        rank->device->ops->info(rank->device, &info) == GYRE_SUCCESS) {
        machine.n_sms = info.n_sms;
        find_versions(&machine);
        (void)gyre_nvml_clocks_open("libnvidia-ml.so.1", info.pci_bus_id, &machine.clocks);
    }
    *machine_out = machine;
}

void bench_machine_close(struct bench_machine *machine)
{
    gyre_nvml_clocks_close(machine->clocks);
    machine->clocks = NULL;
}

gyre_status bench_machine_clocks(struct bench_rank *rank, const struct bench_machine *machine,
                                 struct bench_clocks *clocks_out)
{
    struct bench_clocks mine = {0, 0};
    if (machine->clocks != NULL &&
        gyre_nvml_clocks_read(machine->clocks, &mine.sm_mhz, &mine.memory_mhz) != GYRE_SUCCESS)
        mine = (struct bench_clocks){0, 0};
    double slowest[] = {
        -(double)mine.sm_mhz,
        -(double)mine.memory_mhz}; /* negated, so that the maximum is the lowest clock */
    GYRE_TRY(bench_max_over_ranks(rank, slowest, 2));
    *clocks_out = (struct bench_clocks){(unsigned)-slowest[0], (unsigned)-slowest[1]};
    return GYRE_SUCCESS;
}
