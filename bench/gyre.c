/* SPDX-License-Identifier: Apache-2.0
 *
 * gyre: one command in front of everything. Its subcommands are in bench/command/command_table.c.
 */
#include "bench/command/command.h"
#include "bench/driver/streams.h"

int main(int argc, char **argv)
{
    bench_streams_open();
    return bench_streams_close("gyre", bench_command_main(argc, argv));
}
