/* SPDX-License-Identifier: Apache-2.0 */
#include "bench/doctor/doctor.h"

#include "bench/command/command.h"
#include "bench/driver/option_table.h"
#include "core/foundation/base/file.h"
#include "core/foundation/base/text.h"
#include "core/foundation/base/util.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define CANNOT_TELL 3
/* No severity has this exit status. */
#define WRONG_USAGE 4

const struct bench_check bench_checks[BENCH_N_CHECKS] = {
#define BENCH_VALUE(group, name) .run = bench_check_values
#define BENCH_TRIAL(group, name) .run = bench_check_gpu_trial
#define BENCH_FACT(group, name)  .run = bench_check_facts
#define BENCH_CODE(group, name)  .run = bench_check_##group##_##name
#define BENCH_PORT(group, name)  .run_port = bench_check_##group##_##name
#define X(group, name, by, needs, title, nothing) \
    {#group "." #name, title, BENCH_NEEDS_##needs, nothing, BENCH_##by(group, name)},
#include "bench/doctor/check_table.h"
#undef X
};

struct options {
    const char *root; /* "" = this machine */
    const char *json_path, *markdown_path, *html_path;
    const char *only;   /* prefix of ids, "" = all */
    const char *expect; /* NULL = nothing */
    int n_seconds;      /* of --counters, -1 = not given */
    bool is_list, is_help, is_quiet, is_all, is_env;
};

#define AT(field) .at = offsetof(struct options, field)

static const struct bench_option table[] = {
    {0, "json", "FILE", "write the findings as JSON (bench/doctor/doctor.schema.json)", BENCH_TEXT,
     AT(json_path)},
    {0, "markdown", "FILE", "write them as Markdown, to paste into an issue", BENCH_TEXT,
     AT(markdown_path)},
    {0, "html", "FILE", "write them as one HTML file that loads nothing", BENCH_TEXT,
     AT(html_path)},
    {0, "only", "PREFIX", "run only the checks whose id begins so: rdma, host.memlock", BENCH_TEXT,
     AT(only)},
    {0, "expect", "LIST",
     "judge against what should be there: gpus=8,ports=8,rate=400,mtu=4200, or a file\nwith that",
     BENCH_TEXT, AT(expect)},
    {0, "quiet", NULL, "print problems alone", BENCH_FLAG, AT(is_quiet)},
    {0, "all", NULL, "print each check, skipped ones too, with its reason", BENCH_FLAG, AT(is_all)},
    {0, "emit-env", NULL, "print the variables to set and to unset, and nothing else", BENCH_FLAG,
     AT(is_env)},
    {0, "counters", "SECONDS",
     "print what RDMA ports count, in all and in so many seconds, and the failures and\nmoves of "
     "connections in GYRE_METRICS_FILE's files, and check nothing",
     BENCH_NUMBER, AT(n_seconds), 0, 86400},
    {0, "root", "DIR", "read proc, sys, etc and dev below DIR instead of this machine's",
     BENCH_TEXT, AT(root)},
    {0, "list", NULL, "print the id and the title of every check", BENCH_FLAG, AT(is_list)},
    {'h', "help", NULL, "print this text", BENCH_FLAG, AT(is_help)},
    {0},
};

/* False after printing why. */
static bool parse(int argc, char **argv, struct options *options)
{
    static const struct bench_command_line line = {.options = table,
                                                   .user = "gyre doctor",
                                                   .unknown = "no such option (gyre doctor --help)",
                                                   .valueless = "needs a value"};
    bool is_known = false;
    if (!bench_options_take(&line, argc, argv, options))
        return false;
    for (int i = 0; i < BENCH_N_CHECKS; i++)
        is_known =
            is_known || strncmp(bench_checks[i].id, options->only, strlen(options->only)) == 0;
    if (!is_known)
        fprintf(stderr, "gyre doctor: no check begins with %s (gyre doctor --list)\n",
                options->only);
    const bool has_root =
        options->root[0] == '\0' || access(bench_text("%s/", options->root), F_OK) == 0;
    if (is_known && !has_root)
        fprintf(stderr, "gyre doctor: --root %s: there is no such folder\n", options->root);
    const bool is_lost =
        options->n_seconds >= 0 && (options->json_path != NULL || options->markdown_path != NULL ||
                                    options->html_path != NULL);
    if (is_lost)
        fprintf(stderr, "gyre doctor: --counters checks nothing, so there are no findings to write "
                        "with --json, --markdown or --html\n");
    return is_known && has_root && !is_lost;
}

static void run_check(struct bench_doctor *doctor, enum bench_check_id id)
{
#define WORDS(name, words) words,
    static const char *const words[] = {BENCH_NEEDS_TABLE(WORDS)};
#undef WORDS
    const struct bench_check *check = &bench_checks[id];
    const struct bench_machine *machine = &doctor->machine;
    enum bench_needs needs = check->needs;
    bool has_hardware = false;
    BENCH_EACH_PORT(doctor, port)
    has_hardware = has_hardware || !port->is_soft;
    if (needs == BENCH_NEEDS_USED_PORT && machine->n_ports == 0)
        needs = BENCH_NEEDS_PORT;
    const bool has[] = {
        [BENCH_NEEDS_NOTHING] = true,
        [BENCH_NEEDS_PORT] = machine->n_ports > 0,
        [BENCH_NEEDS_USED_PORT] = machine->n_used_ports > 0,
        [BENCH_NEEDS_GPU] = machine->has_gpu || machine->has_gpu_driver,
        [BENCH_NEEDS_GPU_ON_PCI] = machine->has_gpu,
        [BENCH_NEEDS_CARD] = machine->has_gpu || machine->has_nic,
        [BENCH_NEEDS_GPU_AND_NIC] = machine->has_gpu && has_hardware,
        [BENCH_NEEDS_RANKS] = doctor->launcher.n_processes > 1,
        [BENCH_NEEDS_HOSTS] = doctor->launcher.n_processes > 1,
    };
    const char *lack = has[needs] ? NULL : words[needs];
    doctor->check = id;
    if (lack == NULL && check->run != NULL)
        check->run(doctor);
    BENCH_EACH_PORT(doctor, port)
    if (lack == NULL && check->run_port != NULL)
        check->run_port(doctor, port);
    lack = lack == NULL ? check->nothing : lack;
    if (!bench_said(doctor) && lack != NULL)
        bench_skip(doctor, "%s", lack);
    else if (!bench_said(doctor))
        bench_unknown(doctor, NULL, NULL, "the check came to no result");
}

/* "hostA (rank 0-3), hostB (rank 4-7)". NULL = a gather failed. */
static const char *name_hosts(struct bench_doctor *doctor)
{
    const int n = doctor->launcher.n_processes;
    if (n == 1)
        return doctor->host;
    char *text = bench_keep(1024, 1);
    bool *is_in = bench_keep((size_t)n, sizeof(*is_in));
    const char(*all)[64] = bench_all_gather(doctor, doctor->host, sizeof(*all));
    for (int i = 0; all != NULL && i < n; i++) {
        char ranks[64];
        bool is_first = true;
        for (int j = 0; j < n; j++) {
            is_in[j] = strncmp(all[j], all[i], sizeof(*all)) == 0;
            is_first = is_first && !(j < i && is_in[j]);
        }
        bench_ranks_to_text(is_in, n, ranks, sizeof(ranks));
        if (is_first)
            gyre_text_append(text, 1024, "%s%.63s (rank %s)", i > 0 ? ", " : "", all[i], ranks);
    }
    return all == NULL ? NULL : text;
}

static gyre_status write_text(const struct bench_doctor *doctor, const char *option,
                              const char *path,
                              void (*put)(FILE *file, const struct bench_doctor *doctor))
{
    char *text = NULL;
    size_t n_bytes = 0;
    if (path == NULL)
        return GYRE_SUCCESS;
    FILE *file = open_memstream(&text, &n_bytes);
    if (file == NULL)
        return gyre_fail_errno(errno, "%s %s", option, path);
    put(file, doctor);
    const bool is_bad = ferror(file) != 0;
    const gyre_status status =
        fclose(file) != 0 || is_bad
            ? gyre_fail(GYRE_ERROR_OUT_OF_MEMORY, "%s %s: no memory", option, path)
            : gyre_file_replace(path, text, n_bytes);
    free(text);
    return status;
}

/* Other ranks end with status 0, so that a launcher reports one failure. */
static gyre_status report(struct bench_doctor *doctor, const struct options *options)
{
    int *n = doctor->n_by_severity;
    GYRE_TRY(bench_findings_merge(doctor));
    doctor->host_names = name_hosts(doctor);
    if (doctor->host_names == NULL)
        return GYRE_ERROR_REMOTE;
    if (doctor->launcher.process != 0)
        return GYRE_SUCCESS;

    for (int i = 0; i < doctor->findings.n; i++)
        n[doctor->findings.list[i].severity]++;
    doctor->exit_status = n[BENCH_FAIL] > 0      ? 2
                          : n[BENCH_WARN] > 0    ? 1
                          : n[BENCH_UNKNOWN] > 0 ? CANNOT_TELL
                                                 : 0;
    doctor->summary = bench_text("%d fail, %d warn, %d unknown, %d ok, %d skipped", n[BENCH_FAIL],
                                 n[BENCH_WARN], n[BENCH_UNKNOWN], n[BENCH_OK], n[BENCH_SKIPPED]);
    if (options->is_env)
        bench_doctor_print_env(doctor, stdout);
    else
        bench_doctor_print(doctor,
                           options->is_quiet          ? BENCH_PRINT_PROBLEMS
                           : options->is_all          ? BENCH_PRINT_ALL
                           : options->only[0] == '\0' ? BENCH_PRINT_GROUPS
                                                      : BENCH_PRINT_ROWS,
                           stdout);
    if (options->json_path != NULL)
        GYRE_TRY(bench_doctor_write_json(doctor, options->json_path));
    GYRE_TRY(write_text(doctor, "--markdown", options->markdown_path, bench_doctor_put_markdown));
    return write_text(doctor, "--html", options->html_path, bench_doctor_put_html);
}

static gyre_status examine(struct bench_doctor *doctor, const struct options *options)
{
    char *const nothing[] = {NULL};
    struct gyre_param_sources sources;
    /* Ranks with different checks would wait for each other in gathers. */
    const uint64_t mine = gyre_hash(GYRE_HASH_INIT, options->only, strlen(options->only));
    const uint64_t *all = bench_all_gather(doctor, &mine, sizeof(mine));
    if (all == NULL)
        return GYRE_ERROR_REMOTE;
    for (int i = 0; i < doctor->launcher.n_processes; i++)
        if (all[i] != all[0])
            return gyre_fail(GYRE_ERROR_INVALID_USAGE,
                             "rank %d has another --only than rank 0: give all ranks the same", i);
    gyre_param_sources_open(&sources);
    doctor->params_status = gyre_params_take(&sources, &doctor->params);
    gyre_param_sources_close(&sources);
    if (doctor->params_status != GYRE_SUCCESS) {
        snprintf(doctor->params_cause, sizeof(doctor->params_cause), "%s", gyre_cause());
        (void)gyre_params_from(nothing, &doctor->params);
    }
    bench_machine_read(&doctor->params, &doctor->machine);
    bench_gpu_find_hidden(bench_variable(doctor, "CUDA_VISIBLE_DEVICES"), &doctor->machine);
    bench_rdma_find_unused(&doctor->params, (int)doctor->expect.n_ports, &doctor->machine);
    if (options->n_seconds >= 0) {
        bench_counters_print(&doctor->machine, options->n_seconds, stdout);
        bench_metrics_print(gyre_param_text(&doctor->params, GYRE_PARAM_METRICS_FILE), stdout);
        return GYRE_SUCCESS;
    }
    bench_facts_gather(doctor);
    for (int i = 0; i < BENCH_N_CHECKS; i++)
        if (strncmp(bench_checks[i].id, options->only, strlen(options->only)) == 0)
            run_check(doctor, (enum bench_check_id)i);
    return report(doctor, options);
}

/* Reads "gpus=8,ports=8,rate=400,mtu=4200", or a file with such lines and # comments. */
static gyre_status parse_expect(const char *text, struct bench_expect *expect_out)
{
    const struct {
        const char *name;
        int64_t *number;
    } numbers[] = {{"gpus", &expect_out->n_gpus},
                   {"ports", &expect_out->n_ports},
                   {"rate", &expect_out->gbit_per_s},
                   {"mtu", &expect_out->mtu_bytes}};
    char *whole = NULL;
    *expect_out = (struct bench_expect){-1, -1, -1, -1};
    if (strchr(text, '=') == NULL && bench_read_all(text, &whole) != BENCH_READ_OK)
        return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT,
                         "--expect %s: neither NAME=NUMBER,... nor a file that can be read", text);
    BENCH_EACH_LINE(whole != NULL ? whole : bench_text("%s", text), line)
    {
        line[strcspn(line, "#")] = '\0';
        for (char *word = strtok(line, ", \t\r"); word != NULL; word = strtok(NULL, ", \t\r")) {
            const size_t n_name = strcspn(word, "=");
            bool is_good = false;
            for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++)
                if (strlen(numbers[i].name) == n_name &&
                    strncmp(word, numbers[i].name, n_name) == 0)
                    is_good = word[n_name] == '=' &&
                              bench_text_to_number(word + n_name + 1, numbers[i].number) &&
                              *numbers[i].number >= 0;
            if (!is_good)
                return gyre_fail(
                    GYRE_ERROR_INVALID_ARGUMENT,
                    "--expect: %s is none of gpus=N, ports=N, rate=GBIT_PER_S, mtu=BYTES", word);
        }
    }
    return GYRE_SUCCESS;
}

int bench_command_doctor(int argc, char **argv)
{
    struct options options = {.root = "", .only = "", .n_seconds = -1};
    struct bench_expect expect = {-1, -1, -1, -1};
    if (!parse(argc, argv, &options))
        return WRONG_USAGE;
    if (options.expect != NULL && parse_expect(options.expect, &expect) != GYRE_SUCCESS) {
        fprintf(stderr, "gyre doctor: %s\n", gyre_cause());
        return WRONG_USAGE;
    }
    bench_root = options.root; /* --expect's file is elsewhere */
    if (options.is_help) {
        bench_command_print_examples("doctor", stdout);
        fputs("usage: gyre doctor [options]\n", stdout);
        bench_options_print(table, 19, stdout);
        fputs("Started by mpirun or with torchrun's variables, it also compares the ranks' hosts "
              "and measures\nthe network between them.\n"
              "Exit status: 0 all is well, 1 a warning, 2 a failure, 3 something could not be told "
              "or a\nfile could not be written, 4 wrong usage: nothing was checked.\n",
              stdout);
        return 0;
    }
    if (options.is_list) {
        for (int i = 0; i < BENCH_N_CHECKS; i++)
            printf("%-22s %s\n", bench_checks[i].id, bench_checks[i].title);
        return 0;
    }
    struct bench_doctor *doctor = bench_keep(1, sizeof(*doctor));
    doctor->expect = expect;
    doctor->environment = environ;
    if (bench_launcher_open(&doctor->launcher) != GYRE_SUCCESS) {
        fprintf(stderr, "gyre doctor: %s\n", gyre_cause());
        return CANNOT_TELL;
    }
    if (examine(doctor, &options) != GYRE_SUCCESS) {
        fprintf(stderr, "gyre doctor: rank %d: %s\n", doctor->launcher.process, gyre_cause());
        doctor->exit_status = CANNOT_TELL;
    }
    doctor->launcher.ops->close(&doctor->launcher);
    return doctor->exit_status;
}
