/* SPDX-License-Identifier: Apache-2.0 */
#include "core/foundation/base/util.h"
#include "tests/nic/wire_rig.h"
#include "tests/support/check.h"

#include <errno.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>

#define NORMAL ((struct rig_options){0})

static const struct rig_write good_writes[] = {
    {.offset = 0, .n_bytes = 8, .has_imm = true},
    {.offset = 64, .n_bytes = 1000},
    {.offset = 2048, .n_bytes = 1001, .has_imm = true},
    {.offset = 4096, .n_bytes = 2u << 20},
    {.offset = (2u << 20) + 4096, .n_bytes = 700001, .has_imm = true},
    {.offset = RIG_MEMORY_BYTES - 1, .n_bytes = 1},
    {.offset = 32, .n_bytes = 0, .has_imm = true},
};

static unsigned char byte_at(uint64_t offset)
{
    return (unsigned char)(offset * 31 % 251 + 1);
}

static void write_all(struct rig_end *end)
{
    rig_barrier(end);
    for (uint64_t i = 0; i < RIG_MEMORY_BYTES; i++)
        end->memory[i] = byte_at(i);
    for (size_t i = 0; i < sizeof(good_writes) / sizeof(good_writes[0]); i++) {
        rig_post_write(end, &good_writes[i]);
        const struct ibv_wc wc = rig_wait_completion(end);
        CHECK_MSG(wc.status == IBV_WC_SUCCESS && wc.wr_id == good_writes[i].n_bytes, "write %zu",
                  i);
    }
}

static void read_all(struct rig_end *end)
{
    rig_post_receives(end->qp, 8);
    rig_barrier(end);
    uint64_t n_expected = 0;
    for (size_t i = 0; i < sizeof(good_writes) / sizeof(good_writes[0]); i++) {
        const struct rig_write *write = &good_writes[i];
        n_expected += write->n_bytes;
        if (!write->has_imm)
            continue;
        const struct ibv_wc wc = rig_wait_completion(end);
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
    for (uint64_t i = 0; i < RIG_MEMORY_BYTES; i++)
        n_written += end->memory[i] != 0;
    CHECK_MSG(n_written == n_expected, "%llu bytes", (unsigned long long)n_written);
}

TEST_RUNS("bytes are there when the immediate value is", rig_on_two(NORMAL, write_all, read_all))

TEST_CASE("bytes are there too when they go by the ring")
{
    setenv("VERBS_WIRE_MOVE", "ring", 1);
    rig_on_two(NORMAL, write_all, read_all);
}

static void sleep_on_channel(struct rig_end *end)
{
    struct pollfd readable = {.fd = end->channel->fd, .events = POLLIN};
    struct ibv_cq *cq = NULL;
    void *cookie;
    const int n_ready = poll(&readable, 1, (int)(RIG_LIMIT_NS / 1000000));
    CHECK(n_ready == 1);
    if (n_ready != 1)
        return;
    CHECK(end->verbs->get_cq_event(end->channel, &cq, &cookie) == 0 && cq == end->cq);
    end->verbs->ack_cq_events(cq, 1);
}

static void sleep_for_event(struct rig_end *end)
{
    rig_post_receives(end->qp, 2);
    CHECK(ibv_req_notify_cq(end->cq, 0) == 0);
    rig_barrier(end);
    sleep_on_channel(end);
    rig_expect(end, IBV_WC_SUCCESS);
    /* Not armed again, so the next message makes no event. */
    rig_barrier(end);
    rig_expect(end, IBV_WC_SUCCESS);
    CHECK(poll(&(struct pollfd){.fd = end->channel->fd, .events = POLLIN}, 1, 0) == 0);
}

static void wake_other(struct rig_end *end)
{
    const struct rig_write write = {.n_bytes = 8, .has_imm = true};
    CHECK(ibv_req_notify_cq(end->cq, 0) == 0);
    rig_barrier(end);
    rig_post_write(end, &write);
    sleep_on_channel(end); /* its own completion */
    rig_barrier(end);
    rig_post_write(end, &write);
}

TEST_RUNS("an armed channel wakes a sleeping peer, once",
          rig_on_two(NORMAL, wake_other, sleep_for_event))

static void write_with_wrong_key(struct rig_end *end)
{
    rig_barrier(end);
    rig_post_write(end, &(struct rig_write){.n_bytes = 8, .rkey = end->mr->rkey});
    rig_expect(end, IBV_WC_REM_ACCESS_ERR);
    rig_post_write(end, &(struct rig_write){.n_bytes = 8});
    rig_expect(end, IBV_WC_WR_FLUSH_ERR);
    rig_barrier(end);
}

static void write_past_the_end(struct rig_end *end)
{
    rig_barrier(end);
    struct ibv_mr *larger = end->verbs->reg_mr(end->pd, end->memory, RIG_MEMORY_BYTES, 0);
    CHECK(larger != NULL);
    end->shared->told[1].address += RIG_MEMORY_BYTES - 7;
    rig_post_write(end, &(struct rig_write){.n_bytes = 8, .lkey = larger->lkey});
    rig_expect(end, IBV_WC_REM_ACCESS_ERR);
    CHECK(end->verbs->dereg_mr(larger) == 0);
    rig_barrier(end);
}

static void write_from_elsewhere(struct rig_end *end)
{
    rig_barrier(end);
    rig_post_write(end, &(struct rig_write){.offset = RIG_MEMORY_BYTES - 4, .n_bytes = 8});
    rig_expect(end, IBV_WC_LOC_PROT_ERR);
    rig_barrier(end);
}

static void expect_refused(struct rig_end *end, const struct rig_write *write,
                           enum ibv_wc_status status)
{
    rig_barrier(end);
    rig_post_write(end, write);
    rig_expect(end, status);
    rig_barrier(end);
}

static void write_plainly_refused(struct rig_end *end)
{
    expect_refused(end, &(struct rig_write){.n_bytes = 8}, IBV_WC_REM_ACCESS_ERR);
}

static void stay(struct rig_end *end)
{
    rig_barrier(end);
    rig_barrier(end);
    for (uint64_t i = 0; i < RIG_MEMORY_BYTES; i++)
        if (end->memory[i] != 0) {
            CHECK_MSG(false, "byte %llu was written", (unsigned long long)i);
            break;
        }
}

TEST_CASE("keys, ranges and access are checked at both ends")
{
    rig_on_two(NORMAL, write_with_wrong_key, stay);
    rig_on_two(NORMAL, write_past_the_end, stay);
    rig_on_two(NORMAL, write_from_elsewhere, stay);
    rig_on_two((struct rig_options){.is_read_only = true}, write_plainly_refused, stay);
}

static void write_unasked(struct rig_end *end)
{
    rig_barrier(end);
    rig_post_write(end, &(struct rig_write){.n_bytes = 8, .has_imm = true});
    rig_expect(end, IBV_WC_RNR_RETRY_EXC_ERR);
    rig_barrier(end);
}

TEST_RUNS("a missing receive ends in RNR", rig_on_two(NORMAL, write_unasked, stay))

static void write_early(struct rig_end *end)
{
    rig_post_write(end, &(struct rig_write){.n_bytes = 8, .has_imm = true});
    rig_post_write(end, &(struct rig_write){.n_bytes = 16, .has_imm = true});
    rig_barrier(end);
    CHECK(rig_wait_completion(end).wr_id == 8);
    CHECK(rig_wait_completion(end).wr_id == 16);
}

static void receive_late(struct rig_end *end)
{
    rig_barrier(end);
    rig_post_receives(end->qp, 2);
    CHECK(rig_wait_completion(end).imm_data == 8);
    CHECK(rig_wait_completion(end).imm_data == 16);
}

TEST_CASE("a late receive is waited for, in order")
{
    rig_on_two((struct rig_options){.waits_for_ever = true}, write_early, receive_late);
}

static void outlive(struct rig_end *end)
{
    /* 4 tries of 67 ms */
    const uint64_t window_ns = 4 * (4096ULL << 14);
    rig_barrier(end);
    rig_post_write(end, &(struct rig_write){.n_bytes = 8});
    rig_expect(end, IBV_WC_SUCCESS);
    rig_barrier(end);
    /* This process is waited for first, so the other stays a zombie. */
    while (gyre_load_acquire_u32(&end->shared->is_killed) == 0)
        sched_yield();
    const uint64_t began_ns = gyre_now_ns();
    enum ibv_wc_status status = IBV_WC_SUCCESS;
    /* Earlier requests may still be answered. */
    while (status == IBV_WC_SUCCESS && gyre_now_ns() < began_ns + RIG_LIMIT_NS) {
        rig_post_write(end, &(struct rig_write){.n_bytes = 8});
        status = rig_wait_completion(end).status;
    }
    CHECK_MSG(status == IBV_WC_RETRY_EXC_ERR, "status %d", (int)status);
    CHECK(gyre_now_ns() - began_ns >= window_ns);
}

static void die(struct rig_end *end)
{
    rig_post_receives(end->qp, 2);
    rig_barrier(end);
    rig_barrier(end);
    gyre_store_release_u32(&end->shared->is_killed, 1);
    raise(SIGKILL);
}

TEST_RUNS("a killed peer ends in retry exceeded, after the retry time",
          rig_on_two(NORMAL, outlive, die))

static void stop(struct rig_end *end)
{
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_ERR};
    rig_post_receives(end->qp, 2);
    CHECK(end->verbs->modify_qp(end->qp, &attr, IBV_QP_STATE) == 0);
    rig_expect(end, IBV_WC_WR_FLUSH_ERR);
    rig_expect(end, IBV_WC_WR_FLUSH_ERR);
    struct ibv_wc wc;
    CHECK(ibv_poll_cq(end->cq, 1, &wc) == 0);
    rig_barrier(end);
}

static void write_to_stopped(struct rig_end *end)
{
    rig_barrier(end);
    rig_post_write(end, &(struct rig_write){.n_bytes = 8});
    rig_expect(end, IBV_WC_RETRY_EXC_ERR);
}

TEST_RUNS("a stopped pair flushes and answers no more", rig_on_two(NORMAL, write_to_stopped, stop))

static void register_gpu_memory(struct rig_end *end)
{
    char file[] = "not a dma-buf";
    void *no_pages = mmap(NULL, RIG_MEMORY_BYTES, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
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
    CHECK(verbs->reg_mr(end->pd, no_pages, RIG_MEMORY_BYTES, IBV_ACCESS_LOCAL_WRITE) == NULL);
    CHECK_MSG(errno == EFAULT, "errno %d", errno);
    cu_address base = 0;
    int larger = -1;
    rig_enter_gpu(end->me);
    CHECK(cuMemAlloc_v2(&base, 8192) == 0);
    rig_leave_gpu();
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
    rig_enter_gpu(end->me);
    CHECK(cuMemFree_v2(base) == 0);
    rig_leave_gpu();

    CHECK(verbs->reg_mr(end->pd, no_pages, RIG_MEMORY_BYTES, IBV_ACCESS_LOCAL_WRITE) == NULL);
}

TEST_RUNS("GPU memory needs a real dma-buf", rig_on_two(NORMAL, register_gpu_memory, NULL))
