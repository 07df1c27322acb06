// SPDX-License-Identifier: Apache-2.0
//
// InstanceNorm2d<epsilon = 1e-5, options...>: normalises each channel over the pixels of each image
// (ops/group_norm.hpp has the formula), in training and in evaluation. There are no running statistics.
//
//   input    height x width x channels, of more than one pixel
//   output   the same
//   weight   [channels], initially one, with `with_affine`
//   bias     [channels], initially zero, with `with_affine`
#pragma once

#include <cstdint>
#include <limits>
#include <type_traits>

#include <cupola/layers/graph_operator.hpp>
#include <cupola/layers/group_norm.hpp>
#include <cupola/layers/layer.hpp>
#include <cupola/layers/options.hpp>
#include <cupola/ops/group_norm.hpp>

namespace cupola { inline namespace CUPOLA_ABI {

template <Number epsilon = 1e-5, auto... options>
struct InstanceNorm2d {
    static constexpr bool options_known = (impl::one_of<std::remove_cvref_t<decltype(options)>, AffineOption> && ...);
    static constexpr bool is_affine = impl::option_or(AffineOption{}, options...).value;

    static constexpr LayerTraits traits{.backward_reads_output = false, .can_omit_parameter_gradients = true};
    static constexpr LayerDescription description =
        LayerDescription("InstanceNorm2d")
            .add_if(epsilon != Number(1e-5), ", epsilon ", static_cast<double>(epsilon))
            .add_if(is_affine, ", affine");

    static constexpr ShapeResult output(const Shape& input) {
        if (!options_known) return ShapeError{"accepts only the option with_affine"};
        if (!impl::given_once(options...)) return ShapeError{"is given an option twice"};
        if (!epsilon.is_finite_float() || epsilon <= 0.0)
            return ShapeError{"has an epsilon that is not positive and finite"};
        if (input.rank != 3) return ShapeError{"expects height x width x channels"};
        const std::int64_t pixels = input.size() / input.channels();
        if (pixels == 1) return ShapeError{"has one value per channel, whose mean is that value"};
        constexpr std::int64_t most = std::numeric_limits<std::int32_t>::max();
        if (input.channels() > most || pixels > most) return ShapeError{"expects fewer than 2^31 channels and pixels"};
        return input;
    }

    static constexpr Parameters parameters(const Shape& input) {
        if (!is_affine) return {};
        return {Parameter{.name = "weight", .shape = {input.channels()}, .initializer = constant(1)},
                Parameter{.name = "bias", .shape = {input.channels()}}};
    }

    static constexpr GraphOperators onnx(const Shape& input) {
        return impl::group_norm_operators(input, input.channels(), epsilon, is_affine);
    }

    template <class BuildContext>
    static FactoryOf<ops::GroupNorm, BuildContext, GroupNormShape> operation(const BuildContext& build) {
        const Shape& input = build.input;
        return {GroupNormShape{.positions = input.size() / input.channels(),
                               .channels = input.channels(),
                               .groups = input.channels(),
                               .epsilon = epsilon}};
    }
};

}}  // namespace cupola::CUPOLA_ABI
