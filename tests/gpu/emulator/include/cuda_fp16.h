/* SPDX-License-Identifier: Apache-2.0 */
/* The emulator's: the type of an element in half. */
#pragma once

struct __half {
    unsigned short bits;
};
