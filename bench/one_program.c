/* SPDX-License-Identifier: Apache-2.0
 *
 * All programs are in the libgyre.so of the Python wheel. The first argument names the program; the
 * wheel has a script for each name.
 */
#include "bench/one_program.h"

int main(int argc, char **argv)
{
    return gyre_one_program(argc, argv);
}
