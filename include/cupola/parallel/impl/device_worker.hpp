// SPDX-License-Identifier: Apache-2.0
//
// What one device's thread works with: its context, its copy of the parameters, its arena, and a plan for each batch
// size. Instantiated for each device, not for each network.
#pragma once

#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <cupola/core/error.hpp>
#include <cupola/layers/initializer.hpp>
#include <cupola/net/plan.hpp>
#include <cupola/parallel/memory_report.hpp>

namespace cupola::inline CUPOLA_ABI {

/// An initialiser for a parameter by its full name, in place of the one that the layer's type names.
struct NamedInitializer {
    std::string parameter;
    Initializer initializer;
};

namespace impl {

/// A parameter arena's initial values.
[[nodiscard, gnu::cold]] inline std::vector<float> initial_parameters(std::span<const Row> rows, std::uint64_t seed,
                                                           std::span<const NamedInitializer> named) {
    std::vector<float> values(static_cast<std::size_t>(arena_elements(rows)));
    std::uint32_t number = 0;
    for (std::size_t i = 0; i < rows.size(); ++i) {
        for (std::size_t p = 0; p < rows[i].parameters.count; ++p) {
            const Parameter& parameter = rows[i].parameters.list[p];
            Initializer initializer = parameter.initializer;
            for (const NamedInitializer& other : named) {
                if (other.parameter == parameter_name(rows, i, p)) initializer = other.initializer;
            }
            initialize(std::span(values).subspan(static_cast<std::size_t>(rows[i].offsets[p]),
                                                 static_cast<std::size_t>(parameter.shape.size())),
                       initializer, parameter.fan_in, parameter.fan_out, seed, number++);
        }
    }
    return values;
}

template <class Device>
class DeviceWorker {
public:
    using Context = typename Device::Context;

    /// Makes the context on the calling thread, which is the device's own from then on.
    [[gnu::cold]] void start(int ordinal, int devices, const typename Device::Options& options) {
        context_ = std::make_unique<Context>(ordinal, options);
        if constexpr (requires { context_->pin_threads(devices); }) context_->pin_threads(devices);
        if constexpr (requires { context_->flush_denormals(); }) context_->flush_denormals();
    }

    /// Makes a plan unless there is one for its batch size and purpose.
    template <Network Net>
    [[gnu::cold]] void add_plan(const PlanOptions& options) {
        const auto team = context_->team();
        if (find(options) != nullptr) return;
        plans_.push_back(std::unique_ptr<BatchPlan>(new BatchPlan{Plan<Device>::template make<Net>(*context_, options)}));
        const PlanBytes& bytes = plans_.back()->plan.bytes();
        if (bytes.total() > largest_.total()) largest_ = bytes;
        if (arena_.size() == 0) return;
        require<OutOfMemory>(bytes.total() <= arena_.size(), "a forward pass of ", options.batch, " samples needs ",
                             bytes_text(bytes.total()), ", and the arena has ", bytes_text(arena_.size()));
        plans_.back()->plan.bind(arena_.data());
    }
    /// The memory of the plan that needs the most.
    [[nodiscard]] const PlanBytes& largest_plan() const { return largest_; }

    [[gnu::cold]] void allocate(const MemoryReport& memory) {
        const int ordinal = context_->ordinal();
        parameters_ = typename Device::Arena(memory.parameters, text("the parameters of device ", ordinal));
        state_ = typename Device::Arena(memory.optimizer_state, text("the optimiser's state on device ", ordinal));
        arena_ = typename Device::Arena(memory.plan.total(), text("the activations of device ", ordinal));
        for (const auto& plan : plans_) plan->plan.bind(arena_.data());
    }

    [[nodiscard]] Context& context() { return *context_; }
    [[nodiscard]] float* parameters() { return reinterpret_cast<float*>(parameters_.data()); }
    [[nodiscard]] float* state() { return reinterpret_cast<float*>(state_.data()); }

    void set_parameters(std::span<const float> values) {
        Device::copy_from_host(*context_, parameters_.data(), reinterpret_cast<const std::byte*>(values.data()),
                               values.size_bytes());
        parameters_changed();
    }
    void parameters_changed() { ++version_; }

    /// The plan for a batch, its weights packed; null if none was made. Plans share the arena, packed weights included:
    /// they are packed again when the parameters have changed or another plan has run.
    [[nodiscard]] Plan<Device>* plan_for(const PlanOptions& options) {
        BatchPlan* const found = find(options);
        if (found == nullptr) return nullptr;
        if (last_ != found || found->prepared != version_) {
            found->plan.prepare(*context_, parameters());
            found->prepared = version_;
            last_ = found;
        }
        return &found->plan;
    }

private:
    struct BatchPlan {
        Plan<Device> plan;
        /// The version of the parameters that its weights are packed from.
        std::int64_t prepared = -1;
    };

    [[nodiscard]] BatchPlan* find(const PlanOptions& options) {
        for (const auto& plan : plans_) {
            const PlanOptions& made = plan->plan.options();
            if (made.batch == options.batch && made.training == options.training) return plan.get();
        }
        return nullptr;
    }

    std::unique_ptr<Context> context_;
    std::vector<std::unique_ptr<BatchPlan>> plans_;
    PlanBytes largest_;
    typename Device::Arena parameters_, state_, arena_;
    std::int64_t version_ = 0;
    const BatchPlan* last_ = nullptr;
};

/// A device's part in a step. No member of DataParallel, so that it is one type for every network.
template <class Device>
struct DeviceState {
    DeviceWorker<Device> worker;
    std::uint64_t hash = 0;
    std::exception_ptr error;
    /// Of the step in progress: its replicas have run; its slice of the average is there and finite.
    bool ready = false, averaged = false;
    std::vector<double> regularization;
    /// For its call of the averaging policy, kept so that a step allocates nothing.
    std::vector<const float*> slice_rows;
    std::vector<std::int64_t> slice_samples;
};

}  // namespace impl

}  // namespace cupola::inline CUPOLA_ABI
