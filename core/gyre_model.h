/* SPDX-License-Identifier: Apache-2.0
 *
 * What tools may know of the library's inside. The programs of bench/ include this header, gyre.h
 * and core/foundation/base; .ci/check_tree.py names the few files that need more.
 */
#ifndef GYRE_GYRE_MODEL_H
#define GYRE_GYRE_MODEL_H

/* Programs: emitted by algorithms, read from text, proved, and simulated on machines and fabrics.
 */
#include "algorithms/library/library.h"
#include "algorithms/simulate/fabric.h"
#include "algorithms/simulate/simulate.h"
#include "algorithms/verify/machine.h"
#include "algorithms/verify/verify.h"
#include "core/foundation/model/program_file.h"

/* How a communicator chooses and plans a call, and how a measurement forces a choice. */
#include "core/engine/comm/local.h"
#include "core/engine/plan/plan.h"

/* What is connected how, and which of its addresses a NIC uses. */
#include "core/foundation/topo/topo.h"
#include "transport/ib/rules/ib_gid.h"

#endif
