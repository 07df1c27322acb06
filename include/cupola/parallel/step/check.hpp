// SPDX-License-Identifier: Apache-2.0
//
// The check, every so many steps, that all devices have the same parameters and that these are finite. The parameters
// of a device are represented by a 64-bit hash of their bits.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <span>
#include <string>
#include <vector>

#include <cupola/core/error.hpp>
#include <cupola/core/hash_word.hpp>
#include <cupola/net/finite.hpp>
#include <cupola/ops/training_step.hpp>
#include <cupola/parallel/replicas/peers.hpp>
#include <cupola/parallel/replicas/replicas.hpp>
#include <cupola/tensor/finite.hpp>

namespace cupola { inline namespace CUPOLA_ABI { namespace impl {

/// Queues the hash of a device's parameters, and whether they are finite.
template <class D, class T>
void queue_check(Replicas<D, T>& replicas, int device) {
    using Kernels = typename D::Kernels;
    auto& worker = replicas.at(device).worker;
    std::byte* const block = replicas.at(device).queue->status();
    // All copies of the parameters on the device, which are contiguous.
    const std::span<const float> parameters(
        worker.parameters(), replicas.all_elements() * static_cast<std::size_t>(replicas.placement().copies(device)));
    // Only the centre is equal on all devices. A value that is not finite is in a copy before it is in the centre.
    const std::span<const float> compared =
        replicas.settings().centre ? std::span<const float>(worker.model(), replicas.all_elements()) : parameters;
    ops::TrainingStep<Kernels>::hash(worker.context(), compared, &step_status(block)->hash);
    ops::TrainingStep<Kernels>::all_finite(worker.context(), parameters, &step_status(block)->parameters_finite);
}

[[noreturn, gnu::cold]] inline void throw_update_diverged(std::int64_t step, const std::string& found) {
    throw DivergedError(text("after step ", step, " the ", found,
                             ": training diverged in this step or one since the last check; restore an earlier state"),
                        step, -1);
}

/// A hash of the bits of values in the host's memory.
[[nodiscard]] inline std::uint64_t hash_of_bits(std::span<const float> values) {
    std::uint64_t sum = 0;
    std::int64_t place = 0;
    for (const float value : values) sum += hash_of_word(std::bit_cast<std::uint32_t>(value), hash_mask(place++));
    return sum;
}

/// The first device whose parameters after a step with queue_check() differ from those of the process's first device,
/// or -1.
template <class D, class T>
[[nodiscard, gnu::cold]] int device_that_differs(Replicas<D, T>& replicas, std::int64_t step) {
    const auto hash = [&](int device) { return replicas.at(device).landed(step).hash; };
    for (int device = 1; device < replicas.placement().device_count(); ++device) {
        if (hash(device) != hash(0)) return device;
    }
    return -1;
}

/// Throws a DivergedError that names the first parameter or running statistic that is not finite after a step with
/// queue_check().
template <class D, class T>
[[gnu::cold]] void require_finite_parameters(Replicas<D, T>& replicas, std::int64_t step,
                                             std::span<const float> running) {
    for (int device = 0; device < replicas.placement().device_count(); ++device) {
        if (replicas.at(device).landed(step).parameters_finite != 0) continue;
        // The slow search: padding that is not finite is ignored.
        for (int copy = 0; copy < replicas.placement().copies(device); ++copy) {
            const std::vector<float> values =
                replicas.copied(replicas.network().parameter_elements, device,
                                [&](auto& state) { return state.worker.parameters(copy); });
            const std::string found = non_finite_parameter(replicas.network().layers, values);
            if (found.empty()) continue;
            const int replica = replicas.placement().replica_of_copy(device, copy);
            throw_update_diverged(step, replicas.settings().centre ? text("parameter ", found, " of replica ", replica)
                                                                   : text("parameter ", found));
        }
    }
    if (all_finite(running)) return;
    const std::string found = invalid_buffer(replicas.network().layers, running);
    if (!found.empty()) throw_update_diverged(step, text("running statistic ", found));
}

/// Reads the results of queue_check() for a step, and checks the running statistics. Throws ReplicasDiffer, or the
/// DivergedError of require_finite_parameters(); a collective does so later. Where each
/// replica has its own parameters, the devices have the same centre.
template <class D, class T>
[[gnu::cold]] void check_agreement(Replicas<D, T>& replicas, Peers& peers, std::int64_t step,
                                   std::span<const float> running) {
    ComparedHashes hashes{.parameters = replicas.at(0).landed(step).hash,
                          .differs = device_that_differs(replicas, step)};
    if (peers.any()) hashes.running = hash_of_bits(running);
    std::exception_ptr error;
    try {
        if (peers.any() || hashes.differs < 0) require_finite_parameters(replicas, step, running);
    } catch (const DivergedError&) {
        error = std::current_exception();
    }
    peers.compare(step, hashes, error);
}

}}}  // namespace cupola::CUPOLA_ABI::impl
