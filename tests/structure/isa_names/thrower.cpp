// SPDX-License-Identifier: Apache-2.0
//
// A function of the name THROWN that throws an exception of Cupola with its numbers.
#include <cupola/core/error.hpp>

[[gnu::visibility("default")]] void THROWN() {
    throw cupola::DivergedError(cupola::text("the loss of step ", 12, " is nan"), 12, 3);
}
