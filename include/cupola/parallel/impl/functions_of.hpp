// SPDX-License-Identifier: Apache-2.0
//
// StepFunctionsOf: the StepFunctions for a training's options, by the types of its loss, its optimiser and its
// statistics policy.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <utility>

#include <cupola/core/element_type.hpp>
#include <cupola/core/error.hpp>
#include <cupola/core/finite.hpp>
#include <cupola/core/fixed_array.hpp>
#include <cupola/core/span_of.hpp>
#include <cupola/device/queue.hpp>
#include <cupola/loss/loss_collection.hpp>
#include <cupola/loss/queue_loss.hpp>
#include <cupola/ops/loss_report.hpp>
#include <cupola/optim/constants_writer.hpp>
#include <cupola/optim/moving_average.hpp>
#include <cupola/optim/optimizer.hpp>
#include <cupola/optim/parameter_group.hpp>
#include <cupola/optim/update_parameters.hpp>
#include <cupola/parallel/agreement/agreement_kind.hpp>
#include <cupola/parallel/statistics.hpp>
#include <cupola/parallel/step/step_functions.hpp>
#include <cupola/tensor/batch.hpp>

namespace cupola { inline namespace CUPOLA_ABI { namespace impl {

/// The functions of `options`, which must outlive the object. Options is a TrainingOptions, T the network's element
/// type.
template <class D, class Options, class T>
class StepFunctionsOf final : public StepFunctions<D> {
    using Kernels = typename D::Kernels;
    using Context = typename Kernels::Context;
    using Optimizer = decltype(Options::optimizer);
    using Statistics = decltype(Options::statistics);
    using Collection = decltype(Options::loss);
    using Of = DataLosses<typename Collection::DataLossType>;
    static constexpr bool repeatable = repeats_work<D> && RepeatableOptimizer<Optimizer, Kernels>;

public:
    /// `layers` are those of the network. Throws InvalidArgument if an option of a loss is invalid.
    [[gnu::cold]] StepFunctionsOf(const Options& options, std::span<const LayerInfo> layers)
        : options_(options), shapes_(layers) {
        this->batch_size = options.batch_size;
        this->gradient_accumulation_steps = options.gradient_accumulation_steps;
        this->seed = options.seed;
        this->losses = FixedArray<LossOfOutput>(Collection::loss_count);
        this->sums_losses = Collection::loss_count > 1 || Collection::losses[0].factor != 1;
        for (std::size_t k = 0; k < Collection::loss_count; ++k) {
            const std::size_t output = shapes_.find(Collection::losses[k].output);
            this->losses[k] = {Collection::losses[k], output, shapes_[output].shape.size()};
        }
        for (std::size_t k = 0; k < this->losses.size(); ++k)
            with_loss(k, [&]<std::size_t number>() { static_cast<void>(operation<number>()); });
        this->check_every = options.check_every;
        this->moving_average = options.moving_average;
        this->groups = span_of(options.groups);
        this->repeats_update = repeatable;
        this->updates_statistics_in_place =
            noexcept(std::declval<const Statistics&>().update(std::declval<const StatisticsUpdate&>()));
    }

    [[nodiscard]] const Options& options() const { return options_; }

    void queue_loss(Context& context, std::size_t k, const float* outputs, const BatchView& batch, float* gradient,
                    LossReport* report) const override {
        with_loss(k, [&]<std::size_t number>() {
            impl::queue_loss(operation<number>(), context, outputs, targets<number>(batch), batch.size, gradient,
                             report);
        });
    }
    [[nodiscard]] bool queues_own_type() const override {
        bool all = true;
        for (std::size_t k = 0; k < this->losses.size(); ++k) {
            with_loss(k, [&]<std::size_t number>() { all = all && queues_type<decltype(operation<number>()), T>; });
        }
        return all;
    }
    void queue_loss_in_own_type([[maybe_unused]] Context& context, std::size_t k, [[maybe_unused]] const void* outputs,
                                [[maybe_unused]] const BatchView& batch, [[maybe_unused]] void* gradient,
                                [[maybe_unused]] LossReport* report,
                                [[maybe_unused]] const GradientFactor& factor) const override {
        with_loss(k, [&]<std::size_t number>() {
            if constexpr (queues_type<decltype(operation<number>()), T>)
                operation<number>().template in_type<T>().queue(context, static_cast<const T*>(outputs),
                                                                targets<number>(batch), batch.size,
                                                                static_cast<T*>(gradient), report, factor);
        });
    }
    [[nodiscard]] LossResult result_of_loss(std::size_t k, const LossReport& report) const override {
        LossResult result;
        with_named_loss(k, [&]<std::size_t number>() { result = impl::result_of_loss(operation<number>(), report); });
        return result;
    }
    [[nodiscard]] LossResult loss_of(Context& context, std::size_t k, const float* outputs,
                                     const BatchView& batch) const override {
        LossResult result;
        with_named_loss(k, [&]<std::size_t number>() {
            result = operation<number>().forward(context, outputs, targets<number>(batch), batch.size, nullptr);
        });
        return result;
    }

    [[nodiscard, gnu::cold]] std::string reason_of_no_weight() const override {
        // The weights of a batch are those of the first loss.
        const auto& loss = Of::template get<0>(options_.loss.data);
        if constexpr (requires { loss.ignored_label.has_value(); }) {
            if (loss.ignored_label) {
                const bool all_count = std::ranges::all_of(loss.class_weights, [](float each) { return each > 0; });
                return text("all their labels are ", *loss.ignored_label, ", the ignored_label of ",
                            this->losses[0].entry.name, all_count ? "" : ", or of a class with a weight of 0");
            }
        }
        return "all their weights are 0";
    }

    [[nodiscard]] double learning_rate_at(std::int64_t step) const override {
        return options_.optimizer.learning_rate_at(step);
    }
    void require_learning_rate_at(std::int64_t step) const override {
        const double rate = learning_rate_at(step);
        constexpr double largest = static_cast<double>(std::numeric_limits<float>::max());
        if (is_finite(rate) && rate >= 0 && rate <= largest) [[likely]]
            return;
        throw_joined<InvalidArgument>({"the learning rate of step ", step, " is ", rate, ", from the schedule '",
                                       learning_rate_description_of(options_.optimizer),
                                       "'; it must be at least 0 and finite as a float; the step is not made"});
    }
    void update(const Update<Kernels>& u, [[maybe_unused]] const ElasticForce* force) const override {
        if constexpr (has_elastic_force<decltype(Options::averaging)>) {
            if (force != nullptr) return update_parameters(options_.optimizer, u, *force);
        }
        update_parameters(options_.optimizer, u);
    }
    void write_constants([[maybe_unused]] const Update<Kernels>& u, [[maybe_unused]] const ElasticForce* force,
                         [[maybe_unused]] ConstantsWriter& to) const override {
        // That with a force is in optim/elastic_update.hpp, which a policy with one includes.
        using cupola::write_constants;
        if constexpr (repeatable && has_elastic_force<decltype(Options::averaging)>) {
            if (force != nullptr) return write_constants(options_.optimizer, u, *force, to);
        }
        if constexpr (repeatable) write_constants(options_.optimizer, u, to);
    }

    void update_statistics(const StatisticsUpdate& u) const override { options_.statistics.update(u); }

private:
    /// Calls f<k>().
    template <class F>
    static void with_loss(std::size_t k, F&& f) {
        if constexpr (Collection::loss_count == 1) {
            f.template operator()<0>();
        } else {
            [&]<std::size_t... number>(std::index_sequence<number...>) {
                ((k == number ? f.template operator()<number>() : void()), ...);
            }(std::make_index_sequence<Collection::loss_count>{});
        }
    }
    /// The same; if there are several losses, the error of one begins with the name of its output.
    template <class F>
    static void with_named_loss(std::size_t k, F&& f) {
        if constexpr (Collection::loss_count == 1) {
            with_loss(k, f);
        } else {
            try {
                with_loss(k, f);
            } catch (const InvalidArgument& error) {
                throw InvalidArgument(
                    text("the loss of the output ", Collection::losses[k].output, ": ", error.what()));
            }
        }
    }
    template <std::size_t k>
    [[nodiscard]] static auto targets(const BatchView& batch) {
        return batch.data<typename DataLossAt<typename Collection::DataLossType, k>::Target>(Of::entries[k].column);
    }
    template <std::size_t k>
    [[nodiscard]] auto operation() const {
        const auto& loss = Of::template get<k>(options_.loss.data);
        return impl::loss_operation<Kernels>(loss, shapes_[this->losses[k].output].shape);
    }

    const Options& options_;
    NetworkOutputs shapes_;
};

}}}  // namespace cupola::CUPOLA_ABI::impl
