// SPDX-License-Identifier: Apache-2.0
//
// The concept of a metric: a number, or several, of the outputs of a network and their targets, computed in evaluate()
// and in the validations of fit() from the outputs that the loss is computed from:
//
//   struct LargestError {
//       void begin(const MetricTask&) { largest = 0; }
//       void add(const MetricBatch& batch) {
//           const std::span<const float> targets = batch.target<float>();
//           for (std::size_t i = 0; i < targets.size(); ++i)
//               largest = std::max(largest, double(std::abs(batch.outputs[i] - targets[i])));
//       }
//       void report(MetricResults& results) const { results.add("largest_error", largest, Better::smaller); }
//       double largest = 0;
//   };
//
// add() is called for each batch of the evaluation, in the order of the batches and by one thread at a time, for any
// number of devices: a sum has the same bits for any of them. Outputs and targets are in host memory; on a GPU they are
// copied there once per batch, for all metrics.
#pragma once

#include <concepts>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include <cupola/core/compile_time_message.hpp>
#include <cupola/core/error.hpp>
#include <cupola/core/extents.hpp>
#include <cupola/core/type_name.hpp>
#include <cupola/loss/several_outputs.hpp>
#include <cupola/metrics/impl/metric_feed.hpp>
#include <cupola/metrics/impl/targets.hpp>
#include <cupola/metrics/metric_batch.hpp>
#include <cupola/net/table.hpp>
#include <cupola/parallel/evaluation_feed.hpp>
#include <cupola/parallel/step_report.hpp>
#include <cupola/tensor/batch.hpp>
#include <cupola/tensor/require_batch.hpp>

namespace cupola { inline namespace CUPOLA_ABI {

/// The network and the targets that a metric is computed from.
struct MetricTask {
    /// The extents of the network's output for one sample; of several outputs, of the last.
    Shape output{};
    /// The column that its loss reads.
    ColumnSpec target{};
    /// All outputs, without values, and all columns that the network and the losses read.
    std::vector<MetricOutput> all_outputs{};
    Columns columns{};

    /// The same with the output of this name, and the column of the other name as "target". Throws InvalidArgument if
    /// there is no such output or column.
    [[nodiscard]] MetricTask at(std::string_view output_name, std::string_view column) const;
};

/// Whether a larger or a smaller value is better, for the best record of a run.
enum class Better : std::uint8_t { larger, smaller };

/// The values of the metrics of an evaluation, in the order in which they are added.
class MetricResults {
public:
    /// Throws InvalidArgument for a name that is empty, taken, or "loss" or "validation_loss".
    void add(std::string_view name, double value, Better better);

    [[nodiscard]] std::vector<MetricValue>& values() { return values_; }

private:
    std::vector<MetricValue> values_;
};

template <class M>
concept HasBegin = requires(M& metric, const MetricTask& task) { metric.begin(task); };
template <class M>
concept HasAdd = requires(M& metric, const MetricBatch& batch) { metric.add(batch); };
template <class M>
concept HasReport = requires(const M& metric, MetricResults& results) { metric.report(results); };

/// begin() discards what was added before. A metric may also have `static constexpr CompileTimeMessage diagnostic(const
/// Shape& output, const ColumnSpec& target)`: the error message for a network with this output and a loss that reads
/// this column, empty if there is none. In a network with several outputs, metrics::At gives a metric one of them; a
/// metric that reads them by name (`MetricBatch::all_outputs` or `at`) has
/// `static constexpr bool reads_all_outputs = true`.
template <class M>
concept Metric = HasBegin<M> && HasAdd<M> && HasReport<M>;

/// The error message for a metric `M`, empty if there is none.
template <class M>
[[nodiscard]] consteval CompileTimeMessage metric_diagnostic() {
    CompileTimeMessage message;
    if constexpr (Metric<M>) return message;
    message << short_type_name<M>() << " is not a metric: it lacks ";
    if constexpr (!HasBegin<M>) {
        message << "`void begin(const MetricTask&)`";
    } else if constexpr (!HasAdd<M>) {
        message << "`void add(const MetricBatch&)`";
    } else {
        message << "`void report(MetricResults&) const`";
    }
    return message;
}

/// The same for a training of `Net` whose loss of the data is `Data`.
template <class M, class Net, class Data>
[[nodiscard]] consteval CompileTimeMessage metric_diagnostic() {
    CompileTimeMessage message = metric_diagnostic<M>();
    const impl::NetworkOutputs outputs(Net::layers);
    if constexpr (impl::NamesOutput<M>) {
        const std::size_t k = outputs.find(M::output);
        if (k == outputs.size() || outputs[k].name != M::output) {
            message << "a metric is of the output " << M::output << ", but the outputs of the network are: ";
            outputs.list(message);
            return message;
        }
        if (message.empty())
            message = impl::column_diagnostic(Net::layers, impl::DataLosses<Data>::entries, M::output, M::column);
        if constexpr (impl::HasMetricDiagnostic<typename M::OfOutput>) {
            const ColumnSpec target = impl::target_of<Data>(Net::layers, M::column);
            if (message.empty() && target.shape.rank > 0) message = M::OfOutput::diagnostic(outputs[k].shape, target);
        }
    } else if (message.empty() && outputs.size() > 1) {
        if (impl::reads_all_outputs<M>()) return message;
        message << short_type_name<M>() << " is of one output, but the network has the outputs ";
        outputs.list(message);
        message << ": use metrics::At with the name of one";
    } else if constexpr (impl::HasMetricDiagnostic<M>) {
        const ColumnSpec target = impl::target_of<Data>(Net::layers, target_column);
        if (message.empty() && target.shape.rank > 0) {
            message = M::diagnostic(outputs[outputs.size() - 1].shape, target);
        } else if (message.empty() && impl::DataLosses<Data>::by_output && !impl::reads_all_outputs<M>() &&
                   std::ranges::find(Net::layers, target_column, &LayerInfo::column) == Net::layers.end()) {
            message << short_type_name<M>() << " reads the column " << target_column
                    << ", which the losses do not read: use metrics::At with the name of the output";
        }
    }
    return message;
}

namespace impl {

/// Metrics of any types.
class Metrics final : public MetricFeed {
public:
    Metrics();
    ~Metrics() override;

    /// Refers to a variable, and owns a temporary.
    template <class M>
    void push_back(M&& metric) {
        using Type = std::remove_reference_t<M>;
        if constexpr (NamesOutput<Type>) {
            needs_input_ = needs_input_ || Type::column == input_column;
        } else {
            needs_input_ = needs_input_ || reads_all_outputs<std::remove_const_t<Type>>();
        }
        Entry entry{.begin = [](void* object, const MetricTask& task) { static_cast<Type*>(object)->begin(task); },
                    .add = [](void* object, const MetricBatch& batch) { static_cast<Type*>(object)->add(batch); },
                    .report = [](const void* object,
                                 MetricResults& results) { static_cast<const Type*>(object)->report(results); }};
        if constexpr (std::is_lvalue_reference_v<M>) {
            entry.object = std::addressof(metric);
        } else {
            entry.owned = std::make_shared<Type>(std::forward<M>(metric));
            entry.object = entry.owned.get();
        }
        add(std::move(entry));
    }

    void begin(std::span<const LayerInfo> layers, std::span<const RequiredColumn> columns) override;
    [[nodiscard]] std::vector<MetricValue> values() const override;

private:
    struct Entry {
        void* object = nullptr;
        std::shared_ptr<void> owned{};
        void (*begin)(void*, const MetricTask&) = nullptr;
        void (*add)(void*, const MetricBatch&) = nullptr;
        void (*report)(const void*, MetricResults&) = nullptr;
    };
    void add(Entry entry);
    void see(const MetricBatch& batch) override;

    std::vector<Entry> entries_;
};

/// Makes the feed of a MetricList (train/evaluate.hpp). Does not compile for a metric that does not fit the network and
/// the loss of the training.
template <class Training>
struct MetricsOf {
    template <class... M>
    [[nodiscard]] static std::shared_ptr<EvaluationFeed> make(M&&... metrics) {
        const auto all = std::make_shared<Metrics>();
        (add(*all, std::forward<M>(metrics)), ...);
        return all;
    }

private:
    template <class M>
    static void add(Metrics& to, M&& metric) {
        using Type = std::remove_reference_t<M>;
        static_assert(static_assert_message<diagnostic<Type>()>());
        if constexpr (Metric<Type>) to.push_back(std::forward<M>(metric));
    }
    template <class M>
    [[nodiscard]] static consteval CompileTimeMessage diagnostic() {
        if constexpr (requires { typename Training::LossType::DataLossType; }) {
            return metric_diagnostic<M, typename Training::NetworkType, typename Training::LossType::DataLossType>();
        } else {
            return metric_diagnostic<M>();
        }
    }
};

}  // namespace impl

}}  // namespace cupola::CUPOLA_ABI

#ifdef CUPOLA_DECL
#include <cupola/metrics/metric.ipp>
#endif
