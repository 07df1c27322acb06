// SPDX-License-Identifier: Apache-2.0
//
// The templates of compiled.hpp in float, and those without an element type.
#include "compiled.hpp"

namespace cupola { inline namespace CUPOLA_ABI {
CUPOLA_EMULATED(template, float)
CUPOLA_EMULATED_TRAINING(template)
}}  // namespace cupola::CUPOLA_ABI
