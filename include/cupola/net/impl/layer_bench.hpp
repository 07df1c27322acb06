// SPDX-License-Identifier: Apache-2.0
//
// One layer on a device, in memory between guards that detect writes out of bounds: `check_gradients` runs it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <cupola/core/finite.hpp>
#include <cupola/device/device.hpp>
#include <cupola/net/gradient_check.hpp>
#include <cupola/net/table.hpp>
#include <cupola/ops/plan_node.hpp>

namespace cupola { inline namespace CUPOLA_ABI { namespace impl {

/// `bytes` of memory between two guards, which detect writes out of bounds; starts as NaN.
template <class D>
class CheckMemory {
public:
    using Context = typename D::Context;

    CheckMemory(Context& context, std::size_t bytes)
        : context_(&context), bytes_(bytes), arena_(guard + bytes + guard, "a check of gradients") {
        const std::vector<std::byte> pattern(guard, guard_byte);
        D::copy_from_host(context, arena_.data(), pattern.data(), guard);
        D::copy_from_host(context, arena_.data() + guard + bytes, pattern.data(), guard);
        poison();
    }

    [[nodiscard]] std::byte* bytes() { return arena_.data() + guard; }
    [[nodiscard]] float* data() { return reinterpret_cast<float*>(bytes()); }

    /// Makes every float a NaN.
    void poison() {
        const std::vector<std::byte> ones(bytes_, std::byte{0xFF});
        D::copy_from_host(*context_, bytes(), ones.data(), bytes_);
    }
    void write(std::span<const float> values) {
        D::copy_from_host(*context_, bytes(), reinterpret_cast<const std::byte*>(values.data()), values.size_bytes());
    }
    [[nodiscard]] std::vector<float> read() {
        std::vector<float> values(bytes_ / sizeof(float));
        D::copy_to_host(*context_, reinterpret_cast<std::byte*>(values.data()), bytes(), values.size() * sizeof(float));
        return values;
    }
    /// Whether nothing was written outside it.
    [[nodiscard]] bool intact() {
        std::vector<std::byte> guards(2 * guard);
        D::copy_to_host(*context_, guards.data(), arena_.data(), guard);
        D::copy_to_host(*context_, guards.data() + guard, arena_.data() + guard + bytes_, guard);
        for (const std::byte value : guards) {
            if (value != guard_byte) return false;
        }
        return true;
    }

private:
    static constexpr std::size_t guard = 4 * alignment;
    static_assert(guard % scratch_alignment<D> == 0);
    static constexpr std::byte guard_byte{0xA5};
    Context* context_;
    std::size_t bytes_;
    typename D::Arena arena_;
};

using Floats = std::vector<float>;

/// Equal bit for bit.
[[nodiscard]] inline bool same_bits(const Floats& a, const Floats& b) {
    return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0);
}

/// The gradients of one call of backward.
struct LayerGradients {
    Floats input;
    std::vector<Floats> parameters;
};

/// The options of a call of backward.
struct BackwardCall {
    bool accumulate = false;
    /// The initial value of every element of the parameters' gradients.
    float before = not_a_number<float>();
    bool input_gradient = true;
    /// Whether the pointers to the parameters' gradients are not null.
    bool parameter_gradients = true;
    /// Whether the input, or the output, is overwritten with NaN before the call.
    bool without_input = false, without_output = false;
    /// Whether the gradient of the input is written over that of the output.
    bool in_place = false;
};

/// The layer's relation to its neighbours: the members of BuildContext that do not describe its shape.
struct LayerStanding {
    Activation activation = Activation::none;
    bool relu_mask_applied_by_next = false, applies_relu_mask_of_previous = false;
    bool input_gradient = true, parameter_gradients = true;
};

template <class D>
class LayerBench {
public:
    LayerBench(const LayerInfo& layer, NodeMaker<D> make, const LayerStanding& standing,
               const GradientCheckOptions& options, const typename D::Options& device)
        : context_(0, device),
          team_(context_.team()),
          seed_(options.seed),
          node_(make(BuildContext<D>{.context = context_,
                                     .batch = options.batch,
                                     .input = layer.input,
                                     .output = layer.output,
                                     .activation = standing.activation,
                                     .relu_mask_applied_by_next = standing.relu_mask_applied_by_next,
                                     .applies_relu_mask_of_previous = standing.applies_relu_mask_of_previous,
                                     .training = true,

                                     .input_gradient = standing.input_gradient,
                                     .parameter_gradients = standing.parameter_gradients})),
          x_(context_, bytes(options.batch * layer.input.size())),
          dx_(context_, bytes(options.batch * layer.input.size())),
          y_(context_, bytes(options.batch * layer.output.size())),
          dy_(context_, bytes(options.batch * layer.output.size())),
          packed_(context_, node_->needs().packed),
          saved_(context_, node_->needs().saved),
          scratch_(context_, node_->needs().scratch) {
        for (std::size_t p = 0; p < layer.parameters.count; ++p) {
            parameters_.emplace_back(context_, bytes(layer.parameters.list[p].shape.size()));
            gradients_.emplace_back(context_, bytes(layer.parameters.list[p].shape.size()));
        }
    }

    [[nodiscard]] Floats forward(const Floats& input, const std::vector<Floats>& parameters) {
        x_.write(input);
        for (std::size_t p = 0; p < parameters_.size(); ++p) parameters_[p].write(parameters[p]);
        y_.poison();
        saved_.poison();
        scratch_.poison();
        const ForwardArgs<D> call = args();
        node_->prepare(call);
        scratch_.poison();
        node_->forward(call);
        return y_.read();
    }

    /// Runs backward after the last forward.
    [[nodiscard]] LayerGradients backward(const Floats& output_gradient, const BackwardCall& how = {}) {
        if (how.without_input) x_.poison();
        if (how.without_output) y_.poison();
        dy_.write(output_gradient);
        dx_.poison();
        scratch_.poison();
        for (CheckMemory<D>& gradient : gradients_) gradient.write(Floats(gradient.read().size(), how.before));
        BackwardArgs<D> call{args()};
        call.accumulate = how.accumulate;
        call.output_gradient = dy_.data();
        CheckMemory<D>& dx = how.in_place ? dy_ : dx_;
        call.input_gradient = how.input_gradient ? dx.data() : nullptr;
        for (std::size_t p = 0; how.parameter_gradients && p < gradients_.size(); ++p)
            call.parameter_gradients[p] = gradients_[p].data();
        node_->backward(call);
        LayerGradients result{dx.read(), {}};
        for (CheckMemory<D>& gradient : gradients_) result.parameters.push_back(gradient.read());
        return result;
    }

    [[nodiscard]] Floats input() { return x_.read(); }
    [[nodiscard]] Floats output() { return y_.read(); }
    [[nodiscard]] Floats parameter(std::size_t p) { return parameters_[p].read(); }

    /// Names each piece of memory outside whose bounds something was written.
    [[nodiscard]] std::vector<std::string> overrun(const LayerInfo& layer) {
        std::vector<std::string> names;
        const auto look = [&](CheckMemory<D>& memory, const std::string& name) {
            if (!memory.intact()) names.push_back(name);
        };
        look(x_, "its input");
        look(y_, "its output");
        look(dx_, "the input gradient");
        look(dy_, "the output gradient");
        look(packed_, text("its packed memory, of which needs() asks for ", node_->needs().packed, " bytes"));
        look(saved_, text("its saved memory, of which needs() asks for ", node_->needs().saved, " bytes"));
        look(scratch_, text("its scratch memory, of which needs() asks for ", node_->needs().scratch, " bytes"));
        for (std::size_t p = 0; p < parameters_.size(); ++p) {
            const std::string_view name = shown_name(layer.parameters.list[p]);
            look(parameters_[p], std::string(name));
            look(gradients_[p], text("the gradient of ", name));
        }
        return names;
    }

private:
    static std::size_t bytes(std::int64_t elements) { return static_cast<std::size_t>(elements) * sizeof(float); }

    [[nodiscard]] ForwardArgs<D> args() {
        ForwardArgs<D> result{.context = context_};
        result.input = x_.data();
        result.output = y_.data();
        result.column = x_.data();
        for (std::size_t p = 0; p < parameters_.size(); ++p) result.parameters[p] = parameters_[p].data();
        result.packed = packed_.bytes();
        result.saved = saved_.bytes();
        result.scratch = scratch_.bytes();
        result.seed = seed_;
        return result;
    }

    typename D::Context context_;
    decltype(std::declval<const typename D::Context&>().team()) team_;
    std::uint64_t seed_;
    std::unique_ptr<PlanNode<D>> node_;
    CheckMemory<D> x_, dx_, y_, dy_, packed_, saved_, scratch_;
    std::vector<CheckMemory<D>> parameters_, gradients_;
};

}}}  // namespace cupola::CUPOLA_ABI::impl
