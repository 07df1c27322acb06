// SPDX-License-Identifier: Apache-2.0
//
// FiniteSearch: finds the origin of a loss or a gradient that is not finite; the slow search, for the step that failed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <cupola/core/error.hpp>
#include <cupola/core/finite.hpp>
#include <cupola/core/fixed_array.hpp>
#include <cupola/parallel/replicas/peers.hpp>
#include <cupola/parallel/replicas/replicas.hpp>
#include <cupola/parallel/step/first_not_finite.hpp>
#include <cupola/tensor/batch.hpp>

namespace cupola { inline namespace CUPOLA_ABI { namespace impl {

/// The data of one replica that remain after a step.
struct SearchedReplica {
    std::int64_t samples = 0;
    /// Its loss.
    double total = 0;
    /// The last element of its gradient that is not finite; -1 if there is none.
    std::int64_t not_finite_element = -1;
    /// The first of its batches whose loss is not finite, -1 if there is none; and its last batch that has samples.
    int part = -1, last_part = -1;
    /// That last batch, at the address that the device reads, and its random numbers.
    BatchView batch{};
    RngKey key{};
};

template <class D, class T>
class FiniteSearch {
public:
    /// `scale` is the loss scale of the step.
    FiniteSearch(Replicas<D, T>& replicas, Peers& peers, std::int64_t step, int parts, float scale)
        : replicas_(replicas), peers_(peers), step_(step), parts_(parts) {
        if (replicas.settings().loss_scale.dynamic)
            under_ =
                text(" (the loss scale is ", scale, ", and its minimum ", replicas.settings().loss_scale.minimum, ")");
    }

    /// Throws DivergedError for the first replica whose loss or gradient is not finite. Shared statistics make the losses
    /// of all replicas NaN: the origin is the replica whose own batch contains one.
    [[noreturn, gnu::cold]] void throw_first(std::span<const SearchedReplica> replicas);

private:
    [[gnu::cold]] void throw_loss(std::span<const SearchedReplica> replicas);

    /// Empty where nothing was found, or the batch is not there any more.
    [[nodiscard, gnu::cold]] std::string where_not_finite(int replica, const SearchedReplica& each);
    /// The same of a replica of this process.
    [[nodiscard, gnu::cold]] std::string search(int replica, const SearchedReplica& each);
    /// Each process searches its own replicas, and receives what the others have found.
    [[gnu::cold]] void search_in_all_processes(std::span<const SearchedReplica> replicas);

    /// The name of the parameter that an element of the arena is of.
    [[nodiscard, gnu::cold]] std::string parameter_at(std::int64_t element) const;
    [[nodiscard, gnu::cold]] std::string gradient_text(std::int64_t element) const {
        return text("every output is finite; the gradient of ", parameter_at(element), " is not");
    }

    Replicas<D, T>& replicas_;
    Peers& peers_;
    std::int64_t step_;
    int parts_;
    /// The loss scale, where it is dynamic, for the message.
    std::string under_{};
    /// With several processes, what was found for each replica.
    FixedArray<std::string> found_;
};

template <class D, class T>
void FiniteSearch<D, T>::throw_first(std::span<const SearchedReplica> replicas) {
    if (peers_.any() && peers_.reads_together()) search_in_all_processes(replicas);
    throw_loss(replicas);
    for (std::size_t r = 0; r < replicas.size(); ++r) {
        const int replica = static_cast<int>(r);
        // Of another process's replica a collective does not know the element, but what was found.
        const bool is_found = replicas[r].not_finite_element >= 0 || (!found_.empty() && !found_[r].empty());
        if (replicas[r].samples == 0 || !is_found) continue;
        std::string where = where_not_finite(replica, replicas[r]);
        if (where.empty()) where = gradient_text(replicas[r].not_finite_element);
        if (parts_ > 1) where += text("; of its ", parts_, " batches the last that has samples was searched");
        throw_diverged(step_, text("the gradient of replica ", r, " is not finite", under_), where, replica);
    }
    throw_diverged(step_, "the averaged gradient is not finite" + under_, {}, -1);
}

template <class D, class T>
void FiniteSearch<D, T>::throw_loss(std::span<const SearchedReplica> replicas) {
    int found = -1;
    std::string where;
    for (std::size_t r = 0; r < replicas.size(); ++r) {
        const SearchedReplica& each = replicas[r];
        if (each.samples == 0 || (each.part < 0 && is_finite(each.total))) continue;
        const bool last = each.part == each.last_part;
        std::string origin = last ? where_not_finite(static_cast<int>(r), each) : std::string();
        const bool better = found < 0 || (where.empty() && !origin.empty());
        if (better) found = static_cast<int>(r);
        if (better) where = std::move(origin);
        if (!where.empty()) break;
    }
    if (found < 0) return;
    const SearchedReplica& origin = replicas[static_cast<std::size_t>(found)];
    if (origin.part >= 0) {
        where = origin.part == origin.last_part ? shown_origin(std::move(where))
                                                : text("it is that of batch ", origin.part + 1, " of ", parts_);
    }
    throw_diverged(step_, text("the loss of replica ", found, " is ", origin.total, under_), where, found);
}

template <class D, class T>
std::string FiniteSearch<D, T>::where_not_finite(int replica, const SearchedReplica& each) {
    return found_.empty() ? search(replica, each) : found_[static_cast<std::size_t>(replica)];
}

template <class D, class T>
void FiniteSearch<D, T>::search_in_all_processes(std::span<const SearchedReplica> replicas) {
    found_ = FixedArray<std::string>(replicas.size());
    for (std::size_t r = 0; r < replicas.size(); ++r) {
        const SearchedReplica& each = replicas[r];
        const bool finite = each.part < 0 && each.not_finite_element < 0 && is_finite(each.total);
        if (finite || each.samples == 0) continue;
        try {
            found_[r] = search(static_cast<int>(r), each);
        } catch (const Error& error) {
            found_[r] = text("not found: ", error.what());
        }
        if (found_[r].empty() && each.part < 0 && is_finite(each.total))
            found_[r] = gradient_text(each.not_finite_element);
    }
    peers_.exchange_texts(step_, found_);
}

template <class D, class T>
std::string FiniteSearch<D, T>::search(int replica, const SearchedReplica& each) {
    std::string where;
    if (each.batch.size == 0) return where;
    replicas_.threads().run([&](int device) {
        if (device != replicas_.placement().device_of(replica)) return;
        auto& state = replicas_.at(device);
        const auto team = state.worker.context().team();
        state.queue->write(&state.status()->step, each.key.step);
        where = first_not_finite(
            state.worker, replicas_.at(device).worker.plans().inspection(replicas_.network().make, each.batch.size),
            replicas_.network().layers, state.worker.parameters(replicas_.placement().copy_of(replica)), each.batch,
            each.key);
    });
    return where;
}

template <class D, class T>
std::string FiniteSearch<D, T>::parameter_at(std::int64_t element) const {
    const std::span<const LayerInfo> layers = replicas_.network().layers;
    std::string name;
    for (std::size_t layer = 0; layer < layers.size(); ++layer) {
        for (std::size_t p = 0; p < layers[layer].parameters.count; ++p) {
            if (layers[layer].offsets[p] <= element) name = parameter_name(layers, layer, p);
        }
    }
    return name;
}

}}}  // namespace cupola::CUPOLA_ABI::impl
