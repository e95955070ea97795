/* SPDX-License-Identifier: Apache-2.0
 *
 * The wheel's libgyre.so has all programs, and a script for each name.
 */
#include "bench/one_program.h"

int main(int argc, char **argv)
{
    return gyre_one_program(argc, argv);
}
