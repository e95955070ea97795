/* SPDX-License-Identifier: Apache-2.0
 *
 * Subcommands of `gyre` that are functions.
 */
#ifndef GYRE_BENCH_COMMAND_H
#define GYRE_BENCH_COMMAND_H

#include <stdio.h>

/** The folder of this program, also behind a symbolic link. Returns 0 if unknown, after printing
 * why. */
int bench_command_folder(char *folder_out, size_t folder_bytes);

void bench_command_print_examples(const char *name, FILE *file);

void bench_command_refuse_argument(const char *name, const char *argument);

int bench_command_asks_help(int argc, char **argv);

int bench_command_doctor(int argc, char **argv);
int bench_command_explain(int argc, char **argv);
int bench_command_explain_choice(int argc, char **argv);
int bench_command_env(int argc, char **argv);
int bench_command_version(int argc, char **argv);
int bench_command_run(int argc, char **argv);
int bench_command_nccl_path(int argc, char **argv);

/** "0.1.0". */
const char *bench_version_text(void);

/** Of the sources when CMake ran, with "+" if they had changes. "unknown" outside a git
 * checkout. */
const char *bench_version_commit(void);

/** 130 is 13.0. 0 = none. */
int bench_version_cuda(void);

#endif
