// SPDX-License-Identifier: Apache-2.0
//
// What the readers of checkpoints must answer for a file of tensors, whatever is in it.
#pragma once

#include <cupola/io/checkpoint.hpp>
#include <cupola/io/load_parameters.hpp>

#include "../io/checkpoint_support.hpp"
#include "../standard.hpp"
#include "support.hpp"

namespace fuzz {

/// Reads the file as a checkpoint and loads its parameters; an error of the latter changes nothing.
inline void read_as_checkpoint(const cupola::TensorFile& file, std::size_t limit) {
    answers(limit, [&] { static_cast<void>(cupola::read_checkpoint(file, io_tests::Net::layers)); });
    answers(limit, [&] {
        cupola::TrainingState state = io_tests::small_checkpoint().state;
        const std::vector<float> before = state.parameters;
        try {
            static_cast<void>(cupola::load_parameters(file, io_tests::Net::layers, state));
        } catch (...) {
            if (state.parameters != before) fail("an error changed the parameters", "");
            throw;
        }
    });
}

}  // namespace fuzz
