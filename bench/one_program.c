/* SPDX-License-Identifier: Apache-2.0 */
#include "bench/one_program.h"

int main(int argc, char **argv)
{
    return gyre_one_program(argc, argv);
}
