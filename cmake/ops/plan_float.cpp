// SPDX-License-Identifier: Apache-2.0
//
// cupola::ops: operations, plans and training in float.
#include <cupola/host.hpp>

namespace cupola::inline CUPOLA_ABI {

CUPOLA_COMPILED_PLAN(template, float)
CUPOLA_COMPILED_TRAINING(template, float)
CUPOLA_COMPILED_DATA(template)

}  // namespace cupola::inline CUPOLA_ABI
