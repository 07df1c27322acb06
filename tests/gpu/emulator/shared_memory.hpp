// SPDX-License-Identifier: Apache-2.0
//
// The shared memory of a block: the thread_local variables of functions, of which neither Cupola nor a test has others, found by the
// symbols of the program.
// Before a block they are filled with bytes that are a NaN in every type, because a GPU leaves in them what another block has written,
// and not zeros.
#pragma once

namespace cupola::emulator {

/// Fills the shared memory of the calling thread, as far as a block of `kernel` uses it. Called before each block.
void poison_shared_memory(const void* kernel);

}  // namespace cupola::emulator
