// SPDX-License-Identifier: Apache-2.0
//
// Exchanges between all processes inside a step, made by one device of each process while its other devices wait.
#pragma once

#include <cupola/core/function_ref.hpp>
#include <cupola/net/stopwatch.hpp>
#include <cupola/parallel/replicas/replicas.hpp>

namespace cupola { inline namespace CUPOLA_ABI { namespace impl {

/// Runs `exchange` on the first device, even after an error of this process, because the other processes wait for it.
/// Called on the thread of every device. Returns false if a process has failed.
template <class D, class T>
bool in_all_processes(DeviceStep<D, T>& step, FunctionRef<void()> exchange) {
    static_cast<void>(step.replicas.arrive_and_wait(step.device));
    if (step.device == 0) step.state.attempt_always(exchange);
    return step.replicas.arrive_and_wait(step.device);
}

/// The same; the time of the exchange counts as averaging.
template <class D, class T>
bool average_in_all_processes(DeviceStep<D, T>& step, FunctionRef<void()> exchange) {
    return in_all_processes(step, [&] {
        const Stopwatch watch(step.state.worker.times(), StepPart::averaging);
        exchange();
    });
}

}}}  // namespace cupola::CUPOLA_ABI::impl
