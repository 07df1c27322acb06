// SPDX-License-Identifier: Apache-2.0
//
// The templates of compiled.hpp in float16.
#include "compiled.hpp"

namespace cupola { inline namespace CUPOLA_ABI {
CUPOLA_EMULATED(template, Float16)
}}  // namespace cupola::CUPOLA_ABI
