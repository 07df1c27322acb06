// SPDX-License-Identifier: Apache-2.0
//
// The checks of one layer, and of the same layer with a fused ReLU if it can have one.
#pragma once

#include <string>

#include <cupola/net/impl/layer_contract.hpp>
#include <cupola/net/impl/layer_derivatives.hpp>

namespace cupola { inline namespace CUPOLA_ABI { namespace impl {

/// Instantiated per device, not per layer.
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
    for (const Activation activation : {Activation::none, Activation::relu}) {
        if (activation == Activation::relu && !layer.traits.absorbs_relu) continue;
        LayerCase<D> c(layer, make, activation, options, device, result);
        if (LayerContract<D>(c).run()) LayerDerivatives<D>(c).run();
        for (const std::string& name : c.bench.overrun(layer)) c.fail("values were written outside ", name);
    }
    return result;
}

}}}  // namespace cupola::CUPOLA_ABI::impl
