/* SPDX-License-Identifier: Apache-2.0
 *
 * How the job was started, with which processors and variables.
 */
#include "bench/doctor/doctor.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

void bench_check_job_launcher(struct bench_doctor *doctor)
{
    const struct bench_launcher *launcher = &doctor->launcher;
    const char *slurm = bench_variable(doctor, "SLURM_JOB_NUM_NODES");
    if (launcher->n_processes > 1)
        bench_ok(doctor, NULL, "%s: %d processes%s%s", launcher->launch.name, launcher->n_processes,
                 launcher->launch.choice[0] != '\0' ? "; " : "", launcher->launch.choice);
    else if (slurm != NULL && atoi(slurm) > 1)
        bench_warn(
            doctor, NULL,
            "srun --mpi=pmix gyre doctor, or mpirun gyre doctor, inside the allocation",
            "SLURM_JOB_NUM_NODES=%.16s, but one process runs: the other hosts are not looked at",
            slurm);
    else
        bench_ok(doctor, NULL, "no launcher: this machine alone is looked at");
}

static int count_allowed(const char *root, enum bench_read *result_out)
{
    char *text = NULL;
    char list[1024] = "";
    *result_out = bench_read_all(root, "/proc/self/status", &text);
    if (*result_out != BENCH_READ_OK)
        return -1;
    const char *line = strstr(text, "Cpus_allowed_list:");
    if (line != NULL)
        sscanf(line, "Cpus_allowed_list: %1023s", list);
    const int n = list[0] == '\0' ? -1 : bench_cpus_count(list);
    if (n <= 0)
        *result_out = BENCH_READ_BROKEN;
    return n;
}

void bench_check_job_oversubscription(struct bench_doctor *doctor)
{
    enum bench_read result;
    const int n_ranks = doctor->launcher.n_local_processes;
    const int n_cpus = count_allowed(doctor->root, &result);
    int n_gpus = 0;
    for (int i = 0; i < doctor->machine.n_pci; i++)
        n_gpus += doctor->machine.pci[i].is_gpu;
    if (n_cpus <= 0)
        bench_say_unreadable(doctor, NULL, "/proc/self/status (Cpus_allowed_list)", result);
    else if (n_gpus > 0 && n_ranks > n_gpus)
        bench_warn(doctor, NULL, "start one rank for each GPU",
                   "%d ranks on this host, but %d GPUs: gyre takes one rank a GPU", n_ranks,
                   n_gpus);
    else if (n_ranks > n_cpus && n_cpus > 1)
        bench_warn(doctor, NULL, "start fewer ranks on a host",
                   "%d ranks on this host share %d processors: waits yield, and times vary",
                   n_ranks, n_cpus);
    else
        bench_ok(doctor, NULL,
                 "/proc/self/status: %d processors for this process; ranks on this host: %d",
                 n_cpus, n_ranks);
}

void bench_check_job_binding(struct bench_doctor *doctor)
{
    char online[1024];
    enum bench_read result;
    const int n_cpus = count_allowed(doctor->root, &result);
    if (n_cpus <= 0) {
        bench_say_unreadable(doctor, NULL, "/proc/self/status (Cpus_allowed_list)", result);
        return;
    }
    result =
        bench_read_text(doctor->root, "/sys/devices/system/cpu/online", online, sizeof(online));
    const int n_online = result == BENCH_READ_OK ? bench_cpus_count(online) : -1;
    if (n_online < 0)
        bench_say_unreadable(doctor, NULL, "/sys/devices/system/cpu/online", result);
    else if (n_cpus == 1 && n_online > 1)
        bench_warn(doctor, NULL,
                   "mpirun --bind-to none, or --map-by numa:PE=4; srun --cpus-per-task=4",
                   "/proc/self/status: this process may run on one of %d processors alone; the "
                   "thread that serves the network shares it with the program",
                   n_online);
    else
        bench_ok(doctor, NULL, "/proc/self/status: %d of %d processors", n_cpus, n_online);
}

static void check_files(struct bench_doctor *doctor)
{
    static const struct {
        enum gyre_param_id id;
        bool is_written;
    } files[] = {{GYRE_PARAM_TOPO_FILE, false},   {GYRE_PARAM_ALGO_FILE, false},
                 {GYRE_PARAM_TUNING_FILE, false}, {GYRE_PARAM_TOPO_DUMP_FILE, true},
                 {GYRE_PARAM_DEBUG_FILE, true},   {GYRE_PARAM_METRICS_FILE, true},
                 {GYRE_PARAM_TRACE_FILE, true}};
    for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++) {
        const char *text = gyre_param_text(&doctor->params, files[i].id);
        const char *source = gyre_param_source(&doctor->params, files[i].id);
        const char *slash = strrchr(text, '/'), *root = text[0] == '/' ? doctor->root : "";
        const bool is_ignored = strncmp(source, "NCCL_", 5) == 0;
        size_t n = 0;
        const int n_path =
            files[i].is_written ? (int)(slash == NULL ? 0 : slash - text + 1) : (int)strlen(text);
        const char *path = bench_text("%.*s", n_path, text);
        if (path[0] == '\0' || strchr(path, '%') != NULL ||
            (files[i].is_written
                 ? bench_exists(root, path)
                 : bench_read_bytes(root, path, &(char){0}, 1, &n) == BENCH_READ_OK))
            continue;
        bench_say(doctor, is_ignored || files[i].is_written ? BENCH_WARN : BENCH_FAIL, source,
                  "correct the path, or unset the variable", "%s=%s: %s%s", source, text,
                  files[i].is_written ? "there is no such folder"
                                      : "there is no such file, or no permission to read it",
                  is_ignored ? "; gyre goes on without it" : "");
    }
}

void bench_check_job_variables(struct bench_doctor *doctor)
{
    char ignored[512] = "";
    int n_set = 0;
    if (doctor->params_status != GYRE_SUCCESS)
        bench_fail(doctor, NULL,
                   "unset it, or write it as the message says; gyre env lists all variables",
                   "gyre does not start: %s", doctor->params_cause);
    for (const char *line = doctor->params.notes; *line != '\0'; line += strcspn(line, "\n") + 1)
        bench_warn(doctor, NULL, "unset it, or give it a value of gyre env", "%.*s",
                   (int)strcspn(line, "\n"), line);
    check_files(doctor);
    for (char *const *entry = doctor->environment; *entry != NULL; entry++) {
        struct gyre_param_guess guess;
        const char *name = bench_text("%.*s", (int)strcspn(*entry, "="), *entry);
        if (!gyre_param_guess(*entry, &guess) || guess.is_error)
            continue;
        if (guess.is_close)
            bench_warn(doctor, name, "correct the name; gyre env lists all variables",
                       "%s is unknown and has no effect: did you mean %s?", name, guess.nearest);
        else
            bench_append(ignored, sizeof(ignored), " %s", name);
    }
    for (int id = 0; id < GYRE_N_PARAMS; id++)
        n_set += gyre_param_is_set(&doctor->params, (enum gyre_param_id)id);
    if (!bench_said(doctor))
        bench_ok(doctor, NULL,
                 "%d variables are set; variables of NCCL that gyre does not have, and ignores:%s",
                 n_set, ignored[0] == '\0' ? " none" : ignored);
}

enum harmed { ANY, WITH_RDMA, WITH_RDMA_AND_GPU, WITH_SOFT_RDMA };

/* Legal values that are nearly always left over from a search for an error or from another
 * cluster. */
static const struct harmful {
    enum gyre_param_id id;
    const char *values; /* with blanks around each, NULL = as 1 */
    enum harmed harmed;
    const char *harm;
} harmful[] = {
    {GYRE_PARAM_P2P_DISABLE, NULL, ANY,
     "ranks of a host do not address each other's memory; if it was set because copies hang, look "
     "at host.acs and host.iommu"},
    {GYRE_PARAM_SHM_DISABLE, NULL, ANY, "processes of a host talk over TCP"},
    {GYRE_PARAM_IB_DISABLE, NULL, WITH_RDMA, "RDMA ports are here and active, but TCP is used"},
    {GYRE_PARAM_NET, NULL, WITH_RDMA, "RDMA ports are here and active, but TCP is used"},
    {GYRE_PARAM_TRANSPORT, " socket ", ANY, "everything goes over TCP, inside hosts too"},
    {GYRE_PARAM_NET_GDR_LEVEL, " LOC ", WITH_RDMA_AND_GPU, "no NIC may reach GPU memory"},
    {GYRE_PARAM_DEBUG, " TRACE ", ANY, "each call is logged, which takes longer than the call"},
    {GYRE_PARAM_IB_RETRY_CNT, " 7 ", WITH_SOFT_RDMA,
     "Soft-RoCE takes 7 for ever: a lost peer is never reported"},
    {GYRE_PARAM_SOCKET_IFNAME, " lo =lo ", ANY, "ranks on other hosts cannot reach loopback"},
};

static void warn(struct bench_doctor *doctor, enum gyre_param_id id, const char *harm)
{
    const char *source = gyre_param_source(&doctor->params, id);
    bench_warn(doctor, source, bench_text("unset %s", source), "%s=%s: %s", source,
               gyre_param_text(&doctor->params, id), harm);
}

/* A traffic class is DSCP times 4 plus two bits for ECN, of which 2 means "can be marked". */
static void check_class(struct bench_doctor *doctor, enum gyre_param_id id)
{
    const int64_t class = gyre_param_number(&doctor->params, id);
    if (gyre_param_is_set(&doctor->params, id) && (class & 1) != 0)
        warn(doctor, id,
             bench_text("it is the whole byte of the IP header: DSCP %" PRId64 ", ECN bits %" PRId64
                        "%" PRId64 ", hardly what was meant; " BENCH_TRAFFIC_CLASS
                        ", 160 is DSCP 40, priority 5",
                        class >> 2, class >> 1 & 1, class & 1));
}

void bench_check_job_harmful(struct bench_doctor *doctor)
{
    const struct bench_machine *machine = &doctor->machine;
    const char *visible = bench_variable(doctor, "CUDA_VISIBLE_DEVICES");
    const char *off = bench_rdma_off(&doctor->params);
    bool is_here[] = {[ANY] = true, [WITH_SOFT_RDMA] = false};
    for (int i = 0; i < machine->n_ports; i++) {
        is_here[WITH_SOFT_RDMA] = is_here[WITH_SOFT_RDMA] || machine->ports[i].is_soft;
        is_here[WITH_RDMA] =
            is_here[WITH_RDMA] || (!machine->ports[i].is_soft && machine->ports[i].is_active &&
                                   doctor->expect.n_ports != 0);
    }
    is_here[WITH_RDMA_AND_GPU] = is_here[WITH_RDMA] && machine->has_gpu;
    for (size_t i = 0; i < sizeof(harmful) / sizeof(harmful[0]); i++) {
        const struct harmful *row = &harmful[i];
        const char *value = bench_text(" %s ", gyre_param_text(&doctor->params, row->id));
        const bool is_bad = row->values != NULL ? strstr(row->values, value) != NULL
                                                : gyre_param_number(&doctor->params, row->id) == 1;
        /* NCCL's names may come from another cluster, while gyre's own are meant. */
        const bool is_meant = row->harmed == WITH_RDMA &&
                              strncmp(gyre_param_source(&doctor->params, row->id), "GYRE_", 5) == 0;
        if (gyre_param_is_set(&doctor->params, row->id) && is_bad && is_here[row->harmed] &&
            !is_meant)
            warn(doctor, row->id, row->harm);
    }
    if (gyre_param_has(&doctor->params, GYRE_PARAM_CHECK, GYRE_CHECK_CALLS))
        warn(doctor, GYRE_PARAM_CHECK, "each call waits for all ranks before it begins");
    check_class(doctor, GYRE_PARAM_IB_TC);
    check_class(doctor, GYRE_PARAM_IB_FIFO_TC);
    const int64_t exponent = gyre_param_number(&doctor->params, GYRE_PARAM_IB_TIMEOUT);
    const int64_t retries = gyre_param_number(&doctor->params, GYRE_PARAM_IB_RETRY_CNT);
    if (gyre_param_is_set(&doctor->params, GYRE_PARAM_IB_TIMEOUT) && exponent >= 20)
        warn(
            doctor, GYRE_PARAM_IB_TIMEOUT, /* IBTA: 4.096 us times two to its power */
            bench_text("a peer that is gone is noticed by the adapter after %.0f s at the earliest",
                       4.096e-6 * (double)(1ULL << exponent) * (double)(retries + 1)));
    if (gyre_param_is_set(&doctor->params, GYRE_PARAM_IB_GID_INDEX) &&
        strcmp(gyre_param_text(&doctor->params, GYRE_PARAM_IB_GID_INDEX), "-1") != 0)
        warn(doctor, GYRE_PARAM_IB_GID_INDEX,
             "rows of the GID table differ between hosts and move after a link failure; the rules "
             "find the right one (rdma.gid)");
    if (visible != NULL && machine->has_gpu && (visible[0] == '\0' || strcmp(visible, "-1") == 0))
        bench_warn(doctor, "CUDA_VISIBLE_DEVICES", "unset CUDA_VISIBLE_DEVICES",
                   "CUDA_VISIBLE_DEVICES=%s hides all GPUs", visible);
    if (!bench_said(doctor))
        bench_ok(doctor, NULL, "no variable that is nearly always a mistake%s%s",
                 off != NULL ? "; RDMA is off, as is meant: " : "", off != NULL ? off : "");
}
