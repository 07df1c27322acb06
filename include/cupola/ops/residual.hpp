// SPDX-License-Identifier: Apache-2.0
//
// The two ends of a residual block.
//
//   Add    y = a + b, with an optional fused ReLU; backward masks once and passes the gradient to both inputs. Backward
//          reads the output where there is a ReLU. The second gradient may share the memory of the output's, unless it
//          is added to.
//   Fork   its output is its input, and has two readers: backward adds both gradients. The sum may lie in the memory
//          of either.
#pragma once

#include <cstdint>
#include <utility>

#include <cupola/ops/activation.hpp>
#include <cupola/ops/elementwise.hpp>
#include <cupola/ops/operation.hpp>

namespace cupola { inline namespace CUPOLA_ABI {

namespace impl {

struct SumFormula {
    CUPOLA_HOST_DEVICE void operator()(float& sum, float a, float b) const { sum = a + b; }
};
/// Adds the gradient of a ReLU's input, given the output.
struct AddMaskedElement {
    CUPOLA_HOST_DEVICE void operator()(float& sum, float y, float dy) const {
        sum += ReluFormula{}.gradient_from_output(y, dy);
    }
};
struct ReluOfSumFormula {
    CUPOLA_HOST_DEVICE void operator()(float& y, float a, float b) const { y = ReluFormula{}(a + b); }
};

}  // namespace impl

namespace ops {

/// Made as `Add(build)`.
template <class Device, class T>
    requires ComputesElements<Device, T>
class Add {
public:
    explicit Add(const BuildContext<Device, T>& build)
        : count_(build.batch * build.output.size()),
          relu_(build.activation == Activation::relu),
          mask_(relu_ && !build.relu_mask_applied_by_next),
          adds_(build.adds_second_gradient) {}

    void forward(const ForwardArgs<Device, T>& args) const {
        if (relu_) {
            for_each_element(args.context, count_, impl::ReluOfSumFormula{}, args.output, args.input,
                             args.second_input);
        } else {
            for_each_element(args.context, count_, impl::SumFormula{}, args.output, args.input, args.second_input);
        }
    }

    void backward(const BackwardArgs<Device, T>& args) const {
        const T *y = args.output, *dy = args.output_gradient;
        T *a = args.input_gradient, *b = args.second_input_gradient;
        if (adds_ && b != nullptr) {
            if (mask_) {
                for_each_element(args.context, count_, impl::AddMaskedElement{}, b, y, dy);
            } else {
                for_each_element(args.context, count_, impl::AddElement{}, b, dy);
            }
            b = nullptr;
        }
        if (a == nullptr) std::swap(a, b);
        if (!mask_ && a == dy) a = std::exchange(b, nullptr);  // one of them is already there
        if (!mask_ && b == dy) b = nullptr;
        if (a == nullptr) return;
        const auto hand_on = [&](auto formula, const auto*... from) {
            if (b != nullptr) {
                for_each_element(args.context, count_, impl::WithCopy<decltype(formula)>{formula}, a, b, from...);
            } else {
                for_each_element(args.context, count_, formula, a, from...);
            }
        };
        if (mask_) {
            hand_on(impl::GradientFromOutput<impl::ReluFormula>{}, y, dy);
        } else {
            hand_on(impl::CopyElement{}, dy);
        }
    }

private:
    std::int64_t count_;
    bool relu_, mask_, adds_;
};

/// Made as `Fork(build)`.
template <class Device, class T>
    requires ComputesElements<Device, T>
class Fork {
public:
    explicit Fork(const BuildContext<Device, T>& build) : count_(build.batch * build.output.size()) {}

    void forward(const ForwardArgs<Device, T>&) const {}  // a view
    void backward(const BackwardArgs<Device, T>& args) const {
        if (args.input_gradient == nullptr) return;
        for_each_element(args.context, count_, impl::SumFormula{}, args.input_gradient,
                         static_cast<const T*>(args.output_gradient), args.second_output_gradient);
    }

private:
    std::int64_t count_;
};

}  // namespace ops

}}  // namespace cupola::CUPOLA_ABI
