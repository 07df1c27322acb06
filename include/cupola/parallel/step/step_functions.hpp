// SPDX-License-Identifier: Apache-2.0
//
// StepFunctions: what the steps of a training use of its TrainingOptions, without their types. The loss, the optimiser and
// the policy for statistics are called through this interface, so that the step engine and its parts depend on the device
// and the element type alone, and cupola::ops has them compiled.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <utility>

#include <cupola/core/error.hpp>
#include <cupola/core/finite.hpp>
#include <cupola/core/fixed_array.hpp>
#include <cupola/device/queue.hpp>
#include <cupola/loss/loss_collection.hpp>
#include <cupola/loss/queue_loss.hpp>
#include <cupola/ops/loss_report.hpp>
#include <cupola/optim/constants_writer.hpp>
#include <cupola/optim/moving_average.hpp>
#include <cupola/optim/optimizer.hpp>
#include <cupola/optim/parameter_group.hpp>
#include <cupola/optim/update_parameters.hpp>
#include <cupola/parallel/statistics.hpp>
#include <cupola/tensor/batch.hpp>

namespace cupola { inline namespace CUPOLA_ABI { namespace impl {

/// A loss of the data: its entry, the number of the network's output that it reads, and the elements of that output.
struct LossOfOutput {
    LossEntry entry{};
    std::size_t output = 0;
    std::int64_t elements = 0;
};

template <class D>
class StepFunctions {
public:
    using Kernels = typename D::Kernels;
    using Context = typename Kernels::Context;

    StepFunctions() = default;
    StepFunctions(const StepFunctions&) = delete;
    StepFunctions& operator=(const StepFunctions&) = delete;

    // These have the meaning of the members of TrainingOptions.
    std::int64_t batch_size = 0;
    int gradient_accumulation_steps = 1;
    std::uint64_t seed = 0;
    int check_every = 0;
    MovingAverage moving_average{};
    std::span<const ParameterGroup> groups{};
    /// Whether an update may be repeated without a call of its function: see Optimizer.
    bool repeats_update = false;
    /// Whether the policy for statistics cannot throw.
    bool updates_statistics_in_place = false;

    /// The losses of the data.
    FixedArray<LossOfOutput> losses{};
    /// Whether a batch has a report per loss beside that of their sum.
    bool sums_losses = false;

    /// Queues loss `k` of a batch and its gradient at the network's output, without the factor: see loss/queue_loss.hpp.
    virtual void queue_loss(Context& context, std::size_t k, const float* outputs, const BatchView& batch,
                            float* gradient, LossReport* report) const = 0;
    /// Whether every loss can be queued by the following function.
    [[nodiscard]] virtual bool queues_own_type() const { return false; }
    /// queue_loss() of outputs in the network's element type, other than float, whose gradient it writes in that type,
    /// times the factor.
    virtual void queue_loss_in_own_type(Context&, std::size_t, const void*, const BatchView&, void*, LossReport*,
                                        const GradientFactor&) const {}
    /// The result of a report. Throws InvalidArgument for an invalid target.
    [[nodiscard]] virtual LossResult result_of_loss(std::size_t k, const LossReport& report) const = 0;
    /// Waits for the loss of a batch; computes no gradient.
    [[nodiscard]] virtual LossResult loss_of(Context& context, std::size_t k, const float* outputs,
                                             const BatchView& batch) const = 0;

    /// Why samples whose weights add up to 0 do not count, where the loss knows it.
    [[nodiscard, gnu::cold]] virtual std::string reason_of_no_weight() const = 0;

    [[nodiscard]] virtual double learning_rate_at(std::int64_t step) const = 0;
    /// Throws InvalidArgument for a learning rate that is negative, or not finite as a float, and what a schedule
    /// throws.
    virtual void require_learning_rate_at(std::int64_t step) const = 0;
    virtual void update(const Update<Kernels>& u) const = 0;
    /// Writes the constants that update(u) uses, in its order; only where `repeats_update`.
    virtual void write_constants(const Update<Kernels>& u, ConstantsWriter& to) const = 0;

    virtual void update_statistics(const StatisticsUpdate& u) const = 0;

protected:
    ~StepFunctions() = default;
};

/// The functions of `options`, which must outlive the object. Options is a TrainingOptions, T the network's element type.
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
        this->groups = options.groups;
        this->repeats_update = repeatable;
        this->updates_statistics_in_place =
            noexcept(std::declval<const Statistics&>().update(std::declval<const StatisticsUpdate&>()));
    }

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
    void update(const Update<Kernels>& u) const override { update_parameters(options_.optimizer, u); }
    void write_constants([[maybe_unused]] const Update<Kernels>& u,
                         [[maybe_unused]] ConstantsWriter& to) const override {
        if constexpr (repeatable) cupola::write_constants(options_.optimizer, u, to);
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
    /// The same; where there are several losses, an error of one begins with its output.
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
