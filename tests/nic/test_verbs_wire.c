/* SPDX-License-Identifier: Apache-2.0
 *
 * The RDMA device between processes keeps the rules of verbs: two processes, raw queue pairs.
 */
#include "core/base/sync.h"
#include "core/base/util.h"
#include "tests/support/check.h"
#include "tests/nic/verbs_wire/fake_cuda/fake_cuda.h"
#include "transport/ib/ib_verbs.h"

#include <dlfcn.h>
#include <errno.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define MEMORY_BYTES (3u << 20)
#define LIMIT_NS     20000000000ULL

/* Memory that the two processes share. */
struct shared {
    struct {
        uint32_t qpn, rkey;
        uint64_t address;
        union ibv_gid gid;
    } told[2];
    uint32_t n_arrived[16]; /* at each barrier */
    uint32_t is_killed;
};

struct end {
    struct shared *shared;
    int me;
    uint32_t n_barriers;
    const struct gyre_verbs *verbs;
    struct ibv_context *context;
    struct ibv_pd *pd;
    struct ibv_comp_channel *channel;
    struct ibv_cq *cq;
    struct ibv_qp *qp;
    struct ibv_mr *mr;
    unsigned char *memory; /* MEMORY_BYTES */
    bool is_gpu;           /* then only copies reach it */
    int access;            /* of the region */
    uint8_t timeout;       /* 4.096 us x 2^t */
    uint8_t retries;
    uint8_t rnr_retries;
};

/* Waits until both processes have come here. */
static void barrier(struct end *end)
{
    uint32_t *n_arrived = &end->shared->n_arrived[end->n_barriers++];
    const uint64_t until_ns = gyre_now_ns() + LIMIT_NS;
    gyre_fetch_add_u32(n_arrived, 1);
    while (gyre_load_acquire_u32(n_arrived) < 2 && gyre_now_ns() < until_ns)
        sched_yield();
    CHECK(gyre_load_acquire_u32(n_arrived) == 2);
}

/* Make GPU `me` current, as programs do; both ends share it where there is one. With
 * LD_PRELOAD=libcuda.so.1 these functions, and the NIC's, are the driver's. */
static void enter_gpu(const struct end *end)
{
    void *context;
    int device;
    int n_gpus = 0;
    CHECK(cuInit(0) == 0);
    CHECK(cuDeviceGetCount(&n_gpus) == 0 && n_gpus > 0);
    CHECK(cuDeviceGet(&device, n_gpus > 0 ? end->me % n_gpus : 0) == 0);
    CHECK(cuDevicePrimaryCtxRetain(&context, device) == 0);
    CHECK(cuCtxPushCurrent_v2(context) == 0);
}

static void leave_gpu(void)
{
    void *context;
    CHECK(cuCtxPopCurrent_v2(&context) == 0);
}

static void copy_gpu(const struct end *end, void *to, const void *from, size_t n_bytes)
{
    void *stream;
    enter_gpu(end);
    CHECK(cuStreamCreate(&stream, 1) == 0);
    CHECK(cuMemcpyAsync((uintptr_t)to, (uintptr_t)from, n_bytes, stream) == 0);
    CHECK(cuStreamSynchronize(stream) == 0);
    leave_gpu();
}

static void open_memory(struct end *end)
{
    cu_address base = 0;
    int fd = -1;
    if (!end->is_gpu) {
        end->memory = calloc(1, MEMORY_BYTES);
        end->mr = end->verbs->reg_mr(end->pd, end->memory, MEMORY_BYTES, end->access);
        return;
    }
    enter_gpu(end);
    CHECK(cuMemAlloc_v2(&base, MEMORY_BYTES) == 0);
    CHECK(cuMemGetHandleForAddressRange(&fd, base, MEMORY_BYTES, 1, 0) == 0);
    leave_gpu();
    end->memory = (unsigned char *)(uintptr_t)base;
    end->mr = end->verbs->reg_dmabuf_mr(end->pd, 0, MEMORY_BYTES, base, fd, end->access);
    close(fd);
}

static void open_end(struct end *end)
{
    CHECK_OK(gyre_verbs_load(&end->verbs));
    const struct gyre_verbs *verbs = end->verbs;
    struct ibv_device **list = verbs->get_device_list(&(int){0});
    end->context = verbs->open_device(list[0]);
    verbs->free_device_list(list);
    end->pd = verbs->alloc_pd(end->context);
    end->channel = verbs->create_comp_channel(end->context);
    end->cq = verbs->create_cq(end->context, 64, NULL, end->channel, 0);
    open_memory(end);
    CHECK(end->mr != NULL);
    struct ibv_qp_init_attr attr = {.send_cq = end->cq, .recv_cq = end->cq, .qp_type = IBV_QPT_RC};
    attr.cap.max_send_wr = attr.cap.max_recv_wr = 16;
    attr.cap.max_send_sge = 2;
    end->qp = verbs->create_qp(end->pd, &attr);
    CHECK(end->qp != NULL);
}

/* Takes the queue pair through RESET, INIT, RTR and RTS. The two processes give each other their
 * numbers on the way. */
static void connect_end(struct end *end)
{
    const struct gyre_verbs *verbs = end->verbs;
    const int other = 1 - end->me;
    struct shared *shared = end->shared;
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT, .port_num = 1};
    attr.qp_access_flags = IBV_ACCESS_REMOTE_WRITE;
    CHECK(verbs->modify_qp(end->qp, &attr,
                           IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS) ==
          0);
    shared->told[end->me].qpn = end->qp->qp_num;
    shared->told[end->me].rkey = end->mr->rkey;
    shared->told[end->me].address = (uintptr_t)end->memory;
    CHECK(verbs->query_gid(end->context, 1, 3, &shared->told[end->me].gid) == 0);
    barrier(end);
    attr = (struct ibv_qp_attr){.qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_4096};
    attr.dest_qp_num = shared->told[other].qpn;
    attr.rq_psn = 77;
    attr.min_rnr_timer = 12;
    attr.ah_attr.is_global = 1;
    attr.ah_attr.grh.dgid = shared->told[other].gid;
    attr.ah_attr.grh.sgid_index = 3;
    CHECK(verbs->modify_qp(end->qp, &attr,
                           IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
                               IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER) ==
          0);
    attr = (struct ibv_qp_attr){.qp_state = IBV_QPS_RTS, .sq_psn = 77};
    attr.timeout = end->timeout;
    attr.retry_cnt = end->retries;
    attr.rnr_retry = end->rnr_retries;
    CHECK(verbs->modify_qp(end->qp, &attr,
                           IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
                               IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC) == 0);
}

static void close_end(struct end *end)
{
    const struct gyre_verbs *verbs = end->verbs;
    CHECK(verbs->destroy_qp(end->qp) == 0);
    CHECK(verbs->destroy_cq(end->cq) == 0);
    verbs->destroy_comp_channel(end->channel);
    CHECK(verbs->dereg_mr(end->mr) == 0);
    verbs->dealloc_pd(end->pd);
    verbs->close_device(end->context);
    if (end->is_gpu) {
        enter_gpu(end);
        CHECK(cuMemFree_v2((uintptr_t)end->memory) == 0);
        leave_gpu();
    } else {
        free(end->memory);
    }
}

/* ---- requests ------------------------------------------------------------------------------- */

struct write {
    uint64_t offset; /* the same at both ends */
    uint32_t n_bytes;
    bool has_imm;
    uint32_t rkey; /* 0 = the right one */
    uint32_t lkey; /* likewise */
};

static void post_write(struct end *end, const struct write *write)
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

static void post_receives(struct end *end, int n)
{
    for (int i = 0; i < n; i++) {
        struct ibv_recv_wr wr = {.wr_id = 1000};
        struct ibv_recv_wr *bad = NULL;
        CHECK(ibv_post_recv(end->qp, &wr, &bad) == 0);
    }
}

static struct ibv_wc wait_completion(struct end *end)
{
    struct ibv_wc wc = {.status = IBV_WC_GENERAL_ERR};
    const uint64_t until_ns = gyre_now_ns() + LIMIT_NS;
    int n = 0;
    while (n == 0 && gyre_now_ns() < until_ns) {
        n = ibv_poll_cq(end->cq, 1, &wc);
        sched_yield();
    }
    CHECK(n == 1);
    return wc;
}

static void expect(struct end *end, enum ibv_wc_status status)
{
    const struct ibv_wc wc = wait_completion(end);
    CHECK_MSG(wc.status == status, "status %d, expected %d", (int)wc.status, (int)status);
}

/* ---- two processes -------------------------------------------------------------------------- */

typedef void (*end_fn)(struct end *end);

static void run_end(struct shared *shared, int me, end_fn run)
{
    struct end end = {.shared = shared,
                      .me = me,
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
static void on_two(end_fn run_a, end_fn run_b)
{
    struct shared *shared =
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

/* ---- cases ---------------------------------------------------------------------------------- */

static const struct write good_writes[] = {
    {.offset = 0, .n_bytes = 8, .has_imm = true},
    {.offset = 64, .n_bytes = 1000},
    {.offset = 2048, .n_bytes = 1001, .has_imm = true},
    {.offset = 4096, .n_bytes = 2u << 20},
    {.offset = (2u << 20) + 4096, .n_bytes = 700001, .has_imm = true},
    {.offset = MEMORY_BYTES - 1, .n_bytes = 1},
    {.offset = 32, .n_bytes = 0, .has_imm = true},
};

static unsigned char byte_at(uint64_t offset)
{
    return (unsigned char)(offset * 31 % 251 + 1);
}

static void write_all(struct end *end)
{
    open_end(end);
    connect_end(end);
    barrier(end);
    for (uint64_t i = 0; i < MEMORY_BYTES; i++)
        end->memory[i] = byte_at(i);
    for (size_t i = 0; i < sizeof(good_writes) / sizeof(good_writes[0]); i++) {
        post_write(end, &good_writes[i]);
        const struct ibv_wc wc = wait_completion(end);
        CHECK_MSG(wc.status == IBV_WC_SUCCESS && wc.wr_id == good_writes[i].n_bytes, "write %zu",
                  i);
    }
    barrier(end);
    close_end(end);
}

static void read_all(struct end *end)
{
    open_end(end);
    connect_end(end);
    post_receives(end, 8);
    barrier(end);
    uint64_t n_expected = 0;
    for (size_t i = 0; i < sizeof(good_writes) / sizeof(good_writes[0]); i++) {
        const struct write *write = &good_writes[i];
        n_expected += write->n_bytes;
        if (!write->has_imm)
            continue;
        const struct ibv_wc wc = wait_completion(end);
        CHECK(wc.status == IBV_WC_SUCCESS && wc.opcode == IBV_WC_RECV_RDMA_WITH_IMM);
        CHECK(wc.imm_data == write->n_bytes && wc.byte_len == write->n_bytes && wc.wr_id == 1000);
        for (size_t k = 0; k <= i; k++)
            for (uint64_t at = 0; at < good_writes[k].n_bytes; at++)
                if (end->memory[good_writes[k].offset + at] !=
                    byte_at(good_writes[k].offset + at)) {
                    CHECK_MSG(false, "byte %llu of write %zu", (unsigned long long)at, k);
                    break;
                }
    }
    uint64_t n_written = 0;
    for (uint64_t i = 0; i < MEMORY_BYTES; i++)
        n_written += end->memory[i] != 0;
    CHECK_MSG(n_written == n_expected, "%llu bytes", (unsigned long long)n_written);
    barrier(end);
    close_end(end);
}

/* The same, from GPU to GPU: filled, sent, and read through copies. */
static void write_all_from_gpu(struct end *end)
{
    unsigned char *pattern = malloc(MEMORY_BYTES);
    end->is_gpu = true;
    open_end(end);
    connect_end(end);
    barrier(end);
    for (uint64_t i = 0; i < MEMORY_BYTES; i++)
        pattern[i] = byte_at(i);
    copy_gpu(end, end->memory, pattern, MEMORY_BYTES);
    for (size_t i = 0; i < sizeof(good_writes) / sizeof(good_writes[0]); i++) {
        post_write(end, &good_writes[i]);
        expect(end, IBV_WC_SUCCESS);
    }
    barrier(end);
    close_end(end);
    free(pattern);
}

static void read_all_from_gpu(struct end *end)
{
    unsigned char *seen = malloc(MEMORY_BYTES);
    end->is_gpu = true;
    open_end(end);
    connect_end(end);
    post_receives(end, 8);
    barrier(end);
    for (size_t i = 0; i < sizeof(good_writes) / sizeof(good_writes[0]); i++)
        if (good_writes[i].has_imm)
            CHECK(wait_completion(end).imm_data == good_writes[i].n_bytes);
    copy_gpu(end, seen, end->memory, MEMORY_BYTES);
    uint64_t n_expected = 0;
    uint64_t n_written = 0;
    for (size_t i = 0; i < sizeof(good_writes) / sizeof(good_writes[0]); i++) {
        const struct write *write = &good_writes[i];
        uint64_t n_right = 0;
        for (uint64_t at = write->offset; at < write->offset + write->n_bytes; at++)
            n_right += seen[at] == byte_at(at);
        CHECK_MSG(n_right == write->n_bytes, "write %zu", i);
        n_expected += write->n_bytes;
    }
    for (uint64_t i = 0; i < MEMORY_BYTES; i++)
        n_written += seen[i] != 0;
    CHECK_MSG(n_written == n_expected, "%llu bytes", (unsigned long long)n_written);
    barrier(end);
    close_end(end);
    free(seen);
}

static void gpu_memory_is_reached_by_copies_alone(void)
{
    on_two(write_all_from_gpu, read_all_from_gpu);
}

static void bytes_are_there_when_the_immediate_value_is(void)
{
    on_two(write_all, read_all);
}

static void bytes_are_there_too_when_they_go_by_the_ring(void)
{
    setenv("VERBS_WIRE_MOVE", "ring", 1);
    on_two(write_all, read_all);
    unsetenv("VERBS_WIRE_MOVE");
}

static void sleep_on_channel(struct end *end)
{
    struct pollfd readable = {.fd = end->channel->fd, .events = POLLIN};
    struct ibv_cq *cq = NULL;
    void *cookie;
    const int n_ready = poll(&readable, 1, (int)(LIMIT_NS / 1000000));
    CHECK(n_ready == 1);
    if (n_ready != 1)
        return;
    CHECK(end->verbs->get_cq_event(end->channel, &cq, &cookie) == 0 && cq == end->cq);
    end->verbs->ack_cq_events(cq, 1);
}

static void sleep_for_event(struct end *end)
{
    open_end(end);
    connect_end(end);
    post_receives(end, 2);
    CHECK(ibv_req_notify_cq(end->cq, 0) == 0);
    barrier(end);
    sleep_on_channel(end);
    expect(end, IBV_WC_SUCCESS);
    /* The queue is not armed again, so the next message makes no event. */
    barrier(end);
    expect(end, IBV_WC_SUCCESS);
    CHECK(poll(&(struct pollfd){.fd = end->channel->fd, .events = POLLIN}, 1, 0) == 0);
    barrier(end);
    close_end(end);
}

static void wake_other(struct end *end)
{
    const struct write write = {.n_bytes = 8, .has_imm = true};
    open_end(end);
    connect_end(end);
    CHECK(ibv_req_notify_cq(end->cq, 0) == 0);
    barrier(end);
    post_write(end, &write);
    sleep_on_channel(end); /* its own completion */
    barrier(end);
    post_write(end, &write);
    barrier(end);
    close_end(end);
}

static void an_armed_channel_wakes_a_sleeping_peer_once(void)
{
    on_two(wake_other, sleep_for_event);
}

static void write_with_wrong_key(struct end *end)
{
    open_end(end);
    connect_end(end);
    barrier(end);
    post_write(end, &(struct write){.n_bytes = 8, .rkey = end->mr->rkey});
    expect(end, IBV_WC_REM_ACCESS_ERR);
    post_write(end, &(struct write){.n_bytes = 8});
    expect(end, IBV_WC_WR_FLUSH_ERR);
    barrier(end);
    close_end(end);
}

static void write_past_the_end(struct end *end)
{
    open_end(end);
    connect_end(end);
    barrier(end);
    struct ibv_mr *larger = end->verbs->reg_mr(end->pd, end->memory, MEMORY_BYTES, 0);
    CHECK(larger != NULL);
    end->shared->told[1].address += MEMORY_BYTES - 7;
    post_write(end, &(struct write){.n_bytes = 8, .lkey = larger->lkey});
    expect(end, IBV_WC_REM_ACCESS_ERR);
    CHECK(end->verbs->dereg_mr(larger) == 0);
    barrier(end);
    close_end(end);
}

static void write_from_elsewhere(struct end *end)
{
    open_end(end);
    connect_end(end);
    barrier(end);
    post_write(end, &(struct write){.offset = MEMORY_BYTES - 4, .n_bytes = 8});
    expect(end, IBV_WC_LOC_PROT_ERR);
    barrier(end);
    close_end(end);
}

static void write_plainly_refused(struct end *end)
{
    open_end(end);
    connect_end(end);
    barrier(end);
    post_write(end, &(struct write){.n_bytes = 8});
    expect(end, IBV_WC_REM_ACCESS_ERR);
    barrier(end);
    close_end(end);
}

static void stay(struct end *end)
{
    open_end(end);
    connect_end(end);
    barrier(end);
    barrier(end);
    for (uint64_t i = 0; i < MEMORY_BYTES; i++)
        if (end->memory[i] != 0) {
            CHECK_MSG(false, "byte %llu was written", (unsigned long long)i);
            break;
        }
    close_end(end);
}

static void stay_read_only(struct end *end)
{
    end->access = IBV_ACCESS_LOCAL_WRITE;
    stay(end);
}

static void keys_ranges_and_access_are_checked_at_both_ends(void)
{
    on_two(write_with_wrong_key, stay);
    on_two(write_past_the_end, stay);
    on_two(write_from_elsewhere, stay);
    on_two(write_plainly_refused, stay_read_only);
}

static void write_unasked(struct end *end)
{
    open_end(end);
    connect_end(end);
    barrier(end);
    post_write(end, &(struct write){.n_bytes = 8, .has_imm = true});
    expect(end, IBV_WC_RNR_RETRY_EXC_ERR);
    barrier(end);
    close_end(end);
}

static void a_missing_receive_ends_in_rnr(void)
{
    on_two(write_unasked, stay);
}

static void write_early(struct end *end)
{
    end->rnr_retries = 7; /* for ever */
    open_end(end);
    connect_end(end);
    post_write(end, &(struct write){.n_bytes = 8, .has_imm = true});
    post_write(end, &(struct write){.n_bytes = 16, .has_imm = true});
    barrier(end);
    CHECK(wait_completion(end).wr_id == 8);
    CHECK(wait_completion(end).wr_id == 16);
    barrier(end);
    close_end(end);
}

static void receive_late(struct end *end)
{
    open_end(end);
    connect_end(end);
    barrier(end);
    post_receives(end, 2);
    CHECK(wait_completion(end).imm_data == 8);
    CHECK(wait_completion(end).imm_data == 16);
    barrier(end);
    close_end(end);
}

static void a_late_receive_is_waited_for_in_order(void)
{
    on_two(write_early, receive_late);
}

static void outlive(struct end *end)
{
    /* 4 tries of 67 ms */
    const uint64_t window_ns = 4 * (4096ULL << 14);
    open_end(end);
    connect_end(end);
    barrier(end);
    post_write(end, &(struct write){.n_bytes = 8});
    expect(end, IBV_WC_SUCCESS);
    barrier(end);
    /* The parent waits for this process first, so the other stays a zombie. */
    while (gyre_load_acquire_u32(&end->shared->is_killed) == 0)
        sched_yield();
    const uint64_t began_ns = gyre_now_ns();
    enum ibv_wc_status status = IBV_WC_SUCCESS;
    /* Requests that were sent just before may still be answered. */
    while (status == IBV_WC_SUCCESS && gyre_now_ns() < began_ns + LIMIT_NS) {
        post_write(end, &(struct write){.n_bytes = 8});
        status = wait_completion(end).status;
    }
    CHECK_MSG(status == IBV_WC_RETRY_EXC_ERR, "status %d", (int)status);
    CHECK(gyre_now_ns() - began_ns >= window_ns);
    close_end(end);
}

static void die(struct end *end)
{
    open_end(end);
    connect_end(end);
    post_receives(end, 2);
    barrier(end);
    barrier(end);
    gyre_store_release_u32(&end->shared->is_killed, 1);
    raise(SIGKILL);
}

static void a_killed_peer_ends_in_retry_exceeded_after_the_retry_time(void)
{
    on_two(outlive, die);
}

static void stop(struct end *end)
{
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_ERR};
    open_end(end);
    connect_end(end);
    post_receives(end, 2);
    CHECK(end->verbs->modify_qp(end->qp, &attr, IBV_QP_STATE) == 0);
    expect(end, IBV_WC_WR_FLUSH_ERR);
    expect(end, IBV_WC_WR_FLUSH_ERR);
    struct ibv_wc wc;
    CHECK(ibv_poll_cq(end->cq, 1, &wc) == 0);
    barrier(end);
    barrier(end);
    close_end(end);
}

static void write_to_stopped(struct end *end)
{
    open_end(end);
    connect_end(end);
    barrier(end);
    post_write(end, &(struct write){.n_bytes = 8});
    expect(end, IBV_WC_RETRY_EXC_ERR);
    barrier(end);
    close_end(end);
}

static void a_stopped_pair_flushes_and_answers_no_more(void)
{
    on_two(write_to_stopped, stop);
}

static void register_gpu_memory(struct end *end)
{
    char file[] = "not a dma-buf";
    void *no_pages = mmap(NULL, MEMORY_BYTES, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    open_end(end);
    const struct gyre_verbs *verbs = end->verbs;
    errno = 0;
    CHECK(verbs->reg_dmabuf_mr(end->pd, 0, 4096, 0x1000, -1, IBV_ACCESS_LOCAL_WRITE) == NULL);
    CHECK_MSG(errno == EBADF, "errno %d", errno);
    const int fd = memfd_create(file, MFD_CLOEXEC);
    CHECK(ftruncate(fd, 1 << 20) == 0);
    CHECK(verbs->reg_dmabuf_mr(end->pd, 0, 4096, 0x1000, fd, IBV_ACCESS_LOCAL_WRITE) == NULL);
    CHECK_MSG(errno == EINVAL, "errno %d", errno);
    close(fd);
    errno = 0;
    CHECK(verbs->reg_mr(end->pd, no_pages, MEMORY_BYTES, IBV_ACCESS_LOCAL_WRITE) == NULL);
    CHECK_MSG(errno == EFAULT, "errno %d", errno);
    cu_address base = 0;
    int larger = -1;
    enter_gpu(end);
    CHECK(cuMemAlloc_v2(&base, 8192) == 0);
    leave_gpu();
    larger = memfd_create("dmabuf", MFD_CLOEXEC);
    CHECK(ftruncate(larger, 1 << 20) == 0);
    CHECK(verbs->reg_dmabuf_mr(end->pd, 0, 8193, base, larger, IBV_ACCESS_LOCAL_WRITE) == NULL);
    CHECK_MSG(errno == EFAULT, "errno %d", errno);
    setenv("VERBS_WIRE_GPU", "none", 1);
    CHECK(verbs->reg_dmabuf_mr(end->pd, 0, 8192, base, larger, IBV_ACCESS_LOCAL_WRITE) == NULL);
    CHECK_MSG(errno == EOPNOTSUPP, "errno %d", errno);
    close(larger);
    setenv("VERBS_WIRE_GPU", "peermem", 1);
    struct ibv_mr *mr =
        verbs->reg_mr(end->pd, (void *)(uintptr_t)base, 8192, IBV_ACCESS_LOCAL_WRITE);
    CHECK(mr != NULL && verbs->dereg_mr(mr) == 0);
    enter_gpu(end);
    CHECK(cuMemFree_v2(base) == 0);
    leave_gpu();

    CHECK(verbs->reg_mr(end->pd, no_pages, MEMORY_BYTES, IBV_ACCESS_LOCAL_WRITE) == NULL);
    close_end(end);
}

static void do_nothing(struct end *end)
{
    (void)end;
}

static void gpu_memory_needs_a_real_dma_buf(void)
{
    on_two(register_gpu_memory, do_nothing);
}

static const struct test_case cases[] = {
    {"bytes are there when the immediate value is", bytes_are_there_when_the_immediate_value_is},
    {"bytes are there too when they go by the ring", bytes_are_there_too_when_they_go_by_the_ring},
    {"an armed channel wakes a sleeping peer, once", an_armed_channel_wakes_a_sleeping_peer_once},
    {"keys, ranges and access are checked at both ends",
     keys_ranges_and_access_are_checked_at_both_ends},
    {"a missing receive ends in RNR", a_missing_receive_ends_in_rnr},
    {"a late receive is waited for, in order", a_late_receive_is_waited_for_in_order},
    {"a killed peer ends in retry exceeded, after the retry time",
     a_killed_peer_ends_in_retry_exceeded_after_the_retry_time},
    {"a stopped pair flushes and answers no more", a_stopped_pair_flushes_and_answers_no_more},
    {"GPU memory is reached by copies alone", gpu_memory_is_reached_by_copies_alone},
    {"GPU memory needs a real dma-buf", gpu_memory_needs_a_real_dma_buf},
};
TEST_MAIN(cases)
