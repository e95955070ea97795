/* SPDX-License-Identifier: Apache-2.0
 *
 * The subcommands of `gyre`. A subcommand is one row of the table in command_table.c: a function of
 * this program, or another program of the same folder or a Python script, which then takes the
 * place of this process.
 */
#ifndef GYRE_BENCH_COMMAND_H
#define GYRE_BENCH_COMMAND_H

#include <stdio.h>

/* A command that is written in Python: bench/python/NAME.py. */
struct bench_python_command {
    const char *name;
    const char *usage;           /* printed behind the examples by --help */
    const char *debian_packages; /* what it needs besides python3, for apt-get install */
};

/* One of `run`, `program` and `python` is set. */
struct bench_command {
    const char *name;
    const char *help;        /* one line, for the list of subcommands */
    const char *examples[2]; /* complete commands; they begin the subcommand's --help */
    /* Carries out the subcommand. argv[0] is its name. Returns the exit status. */
    int (*run)(int argc, char **argv);
    const char *program; /* the name of a file beside `gyre` */
    const struct bench_python_command *python;
};

/* The rows, in the order of `gyre --help`. A row without a name ends the table. */
extern const struct bench_command bench_commands[];

/* The programs that `gyre bench NAME` starts; NULL ends the list. */
extern const char *const bench_command_benches[];

/** bench_command_main - carry out `gyre ...`. Returns the exit status, if no other program was
 * started. */
int bench_command_main(int argc, char **argv);

/** bench_command_start - replace this process by a program of the folder that this program is in.
 * @prefix: the words in front of the program's name: "gyre" or "gyre bench". The program gets them
 * and its name as its argv[0], so that its help names it as the user started it.
 * @argv: argv[0] is replaced. Returns 127 if the program cannot be started; the reason was printed.
 */
int bench_command_start(const char *prefix, const char *program, char **argv);

/** bench_command_folder - the folder that this program is in, also if it was started through a
 * symbolic link. Returns 0 if it is unknown; the reason was printed. */
int bench_command_folder(char *folder_out, size_t folder_bytes);

/** bench_command_print_examples - print a subcommand's two examples, which begin its help. */
void bench_command_print_examples(const char *name, FILE *file);

/** bench_command_refuse_argument - say that a subcommand knows no such argument. */
void bench_command_refuse_argument(const char *name, const char *argument);

/** bench_command_asks_help - is any of the arguments behind argv[0] -h or --help? */
int bench_command_asks_help(int argc, char **argv);

/** bench_command_start_python - print the command's help if it is asked for; otherwise replace this
 * process by python3, which gets the script, the folder of the programs, and the arguments behind
 * argv[0]. Returns 0 after help, and 127 if the script cannot be started; the reason was printed.
 */
int bench_command_start_python(const struct bench_python_command *command, int argc, char **argv);

/* The Python commands of the rows, each in the file of its name. */
extern const struct bench_python_command bench_python_plot;
extern const struct bench_python_command bench_python_report;

/* The functions of the rows. */
int bench_command_doctor(int argc, char **argv);
int bench_command_bench(int argc, char **argv);
int bench_command_explain(int argc, char **argv);
int bench_command_explain_choice(int argc, char **argv);
int bench_command_env(int argc, char **argv);
int bench_command_version(int argc, char **argv);
int bench_command_run(int argc, char **argv);
int bench_command_nccl_path(int argc, char **argv);

#endif
