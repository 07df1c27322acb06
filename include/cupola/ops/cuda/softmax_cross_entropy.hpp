// SPDX-License-Identifier: Apache-2.0
//
// Softmax cross-entropy on `Cuda`, in double as on every device: several threads per sample compute the loss, the
// gradient and whether the prediction is correct, and a thread block sums its samples. Sums are in an order that
// depends only on the number of samples. Logits and labels are in the device's memory.
//
// `queue` writes the batch's LossReport to the given place and waits for nothing; `forward` waits and reads it.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>

#include <cupola/device/cuda.hpp>
#include <cupola/ops/cuda/impl/launch.cuh>
#include <cupola/ops/cuda/impl/pack.hpp>
#include <cupola/ops/softmax_cross_entropy.hpp>

namespace cupola::inline CUPOLA_ABI {

namespace impl {

/// The sum of the reports of a warp's lanes, the same in every lane: a + b equals b + a.
__device__ inline LossReport warp_report(LossReport report) {
    for (int step = 16; step > 0; step /= 2) {
        const LossReport other{__shfl_xor_sync(0xFFFF'FFFFU, report.sum, step),
                               __shfl_xor_sync(0xFFFF'FFFFU, report.correct, step),
                               __shfl_xor_sync(0xFFFF'FFFFU, report.weight, step),
                               __shfl_xor_sync(0xFFFF'FFFFU, report.predictions, step),
                               __shfl_xor_sync(0xFFFF'FFFFU, report.bad_target, step),
                               __shfl_xor_sync(0xFFFF'FFFFU, report.bad_value, step)};
        add_report(report, other);
    }
    return report;
}

/// The sum over groups of `lanes` neighbouring lanes, the same in each of them.
template <int lanes>
__device__ double lanes_sum(double value) {
    for (int step = lanes / 2; step > 0; step /= 2) value += __shfl_xor_sync(0xFFFF'FFFFU, value, step);
    return value;
}

template <class T>
struct LossArguments {
    const T* logits;
    const std::int32_t* labels;
    T* gradient;
    std::int64_t classes, batch;
    double smoothing;
};

/// `lanes` threads per sample, `samples` samples at a time; writes reports[blockIdx.x].
template <class T, int lanes, int threads, int samples>
__global__ void __launch_bounds__(threads) softmax_cross_entropy_kernel(LossArguments<T> a, LossReport* reports) {
    constexpr int at_once = threads / lanes;
    static_assert(samples % at_once == 0, "a warp's lanes take part in every sum");
    enum : std::uint8_t { wrong, right, no_class };
    __shared__ double losses[samples];
    __shared__ std::uint8_t states[samples];
    __shared__ LossReport of_lane[32];  // of the first warp's lanes; in shared memory because registers are scarce
    const int lane = static_cast<int>(threadIdx.x) % lanes;
    if (threadIdx.x < 32) of_lane[threadIdx.x] = no_loss;
    for (std::int64_t part = blockIdx.x; part * samples < a.batch; part += gridDim.x) {
        const std::int64_t first = part * samples;
        for (int s = static_cast<int>(threadIdx.x) / lanes; s < samples; s += at_once) {
            // Lanes without a sample add nothing, but take part in the sums.
            const std::int64_t n = first + s, classes = n < a.batch ? a.classes : 0;
            const T* const z = a.logits + n * a.classes;
            float largest = -INFINITY;
            std::int64_t top = a.classes;  // none yet
            for (std::int64_t c = lane; c < classes; c += lanes) {
                const auto value = static_cast<float>(z[c]);
                if (top == a.classes || value > largest) {
                    largest = value;
                    top = c;
                }
            }
            for (int step = lanes / 2; step > 0; step /= 2) {
                const float value = __shfl_xor_sync(0xFFFF'FFFFU, largest, step);
                const std::int64_t place = __shfl_xor_sync(0xFFFF'FFFFU, top, step);
                if (place == a.classes) continue;
                if (top == a.classes || value > largest || (value == largest && place < top)) {
                    largest = value;
                    top = place;
                }
            }
            // The difference of each logit from the largest: log(total) is lost in a sum with logits above 1e15.
            const auto below = [&](std::int64_t c) {
                return static_cast<double>(largest) - static_cast<double>(static_cast<float>(z[c]));
            };
            double total = 0, mean_below = 0;
            for (std::int64_t c = lane; c < classes; c += lanes) {
                total += exp(static_cast<double>(static_cast<float>(z[c]) - largest));
                mean_below += below(c);
            }
            mean_below = lanes_sum<lanes>(mean_below) / static_cast<double>(a.classes);
            const double log_total = log(lanes_sum<lanes>(total));
            if (classes == 0) {
                if (lane == 0) {
                    losses[s] = 0;
                    states[s] = wrong;
                }
                continue;
            }
            const std::int32_t label = a.labels[n];
            if (a.gradient != nullptr) {
                T* const gradient = a.gradient + n * a.classes;
                const double fraction = 1.0 / static_cast<double>(a.batch),
                             spread = a.smoothing / static_cast<double>(a.classes);
                for (std::int64_t c = lane; c < classes; c += lanes) {
                    const double p = exp(-below(c) - log_total);
                    const double q = (c == label ? 1.0 - a.smoothing : 0.0) + spread;
                    gradient[c] = T(static_cast<float>((p - q) * fraction));
                }
            }
            if (lane != 0) continue;
            const bool is_class = label >= 0 && label < a.classes;
            const double label_below = is_class ? below(label) : static_cast<double>(NAN);
            losses[s] = log_total + ((1.0 - a.smoothing) * label_below + a.smoothing * mean_below);
            // If a logit is NaN, none is the largest.
            states[s] = !is_class ? no_class : top == label && !isnan(log_total) ? right : wrong;
        }
        __syncthreads();
        for (int s = static_cast<int>(threadIdx.x); s < samples && threadIdx.x < 32; s += 32) {
            const bool bad = states[s] == no_class;
            const std::int32_t label = bad ? a.labels[first + s] : 0;
            const std::int64_t counted = first + s < a.batch ? 1 : 0;
            add_report(of_lane[threadIdx.x], {losses[s], states[s] == right ? 1 : 0, static_cast<double>(counted),
                                              counted, bad ? first + s : -1, label});
        }
        __syncthreads();  // before the losses of the next samples
    }
    if (threadIdx.x >= 32) return;
    const LossReport report = warp_report(of_lane[threadIdx.x]);
    if (threadIdx.x == 0) reports[blockIdx.x] = report;
}

/// Sums the blocks' reports in order, in one warp.
template <int threads>
__global__ void __launch_bounds__(threads)
    add_loss_reports_kernel(const LossReport* reports, std::int64_t count, LossReport* to) {
    static_assert(threads == 32, "a warp");
    LossReport report = no_loss;
    for (std::int64_t i = threadIdx.x; i < count; i += threads) add_report(report, reports[i]);
    report = warp_report(report);
    if (threadIdx.x == 0) *to = report;
}

}  // namespace impl

namespace ops {

template <impl::CudaElement T>
class SoftmaxCrossEntropy<Cuda, T> {
public:
    SoftmaxCrossEntropy(std::int64_t classes, float smoothing) : classes_(classes), smoothing_(smoothing) {}

    /// Queues the loss of `batch` rows of logits; `gradient` is written if it is not null. `report` is written when the
    /// work is complete: it is in the device's memory, or in pinned memory of the host. Partial sums are in the
    /// context's memory.
    void queue(const CudaContext& context, const T* logits, const std::int32_t* labels, std::int64_t batch, T* gradient,
               LossReport* report) const {
        const auto smoothing = static_cast<double>(smoothing_);
        const impl::LossArguments<T> arguments{logits, labels, gradient, classes_, batch, smoothing};
        if (classes_ <= 8) {
            queue_blocks<8, 1024, 128>(context, arguments, report);
        } else if (classes_ <= 16) {
            queue_blocks<16, 1024, 128>(context, arguments, report);
        } else if (classes_ <= 64) {
            queue_blocks<32, 1024, 64>(context, arguments, report);
        } else {
            queue_blocks<32, 256, 8>(context, arguments, report);
        }
    }

    /// Converts a completed report. Throws InvalidArgument for a label outside [0, classes).
    [[nodiscard]] LossResult result_of(const LossReport& report) const { return impl::result_of(report, classes_); }

    /// Waits for the result. A captured step uses `queue`.
    LossResult forward(const CudaContext& context, const T* logits, const std::int32_t* labels, std::int64_t batch,
                       T* gradient) const {
        queue(context, logits, labels, batch, gradient, impl::result_of_sum<LossReport>(context));
        return result_of(impl::read_result<LossReport>(context));
    }

private:
    /// The maximum number of blocks: their reports are in the context's memory before a result.
    static constexpr std::int64_t max_blocks = static_cast<std::int64_t>(impl::results_offset / sizeof(LossReport));

    template <int lanes, int threads, int samples>
    static void queue_blocks(const CudaContext& context, const impl::LossArguments<T>& arguments, LossReport* report) {
        const std::int64_t blocks = std::clamp<std::int64_t>((arguments.batch + samples - 1) / samples, 1, max_blocks);
        auto* const reports = blocks == 1 ? report : reinterpret_cast<LossReport*>(context.sums());
        impl::launch_kernel(impl::softmax_cross_entropy_kernel<T, lanes, threads, samples>,
                            static_cast<unsigned>(blocks), threads, context.stream(), arguments, reports);
        if (blocks == 1) return;
        impl::launch_kernel(impl::add_loss_reports_kernel<32>, 1, 32, context.stream(), reports, blocks, report);
    }

    std::int64_t classes_;
    float smoothing_;
};

}  // namespace ops

}  // namespace cupola::inline CUPOLA_ABI
