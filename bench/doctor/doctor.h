/* SPDX-License-Identifier: Apache-2.0
 *
 * `gyre doctor`: checks of a machine, or of all machines of a job. A check is a row of
 * check_table.h and a function that says what it found with bench_say().
 */
#ifndef GYRE_BENCH_DOCTOR_H
#define GYRE_BENCH_DOCTOR_H

#include "bench/doctor/machine.h"
#include "bench/launch/launcher.h"

#include <stdio.h>

/* In ascending order of importance for the reader. */
enum bench_severity {
    BENCH_OK,
    BENCH_SKIPPED, /* does not apply here */
    BENCH_UNKNOWN, /* what it needs could not be read or understood */
    BENCH_WARN,    /* works, but slowly, or only in some cases */
    BENCH_FAIL,    /* will not work */
    BENCH_N_SEVERITIES
};

enum bench_check_id {
#define X(group, name, by, needs, title) BENCH_CHECK_##group##_##name,
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
    void (*run)(struct bench_doctor *doctor);
};

extern const struct bench_check bench_checks[BENCH_N_CHECKS];

#define BENCH_FIX_BYTES   448
#define BENCH_DRIVER_PATH "/proc/driver/nvidia/version"

/* DSCP 26 x 4, and ECN bits that allow marks (ECT(0)). */
#define BENCH_TRAFFIC_CLASS "106 is DSCP 26, priority 3"

/* Ranks all-gather findings, so the layout is fixed and has no pointers. */
struct bench_finding {
    int32_t check;             /* enum bench_check_id */
    int32_t severity;          /* enum bench_severity */
    char subject[64];          /* a device or interface; "" = the whole host */
    char ranks[64];            /* "0-3"; "" for a process alone */
    char evidence[1536];       /* the file or command, and what it said; may have several lines */
    char fix[BENCH_FIX_BYTES]; /* the command that mends it; "" = none */
};

struct bench_findings {
    struct bench_finding *list;
    int n;
};

/* X(name, title) */
#define BENCH_FACT_TABLE(X)                        \
    X(VERSION, "gyre's version and commit")        \
    X(VARIABLES, "variables that plans depend on") \
    X(KERNEL, "kernel")                            \
    X(DRIVER, "NVIDIA driver")                     \
    X(FIRMWARE, "firmware of RDMA adapters")       \
    X(MTU, "MTU of the network interface")         \
    X(GID, "type and family of GIDs")              \
    X(RATE, "RDMA ports")

enum bench_fact_id {
#define BENCH_FACT_ENUM(name, title) BENCH_FACT_##name,
    BENCH_FACT_TABLE(BENCH_FACT_ENUM)
#undef BENCH_FACT_ENUM
        BENCH_N_FACTS
};

#define BENCH_MAX_RAILS 8 /* ports of a host */

/* NAN = not measured. */
struct bench_matrix {
    int n;
    char (*names)[64];
    int *rails;                /* of each row; 0 without rails */
    double *line_gbytes_per_s; /* of each row; 0 = not known */
    double *latency_us;        /* n * n, from row to column */
    double *gbytes_per_s;
    char what[64]; /* "network between hosts" */
    bool has_rails;
};

/* -1 = nothing is expected. */
struct bench_expect {
    int64_t n_gpus, n_ports;
    int64_t gbit_per_s; /* of each RDMA port */
    int64_t mtu_bytes;  /* of the interface of each RoCE port, or of the one that TCP uses */
};

struct bench_doctor {
    const char *root; /* "" = this machine; else a folder with proc, sys, etc, dev */
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
    struct bench_counters *before_load, *after_load; /* of job.rails; NULL = it put no load here */
    struct bench_paths *paths;       /* of job.firewall and job.path_mtu; NULL until needed */
    struct bench_nvml *nvml;         /* of gpu.ecc, gpu.clocks and gpu.link; likewise */
    struct bench_cuda_results *cuda; /* likewise */
    bool knows_transport, uses_rdma; /* by job.transport: RDMA between all hosts */
    bool is_out_of_memory;
};

/* ---- what checks say ----------------------------------------------------------------------- */

/** bench_say - @subject, @fix: may be NULL. If the subject is a port or an interface, NETDEV and
 * DEVICE in the fix become its names. @format: the evidence. */
void bench_say(struct bench_doctor *doctor, enum bench_severity severity, const char *subject,
               const char *fix, const char *format, ...) __attribute__((format(printf, 5, 6)));

#define bench_ok(doctor, subject, ...) bench_say(doctor, BENCH_OK, subject, NULL, __VA_ARGS__)
#define bench_skip(doctor, ...)        bench_say(doctor, BENCH_SKIPPED, NULL, NULL, __VA_ARGS__)

/* Ports that jobs use. */
#define BENCH_EACH_PORT(doctor, port)                                        \
    for (const struct bench_rdma_port *port = (doctor)->machine.ports;       \
         port < (doctor)->machine.ports + (doctor)->machine.n_ports; port++) \
        if (port->why_unused[0] == '\0')

/** bench_say_unreadable - @result: of the read. OK means that the file was read and is not
 * understood. */
void bench_say_unreadable(struct bench_doctor *doctor, const char *subject, const char *path,
                          enum bench_read result);

/** bench_get_text, bench_get_all - as bench_read_text() and bench_read_all(); false after saying
 * why there is no text. */
bool bench_get_text(struct bench_doctor *doctor, const char *path, char *text_out,
                    size_t text_bytes);
bool bench_get_all(struct bench_doctor *doctor, const char *path, char **text_out);

bool bench_said(const struct bench_doctor *doctor);

/** bench_fix_of_port - @fix: NETDEV in it stands for the port's network interface, DEVICE for its
 * RDMA device. @device: may be NULL. @netdev: "" = not known; then the text says where the name is
 * found. @text_out: BENCH_FIX_BYTES; returned. */
const char *bench_fix_of_port(const char *fix, const char *device, const char *netdev,
                              char *text_out);

/** bench_fix_of_interface - that need not be one of RDMA. */
const char *bench_fix_of_interface(const char *fix, const char *netdev, char *text_out);

/** bench_text_clean - bytes that a terminal or a JSON reader could misread become "?". */
void bench_text_clean(char *text);

/** bench_append - a text without room for all ends with "...". */
void bench_append(char *text, size_t text_bytes, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

const char *bench_variable(const struct bench_doctor *doctor, const char *name);

/** bench_fact_of_gids - "mlx5_0:1 RoCE v2 IPv4, ...". @text: "". */
void bench_fact_of_gids(const struct bench_doctor *doctor, char *text, size_t text_bytes);

/** bench_fact_of_driver - "580.65.06". @text: "". */
void bench_fact_of_driver(const struct bench_doctor *doctor, char *text, size_t text_bytes);

/** bench_expect_parse - "gpus=8,ports=8,rate=400,mtu=4200", or a file with the same, with lines and
 * # comments. Errors: INVALID_ARGUMENT. */
gyre_status bench_expect_parse(const char *text, struct bench_expect *expect_out);

void bench_facts_gather(struct bench_doctor *doctor);

/* ---- findings ------------------------------------------------------------------------------ */

bool bench_findings_add(struct bench_findings *findings, const struct bench_finding *finding);

void bench_findings_sort(struct bench_findings *findings);

/** bench_findings_exit_status - 0 = no problem, 1 = a warning, 2 = a failure, 3 = no warning, but a
 * check came to no result. */
int bench_findings_exit_status(const struct bench_findings *findings);

/** bench_findings_merge - gather the findings of all ranks on every rank, and join equal ones.
 * Those that are ok or skipped are joined even if their evidence differs. Collective. */
gyre_status bench_findings_merge(struct bench_doctor *doctor);

/** bench_ranks_to_text - "0-3,6". @is_in: by rank. Ends with "..." if there is no room. */
void bench_ranks_to_text(const bool *is_in, int n_ranks, char *text_out, size_t text_bytes);

/* ---- hosts and matrices -------------------------------------------------------------------- */

/* The first process of each host takes part in measurements between hosts; the others only
 * gather. */
struct bench_hosts {
    int n;
    int *leaders;      /* n; process number of each host's first process */
    char (*names)[64]; /* n; "node1 (rank 0)" */
    int me;            /* this process's host; -1 = not its first process */
};

/** bench_hosts_find - by the library's own notion of a host. Collective. Freed by
 * bench_hosts_free(), also after a failure. */
gyre_status bench_hosts_find(struct bench_doctor *doctor, struct bench_hosts *hosts_out);
void bench_hosts_free(struct bench_hosts *hosts);

/* What a process tells the others of a step; the first member of what they gather. */
struct bench_note {
    int32_t status;
    int32_t is_over; /* process 0: the time is up */
    char cause[640];
};

/** bench_gather - @status: of this process. @mine: begins with struct bench_note; its layout is
 * fixed. @all: of every process, n_bytes each. Returns the first failure of any process.
 * Collective. */
gyre_status bench_gather(struct bench_doctor *doctor, gyre_status status, void *mine,
                         size_t n_bytes, void *all);

/** bench_matrix_open - the caller fills in names and what, and n when there is something to print.
 * Errors: OUT_OF_MEMORY. */
gyre_status bench_matrix_open(struct bench_matrix *matrix, int n);
void bench_matrix_free(struct bench_matrix *matrix);

/* A pair is the index of its cell, row * n + column. */
struct bench_matrix_rates {
    int n_measured;
    int slow, fast; /* pairs; -1 = nothing was measured */
    bool is_slow;   /* less than half of the fastest pair, or of what the line carries */
};

struct bench_matrix_rates bench_matrix_rates(const struct bench_matrix *matrix);

/** bench_matrix_line - GB/s that the slower of a pair's two lines carries; 0 = not known. */
double bench_matrix_line(const struct bench_matrix *matrix, int pair);

/** bench_matrix_judge - says the slowest and the fastest pair. @fix: if the slowest one is too
 * slow.
 * @rest: the end of the evidence. */
void bench_matrix_judge(struct bench_doctor *doctor, const struct bench_matrix *matrix,
                        const char *fix, const char *rest);

enum bench_format { BENCH_AS_TEXT, BENCH_AS_MARKDOWN, BENCH_AS_HTML };

/** bench_matrix_put - a table of bandwidths, each with its share of the line, and one of latencies,
 * for each rail. */
void bench_matrix_put(FILE *file, enum bench_format format, const struct bench_matrix *matrix);

void bench_paths_free(struct bench_paths *paths);

/* ---- output -------------------------------------------------------------------------------- */

struct bench_doctor_report {
    const struct bench_doctor *doctor;
    const char *hosts; /* "hostA (rank 0-3), hostB (rank 4-7)" */
    int n_by_severity[BENCH_N_SEVERITIES];
    int exit_status;
};

/** bench_doctor_summary - "1 fail, 2 warn, 0 unknown, 20 ok, 7 skipped". */
const char *bench_doctor_summary(const struct bench_doctor_report *report, char *text_out,
                                 size_t text_bytes);

/** bench_finding_doc - "docs/doctor.md#hostmemlock". @text_out: 96 bytes; returned. */
const char *bench_finding_doc(const struct bench_finding *finding, char *text_out);

const char *bench_severity_name(int severity);

enum bench_print {
    BENCH_PRINT_PROBLEMS, /* not those that are ok or skipped */
    BENCH_PRINT_GROUPS,   /* those that are ok as one line a group, skipped ones as their number */
    BENCH_PRINT_ROWS,     /* skipped ones as one line with their number */
    BENCH_PRINT_ALL
};

/** bench_doctor_print - in colour if `file` is a terminal. */
void bench_doctor_print(const struct bench_doctor_report *report, enum bench_print which,
                        FILE *file);

void bench_doctor_print_env(const struct bench_doctor_report *report, FILE *file);

void bench_doctor_put_markdown(FILE *file, const struct bench_doctor_report *report);
void bench_doctor_put_html(FILE *file, const struct bench_doctor_report *report);

/** bench_doctor_write_json - errors: as gyre_file_replace(); UNSUPPORTED without json-c. */
gyre_status bench_doctor_write_json(const struct bench_doctor_report *report, const char *path);

/** bench_check_values - checks that are rows of checks/values.c. */
void bench_check_values(struct bench_doctor *doctor);

#define BENCH_VALUE(group, name)
#define BENCH_CODE(group, name)          void bench_check_##group##_##name(struct bench_doctor *doctor);
#define X(group, name, by, needs, title) BENCH_##by(group, name)
#include "bench/doctor/check_table.h"
#undef X
#undef BENCH_VALUE
#undef BENCH_CODE

#endif
