// SPDX-License-Identifier: Apache-2.0
//
// Convolution on `Host` by Winograd's minimal filtering (Lavin, Gray 2015), forward and backward: the input is divided
// into overlapping tiles, each transformed to points at which a convolution is a product.
//
//   F(4x4, 5x5)   8 x 8 points: 64 multiplications per 16 outputs, input channel and output channel, instead of 400
//   F(4x4, 3x3)   6 x 6 points: 36 instead of 144
//
// For stride 1, square filters of 3 or 5 taps, and channels in multiples of 16, without groups or dilation. The
// transforms lose accuracy: the error is 1e-6 to 5e-6 of the norm, ten times that of a direct convolution. In a plane
// smaller than a tile nothing averages the rounding of single outputs, and most of a tile is discarded: there the
// direct convolution computes. Outside training, in float, it also computes where few tiles share many filters, as in
// the last stage of a network for one image: impl/winograd_choice.hpp has the rule. A NaN spreads over its tile, and an
// infinity becomes a NaN there. Results do not depend on the number of threads.
//
// In bfloat16 the tensors are bfloat16, and the transforms and their products are float; weights are rounded as a
// direct convolution rounds them. The error of outputs and of input gradients is that of rounding them, and the
// weights' gradients, which are float, have the error above. The packed weights are float: 5.1 times the memory of
// those of a direct convolution for 5 taps, 8 times for 3. It is taken in a file that is compiled for AVX-512, where
// oneDNN computes with AVX512_BF16 and without AMX, and where the tiles have at most 1.5 times the outputs. On a
// Sapphire Rapids without AMX an instruction of AVX512_BF16 takes four times as long as a multiply-add in float, and in
// batches of 128 the direct convolution takes 2 to 5 times as long as this one. On a Zen 4 it takes as long as one in
// float, for twice the products: the direct convolution takes 2.0 times as long for 5 taps of 64 channels, as in the
// tutorial's network, 1.4 and 1.15 times for 3 taps of 64 and 32, and 0.86 times for 16. So where oneDNN has no
// AVX512_FP16, by which those processors are told apart, there must be 32 channels. It is selected with
//
//   HostOptions{.convolution = &winograd}
#pragma once

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>

#include <cupola/ops/activation.hpp>
#include <cupola/ops/convolution.hpp>
#include <cupola/ops/host/convolution_algorithm.hpp>
#include <cupola/ops/host/elementwise.hpp>
#include <cupola/ops/host/impl/winograd_choice.hpp>
#include <cupola/ops/host/impl/winograd_filters.hpp>
#include <cupola/ops/host/impl/winograd_map.hpp>
#include <cupola/ops/host/impl/winograd_weight_gradient.hpp>

namespace cupola { inline namespace CUPOLA_ABI {

namespace ops {

/// The algorithm with tiles of `Tile` x `Tile` outputs, on activations in `T`.
template <std::size_t Tile, std::size_t Kernel, impl::HostElement T = float>
class WinogradConvolution final : public HostConvolution<T> {
public:
    [[nodiscard]] static bool supports(const ConvolutionShape& shape) {
        constexpr auto taps = static_cast<std::int64_t>(Kernel);
        return shape.is_dense() && shape.height.stride == 1 && shape.width.stride == 1 && shape.height.window == taps &&
               shape.width.window == taps && shape.in_channels % 16 == 0 && shape.out_channels % 16 == 0;
    }

    [[gnu::cold]] WinogradConvolution(const BuildContext<Host, T>& build, const ConvolutionShape& shape)
        : map_{shape.height, shape.width, build.batch, shape.in_channels, shape.out_channels},
          bias_(shape.bias),
          activation_(build.activation),
          adds_(build.adds_to_output),
          formula_(build.formula),
          mask_(activation_.applies && !build.relu_mask_applied_by_next),
          runs_forward_(build.forward),
          trains_(build.training && build.parameter_gradients),
          input_gradient_(build.training && build.input_gradient),
          outputs_(build.batch * build.output.size()),
          forward_(map_, build.context.threads()),
          data_(map_.adjoint(), build.context.threads()),
          weights_(map_, build.context.threads()) {
        require(supports(shape), "F(", Tile, " x ", Tile, ", ", Kernel, " x ", Kernel, ") is for stride 1, filters of ",
                Kernel, " x ", Kernel,
                " taps and multiples of 16 channels without groups or dilation, not for strides ", shape.height.stride,
                " and ", shape.width.stride, ", ", shape.height.window, " x ", shape.width.window, " taps, ",
                shape.in_channels, " to ", shape.out_channels, " channels, groups: ", shape.groups,
                ", dilation: ", shape.height.dilation, " and ", shape.width.dilation);
    }

    [[nodiscard]] MemoryNeeds needs() const override {
        MemoryNeeds needs{.packed = packed_bytes()};
        if (runs_forward_) needs.scratch = bytes(forward_.scratch_floats());
        if (trains_) needs.scratch = std::max(needs.scratch, bytes(weights_.scratch_floats()));
        if (input_gradient_) {
            needs.packed += bytes(data_.packed_floats());
            needs.scratch = std::max(needs.scratch, bytes(data_.scratch_floats()));
        }
        return needs;
    }

    /// The products at the points of all tiles, and the transformed tensors on both sides of them.
    [[nodiscard]] OperationWork work(Direction direction) const override {
        OperationWork work{};
        const auto add = [&](const impl::TiledMap& map) {
            const auto points =
                static_cast<double>(W::points * W::points) * static_cast<double>(impl::TileGrid<Tile>(map).count);
            work.operations += 2 * points * static_cast<double>(map.in * map.out);
            work.cached_bytes += 2 * sizeof(float) * points * static_cast<double>(map.in + map.out);
        };
        if (direction == Direction::forward || trains_) add(map_);
        if (direction == Direction::backward && input_gradient_) add(map_.adjoint());
        return work;
    }

    /// Transforms the filters. Called once per change of the parameters.
    void prepare(const ForwardArgs<Host, T>& args) override {
        if (runs_forward_)
            impl::pack_winograd_filters<W, T>(args.context, args.parameters[0], map_.in, map_.out, floats(args.packed));
        if (!input_gradient_) return;
        impl::pack_winograd_turned_filters<W, T>(args.context, args.parameters[0], map_.in, map_.out,
                                                 floats(args.packed + packed_bytes()));
    }

    void forward(const ForwardArgs<Host, T>& args) override {
        forward_.run(args.context, args.input, floats(args.packed),
                     {bias_ ? args.parameters[1] : nullptr, activation_, adds_, formula_}, args.output,
                     floats(args.scratch));
    }

    void backward(const BackwardArgs<Host, T>& args) override {
        if (mask_) impl::activation_backward(args.context, activation_, args.output, args.output_gradient, outputs_);
        if (trains_) backward_weights(args);
        if (args.input_gradient != nullptr) backward_data(args);
    }

    /// The two parts of backward, for a masked output gradient.
    void backward_weights(const BackwardArgs<Host, T>& args) {
        weights_.run(args.context, args.input, args.output_gradient, args.parameter_gradients[0],
                     bias_ ? args.parameter_gradients[1] : nullptr, args.accumulate, floats(args.scratch));
    }
    void backward_data(const BackwardArgs<Host, T>& args) {
        data_.run(args.context, args.output_gradient, floats(args.packed + packed_bytes()), {}, args.input_gradient,
                  floats(args.scratch));
    }

private:
    using W = impl::Winograd<Tile, Kernel>;

    [[nodiscard]] static float* floats(std::byte* memory) { return reinterpret_cast<float*>(memory); }
    [[nodiscard]] static std::size_t bytes(std::size_t count) { return aligned(count * sizeof(float)); }
    [[nodiscard]] std::size_t packed_bytes() const { return runs_forward_ ? bytes(forward_.packed_floats()) : 0; }

    impl::TiledMap map_;
    bool bias_;
    impl::FusedActivation activation_;
    bool adds_;
    const OutputFormula* formula_;
    bool mask_, runs_forward_, trains_, input_gradient_;
    std::int64_t outputs_;
    impl::WinogradMap<W, T> forward_, data_;
    impl::WinogradWeightGradient<W, T> weights_;
};

}  // namespace ops

namespace impl {

template <HostElement T>
[[nodiscard, gnu::cold]] std::unique_ptr<HostConvolution<T>> make_winograd(const BuildContext<Host, T>& build,
                                                                           const ConvolutionShape& shape) {
    constexpr std::int64_t tile = 4;
    for (const WindowAxis& axis : {shape.height, shape.width}) {
        if (axis.input < tile || axis.output < tile) return nullptr;
    }
    if constexpr (std::same_as<T, float>) {
        if (build.inference && !winograd_saves_time(shape, build.batch, tile)) return nullptr;
    }
    if (ops::WinogradConvolution<4, 5>::supports(shape))
        return std::make_unique<ops::WinogradConvolution<4, 5, T>>(build, shape);
    if (ops::WinogradConvolution<4, 3>::supports(shape))
        return std::make_unique<ops::WinogradConvolution<4, 3, T>>(build, shape);
    return nullptr;
}

/// winograd_suits_bfloat16() where oneDNN computes for `library_isa`.
[[nodiscard]] constexpr bool winograd_suits_bfloat16_of(int library_isa) {
    constexpr int bf16 = dnnl_cpu_isa_avx512_core_bf16, amx = dnnl_cpu_isa_avx512_core_amx;
    return lane_count == 16 && (library_isa & bf16) == bf16 && (library_isa & amx) != amx;
}
/// Whether the tiles of the outputs have at most 1.5 times as many: for a plane of 5 x 5 the direct convolution is
/// faster.
[[nodiscard]] constexpr bool winograd_fills_tiles(const ConvolutionShape& shape) {
    constexpr std::int64_t tile = 4;
    const auto tiled = [](std::int64_t extent) { return (extent + tile - 1) / tile * tile; };
    return 2 * tiled(shape.height.output) * tiled(shape.width.output) <= 3 * shape.height.output * shape.width.output;
}
/// Whether the products of so many channels take longer than the transforms: see the head of this file.
[[nodiscard]] constexpr bool winograd_has_channels_for_bfloat16(const ConvolutionShape& shape, int library_isa) {
    constexpr int fp16 = dnnl_cpu_isa_avx512_core_fp16;
    return (library_isa & fp16) == fp16 || std::min(shape.in_channels, shape.out_channels) >= 32;
}

[[nodiscard, gnu::cold]] inline std::unique_ptr<HostConvolution<BFloat16>> make_winograd_in_bfloat16(
    [[maybe_unused]] const BuildContext<Host, BFloat16>& build, [[maybe_unused]] const ConvolutionShape& shape) {
    if constexpr (lane_count == 16) {
        const int isa = dnnl_get_effective_cpu_isa();
        if (winograd_suits_bfloat16_of(isa) && winograd_fills_tiles(shape) &&
            winograd_has_channels_for_bfloat16(shape, isa))
            return make_winograd(build, shape);
    }
    return nullptr;
}

}  // namespace impl

/// Whether `winograd` computes convolutions in bfloat16, too: in a file that is compiled for AVX-512, where oneDNN
/// computes with AVX512_BF16 and without AMX, whose products are faster still.
[[nodiscard]] inline bool winograd_suits_bfloat16() {
    return impl::winograd_suits_bfloat16_of(dnnl_get_effective_cpu_isa());
}

inline constexpr ConvolutionAlgorithm winograd{"winograd", &impl::make_winograd<float>,
                                               &impl::make_winograd_in_bfloat16, true};

}}  // namespace cupola::CUPOLA_ABI
