/* SPDX-License-Identifier: Apache-2.0
 *
 * Two processes with connected queue pairs of the stand-in RDMA device run a function each;
 * barriers and shared memory keep them in step. With places, each has memory of the host and of two
 * GPUs, and the first one writes a pattern to that of the second one.
 */
#ifndef GYRE_TESTS_WIRE_RIG_H
#define GYRE_TESTS_WIRE_RIG_H

#include "tests/nic/verbs_wire/fake_cuda/fake_cuda.h"
#include "tests/nic/verbs_wire/protocol.h"

#include <stdbool.h>

#define RIG_MEMORY_BYTES (3u << 20)
#define RIG_LIMIT_NS     20000000000ULL
#define RIG_MAX_QPS      16
#define RIG_MAX_WR       128
#define RIG_HOST         (-1) /* in place of a GPU's number */

#define PLACE_BYTES      (512u << 10)
#define POISON_BYTES     64u /* a place's end; no copy that shall succeed begins there */
#define START_AT         (PLACE_BYTES - POISON_BYTES)     /* a copy from here fails to start */
#define WAIT_AT          (PLACE_BYTES - POISON_BYTES / 2) /* here the wait for it fails */

/* INLINE: payload from the pattern of HOST. */
enum { HOST, GPU_A, GPU_B, N_PLACES, INLINE = N_PLACES };

struct rig_place {
    uint64_t address;
    uint32_t rkey;
};

struct rig_shared {
    struct {
        uint32_t qpns[RIG_MAX_QPS];
        uint32_t rkey;
        uint64_t address;
        union ibv_gid gid;
        struct rig_place places[N_PLACES];
    } told[2];
    uint32_t n_arrived[128]; /* at each barrier */
    uint32_t is_killed;
};

struct rig_options {
    bool has_places;
    bool is_read_only;   /* the second process's memory */
    bool waits_for_ever; /* for receives */
    int n_qps;           /* 0 = 1 */
    int n_receives;      /* of each queue pair of the second process */
};

struct rig_end {
    const struct rig_options *options;
    struct rig_shared *shared;
    int me;
    uint32_t n_barriers;
    const struct gyre_verbs *verbs;
    struct ibv_context *context;
    struct ibv_pd *pd;
    struct ibv_comp_channel *channel;
    struct ibv_cq *cq;
    int n_qps;
    struct ibv_qp *qps[RIG_MAX_QPS];
    struct ibv_qp *qp; /* the first */
    struct ibv_mr *mr;
    unsigned char *memory; /* RIG_MEMORY_BYTES */
    int access;            /* of the regions */
    struct {
        unsigned char *memory[N_PLACES];
        struct ibv_mr *mrs[N_PLACES];
    } places;
};

struct rig_write {
    uint64_t offset;
    uint32_t n_bytes;
    bool has_imm;
    uint32_t rkey; /* 0 = the right one */
    uint32_t lkey; /* likewise */
};

typedef void (*rig_end_fn)(struct rig_end *end);

/** Each function in a process and on a host of its own, between the opening of device, memory and
 * connected queue pairs and, after a barrier, their end. The second may kill itself once it has set
 * is_killed. */
void rig_on_two(struct rig_options options, rig_end_fn run_a, rig_end_fn run_b);

/** For both processes. */
void rig_barrier(struct rig_end *end);

/** rig_alloc, rig_register, rig_free - memory of the host or a GPU, zeroed. */
unsigned char *rig_alloc(int gpu, uint64_t n_bytes);
struct ibv_mr *rig_register(struct rig_end *end, int gpu, unsigned char *memory, uint64_t n_bytes);
void rig_free(int gpu, unsigned char *memory);

/** rig_enter_gpu, rig_leave_gpu - as programs do. A single GPU stands for all. With
 * LD_PRELOAD=libcuda.so.1 these functions, and the NIC's, are the driver's. */
void rig_enter_gpu(int gpu);
void rig_leave_gpu(void);

/** Waits for it. */
void rig_copy_gpu(int gpu, void *to, const void *from, size_t n_bytes);

/** On the first queue pair; wr_id and immediate value are the number of bytes. */
void rig_post_write(struct rig_end *end, const struct rig_write *write);

/** Without memory. */
void rig_post_receives(struct ibv_qp *qp, int n);

/** rig_wait_completion, rig_expect - within RIG_LIMIT_NS. */
struct ibv_wc rig_wait_completion(struct rig_end *end);
void rig_expect(struct rig_end *end, enum ibv_wc_status status);

/* A request. */
struct move {
    uint32_t source, target; /* places */
    uint32_t from, to;       /* offsets */
    uint32_t n_bytes;
    bool has_imm;
    bool is_read;       /* from the target to the source */
    uint32_t wrong_key; /* added to the target's */
};

/* At the beginning, in the first process: no zeros, but for the ends. */
extern unsigned char places_pattern[N_PLACES][PLACE_BYTES];
extern const int places_gpus[N_PLACES]; /* or RIG_HOST */

/** In one call, so that the NIC sees all requests at once. Each one's wr_id and immediate value are
 * its index. */
void places_post(struct rig_end *end, int qp, const struct move *moves, int n);

/** Ends with the first that fails. */
void places_expect_all(struct rig_end *end, int n);

/** As copies see them, until the next call. */
const unsigned char *places_look(const struct rig_end *end, int place);

/** Of this end. @bytes: NULL = zeros. */
void places_expect(const struct rig_end *end, int place, uint32_t at, const unsigned char *bytes,
                   uint32_t n);

#endif
