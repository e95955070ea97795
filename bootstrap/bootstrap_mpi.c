/* SPDX-License-Identifier: Apache-2.0 */
#include "bootstrap/bootstrap_mpi.h"

#include <mpi.h>

gyre_status gyre_mpi_share_id(gyre_unique_id *id)
{
    if (id == NULL)
        return GYRE_ERROR_INVALID_ARGUMENT;
    const int result = MPI_Bcast(id->bytes, GYRE_UNIQUE_ID_BYTES, MPI_BYTE, 0, MPI_COMM_WORLD);
    return result == MPI_SUCCESS ? GYRE_SUCCESS : GYRE_ERROR_SYSTEM;
}
