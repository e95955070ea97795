/* SPDX-License-Identifier: Apache-2.0
 *
 * Each variable is read by itself, so that one wrong value does not hide the rest.
 */
#include "bench/command/command.h"

#include "core/foundation/base/param.h"
#include "core/gyre.h"

#include <stdbool.h>
#include <string.h>

int bench_command_env(int argc, char **argv)
{
    bool only_set = false;
    bool is_legal = true;
    if (argc == 2 && strcmp(argv[1], "--set") == 0) {
        only_set = true;
    } else if (argc > 1) {
        const bool is_help = bench_command_asks_help(argc, argv);
        FILE *file = is_help ? stdout : stderr;
        if (!is_help)
            bench_command_refuse_argument("env", argv[argc - 1]);
        bench_command_print_examples("env", file);
        fputs("usage: gyre env [--set]\n"
              "  --set  only the variables that are set\n"
              "The exit status is 1 if a variable is unknown or its value is not legal.\n",
              file);
        return is_help ? 0 : 2;
    }
    printf("%-29s %-16s %-24s %s\n", "# variable", "value", "from", "meaning");
    struct gyre_param_sources sources;
    gyre_param_sources_open(&sources);
    if (sources.problem[0] != '\0')
        printf("# %s\n", sources.problem);
    for (int i = 1; i < sources.n; i++)
        printf("# also from %s, where the environment has no such variable\n",
               sources.list[i].file);
    for (int i = 0; i < GYRE_N_PARAMS; i++) {
        static struct gyre_params params;
        const enum gyre_param_id id = (enum gyre_param_id)i;
        char legal[160];
        params.notes[0] = '\0';
        if (gyre_param_take(&sources, id, &params) != GYRE_SUCCESS) {
            printf("GYRE_%-24s %-16s %s\n", gyre_param_name(id), "(not legal)", gyre_cause());
            is_legal = false;
            continue;
        }
        const char *source = gyre_param_source(&params, id);
        const char *text = gyre_param_text(&params, id);
        fputs(params.notes, stdout);
        if (only_set && source[0] == '\0')
            continue;
        gyre_param_legal(id, legal, sizeof(legal));
        printf("GYRE_%-24s %-16s %-24s %s (%s)\n", gyre_param_name(id),
               text[0] == '\0' ? "-" : text, source[0] == '\0' ? "default" : source,
               gyre_param_help(id), legal);
    }
    for (int i = 0; i < sources.n; i++) {
        const struct gyre_param_source *source = &sources.list[i];
        int n_errors = 0;
        for (char *const *entry = source->entries; *entry != NULL; entry++) {
            struct gyre_param_guess guess;
            if (!gyre_param_guess(*entry, &guess))
                continue;
            n_errors += guess.is_error;
            if (guess.is_error || guess.is_close)
                printf("%.*s: unknown; did you mean %s?\n", (int)strcspn(*entry, "="), *entry,
                       guess.nearest);
            else
                printf("%.*s: gyre has no such variable and ignores it\n",
                       (int)strcspn(*entry, "="), *entry);
        }
        is_legal = n_errors == 0 && is_legal;
    }
    gyre_param_sources_close(&sources);
    return is_legal ? 0 : 1;
}

#ifdef GYRE_WITH_CUDA
#include "core/foundation/device/cuda_error.h"
#define CUDA_MAJOR (CUDART_VERSION / 1000)
#define CUDA_MINOR (CUDART_VERSION % 1000 / 10)
#else
#define CUDA_MAJOR 0
#define CUDA_MINOR 0
#endif

const char *bench_version_text(void)
{
    static const char text[] = GYRE_BENCH_VERSION;
    return text;
}

const char *bench_version_commit(void)
{
    static const char commit[] = GYRE_BENCH_COMMIT;
    return commit[0] == '\0' ? "unknown" : commit;
}

int bench_version_cuda(void)
{
    return CUDA_MAJOR * 10 + CUDA_MINOR;
}

static void print_part(const char *name, int is_in, const char *purpose)
{
    printf("  %-10s %-4s %s\n", name, is_in ? "yes" : "no", purpose);
}

int bench_command_version(int argc, char **argv)
{
    if (bench_command_asks_help(argc, argv)) {
        bench_command_print_examples("version", stdout);
        fputs("usage: gyre version\n", stdout);
        return 0;
    }
    if (argc > 1) {
        bench_command_refuse_argument("version", argv[1]);
        fputs("usage: gyre version\n", stderr);
        return 2;
    }
    printf("gyre %s, commit %s\n", bench_version_text(), bench_version_commit());
    if (CUDA_MAJOR > 0)
        printf("CUDA %d.%d\n", CUDA_MAJOR, CUDA_MINOR);
    else
        printf("built without CUDA: host memory only\n");
    fputs("compiled in:\n", stdout);
    print_part("cuda", CUDA_MAJOR > 0, "collectives on GPUs");
    print_part("verbs", GYRE_BENCH_HAS_VERBS, "RDMA");
    print_part("rdmacm", GYRE_BENCH_HAS_RDMACM, "GYRE_IB_CONNECT=rdmacm");
    print_part("mpi", GYRE_BENCH_HAS_MPI, "start with mpirun, --compare mpi");
    print_part("nccl", GYRE_BENCH_HAS_NCCL, "--compare nccl");
    print_part("json", GYRE_BENCH_HAS_JSON, "--json");
    print_part("xml", GYRE_BENCH_HAS_XML, "topology files");
    return 0;
}
