// SPDX-License-Identifier: Apache-2.0
//
// What is joined on `Host` outside training (net/prediction/join.hpp): a convolution or a matrix product of oneDNN adds
// to its output (post-op `sum`) and applies an activation (post-op `eltwise`). So do the products by rows and
// Winograd's algorithm, with the layer's own formula. oneDNN has the activations below, with values that differ by
// rounding; ReLU6 and HardSigmoid bound a NaN, as a ReLU inside a convolution does. Others, such as a formula of the
// user's, keep a pass of their own. So does Softplus: that of oneDNN is as inexact far below 0 as it is at 0, by up to
// 2e-6, so that it has values that are not positive.
#pragma once

#include <cstdint>
#include <type_traits>

#include <cupola/device/host.hpp>
#include <cupola/layers/elu.hpp>
#include <cupola/layers/gelu.hpp>
#include <cupola/layers/hard_swish.hpp>
#include <cupola/layers/leaky_relu.hpp>
#include <cupola/layers/mish.hpp>
#include <cupola/layers/pointwise.hpp>
#include <cupola/layers/relu6.hpp>
#include <cupola/layers/sigmoid.hpp>
#include <cupola/layers/silu.hpp>
#include <cupola/layers/tanh.hpp>
#include <cupola/net/prediction/join.hpp>
#include <cupola/ops/convolution.hpp>
#include <cupola/ops/host/convolution_algorithm.hpp>
#include <cupola/ops/host/elementwise.hpp>
#include <cupola/ops/linear.hpp>

namespace cupola { inline namespace CUPOLA_ABI {
namespace impl {

/// oneDNN's number and constants of a formula. dnnl_alg_kind_undef, 0, if it has none.
template <class Formula>
[[nodiscard]] constexpr OutputFormula dnnl_formula(const Formula&) {
    return {};
}
[[nodiscard]] constexpr OutputFormula dnnl_formula(const Relu6Formula&) { return {dnnl_eltwise_clip, 0.0F, 6.0F}; }
[[nodiscard]] constexpr OutputFormula dnnl_formula(const LeakyReluFormula& f) { return {dnnl_eltwise_relu, f.slope}; }
[[nodiscard]] constexpr OutputFormula dnnl_formula(const EluFormula& f) {
    return {dnnl_eltwise_elu, f.below / f.above, 0.0F, f.above};
}
[[nodiscard]] constexpr OutputFormula dnnl_formula(const TanhFormula&) { return {dnnl_eltwise_tanh}; }
[[nodiscard]] constexpr OutputFormula dnnl_formula(const SigmoidFormula&) { return {dnnl_eltwise_logistic}; }
[[nodiscard]] constexpr OutputFormula dnnl_formula(const SiluFormula&) { return {dnnl_eltwise_swish, 1.0F}; }
[[nodiscard]] constexpr OutputFormula dnnl_formula(const GeluFormula&) { return {dnnl_eltwise_gelu_erf}; }
[[nodiscard]] constexpr OutputFormula dnnl_formula(const GeluTanhFormula&) { return {dnnl_eltwise_gelu_tanh}; }
[[nodiscard]] constexpr OutputFormula dnnl_formula(const MishFormula&) { return {dnnl_eltwise_mish}; }
[[nodiscard]] constexpr OutputFormula dnnl_formula(const HardSigmoidFormula&) {
    return {dnnl_eltwise_hardsigmoid, 1.0F / 6.0F, 0.5F};
}
[[nodiscard]] constexpr OutputFormula dnnl_formula(const HardSwishFormula&) {
    return {dnnl_eltwise_hardswish, 1.0F / 6.0F, 0.5F};
}

/// Called for a part of the output that is in a cache.
template <class T, class Formula, Number... constants>
void apply_in_place(void* values, std::int64_t count) {
    T* const to = static_cast<T*>(values);
    compute_elements(0, count, ForwardOf<Formula>{Formula{static_cast<float>(constants)...}}, to,
                     static_cast<const T*>(to));
}

/// Of a layer whose `operation` returns a `Returned`: a class derived from an activation may have another operation.
template <class T, class Returned, class Formula, Number... constants>
[[nodiscard]] constexpr OutputFormula formula_of(const Pointwise<Formula, constants...>*) {
    if (!std::is_same_v<Returned, OperationFactory<ops::Pointwise<Host, T, Formula>, Formula>>) return {};
    OutputFormula formula = dnnl_formula(Formula{static_cast<float>(constants)...});
    if (formula.algorithm != 0) formula.apply = &apply_in_place<T, Formula, constants...>;
    return formula;
}
template <class T, class Returned>
[[nodiscard]] constexpr OutputFormula formula_of(const void*) {
    return {};
}

/// A layer that returns the factory has its operation made with all that the plan says; one that makes the operation
/// itself may leave out what is joined.
template <class T, class L>
[[nodiscard]] constexpr JoinedLayer joined_on_host() {
    JoinedLayer joined;
    if constexpr (HasOperation<L, Host, T>) {
        using Returned = ReturnedBy<L, Host, T>;
        joined.formula = formula_of<T, Returned>(static_cast<const L*>(nullptr));
        joined.joins = std::is_same_v<Returned, OperationFactory<ops::Convolution<Host, T>, ConvolutionShape>> ||
                       std::is_same_v<Returned, OperationFactory<ops::Linear<Host, T>, LinearShape>>;
    }
    return joined;
}

}  // namespace impl

template <impl::HostElement T, class L>
inline constexpr JoinedLayer joined_layer<Host, T, L> = impl::joined_on_host<T, L>();

/// An algorithm of the user's that cannot compute what is joined keeps its convolutions: nothing is joined then.
[[nodiscard]] inline bool joins_with(const HostOptions& options) {
    return options.convolution == nullptr || options.convolution->joins;
}

}}  // namespace cupola::CUPOLA_ABI
