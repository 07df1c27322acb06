// SPDX-License-Identifier: Apache-2.0
//
// Dropout on `Cuda`: both directions draw the mask anew, a thread the four numbers of a block. The numbers are those of
// every other device, and so are the bits of the result. In a captured step, the step's number is read on the device.
#pragma once

#include <cstdint>

#include <cupola/device/cuda.hpp>
#include <cupola/ops/cuda/impl/divisor.hpp>
#include <cupola/ops/cuda/impl/launch.cuh>
#include <cupola/ops/cuda/impl/pack.hpp>
#include <cupola/ops/dropout.hpp>

namespace cupola::inline CUPOLA_ABI {

namespace impl {

/// Called for each four elements of a sample, of which the last of a sample may be fewer. `packed`: they never are, and
/// can be read at once.
template <class T, bool packed>
struct DropoutFour {
    const T* from;
    T* to;
    std::int64_t features;
    float rate, scale;
    std::uint64_t seed;
    std::uint32_t layer, step;
    const std::uint32_t* step_scalar;  // where the step is read instead, if not null
    std::int64_t first_sample;
    Divisor fours;  // of a sample

    CUPOLA_HOST_DEVICE void operator()(std::int64_t i) const {
        const auto [sample, four] = fours.divide(i);
        const std::uint32_t now = step_scalar != nullptr ? *step_scalar : step;
        const auto words =
            dropout_stream(seed, layer, now, first_sample + sample).words(static_cast<std::uint32_t>(four));
        const std::int64_t first = sample * features + 4 * four;
        if constexpr (packed) {
            float values[4];
            load_floats<4>(from + first, values);
            CUPOLA_UNROLL
            for (int k = 0; k < 4; ++k) values[k] = kept(words.word[k], values[k]);
            store_floats<4>(to + first, values);
        } else {
            const std::int64_t left = features - 4 * four;
            for (int k = 0; k < 4 && k < left; ++k)
                to[first + k] = T(kept(words.word[k], static_cast<float>(from[first + k])));
        }
    }

private:
    CUPOLA_HOST_DEVICE float kept(std::uint32_t word, float value) const {
        return uniform(word) < rate ? 0.0F : value * scale;
    }
};

}  // namespace impl

namespace ops {

template <impl::CudaElement T>
class Dropout<Cuda, T> {
public:
    Dropout(const BuildContext<Cuda, T>& build, double rate)
        : batch_(build.batch), features_(build.output.size()), layer_(build.layer), rate_(static_cast<float>(rate)) {}

    void forward(const PassArgs<Cuda, T>& args) const { apply(args, args.input, args.output); }

    void backward(const PassArgs<Cuda, T>& args) const {
        if (args.input_gradient != nullptr) apply(args, args.output_gradient, args.input_gradient);
    }

private:
    void apply(const PassArgs<Cuda, T>& args, const T* from, T* to) const {
        if (!args.training) {
            impl::check_cuda(cudaMemcpyAsync(to, from, static_cast<std::size_t>(batch_ * features_) * sizeof(T),
                                             cudaMemcpyDeviceToDevice, args.context.stream()),
                             "cudaMemcpyAsync");
            return;
        }
        if (features_ % 4 == 0 && impl::aligned_for_packs(from, to)) {
            draw<true>(args, from, to);
        } else {
            draw<false>(args, from, to);
        }
    }

    template <bool packed>
    void draw(const PassArgs<Cuda, T>& args, const T* from, T* to) const {
        const std::int64_t fours = (features_ + 3) / 4;
        impl::launch(args.context, batch_ * fours,
                     impl::DropoutFour<T, packed>{from, to, features_, rate_, 1.0F / (1.0F - rate_), args.seed, layer_,
                                                  args.step, args.context.step_scalars().step, args.first_sample,
                                                  impl::Divisor(fours)});
    }

    std::int64_t batch_, features_;
    std::uint32_t layer_;
    float rate_;
};

}  // namespace ops

}  // namespace cupola::inline CUPOLA_ABI
