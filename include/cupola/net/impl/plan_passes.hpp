// SPDX-License-Identifier: Apache-2.0
//
// How a plan is made and run: the members of `Plan` that are more than a line. Out of the class, and so not inline:
// those who link to cupola::ops do not instantiate what it has compiled.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <cupola/core/error.hpp>
#include <cupola/net/impl/folded_norm.hpp>
#include <cupola/net/plan.hpp>

namespace cupola::inline CUPOLA_ABI {

#ifndef CUPOLA_OPS

CUPOLA_INLINE std::size_t impl::planned_activation_bytes(std::span<const Row> rows, bool fusion, std::int64_t batch,
                                                         std::size_t element_bytes) {
    std::vector<StageInfo> stages(rows.size());
    stages.resize(fuse(rows, fusion, stages, true));
    std::vector<Lifetime> lifetimes(lifetimes_of(stages.size()));
    const std::size_t ends =
        element_bytes == sizeof(float)
            ? 0
            : plan_ends(rows.front().input, rows.back().output, batch, true, false, element_bytes).bytes;
    return plan_activations(stages, batch, true, false, lifetimes, element_bytes) + ends;
}

#endif

template <class Device, class T>
void Plan<Device, T>::prepare(Context& context, const float* parameters, const float* running) {
    const Stopwatch watch(times_, StepPart::packing);
    for (std::size_t i = 0; i < stages_.size(); ++i) {
        if (infos_[i].folded_norm != no_row)
            impl::fold_norm<Device>(context, rows_, infos_[i], parameters, running, packed_ + packed_at_[i]);
        stages_[i]->prepare(pass(context, i, nullptr, parameters, nullptr, {}));
    }
}

template <class Device, class T>
const float* Plan<Device, T>::forward(Context& context, const float* batch, const float* parameters, const PassKey& key,
                                      const PassBuffers& buffers) {
    check_buffers(key, buffers);
    const T* const samples = ends_.take_batch(context, batch);
    run_forward(context, 0, stages_.size(), samples, parameters, key, buffers);
    return ends_.give_output(context, value(infos_.size(), samples));
}

template <class Device, class T>
void Plan<Device, T>::backward(Context& context, const float* batch, const float* parameters, float* gradients,
                               const PassKey& key, bool accumulate, BucketReady ready) {
    ends_.take_output_gradient(context, gradient_at(infos_.size()));
    run_backward(context, infos_.size(), lowest_, ends_.batch(batch), parameters, gradients, key, accumulate, ready);
    if (options_.input_gradient) ends_.give_input_gradient(context, gradient_at(0));
}

template <class Device, class T>
const float* Plan<Device, T>::forward_segment(Context& context, std::size_t k, const float* batch,
                                              const float* parameters, const PassKey& key, const PassBuffers& buffers,
                                              const double* merged, double* partial) {
    std::size_t begin = 0;
    const T* const samples = k == 0 ? ends_.take_batch(context, batch) : ends_.batch(batch);
    if (k > 0) {
        begin = exchanging(Direction::forward, k - 1);
        const Stopwatch watch(times_, Direction::forward, begin);
        stages_[begin]->apply_sums(Direction::forward, pass(context, begin, samples, parameters, nullptr, key, buffers),
                                   merged);
        ++begin;
    }
    const std::size_t end = k == exchanges() ? stages_.size() : exchanging(Direction::forward, k);
    run_forward(context, begin, end, samples, parameters, key, buffers);
    if (k == exchanges()) return ends_.give_output(context, value(infos_.size(), samples));
    const Stopwatch watch(times_, Direction::forward, end);
    stages_[end]->write_sums(Direction::forward, pass(context, end, samples, parameters, nullptr, key, buffers),
                             partial);
    return nullptr;
}

template <class Device, class T>
void Plan<Device, T>::backward_segment(Context& context, std::size_t k, const float* batch, const float* parameters,
                                       float* gradients, const PassKey& key, bool accumulate, const double* merged,
                                       double* partial) {
    const T* const samples = ends_.batch(batch);
    const auto call = [&](std::size_t i) {
        Pass<Device, T> p = pass(context, i, samples, parameters, gradients, key);
        p.accumulate = accumulate;
        return p;
    };
    if (k == 0) ends_.take_output_gradient(context, gradient_at(infos_.size()));
    std::size_t end = infos_.size();
    if (k > 0) {
        end = exchanging(Direction::backward, k - 1);
        const Stopwatch watch(times_, Direction::backward, end);
        stages_[end]->apply_sums(Direction::backward, call(end), merged);
    }
    const std::size_t begin = k == exchanges() ? lowest_ : exchanging(Direction::backward, k) + 1;
    run_backward(context, end, begin, samples, parameters, gradients, key, accumulate);
    if (k < exchanges()) {
        const Stopwatch watch(times_, Direction::backward, begin - 1);
        stages_[begin - 1]->write_sums(Direction::backward, call(begin - 1), partial);
    }
    if (k == exchanges() && options_.input_gradient) ends_.give_input_gradient(context, gradient_at(0));
}

template <class Device, class T>
Plan<Device, T>::Plan(Context& context, const PlanOptions& options, std::span<const Row> rows, bool fusion,
                      StageFunction make_one)
    : options_(options), rows_(rows), infos_(rows.size()) {
    infos_.resize(fuse(rows, fusion && !options.inspect, infos_, options.training || options.inspect));
    lifetimes_.resize(lifetimes_of(infos_.size()));
    const bool backward = options.training && !options.inspect;
    bytes_.activations =
        plan_activations(infos_, options.batch, backward, options.input_gradient, lifetimes_, sizeof(T));
    const Shape &input = rows.front().input, &output = rows.back().output;
    ends_ = {plan_ends(input, output, options.batch, backward, options.input_gradient, sizeof(T)),
             options.batch * input.size(), options.batch * output.size()};
    bytes_.activations += ends_.bytes();
    lowest_ = lowest_stage(infos_, options.input_gradient);
    saved_at_.resize(infos_.size());
    packed_at_.resize(infos_.size());
    for (std::size_t i = 0; i < infos_.size(); ++i) {
        const Site<Device, T> site{.context = context,
                                   .batch = options.batch,
                                   .input = infos_[i].input,
                                   .output = infos_[i].output,
                                   .layer = static_cast<std::uint32_t>(infos_[i].row),
                                   .activation = infos_[i].activation,
                                   .masked_by_next = infos_[i].masked_by_next,
                                   .masks_for_previous = infos_[i].masks_for_previous,
                                   .folded_norm = infos_[i].folded_norm != no_row,
                                   .training = backward,
                                   .input_gradient = backward && wants_gradient(infos_[i].reads),
                                   .inference = !options.training && !options.inspect};
        stages_.push_back(make_one(infos_[i], site));
        if (options.synchronized && stages_.back()->exchange_size() > 0) exchanges_.push_back(i);
        const MemoryNeeds needs = stages_.back()->needs();
        saved_at_[i] = bytes_.saved;
        packed_at_[i] = bytes_.packed;
        if (backward) bytes_.saved += aligned(needs.saved);
        bytes_.packed += aligned(needs.packed) + impl::folded_norm_places(rows, infos_[i]).bytes;
        bytes_.scratch = std::max(bytes_.scratch, aligned(needs.scratch));
    }
    if (backward) find_buckets();
}

template <class Device, class T>
void Plan<Device, T>::check_buffers(const PassKey& key, const PassBuffers& buffers) const {
    if (trains(key) || buffers.running != nullptr) return;
    for (std::size_t i = 0; i < rows_.size(); ++i) {
        require(rows_[i].buffers.count == 0, "outside training the network reads running statistics (",
                rows_[i].buffers.count == 0 ? std::string() : buffer_name(rows_, i, 0), "), and was given none");
    }
}

template <class Device, class T>
void Plan<Device, T>::run_forward(Context& context, std::size_t begin, std::size_t end, const T* batch,
                                  const float* parameters, const PassKey& key, const PassBuffers& buffers) {
    for (std::size_t i = begin; i < end; ++i) {
        if (infos_[i].view) continue;
        const Stopwatch watch(times_, Direction::forward, i);
        stages_[i]->forward(pass(context, i, batch, parameters, nullptr, key, buffers));
    }
}

template <class Device, class T>
void Plan<Device, T>::run_backward(Context& context, std::size_t end, std::size_t begin, const T* batch,
                                   const float* parameters, float* gradients, const PassKey& key, bool accumulate,
                                   BucketReady ready) {
    std::size_t bucket = 0;
    for (std::size_t i = end; i-- > begin;) {
        if (!infos_[i].view || infos_[i].second_reader != no_value) {
            const Stopwatch watch(times_, Direction::backward, i);
            Pass<Device, T> p = pass(context, i, batch, parameters, gradients, key);
            p.accumulate = accumulate;
            stages_[i]->backward(p);
        }
        for (; ready && bucket < buckets_.size() && bucket_stages_[bucket] == i; ++bucket) ready(bucket);
    }
}

template <class Device, class T>
void Plan<Device, T>::find_buckets() {
    // What the stages below stage i write lies below this element.
    std::vector<std::int64_t> below(infos_.size() + 1, 0);
    for (std::size_t i = 0; i < infos_.size(); ++i) {
        std::int64_t end = below[i];
        for (std::size_t p = 0; p < rows_[infos_[i].row].parameters.count; ++p) {
            const Row& row = rows_[infos_[i].row];
            end = std::max(end, row.offsets[p] + row.parameters.list[p].shape.size());
        }
        below[i + 1] = end;
    }
    std::int64_t end = arena_elements(rows_);
    for (std::size_t i = infos_.size(); i-- > lowest_;) {
        const std::int64_t begin = i == lowest_ ? 0 : below[i];
        const bool enough = options_.bucket_elements > 0 && end - begin >= options_.bucket_elements;
        // The last bucket has the rest.
        if (i != lowest_ && (!enough || begin == 0)) continue;
        if (begin == end && i != lowest_) continue;
        buckets_.push_back({begin, end});
        bucket_stages_.push_back(i);
        end = begin;
    }
}

template <class Device, class T>
Pass<Device, T> Plan<Device, T>::pass(Context& context, std::size_t i, const T* batch, const float* parameters,
                                      float* gradients, const PassKey& key, const PassBuffers& buffers) {
    const StageInfo& info = infos_[i];
    const bool two_inputs = info.also_reads != no_value;
    Pass<Device, T> p{.context = context};
    p.input = value(info.reads, batch);
    if (two_inputs) p.second_input = value(info.also_reads, batch);
    // Only a view of the batch itself has the batch as its output, and a view is never run forward.
    p.output = const_cast<T*>(value(i + 1, batch));
    if (gradients != nullptr) {
        const auto gradient = [&](std::size_t entry) { return at(lifetimes_[entry]); };
        p.output_gradient = gradient(gradient_entry(infos_, i + 1));
        if (wants_gradient(info.reads)) p.input_gradient = gradient(input_gradient_entry(infos_, i, false));
        if (two_inputs && wants_gradient(info.also_reads)) {
            p.second_input_gradient = gradient(input_gradient_entry(infos_, i, true));
        }
        if (info.second_reader != no_value) p.second_output_gradient = gradient(second_gradient_entry(infos_, i));
    }
    const Row& row = rows_[info.row];
    for (std::size_t k = 0; k < row.parameters.count; ++k) {
        p.parameters[k] = parameters + row.offsets[k];
        if (gradients != nullptr) p.parameter_gradients[k] = gradients + row.offsets[k];
    }
    // Merged statistics are read as running ones are, which is what a stage does outside training.
    const bool takes_merged = buffers.merged != nullptr && stages_[i]->exchange_size() > 0;
    const float* const read = takes_merged ? buffers.merged : buffers.running;
    for (std::size_t k = 0; k < row.buffers.count; ++k) {
        if (read != nullptr) p.buffers[k] = read + row.buffer_offsets[k];
        if (buffers.batch != nullptr) p.statistics[k] = buffers.batch + row.buffer_offsets[k];
    }
    p.saved = saved_ + saved_at_[i];
    const impl::FoldedNormPlaces folded = impl::folded_norm_places(rows_, info);
    p.packed = packed_ + packed_at_[i] + folded.bytes;
    if (folded.bytes != 0) {
        p.parameters[0] = reinterpret_cast<const float*>(packed_ + packed_at_[i]);
        p.parameters[1] = reinterpret_cast<const float*>(packed_ + packed_at_[i] + folded.bias);
    }
    p.scratch = scratch_;
    p.training = trains(key) && !takes_merged;
    p.seed = key.seed;
    p.step = key.step;
    p.first_sample = key.first_sample;
    return p;
}

template <class Device, class T>
Plan<Device, T>::Plan(Plan&& other) noexcept = default;
template <class Device, class T>
Plan<Device, T>::~Plan() = default;

}  // namespace cupola::inline CUPOLA_ABI
