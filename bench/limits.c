/* SPDX-License-Identifier: Apache-2.0
 *
 * One process drives all GPUs that it sees.
 *
 *    limits -J limits.json       then       allreduce -g 4 --limits limits.json
 */
#include "bench/driver/option_table.h"
#include "bench/launch/launcher.h"
#include "bench/limits/limits.h"
#include "core/foundation/base/param.h"
#include "core/gyre_model.h"

#include <stdio.h>

#define NO_GPU 77 /* "skipped" for ctest and automake */

struct options {
    const char *json_path;
    bool wants_help;
};

#define AT(field) .at = offsetof(struct options, field)

static const struct bench_option table[] = {
    {'J', "json", "FILE", "write the figures as JSON, for --limits of benches", BENCH_TEXT,
     AT(json_path)},
    {'h', "help", NULL, "print this text", BENCH_FLAG, AT(wants_help)},
    {0},
};

static void print_usage(const char *program, FILE *out)
{
    fprintf(out, "usage: %s [-J FILE]\n", program);
    bench_options_print(table, 19, out);
    fputs("CUDA_VISIBLE_DEVICES selects the GPUs. Without a GPU the exit status is 77.\n", out);
}

static int run(int argc, char **argv)
{
    static const struct bench_command_line line = {
        .options = table, .user = "limits", .unknown = BENCH_NO_SUCH, .valueless = BENCH_NO_SUCH};
    struct options options = {0};
    struct bench_limits limits;
    const int ended = bench_options_start(&line, argc, argv, &options, print_usage);
    if (ended >= 0)
        return ended;
    /* Processes that measure the same GPUs spoil each other's figures. */
    const struct bench_launcher_ops *ops = NULL;
    gyre_launch launch;
    gyre_status status = bench_launcher_detect(gyre_param_environment(), &launch, &ops);
    if (status != GYRE_SUCCESS || ops != &bench_launcher_alone) {
        fputs("limits: one process measures all GPUs: start it once, without mpirun, torchrun, "
              "srun or their variables\n",
              stderr);
        return 1;
    }
    struct gyre_topo topo;
    int n_ports = 0;
    status = bench_limits_measure(&limits);
    const bool has_gpu = status != GYRE_ERROR_UNSUPPORTED;
    if (status == GYRE_SUCCESS)
        status = gyre_topo_detect(NULL, &topo);
    if (status == GYRE_SUCCESS) {
        for (int32_t i = gyre_topo_next(&topo, GYRE_TOPO_NET, 0); i >= 0;
             i = gyre_topo_next(&topo, GYRE_TOPO_NET, i + 1))
            n_ports += topo.nodes[i].is_rdma;
        gyre_topo_fini(&topo);
        if (n_ports == 0)
            bench_limits_note(&limits, "NICs", "no RDMA device");
        else
            bench_limits_note(&limits, "NICs",
                              "%d RDMA ports are there, but this program has no test", n_ports);
        bench_limits_print(&limits);
        if (options.json_path != NULL)
            status = bench_limits_write(&limits, options.json_path);
    }
    if (status == GYRE_SUCCESS)
        return 0;
    fprintf(stderr, "limits: %s\n", gyre_cause());
    return has_gpu ? 1 : NO_GPU;
}

int main(int argc, char **argv)
{
    bench_streams_open();
    return bench_streams_close("limits", run(argc, argv));
}
