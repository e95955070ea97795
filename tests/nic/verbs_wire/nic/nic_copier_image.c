/* SPDX-License-Identifier: Apache-2.0
 *
 * The compiled kernel inside of the program, so that the program needs no file beside it, and no
 * CUDA library but the driver.
 */
#include "tests/nic/verbs_wire/nic/nic_copier.h"

#ifdef NIC_COPIER_FATBIN
__asm__(".section .rodata\n"
        ".balign 64\n"
        "nic_copier_fatbin:\n"
        ".incbin \"" NIC_COPIER_FATBIN "\"\n"
        ".balign 8\n"
        ".previous\n");
extern const unsigned char nic_copier_fatbin[];
const unsigned char *const nic_copier_image = nic_copier_fatbin;
#else
const unsigned char *const nic_copier_image = NULL;
#endif
