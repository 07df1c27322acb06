// SPDX-License-Identifier: Apache-2.0
//
// What the convolution and the product of `Cuda` on the host have in common: weights, bias and a fused ReLU, in double.
// The real ones are cuDNN's and cuBLASLt's. As there, bfloat16 reads what `prepare` rounded, and sums come of scratch
// memory.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <vector>

#include <cupola/ops/convert.hpp>
#include <cupola/ops/cudnn/convert.hpp>
#include <cupola/ops/operation.hpp>

namespace cupola::inline CUPOLA_ABI {

namespace impl {

/// `Taps` has inputs, outputs and weights (how many; of a sample, of a sample, in all), `channels` (of the output), and
/// each(f), which calls f(output, input, weight) for every product of a sample.
template <CudaElement T, class Taps>
class HostLayer {
    static constexpr bool rounds = !std::same_as<T, float>;

public:
    HostLayer(const Site<Cuda, T>& site, const Taps& taps, bool bias)
        : taps_(taps),
          batch_(site.batch),
          bias_(bias),
          relu_(site.activation == Activation::relu),
          mask_(relu_ && !site.masked_by_next) {}

    [[nodiscard]] MemoryNeeds needs() const {
        return {.packed = rounds ? packed_bias() + static_cast<std::size_t>(taps_.channels) * sizeof(T) : 0,
                .scratch = static_cast<std::size_t>(taps_.weights + taps_.channels) * sizeof(double)};
    }

    void prepare(const Pass<Cuda, T>& pass) const {
        if constexpr (rounds) {
            ops::Convert<Cuda>::run(pass.context, pass.parameters[0], reinterpret_cast<T*>(pass.packed), taps_.weights);
            if (bias_)
                ops::Convert<Cuda>::run(pass.context, pass.parameters[1],
                                        reinterpret_cast<T*>(pass.packed + packed_bias()), taps_.channels);
        }
    }

    void forward(const Pass<Cuda, T>& pass) const {
        pass.context.stream()->queue([*this, w = weights(pass), b = biases(pass), from = pass.input, to = pass.output] {
            std::vector<double> sums(static_cast<std::size_t>(taps_.outputs));
            for (std::int64_t n = 0; n < batch_; ++n) {
                const T* const x = from + n * taps_.inputs;
                for (std::int64_t o = 0; o < taps_.outputs; ++o)
                    sums[at(o)] = bias_ ? number(b[o % taps_.channels]) : 0.0;
                taps_.each([&](std::int64_t o, std::int64_t i, std::int64_t k) {
                    sums[at(o)] += number(x[i]) * number(w[k]);
                });
                for (std::int64_t o = 0; o < taps_.outputs; ++o) {
                    to[n * taps_.outputs + o] = T(static_cast<float>(relu_ && sums[at(o)] < 0 ? 0.0 : sums[at(o)]));
                }
            }
        });
    }

    void backward(const Pass<Cuda, T>& pass) const {
        auto* const sums = reinterpret_cast<double*>(pass.scratch);
        pass.context.stream()->queue([*this, sums, y = pass.output, dy = pass.output_gradient, x = pass.input] {
            double* const of_bias = sums + taps_.weights;
            for (std::int64_t k = 0; k < taps_.weights + taps_.channels; ++k) sums[k] = 0;
            for (std::int64_t n = 0; n < batch_; ++n) {
                T* const gradient = dy + n * taps_.outputs;
                for (std::int64_t o = 0; o < taps_.outputs; ++o) {
                    if (mask_ && !(number(y[n * taps_.outputs + o]) > 0)) gradient[o] = T(0.0F);
                    of_bias[o % taps_.channels] += number(gradient[o]);
                }
                taps_.each([&](std::int64_t o, std::int64_t i, std::int64_t k) {
                    sums[k] += number(gradient[o]) * number(x[n * taps_.inputs + i]);
                });
            }
        });
        pass.context.stream()->queue([*this, sums, add = pass.accumulate, gradients = pass.parameter_gradients] {
            const auto put = [&](float& to, double value) {
                to = static_cast<float>(add ? static_cast<double>(to) + value : value);
            };
            for (std::int64_t k = 0; k < taps_.weights; ++k) put(gradients[0][k], sums[k]);
            for (std::int64_t c = 0; bias_ && c < taps_.channels; ++c) put(gradients[1][c], sums[taps_.weights + c]);
        });
        if (pass.input_gradient == nullptr) return;
        pass.context.stream()->queue([*this, w = weights(pass), dy = pass.output_gradient, dx = pass.input_gradient] {
            std::vector<double> of_sample(static_cast<std::size_t>(taps_.inputs));
            for (std::int64_t n = 0; n < batch_; ++n) {
                of_sample.assign(of_sample.size(), 0.0);
                taps_.each([&](std::int64_t o, std::int64_t i, std::int64_t k) {
                    of_sample[at(i)] += number(dy[n * taps_.outputs + o]) * number(w[k]);
                });
                for (std::int64_t i = 0; i < taps_.inputs; ++i)
                    dx[n * taps_.inputs + i] = T(static_cast<float>(of_sample[at(i)]));
            }
        });
    }

private:
    [[nodiscard]] static double number(T value) { return static_cast<double>(static_cast<float>(value)); }
    [[nodiscard]] static std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }
    [[nodiscard]] std::size_t packed_bias() const {
        return aligned(static_cast<std::size_t>(taps_.weights) * sizeof(T));
    }
    [[nodiscard]] static const T* weights(const Pass<Cuda, T>& pass) {
        if constexpr (rounds)
            return reinterpret_cast<const T*>(pass.packed);
        else
            return pass.parameters[0];
    }
    [[nodiscard]] const T* biases(const Pass<Cuda, T>& pass) const {
        if constexpr (rounds)
            return reinterpret_cast<const T*>(pass.packed + packed_bias());
        else
            return pass.parameters[1];
    }

    Taps taps_;
    std::int64_t batch_;
    bool bias_, relu_, mask_;
};

}  // namespace impl

}  // namespace cupola::inline CUPOLA_ABI
