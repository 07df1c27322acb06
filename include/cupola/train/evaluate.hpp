// SPDX-License-Identifier: Apache-2.0
//
// evaluate(training, batches): the loss and the accuracy over a whole test set, each sample counted once (TensorFlow's
// tutorial counted 112 images of 10,000 twice).
#pragma once

#include <cupola/parallel/step_report.hpp>

namespace cupola::inline CUPOLA_ABI {

/// `batches` has `count()`, and `batches(i, device, context)` returns batch i, as in EvaluationBatches; if it prepares
/// batches in its own memory, its `provide_slots` is called with the number of devices. `weights` selects the trained
/// parameters or their moving averages.
template <class Training, class Batches>
[[nodiscard]] Evaluation evaluate(Training& training, Batches&& batches, Weights weights = Weights::trained) {
    if constexpr (requires { batches.provide_slots(1); }) batches.provide_slots(training.options.devices);
    return training.evaluate(batches, batches.count(), weights);
}

}  // namespace cupola::inline CUPOLA_ABI
