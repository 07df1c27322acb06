// SPDX-License-Identifier: Apache-2.0
// Covers: cupola/cupola.hpp, cupola/host.hpp
//
// A translation unit that includes all of Cupola and uses a kernel of it. Compiled twice into one program, under two
// names (UNIT_FUNCTION): a function that a header forgot to make inline, or a variable, is then defined twice.
#include <vector>

#include <cupola/cupola.hpp>
#include <cupola/host.hpp>

#include "unit.hpp"

Unit UNIT_FUNCTION() {
    const cupola::HostContext context(0, {.threads = 1});
    const std::vector<float> values(100'000, 0.5F);
    return {cupola::compiled_isa, cupola::sum_of_squares(context, values),
            reinterpret_cast<const void*>(&cupola::sum_of_squares)};
}
