/* SPDX-License-Identifier: Apache-2.0
 *
 * Explains numbers of RDMA in words: timers, traffic classes, completion codes and errnos.
 */
#include "transport/ib/ib_qp.h"

#include <errno.h>
#include <stdio.h>

uint64_t gyre_ib_ack_timeout_ns(unsigned t)
{
    return t == 0 ? 0 : 4096ULL << (t > 31 ? 31 : t);
}

uint64_t gyre_ib_retry_window_ns(unsigned t, unsigned retries)
{
    return gyre_ib_ack_timeout_ns(t) * (retries + 1);
}

/* RFC 3168: the two low bits of the ToS byte. */
static const char *const ecn_names[] = {"Not-ECT", "ECT(1)", "ECT(0)", "CE"};

const char *gyre_ib_class_to_text(unsigned traffic_class, char *text_out, size_t text_bytes)
{
    snprintf(text_out, text_bytes, "TC %u = DSCP %u + %s", traffic_class, traffic_class >> 2,
             ecn_names[traffic_class & 3]);
    return text_out;
}

const char *gyre_ib_class_warning(unsigned traffic_class, bool is_set, char *text_out,
                                  size_t text_bytes)
{
    if (traffic_class == 0) {
        snprintf(text_out, text_bytes,
                 "RoCE runs with TC 0 (DSCP 0)%s: that is the lossy class of most switches; set "
                 "GYRE_IB_TC to DSCP x 4 (+ 2 for ECT(0)), e.g. 106 for DSCP 26",
                 is_set ? "" : ", the default");
        return text_out;
    }
    /* The user probably meant a priority 0..7 or a DSCP, because these numbers have a DSCP of 0 or
     * 1. */
    if (traffic_class < 8) {
        snprintf(text_out, text_bytes,
                 "TC %u is the whole ToS byte: DSCP %u with ECN bits %s, not priority %u; for the "
                 "priority that DSCP d maps to, set d x 4",
                 traffic_class, traffic_class >> 2, ecn_names[traffic_class & 3], traffic_class);
        return text_out;
    }
    if ((traffic_class & 3) == 3 || (traffic_class & 3) == 1) {
        snprintf(text_out, text_bytes,
                 "TC %u sets the ECN bits to %s; data is sent with 0 (Not-ECT) or 2 (ECT(0)): %u "
                 "or %u",
                 traffic_class, ecn_names[traffic_class & 3], traffic_class & ~3U,
                 (traffic_class & ~3U) + 2);
        return text_out;
    }
    return NULL;
}

unsigned gyre_ib_mtu_bytes(enum ibv_mtu mtu)
{
    return mtu >= IBV_MTU_256 && mtu <= IBV_MTU_4096 ? 128U << (unsigned)mtu : 0;
}

/* X(status, name, hint) */
#define WC_TABLE(X)                                                                              \
    X(IBV_WC_LOC_LEN_ERR, "LOC_LEN", "a message did not fit what was posted for it: a bug here") \
    X(IBV_WC_LOC_QP_OP_ERR, "LOC_QP_OP",                                                         \
      "the device could not execute the request (on rxe: the link is down)")                     \
    X(IBV_WC_LOC_PROT_ERR, "LOC_PROT", "local memory is not registered as used")                 \
    X(IBV_WC_WR_FLUSH_ERR, "WR_FLUSH",                                                           \
      "the queue pair had failed before; look for the first error of this connection")           \
    X(IBV_WC_BAD_RESP_ERR, "BAD_RESP", "the peer's answer makes no sense: firmware or cabling")  \
    X(IBV_WC_LOC_ACCESS_ERR, "LOC_ACCESS", "local memory does not allow the remote write")       \
    X(IBV_WC_REM_INV_REQ_ERR, "REM_INV_REQ", "the peer's device refused the request as invalid") \
    X(IBV_WC_REM_ACCESS_ERR, "REM_ACCESS",                                                       \
      "the peer's memory is not registered (any more) at that address with that key")            \
    X(IBV_WC_REM_OP_ERR, "REM_OP", "the peer could not execute the request; see its log")        \
    X(IBV_WC_RETRY_EXC_ERR, "RETRY_EXC",                                                         \
      "the peer does not answer: process or host gone, link down, packets dropped on the way "   \
      "(MTU, PFC/ECN of that DSCP), or a GID that is not routed")                                \
    X(IBV_WC_RNR_RETRY_EXC_ERR, "RNR_RETRY_EXC",                                                 \
      "the peer had no receive posted: a bug here, or its device lost them")                     \
    X(IBV_WC_REM_ABORT_ERR, "REM_ABORT", "the peer's device aborted the request")                \
    X(IBV_WC_FATAL_ERR, "FATAL", "the device failed; see dmesg")                                 \
    X(IBV_WC_RESP_TIMEOUT_ERR, "RESP_TIMEOUT", "the peer's device answered too late")            \
    X(IBV_WC_GENERAL_ERR, "GENERAL", "the device gives no reason; see dmesg")

const char *gyre_ib_wc_name(enum ibv_wc_status status)
{
    switch (status) {
#define WC_NAME(status, name, hint) \
    case status:                    \
        return name;
        WC_TABLE(WC_NAME)
#undef WC_NAME
    default:
        return "unknown status";
    }
}

const char *gyre_ib_wc_hint(enum ibv_wc_status status)
{
    switch (status) {
#define WC_HINT(status, name, hint) \
    case status:                    \
        return hint;
        WC_TABLE(WC_HINT)
#undef WC_HINT
    default:
        return "see the status in verbs.h";
    }
}

const char *gyre_ib_rtr_hint(int error_number)
{
    switch (error_number) {
    case ETIMEDOUT:
        return "nobody answered for the peer's GID (ARP or neighbour discovery): wrong VLAN, a "
               "link-local GID, or the peer is down; try ping from this GID's interface";
    case ENETUNREACH:
    case EHOSTUNREACH:
        return "no route from this GID's interface to the peer's subnet: the rails are not routed "
               "to each other, or the wrong GID was taken (GYRE_IB_ADDR_RANGE)";
    case EINVAL:
        return "the GIDs' types or families differ, the local GID index is empty, or the path MTU "
               "is larger than the port's";
    case ENODEV:
        return "this GID's interface is not visible in this network namespace (container without "
               "host network)";
    case ENOMEM:
        return "out of memory, or over the memlock limit (ulimit -l)";
    default:
        return "see dmesg of both hosts";
    }
}
