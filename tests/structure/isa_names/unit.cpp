// SPDX-License-Identifier: Apache-2.0
//
// A function of the name UNIT_FUNCTION that rounds by whatever instructions it is compiled for, and throws for no number.
#include <cupola/ops/host/impl/avx512.hpp>

extern "C" void UNIT_FUNCTION(cupola::BFloat16* to, const float* from) {
    cupola::require(from != nullptr, "no numbers");
    cupola::impl::store16(to, cupola::impl::load16(from));
}
