/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/nic/wire_places.h"

#include "tests/support/check.h"

unsigned char places_pattern[N_PLACES][PLACE_BYTES];
const int places_gpus[N_PLACES] = {RIG_HOST, 0, 1};

/* splitmix64 */
uint32_t places_draw(uint64_t *state, uint32_t n)
{
    uint64_t z = *state += 0x9e3779b97f4a7c15ULL;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ULL;
    z = (z ^ z >> 27) * 0x94d049bb133111ebULL;
    return (uint32_t)((z ^ z >> 31) >> 33) % n;
}

void places_open(struct rig_end *end, struct places *places, int n_receives)
{
    const uint64_t words[] = {FAKE_CUDA_FAILS_AT_START, FAKE_CUDA_FAILS_AT_WAIT};
    uint64_t state = 1;
    end->access |= IBV_ACCESS_REMOTE_READ;
    /* The NIC process inherits it; copies of this process stay quick. */
    setenv("FAKE_CUDA_WAIT_US", "300", 0);
    rig_open(end);
    unsetenv("FAKE_CUDA_WAIT_US");
    for (int i = 0; i < N_PLACES; i++) {
        for (uint32_t at = 0; at < PLACE_BYTES; at++)
            places_pattern[i][at] = (unsigned char)(1 + places_draw(&state, 255));
        memcpy(places_pattern[i] + START_AT, &words[0], sizeof(words[0]));
        memcpy(places_pattern[i] + WAIT_AT, &words[1], sizeof(words[1]));
        places->memory[i] = rig_alloc(places_gpus[i], PLACE_BYTES);
        places->mrs[i] = rig_register(end, places_gpus[i], places->memory[i], PLACE_BYTES);
        CHECK(places->mrs[i] != NULL);
        end->shared->told[end->me].places[i] =
            (struct rig_place){(uintptr_t)places->memory[i], places->mrs[i]->rkey};
        if (end->me == 0 && places_gpus[i] == RIG_HOST)
            memcpy(places->memory[i], places_pattern[i], PLACE_BYTES);
        else if (end->me == 0)
            rig_copy_gpu(places_gpus[i], places->memory[i], places_pattern[i], PLACE_BYTES);
    }
    rig_connect(end);
    for (int i = 0; i < end->n_qps && end->me == 1; i++)
        rig_post_receives(end->qps[i], n_receives);
    rig_barrier(end);
}

void places_close(struct rig_end *end, const struct places *places)
{
    rig_barrier(end);
    for (int i = 0; i < N_PLACES; i++) {
        CHECK(end->verbs->dereg_mr(places->mrs[i]) == 0);
        rig_free(places_gpus[i], places->memory[i]);
    }
    rig_close(end);
}

void places_post(struct rig_end *end, const struct places *places, int qp, const struct move *moves,
                 int n)
{
    struct ibv_send_wr wrs[RIG_MAX_WR] = {{0}};
    struct ibv_sge sges[RIG_MAX_WR];
    struct ibv_send_wr *bad = NULL;
    for (int i = 0; i < n; i++) {
        const struct move *move = &moves[i];
        const struct rig_place *target = &end->shared->told[1].places[move->target];
        const bool is_inline = move->source == INLINE;
        const unsigned char *from = is_inline ? places_pattern[HOST] : places->memory[move->source];
        sges[i] = (struct ibv_sge){.addr = (uintptr_t)from + move->from,
                                   .length = move->n_bytes,
                                   .lkey = is_inline ? 0 : places->mrs[move->source]->lkey};
        wrs[i].wr_id = (uint64_t)i;
        wrs[i].sg_list = &sges[i];
        wrs[i].num_sge = 1;
        wrs[i].imm_data = (uint32_t)i;
        wrs[i].send_flags = IBV_SEND_SIGNALED | (is_inline ? IBV_SEND_INLINE : 0);
        wrs[i].opcode = move->is_read   ? IBV_WR_RDMA_READ
                        : move->is_send ? IBV_WR_SEND
                        : move->has_imm ? IBV_WR_RDMA_WRITE_WITH_IMM
                                        : IBV_WR_RDMA_WRITE;
        wrs[i].wr.rdma.remote_addr = target->address + move->to;
        wrs[i].wr.rdma.rkey = target->rkey + move->wrong_key;
        wrs[i].next = i + 1 < n ? &wrs[i + 1] : NULL;
    }
    CHECK(ibv_post_send(end->qps[qp], wrs, &bad) == 0);
}

void places_expect_all(struct rig_end *end, int n)
{
    for (int i = 0; i < n && test_n_failures == 0; i++)
        rig_expect(end, IBV_WC_SUCCESS);
}

const unsigned char *places_look(const struct places *places, int place)
{
    static unsigned char seen[PLACE_BYTES];
    if (places_gpus[place] == RIG_HOST)
        return places->memory[place];
    rig_copy_gpu(places_gpus[place], seen, places->memory[place], PLACE_BYTES);
    return seen;
}

void places_expect(const struct places *places, int place, uint32_t at, const unsigned char *bytes,
                   uint32_t n)
{
    static const unsigned char zeros[PLACE_BYTES];
    const unsigned char *seen = places_look(places, place) + at;
    const unsigned char *right = bytes != NULL ? bytes : zeros;
    uint32_t i = 0;
    while (i < n && seen[i] == right[i])
        i++;
    CHECK_MSG(i == n, "byte %u of place %d: %u, expected %u", at + i, place, i < n ? seen[i] : 0,
              i < n ? right[i] : 0);
}
