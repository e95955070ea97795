/* SPDX-License-Identifier: Apache-2.0
 *
 * Tests replace the tables by a simulated device. Posting and polling use the table in struct
 * ibv_context.
 */
#ifndef GYRE_IB_VERBS_H
#define GYRE_IB_VERBS_H

#include "core/foundation/base/status.h"

#include <infiniband/verbs.h>
#ifdef GYRE_WITH_RDMACM
#include <rdma/rdma_cma.h>
#endif

/* X(member, symbol, is needed, result, parameters) */
#define GYRE_VERBS_TABLE(X)                                                                       \
    X(fork_init, "ibv_fork_init", 0, int, (void))                                                 \
    X(get_device_list, "ibv_get_device_list", 1, struct ibv_device **, (int *))                   \
    X(free_device_list, "ibv_free_device_list", 1, void, (struct ibv_device **))                  \
    X(open_device, "ibv_open_device", 1, struct ibv_context *, (struct ibv_device *))             \
    X(close_device, "ibv_close_device", 1, int, (struct ibv_context *))                           \
    X(query_device, "ibv_query_device", 1, int, (struct ibv_context *, struct ibv_device_attr *)) \
    X(query_port, "ibv_query_port", 1, int,                                                       \
      (struct ibv_context *, uint8_t, struct _compat_ibv_port_attr *))                            \
    X(query_gid, "ibv_query_gid", 1, int, (struct ibv_context *, uint8_t, int, union ibv_gid *))  \
    X(query_gid_table, "_ibv_query_gid_table", 0, ssize_t,                                        \
      (struct ibv_context *, struct ibv_gid_entry *, size_t, uint32_t, size_t))                   \
    X(alloc_pd, "ibv_alloc_pd", 1, struct ibv_pd *, (struct ibv_context *))                       \
    X(dealloc_pd, "ibv_dealloc_pd", 1, int, (struct ibv_pd *))                                    \
    X(reg_mr, "ibv_reg_mr", 1, struct ibv_mr *, (struct ibv_pd *, void *, size_t, int))           \
    X(reg_mr_iova2, "ibv_reg_mr_iova2", 0, struct ibv_mr *,                                       \
      (struct ibv_pd *, void *, size_t, uint64_t, unsigned int))                                  \
    X(reg_dmabuf_mr, "ibv_reg_dmabuf_mr", 0, struct ibv_mr *,                                     \
      (struct ibv_pd *, uint64_t, size_t, uint64_t, int, int))                                    \
    X(dereg_mr, "ibv_dereg_mr", 1, int, (struct ibv_mr *))                                        \
    X(create_cq, "ibv_create_cq", 1, struct ibv_cq *,                                             \
      (struct ibv_context *, int, void *, struct ibv_comp_channel *, int))                        \
    X(create_comp_channel, "ibv_create_comp_channel", 1, struct ibv_comp_channel *,               \
      (struct ibv_context *))                                                                     \
    X(destroy_comp_channel, "ibv_destroy_comp_channel", 1, int, (struct ibv_comp_channel *))      \
    X(get_cq_event, "ibv_get_cq_event", 1, int,                                                   \
      (struct ibv_comp_channel *, struct ibv_cq **, void **))                                     \
    X(ack_cq_events, "ibv_ack_cq_events", 1, void, (struct ibv_cq *, unsigned int))               \
    X(destroy_cq, "ibv_destroy_cq", 1, int, (struct ibv_cq *))                                    \
    X(create_qp, "ibv_create_qp", 1, struct ibv_qp *,                                             \
      (struct ibv_pd *, struct ibv_qp_init_attr *))                                               \
    X(modify_qp, "ibv_modify_qp", 1, int, (struct ibv_qp *, struct ibv_qp_attr *, int))           \
    X(destroy_qp, "ibv_destroy_qp", 1, int, (struct ibv_qp *))                                    \
    X(get_async_event, "ibv_get_async_event", 1, int,                                             \
      (struct ibv_context *, struct ibv_async_event *))                                           \
    X(ack_async_event, "ibv_ack_async_event", 1, void, (struct ibv_async_event *))

struct gyre_verbs {
#define GYRE_VERBS_MEMBER(member, symbol, is_needed, result, parameters) result(*member) parameters;
    GYRE_VERBS_TABLE(GYRE_VERBS_MEMBER)
#undef GYRE_VERBS_MEMBER
};

/** Errors: UNSUPPORTED (the library or a needed symbol is missing). */
gyre_status gyre_verbs_load(const struct gyre_verbs **verbs_out);

/** For tests. NULL = the library's again. */
void gyre_verbs_install(const struct gyre_verbs *verbs);

/** 0 or an errno. */
int gyre_verbs_query_port(const struct gyre_verbs *verbs, struct ibv_context *context, uint8_t port,
                          struct ibv_port_attr *attr_out);

#ifdef GYRE_WITH_RDMACM

#define GYRE_RDMACM_TABLE(X)                                                                      \
    X(create_event_channel, "rdma_create_event_channel", struct rdma_event_channel *, (void))     \
    X(destroy_event_channel, "rdma_destroy_event_channel", void, (struct rdma_event_channel *))   \
    X(create_id, "rdma_create_id", int,                                                           \
      (struct rdma_event_channel *, struct rdma_cm_id **, void *, enum rdma_port_space))          \
    X(destroy_id, "rdma_destroy_id", int, (struct rdma_cm_id *))                                  \
    X(bind_addr, "rdma_bind_addr", int, (struct rdma_cm_id *, struct sockaddr *))                 \
    X(resolve_addr, "rdma_resolve_addr", int,                                                     \
      (struct rdma_cm_id *, struct sockaddr *, struct sockaddr *, int))                           \
    X(resolve_route, "rdma_resolve_route", int, (struct rdma_cm_id *, int))                       \
    X(set_option, "rdma_set_option", int, (struct rdma_cm_id *, int, int, void *, size_t))        \
    X(init_qp_attr, "rdma_init_qp_attr", int, (struct rdma_cm_id *, struct ibv_qp_attr *, int *)) \
    X(connect, "rdma_connect", int, (struct rdma_cm_id *, struct rdma_conn_param *))              \
    X(establish, "rdma_establish", int, (struct rdma_cm_id *))                                    \
    X(listen, "rdma_listen", int, (struct rdma_cm_id *, int))                                     \
    X(accept, "rdma_accept", int, (struct rdma_cm_id *, struct rdma_conn_param *))                \
    X(reject, "rdma_reject", int, (struct rdma_cm_id *, const void *, uint8_t))                   \
    X(get_cm_event, "rdma_get_cm_event", int,                                                     \
      (struct rdma_event_channel *, struct rdma_cm_event **))                                     \
    X(ack_cm_event, "rdma_ack_cm_event", int, (struct rdma_cm_event *))                           \
    X(get_src_port, "rdma_get_src_port", __be16, (struct rdma_cm_id *))                           \
    X(event_str, "rdma_event_str", const char *, (enum rdma_cm_event_type))

struct gyre_rdmacm {
#define GYRE_RDMACM_MEMBER(member, symbol, result, parameters) result(*member) parameters;
    GYRE_RDMACM_TABLE(GYRE_RDMACM_MEMBER)
#undef GYRE_RDMACM_MEMBER
};

gyre_status gyre_rdmacm_load(const struct gyre_rdmacm **rdmacm_out);

#endif
#endif
