/* SPDX-License-Identifier: Apache-2.0
 *
 * Two processes with memory of the host and of two GPUs at each end: places. The first one writes a
 * pattern to those of the second one.
 */
#ifndef GYRE_TESTS_WIRE_PLACES_H
#define GYRE_TESTS_WIRE_PLACES_H

#include "tests/nic/wire_rig.h"

#define PLACE_BYTES  (512u << 10)
#define POISON_BYTES 64u /* at the end of a place; no copy that shall succeed begins there */
#define START_AT     (PLACE_BYTES - POISON_BYTES)     /* a copy from here fails to start */
#define WAIT_AT      (PLACE_BYTES - POISON_BYTES / 2) /* here the wait for it fails */

/* INLINE: payload from the pattern of HOST; EXTRA: host memory that a test adds. */
enum { HOST, GPU_A, GPU_B, N_PLACES, INLINE = N_PLACES, EXTRA };

struct places {
    unsigned char *memory[EXTRA + 1];
    struct ibv_mr *mrs[EXTRA + 1];
};

/* A request. */
struct move {
    uint32_t source, target; /* places */
    uint32_t from, to;       /* offsets */
    uint32_t n_bytes;
    bool has_imm;
    bool is_send;       /* into what the receive names */
    bool is_read;       /* from the target to the source */
    uint32_t wrong_key; /* added to the target's */
};

/* What is in the places of the first process at the beginning: no zeros, but for the ends. */
extern unsigned char places_pattern[N_PLACES][PLACE_BYTES];
extern const int places_gpus[N_PLACES]; /* or RIG_HOST */

/** places_draw - a random number below n. */
uint32_t places_draw(uint64_t *state, uint32_t n);

/** places_open - rig_open, the places, rig_connect. Waits of the NIC for copies are slow: 300 us,
 * if FAKE_CUDA_WAIT_US does not say how slow.
 * @n_receives: of each queue pair of the second process. */
void places_open(struct rig_end *end, struct places *places, int n_receives);

/** places_close - a barrier, then all away. */
void places_close(struct rig_end *end, const struct places *places);

/** places_post - in one call, so that the NIC sees all requests at once. Each has a completion. Its
 * wr_id and its immediate value are its index. */
void places_post(struct rig_end *end, const struct places *places, int qp, const struct move *moves,
                 int n);

/** places_expect_all - n completions, all successful. It ends with the first that is not. */
void places_expect_all(struct rig_end *end, int n);

/** places_look - the bytes of a place of this end, as copies see them, until the next call. */
const unsigned char *places_look(const struct places *places, int place);

/** places_expect - n bytes of a place of this end are these. @bytes: NULL = zeros. */
void places_expect(const struct places *places, int place, uint32_t at, const unsigned char *bytes,
                   uint32_t n);

#endif
