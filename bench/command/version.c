/* SPDX-License-Identifier: Apache-2.0 */
#include "bench/command/command.h"
#include "bench/command/version.h"
#include "core/gyre.h"

#include <string.h>

#ifdef GYRE_WITH_CUDA
#include "core/foundation/device/cuda_error.h"
#define CUDA_MAJOR (CUDART_VERSION / 1000)
#define CUDA_MINOR (CUDART_VERSION % 1000 / 10)
#else
#define CUDA_MAJOR 0
#define CUDA_MINOR 0
#endif

#ifdef GYRE_BENCH_WITH_MPI
#define HAS_MPI 1
#else
#define HAS_MPI 0
#endif
#ifdef GYRE_BENCH_WITH_NCCL
#define HAS_NCCL 1
#else
#define HAS_NCCL 0
#endif
#ifdef GYRE_BENCH_WITH_JSON
#define HAS_JSON 1
#else
#define HAS_JSON 0
#endif
#ifdef GYRE_WITH_LIBXML2
#define HAS_XML 1
#else
#define HAS_XML 0
#endif
#ifdef GYRE_WITH_RDMACM
#define HAS_RDMACM 1
#else
#define HAS_RDMACM 0
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
    print_part("rdmacm", HAS_RDMACM, "GYRE_IB_CONNECT=rdmacm");
    print_part("mpi", HAS_MPI, "start with mpirun, --compare mpi");
    print_part("nccl", HAS_NCCL, "--compare nccl");
    print_part("json", HAS_JSON, "--json");
    print_part("xml", HAS_XML, "topology files");
    return 0;
}
