/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/nic/verbs_hidden.h"

#include <stdlib.h>
#include <string.h>

struct vm_hidden {
    struct vm_hidden *next;
    const void *nic;
    unsigned char *to;
    size_t n_bytes;
    unsigned char bytes[];
};

void vm_hidden_add(struct vm_hidden **first, const void *nic, unsigned char *to, const void *from,
                   size_t n_bytes)
{
    struct vm_hidden *own = malloc(sizeof(*own) + n_bytes);
    own->next = NULL;
    own->nic = nic;
    own->to = to;
    own->n_bytes = n_bytes;
    memcpy(own->bytes, from, n_bytes);
    while (*first != NULL)
        first = &(*first)->next;
    *first = own;
}

void vm_hidden_show(struct vm_hidden **first, const void *nic)
{
    while (*first != NULL) {
        struct vm_hidden *own = *first;
        if (own->nic != nic) {
            first = &own->next;
            continue;
        }
        memcpy(own->to, own->bytes, own->n_bytes);
        *first = own->next;
        free(own);
    }
}

void vm_hidden_drop(struct vm_hidden **first)
{
    while (*first != NULL) {
        struct vm_hidden *own = *first;
        *first = own->next;
        free(own);
    }
}
