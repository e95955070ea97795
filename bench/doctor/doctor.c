/* SPDX-License-Identifier: Apache-2.0
 *
 * `gyre doctor`: runs the checks, brings the ranks' findings together, writes them.
 */
#include "bench/command/command.h"
#include "bench/doctor/counters.h"
#include "bench/doctor/doctor.h"
#include "bench/doctor/merge.h"
#include "bench/doctor/options.h"
#include "bench/doctor/output/output.h"
#include "core/foundation/base/util.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define CANNOT_TELL 3
/* Apart from the severities, so that a script cannot take it for a finding. */
#define WRONG_USAGE 4

static void run_checks(struct bench_doctor *doctor, const char *only)
{
    for (int i = 0; i < BENCH_N_CHECKS; i++) {
        doctor->check = (enum bench_check_id)i;
        if (strncmp(bench_checks[i].id, only, strlen(only)) != 0)
            continue;
        bench_checks[i].run(doctor);
        /* A check that says nothing must not look like a check without problems. */
        if (bench_said(doctor) < 0)
            bench_say(doctor, BENCH_UNKNOWN, NULL, NULL, "the check came to no result");
    }
}

/* "hostA (rank 0-3), hostB (rank 4-7)" from every rank's facts. */
static gyre_status name_hosts(struct bench_doctor *doctor, char *text_out, size_t text_bytes)
{
    struct bench_launcher *launcher = &doctor->launcher;
    const int n = launcher->n_processes;
    size_t used = 0;
    snprintf(text_out, text_bytes, "%s", doctor->facts.host);
    if (n == 1)
        return GYRE_SUCCESS;
    char(*all)[64] = calloc((size_t)n, sizeof(*all));
    bool *is_in = calloc((size_t)n, sizeof(*is_in));
    gyre_status status =
        all == NULL || is_in == NULL
            ? gyre_fail(GYRE_ERROR_OUT_OF_MEMORY, "no memory for %d hosts", n)
            : launcher->ops->all_gather(launcher, doctor->facts.host, sizeof(*all), all);
    for (int i = 0; status == GYRE_SUCCESS && i < n && used < text_bytes; i++) {
        char ranks[64];
        bool is_first = true;
        for (int j = 0; j < n; j++) {
            is_in[j] = strncmp(all[j], all[i], sizeof(*all)) == 0;
            is_first = is_first && !(j < i && is_in[j]);
        }
        bench_ranks_to_text(is_in, n, ranks, sizeof(ranks));
        if (is_first)
            used += (size_t)snprintf(text_out + used, text_bytes - used, "%s%.63s (rank %s)",
                                     used > 0 ? ", " : "", all[i], ranks);
    }
    free(all);
    free(is_in);
    return status;
}

static gyre_status write_files(const struct bench_doctor_report *report,
                               const struct bench_doctor_options *options)
{
    if (options->json_path != NULL)
        GYRE_TRY(bench_doctor_write_json(report, options->json_path));
    if (options->markdown_path != NULL)
        GYRE_TRY(bench_doctor_write_markdown(report, options->markdown_path));
    if (options->html_path != NULL)
        GYRE_TRY(bench_doctor_write_html(report, options->html_path));
    return GYRE_SUCCESS;
}

/* Prints and writes the report on rank 0. The other ranks print nothing and end with status 0, so
 * that a launcher reports one failure for the job and not one for each rank. */
static gyre_status report(struct bench_doctor *doctor, const struct bench_doctor_options *options,
                          int *exit_status_out)
{
    char hosts[1024];
    struct bench_doctor_report report = {.doctor = doctor, .hosts = hosts};
    GYRE_TRY(bench_doctor_merge(doctor));
    GYRE_TRY(name_hosts(doctor, hosts, sizeof(hosts)));
    *exit_status_out = 0;
    if (doctor->launcher.process != 0)
        return GYRE_SUCCESS;
    bench_findings_sort(&doctor->findings);
    for (int i = 0; i < doctor->findings.n; i++)
        report.n_by_severity[doctor->findings.list[i].severity]++;
    report.exit_status = bench_findings_exit_status(&doctor->findings);
    bench_doctor_print(&report,
                       options->is_quiet ? BENCH_PRINT_PROBLEMS
                       : options->is_all ? BENCH_PRINT_ALL
                                         : BENCH_PRINT_USUAL,
                       stdout);
    *exit_status_out = report.exit_status;
    return write_files(&report, options);
}

static void free_matrix(struct bench_matrix *matrix)
{
    free(matrix->names);
    free(matrix->latency_us);
    free(matrix->gbytes_per_s);
}

/* Check that all ranks run the same checks as rank 0. Otherwise ranks would wait for each other in
 * the gathers for ever. */
static gyre_status agree(struct bench_launcher *launcher, const char *only)
{
    uint64_t mine = gyre_hash(GYRE_HASH_INIT, only, strlen(only));
    uint64_t *all = calloc((size_t)launcher->n_processes, sizeof(*all));
    gyre_status status = all == NULL
                             ? gyre_fail(GYRE_ERROR_OUT_OF_MEMORY, "no memory")
                             : launcher->ops->all_gather(launcher, &mine, sizeof(mine), all);
    for (int i = 0; status == GYRE_SUCCESS && i < launcher->n_processes; i++)
        if (all[i] != all[0])
            status =
                gyre_fail(GYRE_ERROR_INVALID_USAGE,
                          "rank %d has another --only than rank 0: give all ranks the same", i);
    free(all);
    return status;
}

static int examine(const struct bench_doctor_options *options)
{
    int exit_status = CANNOT_TELL;
    struct bench_doctor *doctor = calloc(1, sizeof(*doctor));
    gyre_status status = doctor == NULL ? gyre_fail(GYRE_ERROR_OUT_OF_MEMORY, "no memory")
                                        : bench_launcher_open(&doctor->launcher);
    if (status == GYRE_SUCCESS) {
        status = agree(&doctor->launcher, options->only);
        if (status != GYRE_SUCCESS)
            doctor->launcher.ops->close(&doctor->launcher);
    }
    if (status != GYRE_SUCCESS) {
        fprintf(stderr, "gyre doctor: %s\n", gyre_cause());
        free(doctor);
        return CANNOT_TELL;
    }
    doctor->root = options->root;
    doctor->environment = environ;
    struct gyre_param_sources sources;
    gyre_param_sources_open(&sources);
    doctor->params_status = gyre_params_take(&sources, &doctor->params);
    gyre_param_sources_close(&sources);
    if (doctor->params_status != GYRE_SUCCESS) {
        char *const nothing[] = {NULL};
        snprintf(doctor->params_cause, sizeof(doctor->params_cause), "%s", gyre_cause());
        (void)gyre_params_from(nothing, &doctor->params); /* the defaults, which are legal */
    }
    bench_set_host(doctor);
    run_checks(doctor, options->only);
    status = report(doctor, options, &exit_status);
    if (status == GYRE_SUCCESS && doctor->is_out_of_memory)
        status = gyre_fail(GYRE_ERROR_OUT_OF_MEMORY, "no memory for all findings");
    if (status != GYRE_SUCCESS) {
        fprintf(stderr, "gyre doctor: rank %d: %s\n", doctor->launcher.process, gyre_cause());
        exit_status = CANNOT_TELL;
    }
    doctor->launcher.ops->close(&doctor->launcher);
    free(doctor->findings.list);
    free_matrix(&doctor->hosts);
    free_matrix(&doctor->gpus);
    free_matrix(&doctor->rails);
    free(doctor->cuda);
    bench_paths_free(doctor->paths);
    bench_counters_free(doctor->before_load);
    bench_counters_free(doctor->after_load);
    free(doctor);
    return exit_status;
}

int bench_command_doctor(int argc, char **argv)
{
    struct bench_doctor_options options;
    if (!bench_doctor_parse(argc, argv, &options))
        return WRONG_USAGE;
    if (options.is_help) {
        bench_command_print_examples("doctor", stdout);
        fputs(bench_doctor_usage, stdout);
        return 0;
    }
    if (options.is_list) {
        for (int i = 0; i < BENCH_N_CHECKS; i++)
            printf("%-22s %s\n", bench_checks[i].id, bench_checks[i].title);
        return 0;
    }
    return examine(&options);
}
