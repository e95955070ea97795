/* SPDX-License-Identifier: Apache-2.0
 *
 * The subcommands of `gyre` that are functions, and what bench/gyre.c gives them.
 */
#ifndef GYRE_BENCH_COMMAND_H
#define GYRE_BENCH_COMMAND_H

#include <stdio.h>

/** bench_command_folder - the folder that this program is in, also if it was started through a
 * symbolic link. Returns 0 if it is unknown; the reason was printed. */
int bench_command_folder(char *folder_out, size_t folder_bytes);

/** bench_command_print_examples - print a subcommand's two examples, which begin its help. */
void bench_command_print_examples(const char *name, FILE *file);

/** bench_command_refuse_argument - say that a subcommand knows no such argument. */
void bench_command_refuse_argument(const char *name, const char *argument);

/** bench_command_asks_help - is any of the arguments behind argv[0] -h or --help? */
int bench_command_asks_help(int argc, char **argv);

/* The functions of the rows. */
int bench_command_doctor(int argc, char **argv);
int bench_command_explain(int argc, char **argv);
int bench_command_explain_choice(int argc, char **argv);
int bench_command_env(int argc, char **argv);
int bench_command_version(int argc, char **argv);
int bench_command_run(int argc, char **argv);
int bench_command_nccl_path(int argc, char **argv);

#endif
