/* SPDX-License-Identifier: Apache-2.0
 *
 * `gyre report`: its help. The command is written in Python (bench/python/report.py).
 */
#include "bench/command/command.h"

const struct bench_python_command bench_python_report = {
    .name = "report",
    .usage =
        "usage: gyre report [options]\n"
        "Runs all-reduces over every transport that this machine has, and gyre doctor, and writes "
        "what was\n"
        "found as Markdown and as one HTML file with charts. With --json it takes reports of "
        "benches instead.\n"
        "  --output NAME        write NAME.md and NAME.html (default gyre_report)\n"
        "  --title TEXT         title of the report\n"
        "  --json [LABEL=]FILE  a bench's --json; may be given several times, then no bench is "
        "run\n"
        "  --doctor FILE        the --json of gyre doctor (default: it is run)\n"
        "  --log FILE           the log of a run with GYRE_DEBUG=INFO, as evidence\n"
        "  --ddp FILE           DDP iteration times (default: measured where PyTorch is "
        "installed)\n"
        "  --limit GBPS         the busbw that the links allow, if --json does not say it\n"
        "  --ranks N            ranks of the benches, processes of this machine (default 2)\n"
        "  --launch WORDS       start the benches with these words: 'mpirun -np 4 --host a,b'\n"
        "  --transports LIST    of default,socket,shm,p2p,ib (default: all that exist)\n"
        "  --sizes FIRST:LAST   sizes of the benches (default 1K:16M)\n"
        "  --bench WORDS        more options for each bench: '-n 5 -w 1 -d bfloat16'\n"
        "  --seconds N          longest time of one bench (default 120)\n"
        "  --install            put matplotlib and Jinja2 into ~/.cache/gyre/report-venv, for gyre "
        "report\n"
        "                       and gyre plot alone\n"
        "  -h, --help           print this text\n"
        "Exit status: 0 the report was written, 1 it was not, 2 wrong usage.\n",
    .debian_packages = "python3-matplotlib python3-jinja2",
};
