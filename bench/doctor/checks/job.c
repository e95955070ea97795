/* SPDX-License-Identifier: Apache-2.0
 *
 * Checks of the job: how it was started, on which processors, and with which variables.
 */
#include "bench/doctor/doctor.h"
#include "bench/doctor/pci.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void bench_check_job_launcher(struct bench_doctor *doctor)
{
    const struct bench_launcher *launcher = &doctor->launcher;
    const char *slurm = bench_variable(doctor, "SLURM_JOB_NUM_NODES");
    if (launcher->n_processes > 1)
        bench_say(doctor, BENCH_OK, NULL, NULL, "%s: %d processes%s%s", launcher->launch.name,
                  launcher->n_processes, launcher->launch.choice[0] != '\0' ? "; " : "",
                  launcher->launch.choice);
    else if (slurm != NULL && atoi(slurm) > 1)
        bench_say(doctor, BENCH_WARN, NULL,
                  "srun --mpi=pmix gyre doctor, or mpirun gyre doctor, inside the allocation",
                  "SLURM_JOB_NUM_NODES=%.16s, but one process runs: the other hosts are not looked "
                  "at",
                  slurm);
    else
        bench_say(doctor, BENCH_OK, NULL, NULL, "no launcher: this machine alone is looked at");
}

/* ---- processors ---------------------------------------------------------------------------- */

/* The number of processors that this process may run on; -1 if it is not known. */
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
    free(text);
    const int n = list[0] == '\0' ? -1 : bench_cpus_count(list);
    if (n <= 0)
        *result_out = BENCH_READ_BROKEN;
    return n;
}

static int count_gpus(const char *root)
{
    struct bench_pci *list;
    int n_gpus = 0;
    const int n = bench_pci_list(root, &list);
    for (int i = 0; i < n; i++)
        n_gpus += list[i].is_gpu;
    free(list);
    return n_gpus;
}

void bench_check_job_oversubscription(struct bench_doctor *doctor)
{
    enum bench_read result;
    const int n_ranks = doctor->launcher.n_local_processes;
    const int n_cpus = count_allowed(doctor->root, &result);
    const int n_gpus = count_gpus(doctor->root);
    if (n_cpus <= 0)
        bench_say_unreadable(doctor, NULL, "/proc/self/status (Cpus_allowed_list)", result);
    else if (n_gpus > 0 && n_ranks > n_gpus)
        bench_say(doctor, BENCH_WARN, NULL, "start one rank for each GPU",
                  "%d ranks on this host, but %d GPUs: gyre takes one rank a GPU", n_ranks, n_gpus);
    else if (n_ranks > n_cpus && n_cpus > 1)
        bench_say(doctor, BENCH_WARN, NULL, "start fewer ranks on a host",
                  "%d ranks on this host share %d processors: waits yield, and times vary", n_ranks,
                  n_cpus);
    else
        bench_say(doctor, BENCH_OK, NULL, NULL,
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
        bench_say_unreadable(doctor, NULL, "/sys/devices/system/cpu/online",
                             result == BENCH_READ_OK ? BENCH_READ_BROKEN : result);
    else if (n_cpus == 1 && n_online > 1)
        bench_say(doctor, BENCH_WARN, NULL,
                  "mpirun --bind-to none, or --map-by numa:PE=4; srun --cpus-per-task=4",
                  "/proc/self/status: this process may run on one of %d processors alone; the "
                  "thread that serves the network shares it with the program",
                  n_online);
    else
        bench_say(doctor, BENCH_OK, NULL, NULL, "/proc/self/status: %d of %d processors", n_cpus,
                  n_online);
}

/* ---- job.variables ------------------------------------------------------------------------- */

void bench_check_job_variables(struct bench_doctor *doctor)
{
    char ignored[512] = "";
    int n_set = 0;
    if (doctor->params_status != GYRE_SUCCESS)
        bench_say(doctor, BENCH_FAIL, NULL,
                  "unset it, or write it as the message says; gyre env "
                  "lists all variables",
                  "gyre does not start: %s", doctor->params_cause);
    for (const char *line = doctor->params.notes; *line != '\0';
         line += strcspn(line, "\n") + 1) /* what the library changes or ignores */
        bench_say(doctor, BENCH_WARN, NULL, "unset it, or give it a value of gyre env", "%.*s",
                  (int)strcspn(line, "\n"), line);
    for (char *const *entry = doctor->environment; *entry != NULL; entry++) {
        struct gyre_param_guess guess;
        char name[64];
        const size_t used = strlen(ignored);
        if (!gyre_param_guess(*entry, &guess) || guess.is_error)
            continue;
        snprintf(name, sizeof(name), "%.*s", (int)strcspn(*entry, "="), *entry);
        if (guess.is_close)
            bench_say(doctor, BENCH_WARN, name, "correct the name; gyre env lists all variables",
                      "%s is unknown and has no effect: did you mean %s?", name, guess.nearest);
        else
            snprintf(ignored + used, sizeof(ignored) - used, " %s", name);
    }
    for (int id = 0; id < GYRE_N_PARAMS; id++)
        n_set += gyre_param_is_set(&doctor->params, (enum gyre_param_id)id);
    if (bench_said(doctor) < 0)
        bench_say(doctor, BENCH_OK, NULL, NULL,
                  "%d variables are set; variables of NCCL that gyre does not have, and ignores:%s",
                  n_set, ignored[0] == '\0' ? " none" : ignored);
}
