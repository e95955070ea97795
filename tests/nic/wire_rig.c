/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/nic/wire_rig.h"

#include "core/foundation/base/util.h"
#include "tests/support/check.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

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

void rig_open(struct rig_end *end)
{
    CHECK_OK(gyre_verbs_load(&end->verbs));
    const struct gyre_verbs *verbs = end->verbs;
    struct ibv_device **list = verbs->get_device_list(&(int){0});
    end->context = verbs->open_device(list[0]);
    verbs->free_device_list(list);
    end->pd = verbs->alloc_pd(end->context);
    end->channel = verbs->create_comp_channel(end->context);
    end->cq = verbs->create_cq(end->context, 2 * RIG_MAX_WR * RIG_MAX_QPS, NULL, end->channel, 0);
    end->memory = rig_alloc(end->gpu, RIG_MEMORY_BYTES);
    end->mr = rig_register(end, end->gpu, end->memory, RIG_MEMORY_BYTES);
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
    attr.timeout = end->timeout;
    attr.retry_cnt = end->retries;
    attr.rnr_retry = end->rnr_retries;
    CHECK(verbs->modify_qp(end->qps[index], &attr,
                           IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
                               IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC) == 0);
}

void rig_connect(struct rig_end *end)
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

void rig_close(struct rig_end *end)
{
    const struct gyre_verbs *verbs = end->verbs;
    for (int i = 0; i < end->n_qps; i++)
        CHECK(verbs->destroy_qp(end->qps[i]) == 0);
    CHECK(verbs->destroy_cq(end->cq) == 0);
    verbs->destroy_comp_channel(end->channel);
    CHECK(verbs->dereg_mr(end->mr) == 0);
    verbs->dealloc_pd(end->pd);
    verbs->close_device(end->context);
    rig_free(end->gpu, end->memory);
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

static void run_end(struct rig_shared *shared, int me, rig_end_fn run)
{
    struct rig_end end = {.shared = shared,
                          .me = me,
                          .n_qps = 1,
                          .gpu = RIG_HOST,
                          .access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE,
                          .timeout = 14,
                          .retries = 3,
                          .rnr_retries = 1};
    Dl_info cuda;
    test_n_failures = 0;
    /* The NIC process must find the libcuda that this process is linked with. */
    CHECK(dladdr((void *)(uintptr_t)cuInit, &cuda) != 0);
    setenv("VERBS_WIRE_CUDA", cuda.dli_fname, 1);
    setenv("GYRE_HOSTID", me == 0 ? "host1" : "host2", 1);
    run(&end);
    fflush(NULL);
    /* exit, so that the library leaves the job */
    exit(test_n_failures == 0 ? 0 : 1);
}

/* Both are children: this process never touches the device, so each case starts without it. */
void rig_on_two(rig_end_fn run_a, rig_end_fn run_b)
{
    struct rig_shared *shared =
        mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    pid_t pids[2];
    for (int me = 0; me < 2; me++) {
        fflush(NULL);
        pids[me] = fork();
        if (pids[me] == 0)
            run_end(shared, me, me == 0 ? run_a : run_b);
    }
    for (int me = 0; me < 2; me++) {
        int status = 0;
        CHECK(waitpid(pids[me], &status, 0) == pids[me]);
        const bool was_killed = me == 1 && gyre_load_acquire_u32(&shared->is_killed) != 0;
        CHECK_MSG(was_killed || status == 0, "process %d ended with 0x%x", me, status);
    }
    munmap(shared, sizeof(*shared));
}
