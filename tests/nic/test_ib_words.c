/* SPDX-License-Identifier: Apache-2.0
 *
 * transport/ib: timers, traffic classes and codes in words.
 */
#include "tests/support/check.h"
#include "transport/ib/ib_qp.h"

#include <errno.h>

TEST_CASE("timers are four microseconds times a power of two")
{
    CHECK(gyre_ib_ack_timeout_ns(0) == 0);
    CHECK(gyre_ib_ack_timeout_ns(14) == 67108864);   /* 67 ms */
    CHECK(gyre_ib_ack_timeout_ns(16) == 268435456);  /* 0.27 s */
    CHECK(gyre_ib_ack_timeout_ns(20) == 4294967296); /* 4.3 s */
    CHECK(gyre_ib_retry_window_ns(16, 6) == 7 * 268435456ULL);
    CHECK(gyre_ib_retry_window_ns(16, 0) == 268435456ULL);
}

TEST_CASE("traffic classes are decoded")
{
    char text[64];
    CHECK(strcmp(gyre_ib_class_to_text(106, text, sizeof(text)), "TC 106 = DSCP 26 + ECT(0)") == 0);
    CHECK(strcmp(gyre_ib_class_to_text(104, text, sizeof(text)), "TC 104 = DSCP 26 + Not-ECT") ==
          0);
    CHECK(strcmp(gyre_ib_class_to_text(5, text, sizeof(text)), "TC 5 = DSCP 1 + ECT(1)") == 0);
    CHECK(strcmp(gyre_ib_class_to_text(255, text, sizeof(text)), "TC 255 = DSCP 63 + CE") == 0);
}

TEST_CASE("classes that hardly mean what they say are explained")
{
    char text[320];
    CHECK(gyre_ib_class_warning(106, true, text, sizeof(text)) == NULL);
    CHECK(gyre_ib_class_warning(104, true, text, sizeof(text)) == NULL);
    CHECK(strstr(gyre_ib_class_warning(5, true, text, sizeof(text)), "not priority 5") != NULL);
    CHECK(strstr(gyre_ib_class_warning(0, false, text, sizeof(text)), "the default") != NULL);
    CHECK(strstr(gyre_ib_class_warning(0, true, text, sizeof(text)), "the default") == NULL);
    CHECK(strstr(gyre_ib_class_warning(107, true, text, sizeof(text)), "104 or 106") != NULL);
}

TEST_CASE("every completion status has a name and a hint")
{
    static const enum ibv_wc_status statuses[] = {
        IBV_WC_LOC_LEN_ERR,  IBV_WC_LOC_QP_OP_ERR,  IBV_WC_LOC_PROT_ERR,      IBV_WC_WR_FLUSH_ERR,
        IBV_WC_BAD_RESP_ERR, IBV_WC_LOC_ACCESS_ERR, IBV_WC_REM_INV_REQ_ERR,   IBV_WC_REM_ACCESS_ERR,
        IBV_WC_REM_OP_ERR,   IBV_WC_RETRY_EXC_ERR,  IBV_WC_RNR_RETRY_EXC_ERR, IBV_WC_FATAL_ERR};
    for (size_t i = 0; i < sizeof(statuses) / sizeof(statuses[0]); i++) {
        CHECK(strcmp(gyre_ib_wc_name(statuses[i]), "unknown status") != 0);
        CHECK(strlen(gyre_ib_wc_hint(statuses[i])) > 10);
    }
    CHECK(strcmp(gyre_ib_wc_name(IBV_WC_RETRY_EXC_ERR), "RETRY_EXC") == 0);
}

TEST_CASE("path MTUs are bytes")
{
    CHECK(gyre_ib_mtu_bytes(IBV_MTU_256) == 256 && gyre_ib_mtu_bytes(IBV_MTU_1024) == 1024);
    CHECK(gyre_ib_mtu_bytes(IBV_MTU_4096) == 4096 && gyre_ib_mtu_bytes((enum ibv_mtu)0) == 0);
}

TEST_CASE("random PSNs have 24 bits and differ")
{
    uint32_t all = 0;
    uint32_t first;
    CHECK_OK(gyre_ib_random_psn(&first));
    for (int i = 0; i < 64; i++) {
        uint32_t psn;
        CHECK_OK(gyre_ib_random_psn(&psn));
        CHECK(psn <= 0xffffff);
        all |= psn ^ first;
    }
    CHECK(all > 0xffff);
}
