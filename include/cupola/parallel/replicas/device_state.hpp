// SPDX-License-Identifier: Apache-2.0
//
// DeviceState: the parts of a training that each device has its own of.
#pragma once

#include <array>
#include <cstddef>
#include <exception>
#include <memory>

#include <cupola/core/function_ref.hpp>
#include <cupola/parallel/replicas/weighted_rows.hpp>
#include <cupola/parallel/replicas/worker.hpp>

namespace cupola { inline namespace CUPOLA_ABI { namespace impl {

template <class D, class T>
struct DeviceState {
    using Kernels = typename D::Kernels;

    DeviceWorker<Kernels, T> worker;
    std::unique_ptr<typename D::Queue> queue;
    /// The exception of this device in the step that is being queued.
    std::exception_ptr error;
    /// True from the update of its parameters until every device has queued its update.
    bool updating = false;
    /// The rows for its calls of the policies, one set per step in flight.
    std::array<WeightedRows, static_cast<std::size_t>(D::max_steps_in_flight)> weighted_rows_of_step;

    /// All devices pass the same number of barriers: an exception of one is stored until they have, and the rest of its
    /// work is left out.
    [[gnu::noinline]] void attempt(FunctionRef<void()> work) {
        if (error) return;
        try {
            work();
        } catch (...) {
            error = std::current_exception();
        }
    }
};

}}}  // namespace cupola::CUPOLA_ABI::impl
