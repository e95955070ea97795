/* SPDX-License-Identifier: Apache-2.0
 *
 * libgyre_mpi: MPI carries the unique id and nothing else.
 */
#ifndef GYRE_BOOTSTRAP_BOOTSTRAP_MPI_H
#define GYRE_BOOTSTRAP_BOOTSTRAP_MPI_H

#include "core/gyre.h"

/** Hand rank 0's id to all ranks of MPI_COMM_WORLD. MPI must be initialised. Errors: SYSTEM. */
gyre_status gyre_mpi_share_id(gyre_unique_id *id);

#endif
