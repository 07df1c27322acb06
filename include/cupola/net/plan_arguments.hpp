// SPDX-License-Identifier: Apache-2.0
//
// The options of a plan, the arguments of its passes, and its description by bytes and buckets.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include <cupola/net/node_info.hpp>
#include <cupola/net/table.hpp>
#include <cupola/tensor/batch.hpp>

namespace cupola { inline namespace CUPOLA_ABI {

/// The purpose of a plan.
struct PlanOptions {
    std::int64_t batch = 1;
    bool training = true;
    /// Whether backward also computes the gradient of the batch.
    bool input_gradient = false;
    /// A plan for `forward_each`: no layer is fused, and forward computes what it computes in training.
    bool inspect = false;
    /// Whether replicas that run in lockstep share the statistics of their batches: the plan is then run in segments.
    bool synchronized = false;
    /// The minimum number of elements of a bucket of the gradient; 0 for a single bucket.
    std::int64_t bucket_elements = 0;
    /// The layers that the plan runs: all, or those of a part (net/pipeline/split.hpp), whose batch is then the value
    /// that enters the part. Arrays of parameters, gradients and buffers are those of the whole network. A plan that
    /// does not begin with the first layer decides itself about the gradient of its batch, as the whole would.
    LayerRange layers{};
    /// A plan for a part calls it: it checks the range, keeps those nodes of the whole network that are in it, and
    /// returns their number (`keep_layers` of net/pipeline/node_range.hpp).
    std::size_t (*keep_layers)(std::span<const LayerInfo> layers, bool fusion, std::span<NodeInfo> nodes,
                               const LayerRange& range, bool& input_gradient) = nullptr;
    /// A plan outside training calls it, with all layers: it joins nodes of the fusion pass, and returns their number.
    std::size_t (*join)(std::span<const LayerInfo> layers, std::span<NodeInfo> nodes) = nullptr;
    bool operator==(const PlanOptions&) const = default;
};

/// The weights that Plan::prepare() packs: none, those of layers with parameters that are trained, or all.
enum class Packing : std::uint8_t { none, trained, all };

/// The random numbers of one pass: see ForwardArgs.
struct RngKey {
    std::uint64_t seed = 0;
    std::uint32_t step = 0;
    std::int64_t first_sample = 0;
    bool training = true;
};

/// The arrays of a network's buffers, laid out as in Net::buffer_elements: running statistics, which a pass outside
/// training reads, and the array to which a pass in training writes the statistics of its batch. The caller updates the
/// former with the latter.
struct PassBuffers {
    const float* running = nullptr;
    float* batch = nullptr;
    /// The statistics of all replicas that ran in lockstep, from `batch`: a node that merges statistics uses these as
    /// those of its batch, so that `forward_each` shows the values that the step computed.
    const float* merged = nullptr;
    /// The arena that has the frozen parameters, if `parameters` of the call lack them, as moving averages do;
    /// otherwise null.
    const float* frozen = nullptr;
    /// Whether the batch has been written to the plan's place_of_batch() already.
    bool batch_is_converted = false;
    /// Whether the outputs are read in the plan's own type, by own_output(), and so not converted to float.
    bool keeps_outputs = false;
};

/// The elements [begin, end) of the parameter arena, whose gradients become final together.
struct GradientBucket {
    std::int64_t begin = 0, end = 0;
};

/// Bytes of a plan's arena by use.
struct PlanBytes {
    /// Activations and their gradients, from the type alone: `activation_bytes<Net>(batch)`.
    std::size_t activations = 0;
    /// Tensors that forward saves for backward in addition to activations, packed weights, and scratch memory: they
    /// depend on the backend.
    std::size_t saved = 0, packed = 0, scratch = 0;
    [[nodiscard]] std::size_t total() const { return activations + saved + packed + scratch; }
};

/// The batch of a pass: the address of its column "input", or the view of all columns, which a network with a
/// FromInput, or with an input of ids or bytes, needs. Owns nothing; made for one call.
class PlanInputs {
public:
    PlanInputs(const float* input) : input_(input) {}                                 // NOLINT: it is one
    PlanInputs(const BatchView& batch) : input_(batch.inputs()), columns_(&batch) {}  // NOLINT
    [[nodiscard]] const float* input() const { return input_; }
    /// Null if there is only the address.
    [[nodiscard]] const BatchView* columns() const { return columns_; }

private:
    const float* input_;
    const BatchView* columns_ = nullptr;
};

}}  // namespace cupola::CUPOLA_ABI
