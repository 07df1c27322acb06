// SPDX-License-Identifier: Apache-2.0
//
// check_gradients: tests a user's own layer. It compares the gradients of backward with differences of forward's
// outputs, and checks every rule of the contract of an operation. It is meant for tests: it is thorough, not fast.
//
//   const GradientCheck check = check_gradients<Conv2d<64, 5>, Host>({24, 24, 3});              one layer, on its input
//   const GradientCheck check = check_gradients<Cifar10Net, Cifar10Loss, Host>({.batch = 4});   a network with its loss
//   if (!check) std::puts(check.report().c_str());
//
// Gradients: the input and each parameter are moved both ways along random directions. The change of a randomly
// weighted sum of the outputs (of the loss, for a network) is compared with the gradient's component along the
// direction, in double. Outputs for which a step crosses a kink (of ReLU, of a maximum) are left out, so the error of a
// layer in float is around 1e-5 of the norm. An input of ids or bytes has no gradient and is not moved. Where a
// gradient is wrong with shorter steps too, the report names the kind of error (sign, scale, zero), the worst element
// and the steps that were tried.
//
// Contract of a layer: forward and backward write every element, with the same bits each time; they leave the input,
// the parameters and the output unchanged and touch no other memory; backward overwrites the parameters' gradients,
// adds to them where `accumulate` is set, and works without an input gradient; tensors that backward does not read
// according to the traits may be overwritten; with `absorbs_relu` all this holds with a fused ReLU too, and where the
// next layer applies its mask; with `absorbs_relu6` with a fused ReLU6; with `can_apply_relu_mask` the layer masks;
// with `can_omit_parameter_gradients` it has the same input gradient without them; with `input_gradient_in_place` the
// gradient of the input is the same in the place of the output's. The layer's random numbers are those of one step, the
// same in every call.
#pragma once

#include <concepts>
#include <string>
#include <string_view>

#include <cupola/core/compile_time_message.hpp>
#include <cupola/core/type_name.hpp>
#include <cupola/layers/layer.hpp>
#include <cupola/net/gradient_check.hpp>
#include <cupola/net/impl/layer_contract.hpp>
#include <cupola/net/impl/layer_derivatives.hpp>
#include <cupola/net/impl/network_check.hpp>
#include <cupola/net/sequential.hpp>

namespace cupola { inline namespace CUPOLA_ABI {

namespace impl {

/// The checks of one layer, and of the same layer with a fused ReLU or ReLU6 if it can have one. Instantiated per
/// device, not per layer.
template <class D>
[[nodiscard]] GradientCheck check_layer(const LayerInfo& layer, NodeMaker<D> make, const GradientCheckOptions& options,
                                        const typename D::Options& device) {
    require(options.batch >= 1, "a check of gradients needs a batch of at least 1 sample, not ", options.batch);
    require(options.directions >= 1, "a check of gradients needs at least 1 direction, not ", options.directions);
    GradientCheck result(text(layer.type, " on ", to_string(layer.input), ", batch ", options.batch, ", on ", D::name));
    if (const char* const conflict = kind_conflict(layer)) {
        result.fail(text("it has the kind ", to_string(layer.kind), " and ", conflict, "; its output is ",
                         to_string(layer.output)));
        return result;
    }
    if (layer.is_view()) return result;  // a view is never run
    for (const Activation activation : {Activation::none, Activation::relu, Activation::relu6}) {
        if (activation == Activation::relu && !layer.traits.absorbs_relu) continue;
        if (activation == Activation::relu6 && !layer.traits.absorbs_relu6) continue;
        LayerCase<D> c(layer, make, activation, options, device, result);
        if (LayerContract<D>(c).run()) LayerDerivatives<D>(c).run();
        for (const std::string& name : c.bench.overrun(layer)) c.fail("values were written outside ", name);
    }
    return result;
}

/// Directional derivatives are computed from small differences, which a narrower type rounds away.
template <class Net>
[[nodiscard]] consteval CompileTimeMessage precision_diagnostic() {
    CompileTimeMessage message;
    if constexpr (!std::same_as<typename Net::Precision::Activation, float>) {
        message << "gradients are checked in float32, and " << short_type_name<Net>() << " is computed in "
                << Net::Precision::name << ": name the network without InPrecision";
    }
    return message;
}

}  // namespace impl

/// Checks layer `L` on `D` with an input of these extents. Throws InvalidArgument if the layer does not take them.
template <class L, Device D>
    requires LayerOn<L, D>
[[nodiscard]] GradientCheck check_gradients(const Shape& input, const GradientCheckOptions& options = {},
                                            const typename D::Options& device = {}) {
    LayerInfo layer;
    Parameters parameters, buffers;
    layer.input = input;
    if (const std::string_view error = impl::fill_layer<L>(layer, parameters, buffers); !error.empty()) {
        throw InvalidArgument(text(layer.type, " ", error, "; its input is ", to_string(input)));
    }
    return impl::check_layer<D>(layer, &make_node<L, D>, options, device);
}

/// Checks all parameters of `Net` and its input together with `Loss` (regularisers included) on `D`. A network with
/// several outputs has Losses; throws InvalidArgument unless each output has one loss.
template <Network Net, class Loss, Device D>
[[nodiscard]] GradientCheck check_gradients(const GradientCheckOptions& options = {},
                                            const typename D::Options& device = {}, const Loss& loss = {}) {
    static_assert(!Net::valid || static_assert_message<impl::precision_diagnostic<Net>()>());
    static_assert(!Net::valid ||
                  static_assert_message<Net::template operations_diagnostic<D, typename Net::Precision>()>());
    // The same network in float avoids further diagnostics.
    return impl::check_network<InPrecision<Float32, Net>, D>(short_type_name<Net>(), loss, options, device);
}

}}  // namespace cupola::CUPOLA_ABI
