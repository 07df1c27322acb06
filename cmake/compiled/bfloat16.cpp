// SPDX-License-Identifier: Apache-2.0
//
// cupola::compiled: operations, plans and training in bfloat16.
#define CUPOLA_SRC_BFLOAT16
#include <cupola/src.hpp>
