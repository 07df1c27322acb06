/* SPDX-License-Identifier: Apache-2.0 */
/* The emulator's: the types of the runtime. */
#pragma once

#include "cuda_runtime_api.h"
