// SPDX-License-Identifier: Apache-2.0
//
// cupola::ops: operations, plans and training in bfloat16.
#include <cupola/host.hpp>

namespace cupola::inline CUPOLA_ABI {

CUPOLA_COMPILED_PLAN(template, BFloat16)
CUPOLA_COMPILED_TRAINING(template, BFloat16)

}  // namespace cupola::inline CUPOLA_ABI
