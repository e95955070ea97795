/* SPDX-License-Identifier: Apache-2.0
 *
 * Every rank gathers all facts, so all come to the same finding.
 */
#include "bench/doctor/doctor.h"

#include "bench/command/command.h"
#include "core/foundation/base/text.h"
#include "core/foundation/base/util.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

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

static int count_allowed(enum bench_read *result_out)
{
    char *text = NULL;
    char list[1024] = "";
    *result_out = bench_read_all("/proc/self/status", &text);
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
    const int n_cpus = count_allowed(&result);
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
    const int n_cpus = count_allowed(&result);
    if (n_cpus <= 0) {
        bench_say_unreadable(doctor, NULL, "/proc/self/status (Cpus_allowed_list)", result);
        return;
    }
    result = bench_read_text("/sys/devices/system/cpu/online", online, sizeof(online));
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

void bench_check_job_variables(struct bench_doctor *doctor)
{
    static const struct {
        enum gyre_param_id id;
        bool is_written;
    } files[] = {{GYRE_PARAM_TOPO_FILE, false},   {GYRE_PARAM_ALGO_FILE, false},
                 {GYRE_PARAM_TUNING_FILE, false}, {GYRE_PARAM_TOPO_DUMP_FILE, true},
                 {GYRE_PARAM_DEBUG_FILE, true},   {GYRE_PARAM_METRICS_FILE, true},
                 {GYRE_PARAM_TRACE_FILE, true}};
    char ignored[512] = "";
    int n_set = 0;
    if (doctor->params_status != GYRE_SUCCESS)
        bench_fail(doctor, NULL,
                   "unset it, or write it as the message says; gyre env lists all variables",
                   "gyre does not start: %s", doctor->params_cause);
    for (const char *line = doctor->params.notes; *line != '\0'; line += strcspn(line, "\n") + 1)
        bench_warn(doctor, NULL, "unset it, or give it a value of gyre env", "%.*s",
                   (int)strcspn(line, "\n"), line);
    for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++) {
        const char *text = gyre_param_text(&doctor->params, files[i].id);
        const char *source = gyre_param_source(&doctor->params, files[i].id);
        const char *slash = strrchr(text, '/'), *root = text[0] == '/' ? bench_root : "";
        const bool is_ignored = strncmp(source, "NCCL_", 5) == 0;
        size_t n = 0;
        const int n_path =
            files[i].is_written ? (int)(slash == NULL ? 0 : slash - text + 1) : (int)strlen(text);
        const char *path = bench_text("%s%.*s", root, n_path, text);
        if (n_path == 0 || memchr(text, '%', (size_t)n_path) != NULL ||
            (files[i].is_written ? access(path, F_OK) == 0
                                 : bench_read_bytes(path, &(char){0}, 1, &n) == BENCH_READ_OK))
            continue;
        bench_say(doctor, is_ignored || files[i].is_written ? BENCH_WARN : BENCH_FAIL, source,
                  "correct the path, or unset the variable", "%s=%s: %s%s", source, text,
                  files[i].is_written ? "there is no such folder"
                                      : "there is no such file, or no permission to read it",
                  is_ignored ? "; gyre goes on without it" : "");
    }
    for (char *const *entry = doctor->environment; *entry != NULL; entry++) {
        struct gyre_param_guess guess;
        const char *name = bench_text("%.*s", (int)strcspn(*entry, "="), *entry);
        if (!gyre_param_guess(*entry, &guess) || guess.is_error)
            continue;
        if (guess.is_close)
            bench_warn(doctor, name, "correct the name; gyre env lists all variables",
                       "%s is unknown and has no effect: did you mean %s?", name, guess.nearest);
        else
            gyre_text_append(ignored, sizeof(ignored), " %s", name);
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

void bench_facts_gather(struct bench_doctor *doctor)
{
    const size_t n_bytes = sizeof(doctor->facts[0]);
    const struct bench_netdev *first = bench_net_first(&doctor->machine);
    if (bench_read_text("/proc/sys/kernel/hostname", doctor->host, sizeof(doctor->host)) !=
        BENCH_READ_OK)
        snprintf(doctor->host, sizeof(doctor->host), "a host without a name");
    snprintf(doctor->facts[BENCH_FACT_OF(version)], n_bytes, "%s %s, CUDA %d.%d",
             bench_version_text(), bench_version_commit(), bench_version_cuda() / 10,
             bench_version_cuda() % 10);
    char *fact = doctor->facts[BENCH_FACT_OF(variables_differ)];
    char text[160] = "";
    uint64_t hash = GYRE_HASH_INIT;
    for (int i = 0; i < GYRE_N_PARAMS; i++) {
        const enum gyre_param_id id = (enum gyre_param_id)i;
        const char *name = gyre_param_name(id), *value = gyre_param_text(&doctor->params, id);
        if ((gyre_param_flags(id) & GYRE_PARAM_PLAN) == 0 ||
            !gyre_param_is_set(&doctor->params, id))
            continue;
        hash = gyre_hash(hash, value, strlen(value));
        hash = gyre_hash(hash, name, strlen(name));
        if (strlen(text) < 120)
            gyre_text_append(text, 130, "%s%s=%s", text[0] != '\0' ? " " : "", name, value);
    }
    snprintf(fact, n_bytes, "%.147s (%08x)", text[0] == '\0' ? "none set" : text, (unsigned)hash);
    (void)bench_read_text("/proc/sys/kernel/osrelease", doctor->facts[BENCH_FACT_OF(kernel)], 128);
    bench_fact_of_driver(doctor->facts[BENCH_FACT_OF(driver)], n_bytes);
    char *firmware = doctor->facts[BENCH_FACT_OF(firmware)];
    char *rates = doctor->facts[BENCH_FACT_OF(rate)];
    for (int i = 0; i < doctor->machine.n_ports; i++) {
        const struct bench_rdma_port *port = &doctor->machine.ports[i];
        const char *one = bench_text("%s %s", port->board, port->firmware);
        if (port->why_unused[0] != '\0')
            continue;
        if (!port->is_soft && strstr(firmware, one) == NULL)
            gyre_text_append(firmware, n_bytes, "%s%s", firmware[0] != '\0' ? ", " : "", one);
        if (port->is_active)
            gyre_text_append(rates, n_bytes, "%s%.4g", rates[0] != '\0' ? "," : "",
                             port->gbit_per_s);
    }
    if (doctor->machine.n_used_ports > 0)
        gyre_text_append(rates, n_bytes, "%s Gbit/s", rates[0] == '\0' ? "0" : "");
    if (first != NULL)
        snprintf(doctor->facts[BENCH_FACT_OF(mtu)], n_bytes, "%" PRId64, first->mtu);
    bench_fact_of_gids(doctor, doctor->facts[BENCH_FACT_OF(gid)], n_bytes);
    bench_text_clean(doctor->host);
    for (int i = 0; i < BENCH_N_FACTS; i++)
        bench_text_clean(doctor->facts[i]);
}

/* Ranks all-gather it, so its layout is fixed. */
struct entry {
    char host[64];
    char text[160];
};

static const struct {
    enum bench_severity severity;
    const char *title, *fix;
} rules[BENCH_N_FACTS] = {
    {BENCH_FAIL, "gyre's version and commit", "install the same gyre on every host"},
    {BENCH_FAIL, "variables that plans depend on",
     "give all ranks the same values: mpirun -x NAME, srun --export=ALL"},
    {BENCH_WARN, "kernel", "apt full-upgrade and reboot on every host"},
    {BENCH_WARN, "NVIDIA driver", "install the same NVIDIA driver on every host"},
    {BENCH_WARN, "firmware of RDMA adapters", "mlxfwmanager --online -u on every host"},
    {BENCH_FAIL, "MTU of the network interface",
     "ip link set dev NAME mtu 9000 on every host and switch port of the network"},
    {BENCH_FAIL, "type and family of GIDs",
     "give every port an IPv4 address, and leave GYRE_IB_GID_INDEX unset: a RoCE v2 address of one "
     "family is needed at both ends (rdma.gid)"},
    {BENCH_WARN, "RDMA ports", "look for ports that are down: rdma.ports"},
};

void bench_check_facts(struct bench_doctor *doctor)
{
    const int fact = (int)doctor->check - BENCH_CHECK_job_version;
    const int n = doctor->launcher.n_processes;
    const char *title = rules[fact].title;
    int usual = 0, n_usual = 0;
    char list[1024] = "";
    struct entry mine;
    memcpy(mine.host, doctor->host, sizeof(mine.host));
    memcpy(mine.text, doctor->facts[fact], sizeof(mine.text));
    struct entry *all = bench_all_gather(doctor, &mine, sizeof(mine));
    if (all == NULL) {
        bench_unknown(doctor, NULL, NULL, "the other ranks do not answer: %s", gyre_cause());
        return;
    }
    for (int i = 0; i < n; i++)
        all[i].host[sizeof(all[i].host) - 1] = all[i].text[sizeof(all[i].text) - 1] = '\0';
    for (int i = 0; i < n; i++) {
        int n_same = 0;
        for (int j = 0; j < n; j++)
            n_same += strcmp(all[i].text, all[j].text) == 0;
        usual = n_same > n_usual ? i : usual;
        n_usual = n_same > n_usual ? n_same : n_usual;
    }
    bool *is_in = bench_keep((size_t)n, sizeof(*is_in)); /* the ranks that have rank i's text */
    for (int i = 0; i < n; i++) {
        char ranks[64];
        bool is_first = strcmp(all[i].text, all[usual].text) != 0;
        for (int j = 0; j < n; j++) {
            is_in[j] = strcmp(all[i].text, all[j].text) == 0;
            is_first = is_first && (j >= i || !is_in[j]);
        }
        bench_ranks_to_text(is_in, n, ranks, sizeof(ranks));
        if (is_first)
            gyre_text_append(list, sizeof(list), "\nrank %s (%s): %s", ranks, all[i].host,
                             all[i].text[0] == '\0' ? "not known" : all[i].text);
    }
    if (list[0] != '\0')
        bench_say(doctor, rules[fact].severity, NULL, rules[fact].fix,
                  "%s: most ranks have %s, but%s", title,
                  all[usual].text[0] == '\0' ? "none that is known" : all[usual].text, list);
    else if (all[usual].text[0] == '\0')
        bench_skip(doctor, "%s: not known on any rank", title);
    else
        bench_ok(doctor, NULL, "%s: %s on all %d ranks", title, all[usual].text, n);
}

#define MOST_SKEW_NS 2000000000LL /* a loaded host may come this late from the barrier */

void bench_check_job_clock_skew(struct bench_doctor *doctor)
{
    const int n = doctor->launcher.n_processes;
    struct timespec now;
    int64_t mine = 0;
    int early = 0, late = 0;
    const int64_t *all = bench_all_gather(doctor, &mine, sizeof(mine)); /* a barrier */
    clock_gettime(CLOCK_REALTIME, &now);
    mine = (int64_t)now.tv_sec * 1000000000LL + now.tv_nsec;
    if (all != NULL)
        all = bench_all_gather(doctor, &mine, sizeof(mine));
    for (int i = 0; all != NULL && i < n; i++) {
        early = all[i] < all[early] ? i : early;
        late = all[i] > all[late] ? i : late;
    }
    if (all == NULL)
        bench_unknown(doctor, NULL, NULL, "the other ranks do not answer");
    else if (all[late] - all[early] > MOST_SKEW_NS)
        bench_warn(doctor, NULL, "timedatectl set-ntp true on every host; chronyc tracking",
                   "the clock of rank %d is %.1f s ahead of that of rank %d: logs of the hosts "
                   "cannot be put in order",
                   late, (double)(all[late] - all[early]) / 1e9, early);
    else
        bench_ok(doctor, NULL, "the clocks of %d ranks agree to within 2 s", n);
}
