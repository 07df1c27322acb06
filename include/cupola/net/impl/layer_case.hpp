// SPDX-License-Identifier: Apache-2.0
//
// The common data of the checks of a layer: the layer, its bench, its input and parameters, and the result that the
// checks write to.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <cupola/core/element_type.hpp>
#include <cupola/net/impl/directional_derivatives.hpp>
#include <cupola/net/impl/layer_bench.hpp>

namespace cupola { inline namespace CUPOLA_ABI { namespace impl {

template <class D>
struct LayerCase {
    LayerCase(const LayerInfo& of, NodeMaker<D> maker, Activation inside, const GradientCheckOptions& chosen,
              const typename D::Options& on, GradientCheck& to)
        : layer(of),
          make(maker),
          activation(inside),
          options(chosen),
          device(on),
          result(to),
          prefix(inside == Activation::none ? "" : text("with a ", to_string(inside), " inside, ")),
          bench(of, maker, {.activation = inside}, chosen, on),
          input(scaled(check_input(of.traits.reads, of.traits.ids, chosen.seed, 0, chosen.batch * of.input.size()),
                       of.kind_parts.activation)),
          weighting(check_normal(chosen.seed, 1, chosen.batch * of.output.size())) {
        constexpr std::uint32_t first_stream = 16;
        for (std::uint32_t p = 0; p < layer.parameters.count; ++p) {
            // Around the initial values, far enough from them to avoid special cases (such as a bias of zero).
            const Parameter& parameter = layer.parameters.list[p];
            Floats values(static_cast<std::size_t>(parameter.shape.size()));
            initialize(values, parameter.initializer, parameter.fan_in, parameter.fan_out, options.seed, p);
            const Floats noise = check_normal(options.seed, first_stream + p, parameter.shape.size());
            const float deviation = 1.0F / std::sqrt(static_cast<float>(std::max<std::int64_t>(1, parameter.fan_in)));
            for (std::size_t i = 0; i < values.size(); ++i) values[i] += deviation * noise[i];
            parameters.push_back(scaled(std::move(values), inside));
        }
    }

    /// So large that many values reach the limit of ReLU6.
    [[nodiscard]] static Floats scaled(Floats values, Activation activation) {
        for (float& value : values) value *= activation == Activation::relu6 ? 6.0F : 1.0F;
        return values;
    }

    template <class... Parts>
    void fail(const Parts&... parts) {
        result.fail(text(prefix, parts...));
    }

    /// Runs forward and backward on the case's own input and parameters, with the given weighting.
    [[nodiscard]] LayerGradients gradients(const Floats& weights, const BackwardCall& how = {}) {
        static_cast<void>(bench.forward(input, parameters));
        return bench.backward(weights, how);
    }

    /// Tensor 0 is the input, the others are the parameters. Ids and bytes have no gradient.
    [[nodiscard]] std::size_t tensors() const { return parameters.size() + 1; }
    [[nodiscard]] std::size_t first_tensor() const { return layer.traits.reads == ElementType::float32 ? 0 : 1; }
    [[nodiscard]] std::string name_of(std::size_t tensor) const {
        return std::string(tensor == 0 ? "the input" : shown_name(layer.parameters.list[tensor - 1]));
    }
    [[nodiscard]] const Floats& value_of(std::size_t tensor) const {
        return tensor == 0 ? input : parameters[tensor - 1];
    }
    [[nodiscard]] static const Floats& gradient_of(const LayerGradients& gradients, std::size_t tensor) {
        return tensor == 0 ? gradients.input : gradients.parameters[tensor - 1];
    }

    const LayerInfo& layer;
    NodeMaker<D> make;
    Activation activation;
    GradientCheckOptions options;
    typename D::Options device;
    GradientCheck& result;
    std::string prefix;
    LayerBench<D> bench;
    /// `weighting` reduces the output to one number.
    Floats input, weighting, output;
    std::vector<Floats> parameters;
};

}}}  // namespace cupola::CUPOLA_ABI::impl
