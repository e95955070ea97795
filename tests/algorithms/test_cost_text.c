/* SPDX-License-Identifier: Apache-2.0
 *
 * The constants of the simulator as text.
 */
#include "algorithms/simulate/simulate.h"
#include "tests/support/check.h"
#include "tests/support/locale.h"

/* ---- constants as text -------------------------------------------------------------------- */

TEST_CASE("costs come back bit by bit")
{
    struct gyre_cost cost = gyre_cost_h200, back;
    double *constants = (double *)&cost;
    for (size_t i = 0; i < sizeof(cost) / sizeof(double); i++)
        constants[i] = 1 / (3.0 + (double)i);
    char *text = NULL;
    CHECK_OK(gyre_cost_to_text(&cost, &text));
    CHECK_OK(gyre_cost_from_text(text, &gyre_cost_host, &back));
    CHECK(memcmp(&cost, &back, sizeof(cost)) == 0);
    free(text);
}

TEST_CASE("a point is a point in every locale")
{
    (void)test_enter_locale(); /* without it, a plain test */
    struct gyre_cost cost = gyre_cost_host;
    CHECK_OK(gyre_cost_from_text("launch_ns = 1.5", &gyre_cost_host, &cost));
    CHECK(cost.launch_ns == 1.5);
    (void)setlocale(LC_ALL, "C");
}

TEST_CASE("what a text does not name stays")
{
    struct gyre_cost cost;
    CHECK_OK(gyre_cost_from_text("# measured\n\n  launch_ns=7 # ns\nsimple_step_ns = 2.5e2",
                                 &gyre_cost_h200, &cost));
    CHECK(cost.launch_ns == 7 && cost.step_ns[GYRE_PROTO_SIMPLE] == 250);
    CHECK(cost.nic_bytes_per_ns == gyre_cost_h200.nic_bytes_per_ns);
}

TEST_CASE("texts that are wrong are refused")
{
    static const char *const wrong[][2] = {
        {"launch = 1", "line 1: \"launch\" is none of: launch_ns"},
        {"\nlaunch_ns 1", "line 2: \"launch_ns 1\" is not \"key = number\""},
        {"launch_ns = ", "expected a number of at least 0"},
        {"launch_ns = 1x", "\"1x\""},
        {"launch_ns = -1", "\"-1\""},
        {"launch_ns = nan", "\"nan\""},
        {"launch_ns = 1e999", "\"1e999\""},
        {"ll_wire_efficiency = 0", "above 0, at most 1"},
        {"ll_wire_efficiency = 1.1", "above 0, at most 1"},
        {"launch_ns = 1\nlaunch_ns = 1", "line 2: launch_ns is given twice"},
    };
    struct gyre_cost cost = gyre_cost_host;
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++)
        CHECK_FAILS(gyre_cost_from_text(wrong[i][0], &gyre_cost_host, &cost),
                    GYRE_ERROR_INVALID_ARGUMENT, wrong[i][1]);
    char line[300];
    memset(line, 'x', sizeof(line) - 1);
    line[sizeof(line) - 1] = '\0';
    CHECK_FAILS(gyre_cost_from_text(line, &gyre_cost_host, &cost), GYRE_ERROR_INVALID_ARGUMENT,
                "longer than");
    CHECK(memcmp(&cost, &gyre_cost_host, sizeof(cost)) == 0);
}
