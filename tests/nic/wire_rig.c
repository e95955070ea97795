/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/nic/wire_rig.h"

#include "core/foundation/base/util.h"
#include "tests/fuzz/random.h"
#include "tests/support/check.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <sched.h>
#include <sys/mman.h>

void rig_barrier(struct rig_end *end)
{
    uint32_t *n_arrived = &end->shared->n_arrived[end->n_barriers++];
    const uint64_t until_ns = gyre_now_ns() + RIG_LIMIT_NS;
    gyre_fetch_add_u32(n_arrived, 1);
    while (gyre_load_acquire_u32(n_arrived) < 2 && gyre_now_ns() < until_ns)
        sched_yield();
    CHECK(gyre_load_acquire_u32(n_arrived) == 2);
}

void rig_enter_gpu(int gpu)
{
    void *context;
    int device;
    int n_gpus = 0;
    CHECK(cuInit(0) == 0);
    CHECK(cuDeviceGetCount(&n_gpus) == 0 && n_gpus > 0);
    CHECK(cuDeviceGet(&device, n_gpus > 0 ? gpu % n_gpus : 0) == 0);
    CHECK(cuDevicePrimaryCtxRetain(&context, device) == 0);
    CHECK(cuCtxPushCurrent_v2(context) == 0);
}

void rig_leave_gpu(void)
{
    void *context;
    CHECK(cuCtxPopCurrent_v2(&context) == 0);
}

void rig_copy_gpu(int gpu, void *to, const void *from, size_t n_bytes)
{
    void *stream;
    rig_enter_gpu(gpu);
    CHECK(cuStreamCreate(&stream, 1) == 0);
    CHECK(cuMemcpyAsync((uintptr_t)to, (uintptr_t)from, n_bytes, stream) == 0);
    CHECK(cuStreamSynchronize(stream) == 0);
    rig_leave_gpu();
}

unsigned char *rig_alloc(int gpu, uint64_t n_bytes)
{
    cu_address base = 0;
    unsigned char *zeros = calloc(1, n_bytes);
    if (gpu == RIG_HOST)
        return zeros;
    rig_enter_gpu(gpu);
    CHECK(cuMemAlloc_v2(&base, n_bytes) == 0);
    rig_leave_gpu();
    unsigned char *memory = (unsigned char *)(uintptr_t)base;
    rig_copy_gpu(gpu, memory, zeros, n_bytes);
    free(zeros);
    return memory;
}

struct ibv_mr *rig_register(struct rig_end *end, int gpu, unsigned char *memory, uint64_t n_bytes)
{
    const uintptr_t base = (uintptr_t)memory;
    int fd = -1;
    if (gpu == RIG_HOST)
        return end->verbs->reg_mr(end->pd, memory, n_bytes, end->access);
    rig_enter_gpu(gpu);
    CHECK(cuMemGetHandleForAddressRange(&fd, base, n_bytes, 1, 0) == 0);
    rig_leave_gpu();
    struct ibv_mr *mr = end->verbs->reg_dmabuf_mr(end->pd, 0, n_bytes, base, fd, end->access);
    close(fd);
    return mr;
}

void rig_free(int gpu, unsigned char *memory)
{
    if (gpu == RIG_HOST) {
        free(memory);
        return;
    }
    rig_enter_gpu(gpu);
    CHECK(cuMemFree_v2((uintptr_t)memory) == 0);
    rig_leave_gpu();
}

static void open_end(struct rig_end *end)
{
    CHECK_OK(gyre_verbs_load(&end->verbs));
    const struct gyre_verbs *verbs = end->verbs;
    struct ibv_device **list = verbs->get_device_list(&(int){0});
    end->context = verbs->open_device(list[0]);
    verbs->free_device_list(list);
    end->pd = verbs->alloc_pd(end->context);
    end->channel = verbs->create_comp_channel(end->context);
    end->cq = verbs->create_cq(end->context, 2 * RIG_MAX_WR * RIG_MAX_QPS, NULL, end->channel, 0);
    end->memory = rig_alloc(RIG_HOST, RIG_MEMORY_BYTES);
    end->mr = rig_register(end, RIG_HOST, end->memory, RIG_MEMORY_BYTES);
    CHECK(end->mr != NULL);
    struct ibv_qp_init_attr attr = {.send_cq = end->cq, .recv_cq = end->cq, .qp_type = IBV_QPT_RC};
    attr.cap.max_send_wr = attr.cap.max_recv_wr = RIG_MAX_WR;
    attr.cap.max_send_sge = attr.cap.max_recv_sge = 2;
    for (int i = 0; i < end->n_qps; i++) {
        end->qps[i] = verbs->create_qp(end->pd, &attr);
        CHECK(end->qps[i] != NULL);
    }
    end->qp = end->qps[0];
}

static void to_init(struct rig_end *end, struct ibv_qp *qp)
{
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT, .port_num = 1};
    attr.qp_access_flags = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;
    CHECK(end->verbs->modify_qp(qp, &attr,
                                IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT |
                                    IBV_QP_ACCESS_FLAGS) == 0);
}

static void to_rts(struct rig_end *end, int index)
{
    const struct gyre_verbs *verbs = end->verbs;
    const int other = 1 - end->me;
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_4096};
    attr.dest_qp_num = end->shared->told[other].qpns[index];
    attr.rq_psn = 77;
    attr.min_rnr_timer = 12;
    attr.ah_attr.is_global = 1;
    attr.ah_attr.grh.dgid = end->shared->told[other].gid;
    attr.ah_attr.grh.sgid_index = 3;
    CHECK(verbs->modify_qp(end->qps[index], &attr,
                           IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
                               IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER) ==
          0);
    attr = (struct ibv_qp_attr){.qp_state = IBV_QPS_RTS, .sq_psn = 77};
    attr.timeout = 14; /* 4.096 us x 2^14 */
    attr.retry_cnt = 3;
    attr.rnr_retry = end->options->waits_for_ever ? 7 : 1;
    CHECK(verbs->modify_qp(end->qps[index], &attr,
                           IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
                               IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC) == 0);
}

static void connect_pairs(struct rig_end *end)
{
    struct rig_shared *shared = end->shared;
    for (int i = 0; i < end->n_qps; i++) {
        to_init(end, end->qps[i]);
        shared->told[end->me].qpns[i] = end->qps[i]->qp_num;
    }
    shared->told[end->me].rkey = end->mr->rkey;
    shared->told[end->me].address = (uintptr_t)end->memory;
    CHECK(end->verbs->query_gid(end->context, 1, 3, &shared->told[end->me].gid) == 0);
    rig_barrier(end);
    for (int i = 0; i < end->n_qps; i++)
        to_rts(end, i);
}

static void close_end(struct rig_end *end)
{
    const struct gyre_verbs *verbs = end->verbs;
    for (int i = 0; i < end->n_qps; i++)
        CHECK(verbs->destroy_qp(end->qps[i]) == 0);
    CHECK(verbs->destroy_cq(end->cq) == 0);
    verbs->destroy_comp_channel(end->channel);
    CHECK(verbs->dereg_mr(end->mr) == 0);
    verbs->dealloc_pd(end->pd);
    verbs->close_device(end->context);
    free(end->memory);
}

void rig_post_write(struct rig_end *end, const struct rig_write *write)
{
    struct ibv_sge sge = {.addr = (uintptr_t)end->memory + write->offset,
                          .length = write->n_bytes,
                          .lkey = write->lkey != 0 ? write->lkey : end->mr->lkey};
    struct ibv_send_wr wr = {
        .wr_id = write->n_bytes, .sg_list = &sge, .num_sge = 1, .send_flags = IBV_SEND_SIGNALED};
    struct ibv_send_wr *bad = NULL;
    const int other = 1 - end->me;
    wr.opcode = write->has_imm ? IBV_WR_RDMA_WRITE_WITH_IMM : IBV_WR_RDMA_WRITE;
    wr.imm_data = write->n_bytes;
    wr.wr.rdma.remote_addr = end->shared->told[other].address + write->offset;
    wr.wr.rdma.rkey = write->rkey != 0 ? write->rkey : end->shared->told[other].rkey;
    CHECK(ibv_post_send(end->qp, &wr, &bad) == 0);
}

void rig_post_receives(struct ibv_qp *qp, int n)
{
    for (int i = 0; i < n; i++) {
        struct ibv_recv_wr wr = {.wr_id = 1000};
        struct ibv_recv_wr *bad = NULL;
        CHECK(ibv_post_recv(qp, &wr, &bad) == 0);
    }
}

struct ibv_wc rig_wait_completion(struct rig_end *end)
{
    struct ibv_wc wc = {.status = IBV_WC_GENERAL_ERR};
    const uint64_t until_ns = gyre_now_ns() + RIG_LIMIT_NS;
    int n = 0;
    while (n == 0 && gyre_now_ns() < until_ns) {
        n = ibv_poll_cq(end->cq, 1, &wc);
        sched_yield();
    }
    CHECK(n == 1);
    return wc;
}

void rig_expect(struct rig_end *end, enum ibv_wc_status status)
{
    const struct ibv_wc wc = rig_wait_completion(end);
    CHECK_MSG(wc.status == status, "status %d, expected %d", (int)wc.status, (int)status);
}

unsigned char places_pattern[N_PLACES][PLACE_BYTES];
const int places_gpus[N_PLACES] = {RIG_HOST, 0, 1};

void places_post(struct rig_end *end, int qp, const struct move *moves, int n)
{
    struct ibv_send_wr wrs[RIG_MAX_WR] = {{0}};
    struct ibv_sge sges[RIG_MAX_WR];
    struct ibv_send_wr *bad = NULL;
    for (int i = 0; i < n; i++) {
        const struct move *move = &moves[i];
        const struct rig_place *target = &end->shared->told[1].places[move->target];
        const bool is_inline = move->source == INLINE;
        const unsigned char *from =
            is_inline ? places_pattern[HOST] : end->places.memory[move->source];
        sges[i] = (struct ibv_sge){.addr = (uintptr_t)from + move->from,
                                   .length = move->n_bytes,
                                   .lkey = is_inline ? 0 : end->places.mrs[move->source]->lkey};
        wrs[i].wr_id = (uint64_t)i;
        wrs[i].sg_list = &sges[i];
        wrs[i].num_sge = 1;
        wrs[i].imm_data = (uint32_t)i;
        wrs[i].send_flags = IBV_SEND_SIGNALED | (is_inline ? IBV_SEND_INLINE : 0);
        wrs[i].opcode = move->is_read   ? IBV_WR_RDMA_READ
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

const unsigned char *places_look(const struct rig_end *end, int place)
{
    static unsigned char seen[PLACE_BYTES];
    if (places_gpus[place] == RIG_HOST)
        return end->places.memory[place];
    rig_copy_gpu(places_gpus[place], seen, end->places.memory[place], PLACE_BYTES);
    return seen;
}

void places_expect(const struct rig_end *end, int place, uint32_t at, const unsigned char *bytes,
                   uint32_t n)
{
    static const unsigned char zeros[PLACE_BYTES];
    const unsigned char *seen = places_look(end, place) + at;
    const unsigned char *right = bytes != NULL ? bytes : zeros;
    uint32_t i = 0;
    while (i < n && seen[i] == right[i])
        i++;
    CHECK_MSG(i == n, "byte %u of place %d: %u, expected %u", at + i, place, i < n ? seen[i] : 0,
              i < n ? right[i] : 0);
}

static void run_end(struct rig_end *end, rig_end_fn run)
{
    const struct rig_options *options = end->options;
    Dl_info cuda;
    test_n_failures = 0;
    end->n_qps = options->n_qps > 0 ? options->n_qps : 1;
    end->access = IBV_ACCESS_LOCAL_WRITE;
    if (!options->is_read_only || end->me == 0)
        end->access |= IBV_ACCESS_REMOTE_WRITE | (options->has_places ? IBV_ACCESS_REMOTE_READ : 0);
    /* The NIC process needs the same libcuda. */
    CHECK(dladdr((void *)(uintptr_t)cuInit, &cuda) != 0);
    setenv("VERBS_WIRE_CUDA", cuda.dli_fname, 1);
    setenv("GYRE_HOSTID", end->me == 0 ? "host1" : "host2", 1);
    if (options->has_places) /* the NIC's waits for copies are slow */
        setenv("FAKE_CUDA_WAIT_US", "300", 0);
    open_end(end);
    if (options->has_places) {
        unsetenv("FAKE_CUDA_WAIT_US");
        const uint64_t words[] = {FAKE_CUDA_FAILS_AT_START, FAKE_CUDA_FAILS_AT_WAIT};
        struct fuzz_rng rng = {1};
        for (int i = 0; i < N_PLACES; i++) {
            for (uint32_t at = 0; at < PLACE_BYTES; at++)
                places_pattern[i][at] = (unsigned char)(1 + fuzz_below(&rng, 255));
            memcpy(places_pattern[i] + START_AT, &words[0], sizeof(words[0]));
            memcpy(places_pattern[i] + WAIT_AT, &words[1], sizeof(words[1]));
            end->places.memory[i] = rig_alloc(places_gpus[i], PLACE_BYTES);
            end->places.mrs[i] =
                rig_register(end, places_gpus[i], end->places.memory[i], PLACE_BYTES);
            CHECK(end->places.mrs[i] != NULL);
            end->shared->told[end->me].places[i] =
                (struct rig_place){(uintptr_t)end->places.memory[i], end->places.mrs[i]->rkey};
            if (end->me == 0 && places_gpus[i] == RIG_HOST)
                memcpy(end->places.memory[i], places_pattern[i], PLACE_BYTES);
            else if (end->me == 0)
                rig_copy_gpu(places_gpus[i], end->places.memory[i], places_pattern[i], PLACE_BYTES);
        }
    }
    connect_pairs(end);
    for (int i = 0; i < end->n_qps && options->has_places && end->me == 1; i++)
        rig_post_receives(end->qps[i], options->n_receives);
    if (options->has_places)
        rig_barrier(end);
    if (run != NULL)
        run(end);
    if (gyre_load_acquire_u32(&end->shared->is_killed) == 0)
        rig_barrier(end);
    for (int i = 0; i < N_PLACES && options->has_places; i++) {
        CHECK(end->verbs->dereg_mr(end->places.mrs[i]) == 0);
        rig_free(places_gpus[i], end->places.memory[i]);
    }
    close_end(end);
    fflush(NULL);
    /* exit, so that the library leaves the job */
    exit(test_n_failures == 0 ? 0 : 1);
}

/* This process never touches the device, so each case starts without it. */
void rig_on_two(struct rig_options options, rig_end_fn run_a, rig_end_fn run_b)
{
    struct rig_shared *shared =
        mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    pid_t pids[2];
    for (int me = 0; me < 2; me++) {
        fflush(NULL);
        pids[me] = fork();
        if (pids[me] == 0)
            run_end(&(struct rig_end){.options = &options, .shared = shared, .me = me},
                    me == 0 ? run_a : run_b);
    }
    for (int me = 0; me < 2; me++) {
        int status = 0;
        CHECK(waitpid(pids[me], &status, 0) == pids[me]);
        const bool was_killed = me == 1 && gyre_load_acquire_u32(&shared->is_killed) != 0;
        CHECK_MSG(was_killed || status == 0, "process %d ended with 0x%x", me, status);
    }
    munmap(shared, sizeof(*shared));
}
