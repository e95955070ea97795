/* SPDX-License-Identifier: Apache-2.0
 *
 * `gyre plot`: its help. The command is written in Python (bench/python/plot.py).
 */
#include "bench/command/command.h"

const struct bench_python_command bench_python_plot = {
    .name = "plot",
    .usage = "usage: gyre plot [options] [LABEL=]FILE...\n"
             "Draws reports of benches (--json) and of schedule --predict --json in one chart over "
             "size: the measured\n"
             "values with their spread, the other engine's of --compare, predictions, and the "
             "limit of the links.\n"
             "  -o, --output FILE    the chart; its ending says what it is: .svg, .png, .pdf, or "
             ".html, a page that loads\n"
             "                       nothing (default gyre_plot.svg)\n"
             "  --y WHAT             time (default) or busbw\n"
             "  --title TEXT         title of the chart\n"
             "  --limit GBPS         the busbw that the links allow, if the reports do not say it\n"
             "  --predicted          also draw the predictions that reports of benches contain\n"
             "  --table FILE         write all rows of all files as one CSV, - for the standard "
             "output; without -o\n"
             "                       nothing is drawn\n"
             "  --install            put matplotlib and Jinja2 into ~/.cache/gyre/report-venv, for "
             "gyre plot and gyre\n"
             "                       report alone\n"
             "  -h, --help           print this text\n"
             "Exit status: 0 the files were written, 1 they were not, 2 wrong usage.\n",
    .debian_packages = "python3-matplotlib",
};
