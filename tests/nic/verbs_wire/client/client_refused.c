/* SPDX-License-Identifier: Apache-2.0
 *
 * What rdma-core has and this device does not: programs, librdmacm and the libraries of vendors
 * (libmlx5, libefa) need these names to load at all. Parameters do not matter, so one function has
 * all the names.
 */
#include <errno.h>
#include <stdbool.h>
#include <stddef.h>

int wire_refuse(void);
void *wire_refuse_object(void);

/* Some return it negative, some set errno; programs take all but 0 as a failure. */
int wire_refuse(void)
{
    errno = EOPNOTSUPP;
    return EOPNOTSUPP;
}

void *wire_refuse_object(void)
{
    errno = EOPNOTSUPP;
    return NULL;
}

#define REFUSED(X)                    \
    X(execute_ioctl)                  \
    X(ibv_attach_mcast)               \
    X(ibv_cmd_advise_mr)              \
    X(ibv_cmd_alloc_dm)               \
    X(ibv_cmd_alloc_mw)               \
    X(ibv_cmd_alloc_pd)               \
    X(ibv_cmd_attach_mcast)           \
    X(ibv_cmd_close_xrcd)             \
    X(ibv_cmd_create_ah)              \
    X(ibv_cmd_create_counters)        \
    X(ibv_cmd_create_cq_ex)           \
    X(ibv_cmd_create_cq_ex2)          \
    X(ibv_cmd_create_flow)            \
    X(ibv_cmd_create_flow_action_esp) \
    X(ibv_cmd_create_qp_ex)           \
    X(ibv_cmd_create_qp_ex2)          \
    X(ibv_cmd_create_rwq_ind_table)   \
    X(ibv_cmd_create_srq)             \
    X(ibv_cmd_create_srq_ex)          \
    X(ibv_cmd_create_wq)              \
    X(ibv_cmd_dealloc_mw)             \
    X(ibv_cmd_dealloc_pd)             \
    X(ibv_cmd_dereg_mr)               \
    X(ibv_cmd_destroy_ah)             \
    X(ibv_cmd_destroy_counters)       \
    X(ibv_cmd_destroy_cq)             \
    X(ibv_cmd_destroy_flow)           \
    X(ibv_cmd_destroy_flow_action)    \
    X(ibv_cmd_destroy_qp)             \
    X(ibv_cmd_destroy_rwq_ind_table)  \
    X(ibv_cmd_destroy_srq)            \
    X(ibv_cmd_destroy_wq)             \
    X(ibv_cmd_detach_mcast)           \
    X(ibv_cmd_free_dm)                \
    X(ibv_cmd_get_context)            \
    X(ibv_cmd_modify_cq)              \
    X(ibv_cmd_modify_flow_action_esp) \
    X(ibv_cmd_modify_qp)              \
    X(ibv_cmd_modify_qp_ex)           \
    X(ibv_cmd_modify_srq)             \
    X(ibv_cmd_modify_wq)              \
    X(ibv_cmd_open_qp)                \
    X(ibv_cmd_open_xrcd)              \
    X(ibv_cmd_query_context)          \
    X(ibv_cmd_query_device_any)       \
    X(ibv_cmd_query_mr)               \
    X(ibv_cmd_query_port)             \
    X(ibv_cmd_query_qp)               \
    X(ibv_cmd_query_srq)              \
    X(ibv_cmd_read_counters)          \
    X(ibv_cmd_reg_dm_mr)              \
    X(ibv_cmd_reg_dmabuf_mr)          \
    X(ibv_cmd_reg_mr)                 \
    X(ibv_cmd_rereg_mr)               \
    X(ibv_cmd_resize_cq)              \
    X(ibv_copy_ah_attr_from_kern)     \
    X(ibv_copy_path_rec_from_kern)    \
    X(ibv_copy_path_rec_to_kern)      \
    X(ibv_copy_qp_attr_from_kern)     \
    X(ibv_destroy_ah)                 \
    X(ibv_destroy_srq)                \
    X(ibv_detach_mcast)               \
    X(ibv_init_ah_from_wc)            \
    X(ibv_modify_srq)                 \
    X(ibv_query_ece)                  \
    X(ibv_query_qp_data_in_order)     \
    X(ibv_query_srq)                  \
    X(ibv_rate_to_mbps)               \
    X(ibv_rate_to_mult)               \
    X(ibv_rereg_mr)                   \
    X(ibv_resize_cq)                  \
    X(ibv_resolve_eth_l2_from_gid)    \
    X(ibv_set_ece)                    \
    X(ibv_unimport_dm)                \
    X(ibv_unimport_mr)                \
    X(ibv_unimport_pd)                \
    X(mbps_to_ibv_rate)               \
    X(mult_to_ibv_rate)               \
    X(verbs_init_cq)                  \
    X(verbs_set_ops)                  \
    X(verbs_uninit_context)

#define REFUSED_OBJECTS(X)           \
    X(_verbs_init_and_alloc_context) \
    X(ibv_create_ah)                 \
    X(ibv_create_ah_from_wc)         \
    X(ibv_create_srq)                \
    X(ibv_import_device)             \
    X(ibv_import_dm)                 \
    X(ibv_import_mr)                 \
    X(ibv_import_pd)                 \
    X(ibv_qp_to_qp_ex)               \
    X(verbs_open_device)

#define REFUSE(name)       \
    extern int name(void); \
    int name(void) __attribute__((alias("wire_refuse")));
#define REFUSE_OBJECT(name)  \
    extern void *name(void); \
    void *name(void) __attribute__((alias("wire_refuse_object")));
REFUSED(REFUSE)
REFUSED_OBJECTS(REFUSE_OBJECT)

/* Vendors' drivers register when their library is loaded. */
extern void verbs_register_driver_34(const void *ops);
void verbs_register_driver_34(const void *ops)
{
    (void)ops;
}

extern void __verbs_log(void *context, unsigned level, const char *format, ...);
void __verbs_log(void *context, unsigned level, const char *format, ...)
{
    (void)context;
    (void)level;
    (void)format;
}

extern bool verbs_allow_disassociate_destroy;
bool verbs_allow_disassociate_destroy;
