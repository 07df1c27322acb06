// SPDX-License-Identifier: Apache-2.0
//
// Evaluator: runs a training's network forward, without backward, on batches that its devices take in turn.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <cupola/core/element_type.hpp>
#include <cupola/core/error.hpp>
#include <cupola/core/finite.hpp>
#include <cupola/core/fixed_array.hpp>
#include <cupola/core/function_ref.hpp>
#include <cupola/net/inputs.hpp>
#include <cupola/ops/id_check.hpp>
#include <cupola/ops/loss_report.hpp>
#include <cupola/parallel/evaluation_feed.hpp>
#include <cupola/parallel/impl/network_info.hpp>
#include <cupola/parallel/replicas/replicas.hpp>
#include <cupola/parallel/step/step_functions.hpp>
#include <cupola/parallel/step_report.hpp>
#include <cupola/tensor/batch.hpp>
#include <cupola/tensor/finite.hpp>
#include <cupola/tensor/ids.hpp>
#include <cupola/tensor/require_batch.hpp>

namespace cupola { inline namespace CUPOLA_ABI { namespace impl {

template <class D, class T>
class Evaluator {
    using Kernels = typename D::Kernels;
    using Context = typename Kernels::Context;
    using State = DeviceState<D, T>;

public:
    using BatchSource = FunctionRef<BatchView(std::int64_t i, int device, Context&)>;

    /// `max_batch` is the largest batch that memory is planned for; `averages` says whether there are moving averages.
    Evaluator(Replicas<D, T>& replicas, std::int64_t max_batch, bool averages)
        : replicas_(replicas),
          inputs_(required_inputs(replicas.network().layers)),
          max_batch_(max_batch),
          averages_(averages) {}

    void require_weights(Weights weights) const;
    void require_size(std::int64_t size) const;

    /// Batches i = 0 to count - 1; the sums are added in that order. Each is passed to `feed`, unless that is
    /// null.
    Evaluation evaluate(const StepFunctions<D>& functions, BatchSource batches, std::int64_t count, Weights weights,
                        EvaluationFeed* feed);

    /// The values of output number `output` for a batch in host memory, one after another. The batch has the columns of
    /// the network's inputs.
    [[nodiscard]] std::vector<float> predict(const BatchView& samples, const NetworkOutput& output, std::size_t number,
                                             Weights weights);

private:
    /// Whether the inputs of a batch are finite, and their ids in range.
    void require_valid(Context& context, const BatchView& batch, std::int64_t number) const;

    /// Where the outputs of a pass are, in memory of the device, until its next pass: in the plan of the network, or of
    /// its last part.
    struct Outputs {
        Plan<Kernels, T>* plan = nullptr;
        DeviceParts<Kernels, T>* parts = nullptr;

        [[nodiscard]] const float* operator[](std::size_t k) const {
            return parts != nullptr ? parts->output(k) : plan->output(k);
        }
    };
    /// Runs the network.
    Outputs forward(int device, const BatchView& samples, Weights weights);

    Replicas<D, T>& replicas_;
    FixedArray<RequiredColumn> inputs_;
    std::int64_t max_batch_;
    bool averages_;
};

template <class D, class T>
void Evaluator<D, T>::require_weights(Weights weights) const {
    require(weights == Weights::trained || averages_,
            "this training keeps no moving averages to run the network with; set moving_average in its options");
}

template <class D, class T>
void Evaluator<D, T>::require_size(std::int64_t size) const {
    require(size >= 1 && size <= max_batch_, "a forward pass takes 1 to ", max_batch_,
            " samples, the larger of batch_size and evaluation_batch_size in the options, not ", size);
}

template <class D, class T>
Evaluation Evaluator<D, T>::evaluate(const StepFunctions<D>& functions, BatchSource batches, std::int64_t count,
                                     Weights weights, EvaluationFeed* feed) {
    const std::size_t losses = functions.losses.size();
    std::vector<LossResult> results(static_cast<std::size_t>(count) * losses);
    std::vector<std::int64_t> sizes(static_cast<std::size_t>(count));
    bool loss_reads_input = false;
    for (const LossOfOutput& each : functions.losses)
        loss_reads_input = loss_reads_input || each.entry.column == input_column;
    if (feed != nullptr) feed->start(replicas_.placement().device_count(), loss_reads_input);
    const auto run = [&](int device) {
        Context& context = replicas_.context(device);
        for (std::int64_t i = device; i < count; i += replicas_.placement().device_count()) {
            const BatchView batch = batches(i, device, context);
            require_batch(batch, replicas_.settings().required);
            Outputs outputs;
            if (batch.size > 0) {
                require_valid(context, batch, i);
                outputs = forward(device, batch, weights);
                for (std::size_t k = 0; k < losses; ++k) {
                    results[static_cast<std::size_t>(i) * losses + k] =
                        functions.loss_of(context, k, outputs[functions.losses[k].output], batch);
                }
                sizes[static_cast<std::size_t>(i)] = batch.size;
            }
            if (feed == nullptr) continue;
            const auto output = [&](std::size_t k) { return outputs[k]; };
            const auto copy = [&](std::byte* to, const std::byte* from, std::size_t bytes) {
                Kernels::copy_to_host(context, to, from, bytes);
            };
            EvaluatedBatch evaluated{i, device, batch, output, {}};
            if constexpr (!D::host_memory) evaluated.copy_to_host = copy;
            if (!feed->pass(evaluated)) return;
        }
    };
    replicas_.threads().run([&](int device) {
        try {
            run(device);
        } catch (...) {
            if (feed != nullptr) feed->fail();
            throw;
        }
    });
    Evaluation evaluation;
    for (const LossOfOutput& each : functions.losses) evaluation.losses.push_back({std::string(each.entry.name)});
    for (std::size_t i = 0; i < sizes.size(); ++i) {
        evaluation.samples += sizes[i];
        evaluation.weight += replicas_.settings().weighted ? results[i * losses].weight : static_cast<double>(sizes[i]);
        for (std::size_t k = 0; k < losses; ++k) {
            evaluation.losses[k].loss += results[i * losses + k].sum;
            evaluation.losses[k].correct += results[i * losses + k].correct;
            evaluation.losses[k].predictions += results[i * losses + k].predictions;
        }
    }
    require<DataError>(evaluation.samples > 0, "an evaluation needs at least one sample, and its ", count,
                       count == 1 ? " batch has none" : " batches have none");
    require(!is_nan(evaluation.weight) && evaluation.weight > 0, "the weights of all ", evaluation.samples,
            " samples of the evaluation are 0");
    for (std::size_t k = 0; k < losses; ++k) {
        OutputEvaluation& each = evaluation.losses[k];
        each.loss /= evaluation.weight;
        evaluation.loss += functions.losses[k].entry.factor * each.loss;
        if (evaluation.predictions > 0) continue;
        evaluation.correct = each.correct;
        evaluation.predictions = each.predictions;
    }
    return evaluation;
}

template <class D, class T>
std::vector<float> Evaluator<D, T>::predict(const BatchView& samples, const NetworkOutput& output, std::size_t number,
                                            Weights weights) {
    require_size(samples.size);
    std::vector<float> outputs(static_cast<std::size_t>(samples.size * output.shape.size()));
    replicas_.threads().run([&](int device) {
        if (device != 0) return;
        Context& context = replicas_.context(0);
        BatchView view(samples.size, {});
        FixedArray<typename Kernels::Arena> memory(inputs_.size());
        for (std::size_t i = 0; i < inputs_.size(); ++i) {
            const ColumnSpec& column = inputs_[i].column;
            const std::size_t bytes = static_cast<std::size_t>(samples.size) * column.bytes();
            memory[i] = typename Kernels::Arena(bytes, "the samples of a prediction");
            Kernels::copy_from_host(context, memory[i].data(),
                                    static_cast<const std::byte*>(samples.data_of(column.name, column.type)), bytes);
            view.push_back({column, memory[i].data()});
        }
        const float* const from = forward(0, view, weights)[number];
        Kernels::copy_to_host(context, reinterpret_cast<std::byte*>(outputs.data()),
                              reinterpret_cast<const std::byte*>(from), outputs.size() * sizeof(float));
    });
    return outputs;
}

template <class D, class T>
void Evaluator<D, T>::require_valid(Context& context, const BatchView& batch, std::int64_t number) const {
    for (const RequiredColumn& each : inputs_) {
        const ColumnSpec& column = each.column;
        const auto elements = static_cast<std::size_t>(batch.size * column.shape.size());
        if (column.type == ElementType::int32) {
            const auto* const ids = batch.data<std::int32_t>(column.name);
            const IdReport bad =
                ops::IdCheck<Kernels>::find(context, ids, static_cast<std::int64_t>(elements), each.ids);
            require(bad.place < 0, "the ids of an input must be in range, but in batch ", number, ' ',
                    bad.place < 0 ? std::string() : bad_id_text(column, bad.place, bad.id, each.ids));
        }
        if (column.type != ElementType::float32) continue;
        const float* const values = batch.data<float>(column.name);
        if (all_finite(context, std::span(values, elements))) continue;
        std::vector<float> samples(elements);
        Kernels::copy_to_host(context, reinterpret_cast<std::byte*>(samples.data()),
                              reinterpret_cast<const std::byte*>(values), elements * sizeof(float));
        throw InvalidArgument(text("the input of a network must be finite, but in batch ", number, ' ',
                                   non_finite_input(column, samples)));
    }
}

template <class D, class T>
auto Evaluator<D, T>::forward(int device, const BatchView& samples, Weights weights) -> Outputs {
    State& state = replicas_.at(device);
    [[maybe_unused]] const auto team = state.worker.context().team();
    require_size(samples.size);
    const float* const parameters = weights == Weights::trained ? state.worker.model() : state.worker.averages();
    if (state.parts != nullptr) {
        const EvaluatedArrays arrays{
            .parameters = parameters, .frozen = state.worker.model(), .running = state.worker.buffers()};
        state.parts->evaluate(replicas_.network().make, samples, arrays, state.worker.plans());
        return {.parts = state.parts.get()};
    }
    const PlanOptions options{.batch = samples.size, .training = false};
    state.worker.plans().add(replicas_.network().make, options);
    Plan<Kernels, T>& plan = *state.worker.plan_for(options, parameters, 0, state.worker.model());
    static_cast<void>(plan.forward(state.worker.context(), samples, parameters, {.training = false},
                                   {.running = state.worker.buffers(), .frozen = state.worker.model()}));
    return {.plan = &plan};
}

}}}  // namespace cupola::CUPOLA_ABI::impl
