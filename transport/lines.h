/* SPDX-License-Identifier: Apache-2.0
 *
 * Slots of LL as the proxies of a connection between hosts see them (core/foundation/model/line.h).
 * A slot is an array of words, of which two are a line. Each word is 4 bytes of data and a flag.
 */
#ifndef GYRE_TRANSPORT_LINES_H
#define GYRE_TRANSPORT_LINES_H

#include "core/foundation/model/connector.h"
#include "core/foundation/model/line.h"

/* The slots of one end of a FIFO, in host memory. */
struct gyre_line_slots {
    unsigned char *slots; /* depth * slot_bytes */
    uint32_t slot_bytes;
    uint32_t depth;
};

/** gyre_lines_announced - has the executor of a sending end announced slot `number`, and are all
 * its lines there?
 * @n_lines_out: the announced number of lines, 0 for an empty slot. */
bool gyre_lines_announced(const struct gyre_line_slots *ring, const struct gyre_inbox *inbox,
                          uint64_t number, uint32_t *n_lines_out);

/** gyre_lines_clean - once in GYRE_LL_CLEAN_PERIOD slots write the flag of slot `number` into the
 * lines of the slot from n_lines on, else do nothing. Fresh slots need it not, because their flags
 * are 0. Returns how many lines of the slot have the flag. */
uint32_t gyre_lines_clean(const struct gyre_line_slots *ring, uint64_t number, uint32_t n_lines);

/** gyre_lines_unpack - copy the data of the first n_lines lines of a slot. */
void gyre_lines_unpack(const struct gyre_line_slots *ring, uint64_t number, uint32_t n_lines,
                       unsigned char *to);

/** gyre_lines_pack - store data as the first n_lines lines of a slot. Each word is stored as a
 * whole, so an executor may poll it meanwhile. */
void gyre_lines_pack(const struct gyre_line_slots *ring, uint64_t number, uint32_t n_lines,
                     const unsigned char *from);

#endif
