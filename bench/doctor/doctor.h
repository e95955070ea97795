/* SPDX-License-Identifier: Apache-2.0
 *
 * `gyre doctor`: checks of a machine, or of all machines of a job. A check is a row of
 * check_table.h and a function. It reads files below a root folder (read.h), so tests run the same
 * code on prepared folders, and it says what it found with bench_say().
 */
#ifndef GYRE_BENCH_DOCTOR_H
#define GYRE_BENCH_DOCTOR_H

#include "bench/doctor/read.h"
#include "bench/launch/launcher.h"
#include "core/foundation/base/param.h"

#include <stdint.h>

/* In ascending order of importance for the reader. */
enum bench_severity {
    BENCH_OK,
    BENCH_SKIPPED, /* the check does not apply here; the evidence says why */
    BENCH_UNKNOWN, /* the check applies, but what it needs could not be read or understood */
    BENCH_WARN,    /* works, but slowly, or only in some cases */
    BENCH_FAIL,    /* will not work */
    BENCH_N_SEVERITIES
};

enum bench_check_id {
#define X(group, name, title) BENCH_CHECK_##group##_##name,
#include "bench/doctor/check_table.h"
#undef X
    BENCH_N_CHECKS
};

struct bench_doctor;

struct bench_check {
    const char *id;
    const char *title;
    void (*run)(struct bench_doctor *doctor);
};

extern const struct bench_check bench_checks[BENCH_N_CHECKS];

#define BENCH_FIX_BYTES 448

/* A finding of a check. Ranks all-gather findings, so the layout is fixed and has no pointers. */
struct bench_finding {
    int32_t check;             /* enum bench_check_id */
    int32_t severity;          /* enum bench_severity */
    char subject[64];          /* the device or interface that it is about; "" = the whole host */
    char ranks[64];            /* whose finding it is: "0-3"; "" for a process alone */
    char evidence[1536];       /* the file or command, and what it said; may have several lines */
    char fix[BENCH_FIX_BYTES]; /* the command that mends it; "" if nothing is to be done */
};

struct bench_findings {
    struct bench_finding *list;
    int n;
    int n_allocated;
};

/* Facts that all ranks of a job should have in common. X(name, title) */
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

struct bench_facts {
    char host[64]; /* its name */
    char texts[BENCH_N_FACTS][160];
};

/* A matrix of measurements between hosts or GPUs. NAN = not measured. */
struct bench_matrix {
    int n;
    char (*names)[64];    /* n */
    double *latency_us;   /* n * n, from row to column */
    double *gbytes_per_s; /* n * n */
    char what[64];        /* "network between hosts" */
};

struct bench_doctor {
    const char *root; /* "" = this machine; else a folder with proc, sys, etc, dev */
    struct bench_launcher launcher;
    char *const *environment;
    struct gyre_params params;
    gyre_status params_status;
    char params_cause[GYRE_CAUSE_MAX_BYTES];
    enum bench_check_id check; /* the one that runs */
    struct bench_findings findings;
    struct bench_facts facts; /* filled in by checks as they read */
    struct bench_matrix hosts;
    struct bench_matrix gpus;
    struct bench_matrix rails;
    struct bench_counters *before_load, *after_load; /* of job.rails; NULL = it put no load here */
    struct bench_paths *paths;       /* of job.firewall and job.path_mtu; NULL until needed */
    struct bench_cuda_results *cuda; /* NULL until a check needs them */
    bool is_out_of_memory;
};

/** bench_fix_of_port - a fix with the names of the port that it is about.
 * @fix: NETDEV in it stands for the port's network interface, DEVICE for its RDMA device.
 * @device: may be NULL. @netdev: "" = not known; then the text says in words where the name is
 * found. @text_out: BENCH_FIX_BYTES; returned. */
const char *bench_fix_of_port(const char *fix, const char *device, const char *netdev,
                              char *text_out);

/** bench_fix_of_interface - likewise, of an interface that need not be one of RDMA. */
const char *bench_fix_of_interface(const char *fix, const char *netdev, char *text_out);

/** bench_say - add a finding of the running check.
 * @subject, @fix: may be NULL. @format: the evidence. */
void bench_say(struct bench_doctor *doctor, enum bench_severity severity, const char *subject,
               const char *fix, const char *format, ...) __attribute__((format(printf, 5, 6)));

/** bench_say_unreadable - the running check needs a file that cannot be read or understood.
 * @result: of the read; ABSENT, DENIED or BROKEN. */
void bench_say_unreadable(struct bench_doctor *doctor, const char *subject, const char *path,
                          enum bench_read result);

/** bench_said - the worst severity that the running check has said so far; -1 if nothing. */
int bench_said(const struct bench_doctor *doctor);

/** bench_set_fact - note a fact that all ranks of a job should have in common. */
void bench_set_fact(struct bench_doctor *doctor, enum bench_fact_id fact, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/** bench_set_host - read the host's name into the facts. */
void bench_set_host(struct bench_doctor *doctor);

/** bench_variable - the value of an environment variable, or NULL. */
const char *bench_variable(const struct bench_doctor *doctor, const char *name);

/** bench_findings_sort - sort by check, then by severity (worst first), then by subject. */
void bench_findings_sort(struct bench_findings *findings);

/** bench_findings_add - append a copy. Returns false if there is no memory. */
bool bench_findings_add(struct bench_findings *findings, const struct bench_finding *finding);

/** bench_findings_exit_status - the exit status of `gyre doctor`: 0 = no problem, 1 = a warning, 2
 * = a failure, 3 = no warning, but a check came to no result. */
int bench_findings_exit_status(const struct bench_findings *findings);

/** bench_finding_doc - the section of the page that explains a check: "docs/doctor.md#hostmemlock".
 * @text_out: 96 bytes; returned. */
const char *bench_finding_doc(const struct bench_finding *finding, char *text_out,
                              size_t text_bytes);

/** bench_severity_name - "ok", "skipped", "unknown", "warn", "fail". */
const char *bench_severity_name(int severity);

/** bench_paths_free - the measurement of packets between hosts; NULL does nothing. */
void bench_paths_free(struct bench_paths *paths);

/* The functions of the rows. */
#define X(group, name, title) void bench_check_##group##_##name(struct bench_doctor *doctor);
#include "bench/doctor/check_table.h"
#undef X

#endif
