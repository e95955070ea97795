/* SPDX-License-Identifier: Apache-2.0
 *
 * The file of faults of the device between processes (verbs_wire/README.md has its words).
 */
#ifndef GYRE_TESTS_NIC_WIRE_FAULTS_H
#define GYRE_TESTS_NIC_WIRE_FAULTS_H

#include "core/foundation/base/util.h"
#include "tests/support/check.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static char faults_path[64];

static inline void set_faults(const char *text)
{
    char made[96];
    snprintf(made, sizeof(made), "%s.made", faults_path);
    FILE *file = fopen(made, "w");
    fputs(text, file);
    fclose(file);
    CHECK(rename(made, faults_path) == 0);
}

static inline bool has_read_faults(const char *text, int host)
{
    char path[96], seen[256];
    snprintf(path, sizeof(path), "%s.host%d", faults_path, host);
    FILE *file = fopen(path, "r");
    seen[file != NULL ? fread(seen, 1, sizeof(seen) - 1, file) : 0] = '\0';
    if (file != NULL)
        fclose(file);
    return strcmp(seen, text) == 0;
}

/** Until the NIC of the host has read it. */
static inline void await_faults(const char *text, int host)
{
    TEST_YIELD_UNTIL(has_read_faults(text, host));
    CHECK_MSG(has_read_faults(text, host), "host %d has not read \"%s\"", host, text);
}

/** @name: of the test. */
static inline void begin_faults(const char *name)
{
    snprintf(faults_path, sizeof(faults_path), "/tmp/%s.%d", name, (int)getpid());
    setenv("VERBS_WIRE_FAULTS", faults_path, 1);
}

static inline void remove_faults(void)
{
    char path[96];
    for (int host = 0; host <= 2; host++) {
        snprintf(path, sizeof(path), host == 0 ? "%s" : "%s.host%d", faults_path, host);
        (void)unlink(path);
    }
}

#endif
