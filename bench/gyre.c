/* SPDX-License-Identifier: Apache-2.0
 *
 * gyre: a subcommand is a row of the table: a function, a program of the same folder, or a script
 * of bench/python.
 */
#include "bench/command/command.h"
#include "bench/command/python_usage.h"
#include "bench/driver/option_table.h"
#include "core/foundation/base/util.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define CANNOT_START 127 /* as shells report an unknown command */
#define WRONG_USAGE  2

/* Exactly one of `run`, `program` and `python` is set. */
struct command {
    const char *name;
    const char *help;        /* for the list of subcommands */
    const char *examples[2]; /* complete, first in --help */
    /* argv[0] is the subcommand. Returns the exit status. */
    int (*run)(int argc, char **argv);
    const char *program;         /* a file beside `gyre` */
    const char *python;          /* usage of bench/python/NAME.py */
    const char *debian_packages; /* besides python3 */
};

static int start_bench(int argc, char **argv);

/* As `gyre --help` lists them. */
static const struct command commands[] = {
    {.name = "doctor",
     .help = "check this machine, or all machines of a job, and say how to mend them",
     .examples = {"gyre doctor", "mpirun -np 2 --host hostA,hostB gyre doctor --html doctor.html"},
     .run = bench_command_doctor},
    {.name = "report",
     .help = "measure every transport and write a report, as Markdown and HTML",
     .examples = {"gyre report",
                  "gyre report --launch 'mpirun -np 2 --host hostA,hostB' --output cluster"},
     .python = report_usage,
     .debian_packages = "python3-matplotlib python3-jinja2"},
    {.name = "plot",
     .help = "draw reports of benches and predictions in one chart, or write them as one CSV",
     .examples = {"gyre plot measured.json predicted.json -o allreduce.png",
                  "gyre plot --y busbw before=old.json after=new.json -o busbw.html"},
     .python = plot_usage,
     .debian_packages = "python3-matplotlib"},
    {.name = "compare",
     .help = "hold algorithms, NCCL and MPI against each other over many launches, with tests",
     .examples =
         {"gyre compare --coll all_reduce -g 4 --candidates gyre,ring,tree --out all_reduce",
          "gyre compare --coll all_reduce -g 8 --candidates nccl,nccl-best,gyre --bytes 8:1G --out "
          "nccl"},
     .python = compare_usage,
     .debian_packages = ""},
    {.name = "reproduce",
     .help = "work claims of papers out again: swing-tori, straggler, ...",
     .examples = {"gyre reproduce", "gyre reproduce straggler --output figures"},
     .python = reproduce_usage,
     .debian_packages = "python3-matplotlib"},
    {.name = "course",
     .help = "check an exercise of the course (docs/course)",
     .examples = {"gyre course 1 mine.gyre", "gyre course 7 my_cost.txt"},
     .python = course_usage,
     .debian_packages = ""},
    {.name = "validate",
     .help = "hold predictions against published times; say what a collective should reach",
     .examples = {"gyre validate tests/published/score.csv",
                  "gyre validate --expect all_reduce 1G 64x8 --machine h100"},
     .python = validate_usage,
     .debian_packages = "python3-matplotlib"},
    {.name = "bench",
     .help = "measure a collective: gyre bench allreduce, allgather, ...",
     .examples = {"gyre bench allreduce -g 4 -b 8 -e 16M -f 8",
                  "mpirun -np 4 gyre bench allreduce -b 8 -e 64M -f 8"},
     .run = start_bench},
    {.name = "topo",
     .help = "print what is connected how on this machine",
     .examples = {"gyre topo", "gyre topo --dump topology.xml"},
     .program = "topo"},
    {.name = "limits",
     .help = "measure what the links of this machine's GPUs can do",
     .examples = {"gyre limits", "gyre limits -J limits.json"},
     .program = "limits"},
    {.name = "schedule",
     .help = "print, prove and predict the program of a collective",
     .examples = {"gyre schedule --algo twoshot --coll all_reduce --ranks 4 --rank 1",
                  "gyre schedule --algo ring --coll all_reduce --ranks 8 --rounds --verify"},
     .program = "schedule"},
    {.name = "import",
     .help = "read an algorithm of MSCCL, MSCCL++ or TE-CCL as proved programs",
     .examples = {"gyre import algo.xml > algo.gyre", "gyre import plan.json -o algo.gyre"},
     .python = import_usage,
     .debian_packages = ""},
    {.name = "export",
     .help = "write proved programs as MSCCL's XML, GOAL, Chakra traces or a Perfetto trace",
     .examples = {"gyre export msccl --output ring.xml --algo ring --coll all_reduce --ranks 8",
                  "gyre export chakra --output et/ring --bytes 64M --algo ring --coll all_reduce "
                  "--ranks 8"},
     .python = export_usage,
     .debian_packages = ""},
    {.name = "draw",
     .help = "draw the program of a collective: a page that plays it, SVG",
     .examples = {"gyre draw --algo ring --coll all_reduce --ranks 4 --html ring.html",
                  "gyre draw --algo twoshot --coll all_reduce --ranks 4 --svg twoshot.svg"},
     .program = "draw"},
    {.name = "explain",
     .help = "say where the time of calls went, from a trace: launch, peers, wire, reduce, copy",
     .examples =
         {"GYRE_TRACE_FILE=t.json gyre bench allreduce -g 4 -b 1M -e 1M; gyre explain t.json",
          "gyre explain measured.json predicted.json --json explained.json"},
     .run = bench_command_explain},
    {.name = "explain-choice",
     .help = "say which measured row decides how a call is carried out, and why others do not",
     .examples = {"gyre explain-choice 1M --ranks 4 --machine h200",
                  "gyre explain-choice 64M --ranks 8 --library nccl"},
     .run = bench_command_explain_choice},
    {.name = "tune",
     .help = "measure the constants that predictions use",
     .examples = {"gyre tune -g 4 --output gyre_tuning.txt",
                  "mpirun -np 4 gyre tune --output gyre_tuning.txt"},
     .program = "tune"},
    {.name = "bottleneck",
     .help = "tell whether communication bounds the training of a model",
     .examples = {"gyre bottleneck --params 7e9 --tokens 4e6 --hosts 2x8 --nic-rate 50",
                  "gyre bottleneck --params 7e9 --tokens 4e6 --from allreduce.json"},
     .program = "bottleneck"},
    {.name = "run",
     .help = "run a program with gyre's libnccl.so.2 in place of NCCL's",
     .examples = {"gyre run -- python train.py",
                  "gyre run -- torchrun --nproc-per-node 8 train.py"},
     .run = bench_command_run},
    {.name = "nccl-path",
     .help = "print the folder of gyre's libnccl.so.2",
     .examples = {"gyre nccl-path", "LD_LIBRARY_PATH=$(gyre nccl-path) ./program"},
     .run = bench_command_nccl_path},
    {.name = "env",
     .help = "print every variable: its value, where the value comes from, what it does",
     .examples = {"gyre env", "gyre env --set"},
     .run = bench_command_env},
    {.name = "version",
     .help = "print the version, and what was compiled in (also: gyre --version)",
     .examples = {"gyre version", "gyre --version"},
     .run = bench_command_version},
    {.name = NULL},
};

/* Programs of `gyre bench NAME`. */
static const char *const benches[] = {"allreduce", "allgather", "alltoall",      "broadcast",
                                      "gather",    "reduce",    "reducescatter", "scatter",
                                      "sendrecv",  NULL};

static const char intro[] =
    "examples:\n"
    "  gyre doctor                            check this machine, or a job: mpirun gyre doctor\n"
    "  gyre bench allreduce -g 4 -b 8 -e 16M -f 8\n"
    "\n"
    "usage: gyre COMMAND [options of the command]\n"
    "       gyre COMMAND --help\n"
    "       gyre --version\n";

static const struct command *find(const char *name)
{
    for (const struct command *row = commands; row->name != NULL; row++)
        if (strcmp(row->name, name) == 0)
            return row;
    return NULL;
}

/* For "did you mean". @best: or NULL. */
static const char *nearer(const char *wanted, const char *best, const char *name)
{
    return best == NULL || gyre_edit_distance(wanted, name) < gyre_edit_distance(wanted, best)
               ? name
               : best;
}

static bool is_near(const char *wanted, const char *name)
{
    return gyre_edit_distance(wanted, name) <= 2;
}

void bench_command_print_examples(const char *name, FILE *file)
{
    const struct command *row = find(name);
    fprintf(file, "examples:\n  %s\n  %s\n\n", row->examples[0], row->examples[1]);
}

void bench_command_refuse_argument(const char *name, const char *argument)
{
    fprintf(stderr, "gyre %s: unexpected argument \"%s\"\n\n", name, argument);
}

int bench_command_asks_help(int argc, char **argv)
{
    for (int i = 1; i < argc; i++)
        if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0)
            return 1;
    return 0;
}

int bench_command_folder(char *folder_out, size_t folder_bytes)
{
    const ssize_t n = readlink("/proc/self/exe", folder_out, folder_bytes - 1);
    if (n < 0) {
        fprintf(stderr,
                "gyre: /proc/self/exe cannot be read (errno %d), so its folder is unknown\n",
                errno);
        return 0;
    }
    folder_out[n] = '\0';
    *strrchr(folder_out, '/') = '\0';
    return 1;
}

/* @prefix: "gyre" or "gyre bench", so that its help shows the user's words. @argv: argv[0] is
 * replaced. */
static int start(const char *prefix, const char *program, char **argv)
{
    char called_as[64]; /* longest: "gyre bench reducescatter" */
    char folder[PATH_MAX];
    char path[PATH_MAX];
    if (!bench_command_folder(folder, sizeof(folder)))
        return CANNOT_START;
    if (snprintf(path, sizeof(path), "%s/%s", folder, program) >= (int)sizeof(path)) {
        fprintf(stderr, "gyre: the path of %s is too long\n", program);
        return CANNOT_START;
    }
    snprintf(called_as, sizeof(called_as), "%s %s", prefix, program);
    argv[0] = called_as;
    fflush(NULL);
    execv(path, argv);
    fprintf(stderr, "gyre: cannot start %s: %s (errno %d)\n", path, strerror(errno), errno);
    return CANNOT_START;
}

/* The help is printed here for machines without Python, and for man pages. */
static int start_python(const struct command *command, int argc, char **argv)
{
    char folder[PATH_MAX];
    char script[PATH_MAX + 64];
    if (bench_command_asks_help(argc, argv)) {
        bench_command_print_examples(command->name, stdout);
        fputs(command->python, stdout);
        return 0;
    }
    if (!bench_command_folder(folder, sizeof(folder)))
        return CANNOT_START;
    snprintf(script, sizeof(script), "%s/python/%s.py", folder, command->name);
    if (access(script, R_OK) != 0) {
        fprintf(stderr, "gyre %s: %s cannot be read: %s\n", command->name, script, strerror(errno));
        return CANNOT_START;
    }
    /* python3 -B SCRIPT FOLDER options... */
    char **words = calloc((size_t)argc + 4, sizeof(*words));
    if (words == NULL) {
        fprintf(stderr, "gyre %s: no memory\n", command->name);
        return CANNOT_START;
    }
    static char python[] = "python3", no_cache[] = "-B";
    words[0] = python;
    words[1] = no_cache; /* an installed folder must not change */
    words[2] = script;
    words[3] = folder;
    memcpy(&words[4], &argv[1], (size_t)argc * sizeof(*argv)); /* and NULL */
    fflush(NULL);
    execvp(python, words);
    fprintf(stderr,
            "gyre %s: cannot start python3: %s. gyre report, gyre plot and schedule --from-msccl "
            "need it: apt-get install python3 %s\n",
            command->name, strerror(errno), command->debian_packages);
    free(words);
    return CANNOT_START;
}

static int start_bench(int argc, char **argv)
{
    const char *best = NULL;
    if (argc < 2 || argv[1][0] == '-') {
        const bool is_help = bench_command_asks_help(argc, argv);
        FILE *file = is_help ? stdout : stderr;
        bench_command_print_examples("bench", file);
        fputs("usage: gyre bench NAME [options]\n       gyre bench NAME --help\n\nnames:", file);
        for (const char *const *name = benches; *name != NULL; name++)
            fprintf(file, " %s", *name);
        fputs("\n", file);
        return is_help ? 0 : WRONG_USAGE;
    }
    for (const char *const *name = benches; *name != NULL; name++) {
        best = nearer(argv[1], best, *name);
        if (strcmp(*name, argv[1]) != 0)
            continue;
        if (bench_command_asks_help(argc - 1, argv + 1))
            printf("examples:\n  gyre bench %s -g 4 -b 8 -e 16M -f 8\n"
                   "  mpirun -np 4 gyre bench %s -b 8 -e 64M -f 8\n\n",
                   *name, *name);
        return start("gyre bench", *name, argv + 1);
    }
    if (is_near(argv[1], best))
        fprintf(stderr, "gyre bench: there is no bench %s: did you mean %s?\n", argv[1], best);
    else
        fprintf(stderr, "gyre bench: there is no bench %s (gyre bench --help lists all)\n",
                argv[1]);
    return WRONG_USAGE;
}

static int run(int argc, char **argv)
{
    if (argc < 2 || strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0 ||
        strcmp(argv[1], "help") == 0) {
        FILE *file = argc < 2 ? stderr : stdout;
        fputs(intro, file);
        fputs("\ncommands:\n", file);
        for (const struct command *row = commands; row->name != NULL; row++)
            fprintf(file, "  %-10s %s\n", row->name, row->help);
        return argc < 2 ? WRONG_USAGE : 0;
    }
    const char *wanted = strcmp(argv[1], "--version") == 0 ? "version" : argv[1];
    const struct command *row = find(wanted);
    if (row == NULL) {
        const char *best = NULL;
        bool is_bench = false;
        for (const struct command *other = commands; other->name != NULL; other++)
            best = nearer(wanted, best, other->name);
        for (const char *const *name = benches; *name != NULL; name++)
            is_bench |= strcmp(*name, wanted) == 0;
        fprintf(stderr, "gyre: there is no command %s", wanted);
        if (is_bench)
            fprintf(stderr, ": did you mean gyre bench %s?", wanted);
        else if (is_near(wanted, best))
            fprintf(stderr, ": did you mean %s?", best);
        fputs(" (gyre --help lists all)\n", stderr);
        return WRONG_USAGE;
    }
    if (row->run != NULL)
        return row->run(argc - 1, argv + 1);
    if (row->python != NULL)
        return start_python(row, argc - 1, argv + 1);
    if (bench_command_asks_help(argc - 1, argv + 1))
        bench_command_print_examples(row->name, stdout);
    return start("gyre", row->program, argv + 1);
}

int main(int argc, char **argv)
{
    bench_streams_open();
    return bench_streams_close("gyre", run(argc, argv));
}
