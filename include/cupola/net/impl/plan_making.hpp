// SPDX-License-Identifier: Apache-2.0
//
// The construction of a plan: its operations, its memory, and what each operation reads and writes. Like its passes
// (net/impl/plan_passes.hpp) the functions are not inline.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <cupola/core/element_type.hpp>
#include <cupola/core/error.hpp>
#include <cupola/core/fixed_array.hpp>
#include <cupola/net/impl/folded_norm.hpp>
#include <cupola/net/node_info.hpp>
#include <cupola/net/plan.hpp>

namespace cupola { inline namespace CUPOLA_ABI {

template <class Device, class T>
Plan<Device, T>::Plan(Context& context, const PlanOptions& options, std::span<const LayerInfo> layers, bool fusion,
                      NodeFunction make_one)
    : context_(&context),
      options_(options),
      layers_(layers),
      own_layers_(layers_of_range(layers, options.layers)),
      infos_(layers.size()),
      nodes_(layers.size()),
      saved_at_(layers.size()),
      packed_at_(layers.size()),
      sums_at_(layers.size()),
      discarded_at_(layers.size()),
      all_reduces_(layers.size()),
      outputs_(layers.size()) {
    impl::require_countable(layers, fusion, options.batch, options.training, sizeof(T));
    infos_.keep_first(fuse(layers, fusion && !options.inspect, infos_.span(), options.training || options.inspect));
    if (options.join != nullptr && fusion && !options.training && !options.inspect)
        infos_.keep_first(options.join(layers, infos_.span()));
    if (own_layers_.size() != layers.size()) {
        require(options.keep_layers != nullptr,
                "a plan of a part of the layers needs `keep_layers` of net/pipeline/node_range.hpp");
        infos_.keep_first(options.keep_layers(layers, fusion, infos_.span(), options.layers, options_.input_gradient));
    }
    nodes_.keep_first(infos_.size());
    lifetimes_ = FixedArray<Lifetime>(lifetimes_of(infos_.size(), recomputes(layers)));
    const bool backward = options.training && !options.inspect;
    passes_ = list_passes(infos_.span(), backward, options_.input_gradient);
    bytes_.activations =
        plan_activations(infos_.span(), options.batch, backward, options_.input_gradient, lifetimes_.span(), sizeof(T));
    ends_ = {plan_ends(own_layers_, options.batch, backward, options_.input_gradient, sizeof(T)),
             options.batch * converted_inputs(own_layers_)};
    std::size_t outputs = 0, offset = 0;
    for (std::size_t i = 0; i < infos_.size(); ++i) {
        if (!infos_[i].is_output && i + 1 < infos_.size()) continue;
        const std::int64_t elements = options.batch * infos_[i].output.size();
        outputs_[outputs++] = {i + 1, elements, offset};
        offset += aligned(static_cast<std::size_t>(elements) * sizeof(float));
    }
    outputs_.keep_first(outputs);
    bytes_.activations += ends_.bytes();
    lowest_ = lowest_node(infos_.span(), options_.input_gradient);
    reads_columns_ = count_inputs(own_layers_) > 1 || reads_other_types(own_layers_);
    require(!options_.input_gradient || own_layers_.front().column_type == ElementType::float32, "an input of ",
            to_string(own_layers_.front().column_type), " has no gradient");
    // A block is done with what its nodes have saved when the next one is computed again, in the same memory.
    std::size_t all_reduces = 0, block = no_layer, block_saved = 0, most_block_saved = 0;
    for (std::size_t i = 0; i < infos_.size(); ++i) {
        const LayerInfo& layer = layers[infos_[i].layer];
        const bool node_backward = backward && has_backward(i);
        has_frozen_ = has_frozen_ || is_frozen(layers, infos_[i].layer);
        const BuildContext<Device, T> build{.context = context,
                                            .batch = options.batch,
                                            .input = infos_[i].input,
                                            .output = infos_[i].output,
                                            .layer = static_cast<std::uint32_t>(infos_[i].layer),
                                            .activation = infos_[i].activation,
                                            .relu_mask_applied_by_next = infos_[i].relu_mask_applied_by_next,
                                            .applies_relu_mask_of_previous = infos_[i].applies_relu_mask_of_previous,
                                            .folded_norm = infos_[i].folded_norm != no_layer,
                                            .adds_to_output = infos_[i].adds_to_second_input,
                                            .formula = infos_[i].formula,
                                            .training = node_backward,
                                            .input_gradient = backward && needs_gradient(infos_[i].reads),
                                            .parameter_gradients = !omits_parameter_gradients(layers, infos_[i].layer),
                                            .inference = !options.training && !options.inspect,
                                            .adds_second_gradient = infos_[i].adds_gradient,
                                            .second_input = second_input_of(infos_.span(), i)};
        nodes_[i] = make_one(infos_[i], build);
        if (options.synchronized && nodes_[i]->statistics_size() > 0 && !layer.uses_running_statistics) {
            require(infos_[i].recompute_block == no_layer,
                    "synchronized statistics cannot be computed again in backward, and layer ", infos_[i].layer + 1,
                    " (", layer.name, layer.name.empty() ? "" : ", ", layer.type, ") is in a block of Recompute");
            all_reduces_[all_reduces++] = i;
        }
        const MemoryNeeds needs = nodes_[i]->needs();
        if (infos_[i].recompute_block != block) block_saved = 0;
        block = infos_[i].recompute_block;
        std::size_t& saved = recomputed(i) ? block_saved : bytes_.saved;
        saved_at_[i] = saved;
        packed_at_[i] = bytes_.packed;
        if (node_backward) saved += aligned(needs.saved);
        most_block_saved = std::max(most_block_saved, block_saved);
        bytes_.packed += aligned(needs.packed) + impl::folded_norm_places(layers, infos_[i]).bytes;
        discarded_at_[i] = aligned(needs.scratch);
        bytes_.scratch = std::max(
            bytes_.scratch, discarded_at_[i] + (node_backward ? impl::discarded_bytes(layers, infos_[i].layer) : 0));
    }
    for (std::size_t i = 0; i < infos_.size(); ++i) saved_at_[i] += recomputed(i) ? bytes_.saved : 0;
    bytes_.saved += most_block_saved;
    all_reduces_.keep_first(all_reduces);
    if (backward) find_buckets();
    std::fill(sums_at_.begin(), sums_at_.end(), no_sums);
    if (backward) find_gradient_sums();
    // The scratch memory follows the others.
    if (bytes_.scratch == 0) return;
    const std::size_t before = bytes_.total() - bytes_.scratch;
    bytes_.saved += aligned(before, scratch_alignment<Device>) - before;
}

template <class Device, class T>
void Plan<Device, T>::find_gradient_sums() {
    for (std::size_t i = 1; i < infos_.size(); ++i) {
        // Node i must be the only reader of the value: if there were others, it would read a Fork.
        if (infos_[i].reads != i || infos_[i - 1].activation != Activation::relu || infos_[i - 1].is_output ||
            !has_backward(i) || !has_backward(i - 1))
            continue;
        const std::int64_t parts = nodes_[i]->gradient_sum_parts();
        if (parts == 0 || !nodes_[i - 1]->reads_gradient_sums()) continue;
        sums_at_[i] = bytes_.saved;
        bytes_.saved += aligned(static_cast<std::size_t>(parts * infos_[i].input.channels()) * sizeof(float));
    }
}

template <class Device, class T>
void Plan<Device, T>::find_buckets() {
    // The gradients that the nodes below node i write lie below this element.
    FixedArray<std::int64_t> below(infos_.size() + 1);
    const std::int64_t first = trained_begin(layers_, options_.layers.begin);
    below[0] = first;
    for (std::size_t i = 0; i < infos_.size(); ++i) {
        std::int64_t end = below[i];
        for (std::size_t p = 0; p < layers_[infos_[i].layer].parameters.count; ++p) {
            const LayerInfo& layer = layers_[infos_[i].layer];
            if (layer.frozen[p]) continue;
            end = std::max(end, layer.offsets[p] + layer.parameters.list[p].shape.size());
        }
        below[i + 1] = end;
    }
    buckets_ = FixedArray<GradientBucket>(infos_.size());
    bucket_nodes_ = FixedArray<std::size_t>(infos_.size());
    std::size_t count = 0;
    std::int64_t end = trained_begin(layers_, options_.layers.end);
    for (std::size_t i = infos_.size(); i-- > lowest_;) {
        const std::int64_t begin = i == lowest_ ? first : below[i];
        const bool enough = options_.bucket_elements > 0 && end - begin >= options_.bucket_elements;
        // The last bucket contains the rest.
        if (i != lowest_ && (!enough || begin == first)) continue;
        if (begin == end && i != lowest_) continue;
        buckets_[count] = {begin, end};
        bucket_nodes_[count++] = i;
        end = begin;
    }
    buckets_.keep_first(count);
}

template <class Device, class T>
void Plan<Device, T>::bind_nodes() {
    const bool backward = options_.training && !options_.inspect;
    const bool twice = backward && recomputes(layers_);
    bound_ = std::vector<BackwardArgs<Device, T>>((twice ? 2 : 1) * infos_.size(), {{.context = *context_}});
    for (std::size_t k = 0; k < bound_.size(); ++k) {
        const std::size_t i = k % infos_.size();
        const auto bound_value = [&](std::size_t v) {
            return k < infos_.size() ? const_cast<T*>(value(v, nullptr)) : value_in_backward(v);
        };
        const NodeInfo& info = infos_[i];
        BackwardArgs<Device, T>& args = bound_[k];
        // Each call passes the batch to the operations that read it.
        args.input = bound_value(info.reads);
        if (info.also_reads != no_value) args.second_input = bound_value(info.also_reads);
        // Only a view of the batch itself has the batch as its output, and a view is never run forward.
        args.output = bound_value(i + 1);
        args.saved = saved_ + saved_at_[i];
        const impl::FoldedNormPlaces folded = impl::folded_norm_places(layers_, info);
        args.packed = packed_ + packed_at_[i] + folded.bytes;
        args.scratch = scratch_;
        if (folded.bytes != 0) {
            args.parameters[0] = reinterpret_cast<const float*>(packed_ + packed_at_[i]);
            args.parameters[1] = reinterpret_cast<const float*>(packed_ + packed_at_[i] + folded.bias);
        }
        if (backward) bind_gradients(i, args);
    }
}

template <class Device, class T>
void Plan<Device, T>::bind_gradients(std::size_t i, BackwardArgs<Device, T>& args) {
    const NodeInfo& info = infos_[i];
    const auto gradient = [&](std::size_t entry) { return at(lifetimes_[entry]); };
    args.output_gradient = gradient(gradient_entry(infos_.span(), i + 1));
    const auto sums_of = [&](std::size_t node) -> ChannelSums {
        if (node >= infos_.size() || sums_at_[node] == no_sums) return {};
        return {reinterpret_cast<float*>(saved_ + sums_at_[node]), nodes_[node]->gradient_sum_parts(),
                !infos_[node].applies_relu_mask_of_previous};
    };
    args.input_gradient_sums = sums_of(i);
    args.output_gradient_sums = sums_of(i + 1);
    if (needs_gradient(info.reads)) args.input_gradient = gradient(input_gradient_entry(infos_.span(), i, false));
    if (info.also_reads != no_value && needs_gradient(info.also_reads)) {
        args.second_input_gradient = gradient(input_gradient_entry(infos_.span(), i, true));
    }
    const LayerInfo& owner = parameters_of_layer(layers_, info.layer);
    const bool omits = omits_parameter_gradients(layers_, info.layer);
    std::byte* discarded = scratch_ + discarded_at_[i];
    for (std::size_t p = 0; !omits && p < owner.parameters.count; ++p) {
        if (!owner.frozen[p]) continue;
        args.parameter_gradients[p] = reinterpret_cast<float*>(discarded);
        discarded += arena_extent(owner.parameters.list[p].shape.size()) * static_cast<std::int64_t>(sizeof(float));
    }
    if (info.adds_two_gradients()) args.second_output_gradient = gradient(second_gradient_entry(infos_.span(), i));
    // A view that adds: the gradient of its output is added to what later readers wrote to that of its input.
    if (info.view && info.adds_gradient) args.second_output_gradient = args.input_gradient;
}

template <class Device, class T>
Plan<Device, T>::Plan(Plan&& other) noexcept = default;
template <class Device, class T>
Plan<Device, T>::~Plan() = default;

}}  // namespace cupola::CUPOLA_ABI
