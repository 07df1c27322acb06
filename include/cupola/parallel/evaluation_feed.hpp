// SPDX-License-Identifier: Apache-2.0
//
// EvaluationFeed: what an evaluation passes the outputs of its batches to, beside the losses. Metrics are behind it
// (metrics/metric.hpp), so that only programs that name metrics compile them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <cupola/core/function_ref.hpp>
#include <cupola/net/table.hpp>
#include <cupola/parallel/step_report.hpp>
#include <cupola/tensor/batch.hpp>
#include <cupola/tensor/require_batch.hpp>

namespace cupola { inline namespace CUPOLA_ABI { namespace impl {

/// A batch of an evaluation that a device has run.
struct EvaluatedBatch {
    std::int64_t number;
    int device;
    const BatchView& batch;
    /// The values of the network's output number k.
    FunctionRef<const float*(std::size_t k)> output;
    /// Copies what the batch and the outputs refer to; refers to nothing where the host reads it in place.
    FunctionRef<void(std::byte* to, const std::byte* from, std::size_t bytes)> copy_to_host;
};

class EvaluationFeed {
public:
    EvaluationFeed() = default;
    EvaluationFeed(const EvaluationFeed&) = delete;
    EvaluationFeed& operator=(const EvaluationFeed&) = delete;
    virtual ~EvaluationFeed() = default;

    /// Before an evaluation of a network of these layers with losses that read these columns: discards what was seen.
    virtual void begin(std::span<const LayerInfo> layers, std::span<const RequiredColumn> columns) = 0;
    /// Device d of `devices` has batches d, d + devices, and so on. `with_input`: whether a loss reads the column
    /// "input".
    virtual void start(int devices, bool with_input) = 0;
    /// Passes a batch on, after those of smaller numbers. Returns false if another device has failed: no batch follows
    /// then. Called by the threads of all devices.
    [[nodiscard]] virtual bool pass(const EvaluatedBatch& batch) = 0;
    /// Ends the waiting of other devices.
    virtual void fail() = 0;
    /// The results.
    [[nodiscard]] virtual std::vector<MetricValue> values() const = 0;
};

/// That of a function in place of metrics; defined in metrics/impl/metric_feed.hpp.
class FunctionFeed;

}}}  // namespace cupola::CUPOLA_ABI::impl
