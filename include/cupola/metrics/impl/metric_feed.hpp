// SPDX-License-Identifier: Apache-2.0
//
// MetricFeed: passes the batches of an evaluation on in their order, in the host's memory, whichever device has run
// them.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

#include <cupola/loss/several_outputs.hpp>
#include <cupola/metrics/metric_batch.hpp>
#include <cupola/parallel/evaluation_feed.hpp>

namespace cupola { inline namespace CUPOLA_ABI { namespace impl {

class MetricFeed : public EvaluationFeed {
public:
    void begin(std::span<const LayerInfo> layers, std::span<const RequiredColumn> columns) override;
    void start(int devices, bool with_input) override;
    [[nodiscard]] bool pass(const EvaluatedBatch& batch) override;
    void fail() override;

protected:
    MetricFeed();
    ~MetricFeed() override;

    /// Whether a metric reads the input although no loss does.
    bool needs_input_ = false;

private:
    struct Memory {
        std::vector<MetricOutput> list;
        std::vector<std::vector<float>> outputs;
        std::vector<std::vector<std::byte>> columns;
    };

    /// Called for each batch with samples, in their order, by one thread at a time.
    virtual void see(const MetricBatch& batch) = 0;

    [[nodiscard]] MetricBatch on_host(Memory& memory, const EvaluatedBatch& evaluated) const;

    std::optional<NetworkOutputs> network_;
    bool with_input_ = false;
    /// Host memory for the outputs of each device whose memory the host cannot read.
    std::vector<Memory> memory_;
    std::mutex mutex_;
    std::condition_variable turn_;
    std::int64_t next_ = 0;
    bool failed_ = false;
};

/// For a function in place of metrics.
class FunctionFeed final : public MetricFeed {
public:
    explicit FunctionFeed(MetricFunction function);
    ~FunctionFeed() override;
    [[nodiscard]] std::vector<MetricValue> values() const override;

private:
    void see(const MetricBatch& batch) override;

    MetricFunction function_;
};

}}}  // namespace cupola::CUPOLA_ABI::impl

#ifdef CUPOLA_DECL
#include <cupola/metrics/impl/metric_feed.ipp>
#endif
