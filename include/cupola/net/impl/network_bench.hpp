// SPDX-License-Identifier: Apache-2.0
//
// A network with its loss on a device, run through the plan that training uses, in memory between guards that detect
// writes out of bounds: `check_gradients` runs it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <span>
#include <utility>
#include <vector>

#include <cupola/core/finite.hpp>
#include <cupola/core/function_ref.hpp>
#include <cupola/net/impl/directional_derivatives.hpp>
#include <cupola/net/impl/layer_bench.hpp>
#include <cupola/net/inputs.hpp>
#include <cupola/net/plan.hpp>
#include <cupola/ops/loss_report.hpp>

namespace cupola { inline namespace CUPOLA_ABI { namespace impl {

/// The loss at one output of a network.
template <class D>
struct CheckedLoss {
    std::size_t output = 0;
    double factor = 1;
    /// The elements of the output per sample.
    std::int64_t elements = 0;
    std::function<LossResult(typename D::Context&, const float* outputs, std::int64_t batch, float* gradient)>
        forward{};
};

/// A plan with memory of its own.
template <class D>
class NetworkBench {
public:
    using MakeLosses = FunctionRef<std::vector<CheckedLoss<D>>(typename D::Context&)>;

    NetworkBench(Plan<D> (*make)(typename D::Context&, const PlanOptions&), std::span<const LayerInfo> layers,
                 MakeLosses losses, const PlanOptions& plan, const GradientCheckOptions& options,
                 const typename D::Options& device)
        : context_(0, device),
          team_(context_.team()),
          plan_(make(context_, plan)),
          losses_(losses(context_)),
          seed_(options.seed),
          batch_(options.batch),
          parameters_(context_, static_cast<std::size_t>(arena_elements(layers)) * sizeof(float)),
          gradients_(context_, static_cast<std::size_t>(trained_elements(layers)) * sizeof(float)),
          running_(context_, static_cast<std::size_t>(buffer_elements(layers)) * sizeof(float)),
          arena_(context_, plan_.bytes().total()),
          samples_(context_, static_cast<std::size_t>(options.batch * plan_.nodes()[0].input.size()) * sizeof(float)),
          inputs_(options.batch, {}) {
        plan_.bind(arena_.bytes());
        // The columns of FromInputs are the same in every pass.
        std::uint32_t stream = 0;
        for (const RequiredColumn& each : required_inputs(layers)) {
            float* values = samples_.data();
            if (stream > 0) {
                const Floats random = check_input(each.column.type, each.ids, options.seed, 100 + stream,
                                                  options.batch * each.column.shape.size());
                columns_.emplace_back(context_, random.size() * sizeof(float));
                columns_.back().write(random);
                values = columns_.back().data();
            }
            inputs_.push_back({each.column, values});
            ++stream;
        }
        running_.write(initial_buffers(layers));
    }

    /// The mean loss of the batch, over all outputs.
    [[nodiscard]] double forward(const Floats& samples, const Floats& parameters) {
        arena_.poison();
        samples_.write(samples);
        parameters_.write(parameters);
        plan_.prepare(context_, parameters_.data(), running_.data());
        static_cast<void>(plan_.forward(context_, inputs_, parameters_.data(), key(), {.running = running_.data()}));
        double sum = 0;
        for (const CheckedLoss<D>& each : losses_) {
            float* const gradient = plan_.output_gradient(each.output);
            sum += each.factor * each.forward(context_, plan_.output(each.output), batch_, gradient).sum;
            if (each.factor != 1)
                scale(context_, std::span(gradient, static_cast<std::size_t>(batch_ * each.elements)), each.factor);
        }
        return sum / static_cast<double>(batch_);
    }

    /// Runs backward after the last forward; `before` is the initial value of every gradient.
    [[nodiscard]] LayerGradients backward(bool accumulate = false, float before = not_a_number<float>()) {
        gradients_.write(Floats(gradients_.read().size(), before));
        plan_.backward(context_, inputs_, parameters_.data(), gradients_.data(), key(), accumulate);
        LayerGradients result{{}, {gradients_.read()}};
        if (plan_.options().input_gradient) {
            result.input.resize(samples_.read().size());
            D::copy_to_host(context_, reinterpret_cast<std::byte*>(result.input.data()),
                            reinterpret_cast<const std::byte*>(plan_.input_gradient()),
                            result.input.size() * sizeof(float));
        }
        return result;
    }

    [[nodiscard]] bool unchanged(const Floats& samples, const Floats& parameters) {
        return same_bits(samples_.read(), samples) && same_bits(parameters_.read(), parameters);
    }
    [[nodiscard]] bool intact() {
        return parameters_.intact() && gradients_.intact() && running_.intact() && arena_.intact() && samples_.intact();
    }

private:
    [[nodiscard]] RngKey key() const { return {.seed = seed_}; }

    typename D::Context context_;
    decltype(std::declval<const typename D::Context&>().team()) team_;
    Plan<D> plan_;
    std::vector<CheckedLoss<D>> losses_;
    std::uint64_t seed_;
    std::int64_t batch_;
    CheckMemory<D> parameters_, gradients_, running_, arena_, samples_;
    std::deque<CheckMemory<D>> columns_;
    BatchView inputs_;
};

}}}  // namespace cupola::CUPOLA_ABI::impl
