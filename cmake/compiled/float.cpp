// SPDX-License-Identifier: Apache-2.0
//
// cupola::compiled: operations, plans and training in float.
#define CUPOLA_SRC_FLOAT
#include <cupola/src.hpp>
