/* SPDX-License-Identifier: Apache-2.0
 *
 * A user's program: one rank, summed with itself.
 */
#include <gyre.h>

#include <stdio.h>
#include <stdlib.h>

static void must(gyre_status status, const char *what)
{
    if (status == GYRE_SUCCESS)
        return;
    fprintf(stderr, "%s: %s: %s\n", what, gyre_status_name(status), gyre_last_error());
    exit(1);
}

int main(void)
{
    gyre_config config = GYRE_CONFIG_INIT;
    config.device_kind = GYRE_DEVICE_HOST;
    gyre_comm *comm = NULL;
    float in[4] = {1, 2, 3, 4};
    float out[4] = {0};
    int version = 0;
    must(gyre_get_version(&version), "gyre_get_version");
    must(gyre_comm_init_all(&comm, 1, NULL, &config), "gyre_comm_init_all");
    must(gyre_all_reduce(in, out, 4, GYRE_FLOAT32, GYRE_SUM, comm, NULL), "gyre_all_reduce");
    must(gyre_stream_synchronize(NULL, GYRE_DEVICE_HOST), "gyre_stream_synchronize");
    must(gyre_comm_destroy(comm), "gyre_comm_destroy");
    if (version != GYRE_VERSION || out[3] != 4) {
        fprintf(stderr, "version %d, out[3] = %g\n", version, (double)out[3]);
        return 1;
    }
    return 0;
}
