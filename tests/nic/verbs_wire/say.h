/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GYRE_TESTS_WIRE_SAY_H
#define GYRE_TESTS_WIRE_SAY_H

/** wire_say - tell the user a line. A client prints it on stderr. A NIC process has no terminal; it
 * leaves the line in the shared file, and its clients print it. */
__attribute__((format(printf, 1, 2))) void wire_say(const char *format, ...);

#endif
