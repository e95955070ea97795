/* SPDX-License-Identifier: Apache-2.0
 *
 * One recorded event. The simulator's trace is made of the same events.
 */
#ifndef GYRE_TRACE_EVENT_H
#define GYRE_TRACE_EVENT_H

#include "core/foundation/model/schedule.h"

#define GYRE_TRACE_MAX_SLOTS  (GYRE_STEP_MAX_RECVS + GYRE_STEP_MAX_SENDS)
#define GYRE_TRACE_NO_PROGRAM UINT32_MAX

/* X(enum suffix, name of its slice; NULL: the program or the step names it) */
#define GYRE_TRACE_KIND_TABLE(X)                                                          \
    X(STEP, NULL)           /* one step of a worker */                                    \
    X(RUN, NULL)            /* a launch, from its first step to its end */                \
    X(LAUNCH, "launch")     /* the caller's thread planned and enqueued the call */       \
    X(SEND, "send")         /* a proxy gave bytes to the kernel */                        \
    X(RECEIVE, "receive")   /* a proxy took bytes from the kernel, or slots from a NIC */ \
    X(POST, "post")         /* a proxy posted a slot to queue pairs */                    \
    X(COMPLETE, "complete") /* a NIC has completed sends of a FIFO */

enum gyre_trace_kind {
#define GYRE_TRACE_KIND_ENUM(id, name) GYRE_TRACE_##id,
    GYRE_TRACE_KIND_TABLE(GYRE_TRACE_KIND_ENUM)
#undef GYRE_TRACE_KIND_ENUM
        GYRE_TRACE_N_KINDS
};

/* One slot that an event received or sent. */
struct gyre_trace_slot {
    uint16_t peer;   /* rank in the communicator */
    uint16_t fifo;   /* of the pair of ranks */
    uint32_t number; /* gyre_trace_number() */
};

/** gyre_trace_number - name a slot of a FIFO: the low bits of its number, where the first slot is
 * number 0, and the highest bit. @is_lines: the slot is one of LL, which a FIFO between hosts
 * numbers apart from its other slots. */
static GYRE_HOST_DEVICE inline uint32_t gyre_trace_number(uint64_t number, bool is_lines)
{
    return ((uint32_t)number & 0x7fffffffU) | (is_lines ? 0x80000000U : 0);
}

/* Times are those of gyre_now_ns(). A step waits for data from begin_ns to data_ns, then for credit
 * to ready_ns, then works to end_ns. Other kinds use begin_ns and end_ns. */
struct gyre_trace_event {
    uint64_t begin_ns;
    uint64_t data_ns;
    uint64_t ready_ns;
    uint64_t end_ns;
    uint64_t call;     /* STEP, RUN, LAUNCH: works that the rank had launched before the call */
    uint64_t sequence; /* RUN, LAUNCH: number of the call in messages */
    uint64_t n_bytes;  /* STEP: of each slot; RUN, LAUNCH: of the call; proxies: that moved */
    uint32_t program;  /* STEP, RUN: gyre_trace_add_programs() */
    uint32_t step;     /* STEP: of the program; LAUNCH: enum gyre_collective */
    uint32_t step_of_worker; /* STEP */
    uint32_t tile;           /* STEP */
    uint16_t channel;        /* STEP */
    uint8_t worker;          /* STEP: of the channel */
    uint8_t kind;            /* enum gyre_trace_kind */
    uint8_t n_ins;           /* slots that were received, the first ones of `slots` */
    uint8_t n_outs;          /* slots that were sent, behind them */
    uint8_t pad[2];
    struct gyre_trace_slot slots[GYRE_TRACE_MAX_SLOTS];
};

/** gyre_trace_add_slot - add a slot. All incoming slots are added before the outgoing ones. A slot
 * for which there is no room is left out. */
static inline void gyre_trace_add_slot(struct gyre_trace_event *event,
                                       const struct gyre_trace_slot *slot, bool is_out)
{
    const uint32_t n = (uint32_t)event->n_ins + event->n_outs;
    if (n == GYRE_TRACE_MAX_SLOTS)
        return;
    event->slots[n] = *slot;
    if (is_out)
        event->n_outs++;
    else
        event->n_ins++;
}

#endif
