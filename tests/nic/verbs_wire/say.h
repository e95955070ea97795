/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GYRE_TESTS_WIRE_SAY_H
#define GYRE_TESTS_WIRE_SAY_H

/** A client prints the line on stderr. A NIC process leaves it in the shared file, and its clients
 * print it. */
__attribute__((format(printf, 1, 2))) void wire_say(const char *format, ...);

#endif
