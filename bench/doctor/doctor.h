/* SPDX-License-Identifier: Apache-2.0
 *
 * `gyre doctor`: a check is a row of check_table.h and a function that reports with bench_say().
 */
#ifndef GYRE_BENCH_DOCTOR_H
#define GYRE_BENCH_DOCTOR_H

#include "bench/doctor/machine.h"
#include "bench/launch/launcher.h"

#include <stdio.h>

/* Most important last. */
enum bench_severity {
    BENCH_OK,
    BENCH_SKIPPED, /* does not apply */
    BENCH_UNKNOWN, /* unreadable */
    BENCH_WARN,    /* slow, or works in some cases only */
    BENCH_FAIL,    /* cannot work */
    BENCH_N_SEVERITIES
};

enum bench_check_id {
#define X(group, name, by, needs, title, nothing) BENCH_CHECK_##group##_##name,
#include "bench/doctor/check_table.h"
#undef X
    BENCH_N_CHECKS
};

struct bench_doctor;

#define BENCH_NEEDS_TABLE(X)                                   \
    X(NOTHING, NULL)                                           \
    X(PORT, "no RDMA port in /sys/class/infiniband")           \
    X(USED_PORT, "no RDMA port is used (rdma.ports says why)") \
    X(GPU, "no NVIDIA GPU on PCI")                             \
    X(GPU_ON_PCI, "matters for GPUs, and there is none")       \
    X(CARD, "neither a GPU nor an RDMA adapter is here")       \
    X(GPU_AND_NIC, "needs both a GPU and an RDMA adapter")     \
    X(RANKS, "one process: nothing to compare with")           \
    X(HOSTS, "one process: no pair of hosts")

enum bench_needs {
#define BENCH_NEEDS_ENUM(name, words) BENCH_NEEDS_##name,
    BENCH_NEEDS_TABLE(BENCH_NEEDS_ENUM)
#undef BENCH_NEEDS_ENUM
};

struct bench_check {
    const char *id, *title;
    enum bench_needs needs;
    const char *nothing; /* NULL = it always says something */
    void (*run)(struct bench_doctor *doctor);
    void (*run_port)(struct bench_doctor *doctor, const struct bench_rdma_port *port);
};

extern const struct bench_check bench_checks[BENCH_N_CHECKS];

#define BENCH_FIX_BYTES   448
#define BENCH_DRIVER_PATH "/proc/driver/nvidia/version"

/* DSCP 26 x 4 plus ECT(0). */
#define BENCH_TRAFFIC_CLASS "106 is DSCP 26, priority 3"

/* Ranks all-gather it: fixed layout, no pointers. */
struct bench_finding {
    int32_t check;             /* enum bench_check_id */
    int32_t severity;          /* enum bench_severity */
    char subject[64];          /* a device, "" = the whole host */
    char ranks[64];            /* "0-3", "" = a process alone */
    char evidence[1536];       /* file or command and its text */
    char fix[BENCH_FIX_BYTES]; /* "" = none */
};

struct bench_findings {
    struct bench_finding *list;
    int n;
};

/* Facts are in the order of their checks. */
#define BENCH_FACT_OF(name) (BENCH_CHECK_job_##name - BENCH_CHECK_job_version)
#define BENCH_N_FACTS       (BENCH_FACT_OF(rate) + 1)

#define BENCH_MAX_RAILS     8 /* ports of a host */

/* NAN = not measured. */
struct bench_matrix {
    int n;
    char (*names)[64];
    int *rails;                /* 0 without rails */
    double *line_gbytes_per_s; /* of each row, 0 = unknown */
    double *latency_us;        /* n * n, from row to column */
    double *gbytes_per_s;
    const char *what; /* "network between hosts" */
    bool has_rails;
};

/* -1 = nothing is expected. */
struct bench_expect {
    int64_t n_gpus, n_ports;
    int64_t gbit_per_s;
    int64_t mtu_bytes; /* of RoCE ports' interfaces, or TCP's */
};

struct bench_doctor {

    struct bench_launcher launcher;
    char *const *environment;
    struct gyre_params params;
    gyre_status params_status;
    char params_cause[GYRE_CAUSE_MAX_BYTES];
    struct bench_machine machine;
    struct bench_expect expect;
    enum bench_check_id check;
    struct bench_findings findings;
    char host[64];
    char facts[BENCH_N_FACTS][160];
    struct bench_matrix hosts, gpus, rails;
    struct bench_counters *before_load, *after_load; /* around job.rails' load, NULL = none here */
    struct bench_paths *paths; /* shared by job.firewall and job.path_mtu, NULL until needed */
    struct bench_nvml *nvml;   /* of gpu.ecc, gpu.clocks and gpu.link, NULL until needed */
    struct bench_cuda_results *cuda; /* NULL until needed */
    bool knows_transport, uses_rdma; /* set by job.transport */

    /* Once findings are merged. */
    const char *host_names; /* "hostA (rank 0-3), hostB (rank 4-7)" */
    const char *summary;    /* "1 fail, 2 warn, 0 unknown, 20 ok, 7 skipped" */
    int n_by_severity[BENCH_N_SEVERITIES];
    int exit_status;
};

/** @subject, @fix: may be NULL; the fix counts unless all is well. A port or interface as subject
 * completes the fix (bench_fix_of_port()). @format: the evidence. */
void bench_say(struct bench_doctor *doctor, enum bench_severity severity, const char *subject,
               const char *fix, const char *format, ...) __attribute__((format(printf, 5, 6)));

/* The subject, but for bench_skip(), the fix unless all is well, and the evidence. */
#define bench_ok(doctor, subject, ...)      bench_say(doctor, BENCH_OK, subject, NULL, __VA_ARGS__)
#define bench_warn(doctor, subject, ...)    bench_say(doctor, BENCH_WARN, subject, __VA_ARGS__)
#define bench_fail(doctor, subject, ...)    bench_say(doctor, BENCH_FAIL, subject, __VA_ARGS__)
#define bench_unknown(doctor, subject, ...) bench_say(doctor, BENCH_UNKNOWN, subject, __VA_ARGS__)
#define bench_skip(doctor, ...)             bench_say(doctor, BENCH_SKIPPED, NULL, NULL, __VA_ARGS__)

/* Ports that jobs use. */
#define BENCH_EACH_PORT(doctor, port)                                        \
    for (const struct bench_rdma_port *port = (doctor)->machine.ports;       \
         port < (doctor)->machine.ports + (doctor)->machine.n_ports; port++) \
        if (port->why_unused[0] == '\0')

/** @result: OK = read, but not understood. */
void bench_say_unreadable(struct bench_doctor *doctor, const char *subject, const char *path,
                          enum bench_read result);

/** As bench_read_all(), but a failed read becomes a finding and returns NULL. */
char *bench_get(struct bench_doctor *doctor, const char *subject, const char *path);

bool bench_said(const struct bench_doctor *doctor);

/** Replaces NETDEV and DEVICE by the port's names. @device: NULL = an interface that may be without
 * RDMA. @netdev: "" = unknown, then the text says how to find it. */
const char *bench_fix_of_port(const char *fix, const char *device, const char *netdev);

/** Replaces bytes that a terminal or a JSON reader could misread. */
void bench_text_clean(char *text);

/** NULL = not set. */
const char *bench_variable(const struct bench_doctor *doctor, const char *name);

/** @text: "" at first. */
void bench_fact_of_gids(const struct bench_doctor *doctor, char *text, size_t text_bytes);
void bench_fact_of_driver(char *text, size_t text_bytes);

void bench_facts_gather(struct bench_doctor *doctor);

/** By process. NULL = failed, with gyre_cause(). Collective. */
void *bench_all_gather(struct bench_doctor *doctor, const void *mine, size_t n_bytes);

/** Sorts findings, and joins equal ones of all ranks; the evidence of ok and skipped ones may
 * differ. Collective. */
gyre_status bench_findings_merge(struct bench_doctor *doctor);

/** Writes "0-3,6", with "..." at the end if there is no room. @is_in: by rank. */
void bench_ranks_to_text(const bool *is_in, int n_ranks, char *text_out, size_t text_bytes);

/* The first process of each host measures, the others only gather. */
struct bench_hosts {
    int n;
    int *leaders;      /* n; process numbers */
    char (*names)[64]; /* n; "node1 (rank 0)" */
    int me;            /* host of which this process is the first, -1 = none */
};

/** By the library's own notion. Collective. */
gyre_status bench_hosts_find(struct bench_doctor *doctor, struct bench_hosts *hosts_out);

/* First member of what processes gather after a step. */
struct bench_note {
    int32_t status;
    int32_t is_over; /* process 0: the time is up */
    char cause[640];
};

/** @mine: begins with struct bench_note, and its layout is fixed. @all: by process. Returns the
 * first failure of any process. Collective. */
gyre_status bench_gather(struct bench_doctor *doctor, gyre_status status, void *mine,
                         size_t n_bytes, void *all);

/** The caller sets names, and n once there is something to print. */
void bench_matrix_open(struct bench_matrix *matrix, int n, const char *what);

/* A pair is row * n + column. */
struct bench_matrix_rates {
    int n_measured;
    int slow, fast; /* pairs, -1 = nothing measured */
    bool is_slow;   /* less than half of the fastest or of the line */
};

struct bench_matrix_rates bench_matrix_rates(const struct bench_matrix *matrix);

/** @fix: for a slow pair. @rest: ends the evidence. */
void bench_matrix_judge(struct bench_doctor *doctor, const struct bench_matrix *matrix,
                        const char *fix, const char *rest);

enum bench_format { BENCH_AS_TEXT, BENCH_AS_MARKDOWN, BENCH_AS_HTML };

void bench_matrix_put(FILE *file, enum bench_format format, const struct bench_matrix *matrix);

enum bench_print {
    BENCH_PRINT_PROBLEMS, /* without ok and skipped ones */
    BENCH_PRINT_GROUPS,   /* ok ones as a line a group, skipped ones counted */
    BENCH_PRINT_ROWS,     /* all, but skipped ones counted */
    BENCH_PRINT_ALL
};

/** In colour on a terminal. */
void bench_doctor_print(const struct bench_doctor *doctor, enum bench_print which, FILE *file);

void bench_doctor_print_env(const struct bench_doctor *doctor, FILE *file);

void bench_doctor_put_markdown(FILE *file, const struct bench_doctor *doctor);
void bench_doctor_put_html(FILE *file, const struct bench_doctor *doctor);

/** Errors: as gyre_file_replace(), UNSUPPORTED without json-c. */
gyre_status bench_doctor_write_json(const struct bench_doctor *doctor, const char *path);

/** Rows of checks/values.c, gpu_trial.c and job.c. */
void bench_check_values(struct bench_doctor *doctor);
void bench_check_gpu_trial(struct bench_doctor *doctor);
void bench_check_facts(struct bench_doctor *doctor);

#define BENCH_VALUE(group, name)
#define BENCH_TRIAL(group, name)
#define BENCH_FACT(group, name)
#define BENCH_CODE(group, name) void bench_check_##group##_##name(struct bench_doctor *doctor);
#define BENCH_PORT(group, name) \
    void bench_check_##group##_##name(struct bench_doctor *doctor, const struct bench_rdma_port *);
#define X(group, name, by, needs, title, nothing) BENCH_##by(group, name)
#include "bench/doctor/check_table.h"
#undef X
#undef BENCH_VALUE
#undef BENCH_TRIAL
#undef BENCH_FACT
#undef BENCH_CODE
#undef BENCH_PORT

#endif
