/* SPDX-License-Identifier: Apache-2.0 */
#include "algorithms/library/library.h"

#include "core/foundation/base/text.h"

#define GYRE_ALGORITHM_ADDRESS(name) &gyre_algorithm_##name,
const struct gyre_algorithm *const gyre_library[] = {
    GYRE_LIBRARY_LIST(GYRE_ALGORITHM_ADDRESS) NULL,
};

const struct gyre_algorithm *gyre_library_find(const char *name)
{
    for (int i = 0; gyre_library[i] != NULL; i++)
        if (gyre_text_same(gyre_library[i]->name, name))
            return gyre_library[i];
    return NULL;
}
