/* SPDX-License-Identifier: Apache-2.0 */
/* The emulator's: the type of an element in bfloat16. */
#pragma once

struct __nv_bfloat16 {
    unsigned short bits;
};
