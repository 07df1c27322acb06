// SPDX-License-Identifier: Apache-2.0
//
// Softmax cross-entropy on `Cuda`, in double as on every device: several threads per row compute the loss, the
// gradient and whether the prediction is correct, and a thread block sums its rows. Sums are in an order that
// depends only on the number of rows. Logits and targets are in the device's memory; the weights of classes are a
// kernel's argument, so there are at most 8,000.
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
#include <cupola/ops/cuda/impl/sums_memory.hpp>
#include <cupola/ops/cuda/impl/weight_array.hpp>
#include <cupola/ops/softmax_cross_entropy.hpp>

namespace cupola::inline CUPOLA_ABI {

namespace impl {

/// The sum of the reports of a warp's lanes, the same in every lane: a + b equals b + a.
__device__ inline LossReport warp_report(LossReport report) {
    for (int step = 16; step > 0; step /= 2) {
        const LossReport other{.sum = __shfl_xor_sync(0xFFFF'FFFFU, report.sum, step),
                               .correct = __shfl_xor_sync(0xFFFF'FFFFU, report.correct, step),
                               .weight = __shfl_xor_sync(0xFFFF'FFFFU, report.weight, step),
                               .predictions = __shfl_xor_sync(0xFFFF'FFFFU, report.predictions, step),
                               .bad_target = __shfl_xor_sync(0xFFFF'FFFFU, report.bad_target, step),
                               .bad_value = __shfl_xor_sync(0xFFFF'FFFFU, report.bad_value, step)};
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

/// The first of the largest of `count` values, and that value, the same in each of `lanes` neighbouring lanes; `none` for
/// no values.
template <int lanes, class T>
__device__ std::int64_t lanes_top(const T* values, std::int64_t none, std::int64_t count, int lane, float& largest) {
    std::int64_t top = none;
    for (std::int64_t c = lane; c < count; c += lanes) {
        const auto value = static_cast<float>(values[c]);
        if (top == none || value > largest) {
            largest = value;
            top = c;
        }
    }
    for (int step = lanes / 2; step > 0; step /= 2) {
        const float value = __shfl_xor_sync(0xFFFF'FFFFU, largest, step);
        const std::int64_t place = __shfl_xor_sync(0xFFFF'FFFFU, top, step);
        if (place == none) continue;
        if (top == none || value > largest || (value == largest && place < top)) {
            largest = value;
            top = place;
        }
    }
    return top;
}

template <class T, class Targets>
struct LossArguments {
    const T* logits;
    T* gradient;
    std::int64_t rows, positions;
    Targets targets;
};

/// `lanes` threads per row, `rows` rows at a time; writes reports[blockIdx.x]. A multiprocessor holds 1,024 threads.
template <class T, int lanes, int threads, int rows, class Targets>
__global__ void __launch_bounds__(threads, 1024 / threads)
    softmax_cross_entropy_kernel(LossArguments<T, Targets> a, LossReport* reports) {
    begin_kernel();
    constexpr int at_once = threads / lanes;
    static_assert(rows % at_once == 0, "a warp's lanes take part in every sum");
    enum : std::uint8_t { wrong, right, invalid };
    __shared__ double losses[rows];
    __shared__ std::uint8_t states[rows];
    __shared__ LossReport of_lane[32];  // of the first warp's lanes; in shared memory because registers are scarce
    const Targets& targets = a.targets;
    const int lane = static_cast<int>(threadIdx.x) % lanes;
    if (threadIdx.x < 32) of_lane[threadIdx.x] = no_loss;
    for (std::int64_t part = blockIdx.x; part * rows < a.rows; part += gridDim.x) {
        const std::int64_t first = part * rows;
        for (int s = static_cast<int>(threadIdx.x) / lanes; s < rows; s += at_once) {
            // Lanes without a row add nothing, but take part in the sums.
            const std::int64_t n = first + s, classes = n < a.rows ? targets.classes : 0;
            const T* const z = a.logits + n * targets.classes;
            float largest = -INFINITY;
            const std::int64_t top = lanes_top<lanes>(z, targets.classes, classes, lane, largest);
            // The difference of each logit from the largest: log(total) is lost in a sum with logits above 1e15.
            const auto below = [&](std::int64_t c) {
                return static_cast<double>(largest) - static_cast<double>(static_cast<float>(z[c]));
            };
            double total = 0, terms = 0, sum_of_targets = 0;
            for (std::int64_t c = lane; c < classes; c += lanes) {
                total += exp(static_cast<double>(static_cast<float>(z[c]) - largest));
                terms += targets.term(n, c, below(c));
                if constexpr (Targets::sums_targets) sum_of_targets += targets.target(n, c);
            }
            terms = lanes_sum<lanes>(terms);
            std::int64_t top_target = 0;
            if constexpr (Targets::sums_targets) {
                sum_of_targets = lanes_sum<lanes>(sum_of_targets);
                float most = -INFINITY;
                top_target = lanes_top<lanes>(targets.row(n), targets.classes, classes, lane, most);
            }
            const double log_total = log(lanes_sum<lanes>(total));
            if (classes == 0) {
                if (lane == 0) {
                    losses[s] = 0;
                    states[s] = wrong;
                }
                continue;
            }
            const bool ignored = targets.ignored(n);
            if constexpr (!Targets::sums_targets) sum_of_targets = targets.total(n);
            if (a.gradient != nullptr) {
                T* const gradient = a.gradient + n * targets.classes;
                const double fraction = 1.0 / static_cast<double>(a.rows);
                for (std::int64_t c = lane; c < classes; c += lanes) {
                    const double p = exp(-below(c) - log_total);
                    const auto slope = static_cast<float>((sum_of_targets * p - targets.target(n, c)) * fraction);
                    gradient[c] = T(ignored ? 0.0F : slope);
                }
            }
            if (lane != 0) continue;
            losses[s] = 0;
            states[s] = wrong;
            if (ignored) continue;
            bool valid = true;
            std::int64_t label = top_target;
            double label_below = 0;
            if constexpr (!Targets::sums_targets) {
                label = targets.label(n);
                valid = targets.valid(n);
                label_below = valid ? below(label) : static_cast<double>(NAN);
            }
            losses[s] = targets.loss(n, log_total, terms, sum_of_targets, label_below);
            if constexpr (Targets::sums_targets) valid = !isnan(losses[s]) || targets.valid(n);
            // If a logit is NaN, none is the largest.
            states[s] = !valid ? invalid : top == label && !isnan(log_total) ? right : wrong;
        }
        __syncthreads();
        for (int s = static_cast<int>(threadIdx.x); s < rows && threadIdx.x < 32; s += 32) {
            const std::int64_t n = first + s;
            if (n >= a.rows) continue;
            LossReport of_row = no_loss;
            of_row.sum = losses[s];
            of_row.correct = states[s] == right ? 1 : 0;
            if constexpr (Targets::weighted) {
                of_row.weight = targets.weight(n);
                of_row.predictions = targets.ignored(n) ? 0 : 1;
            }
            if (states[s] == invalid) set_bad_target(of_row, targets, n);
            add_report(of_lane[threadIdx.x], of_row);
        }
        __syncthreads();  // before the losses of the next rows
    }
    if (threadIdx.x >= 32) return;
    LossReport report = warp_report(of_lane[threadIdx.x]);
    if (threadIdx.x != 0) return;
    if (!Targets::weighted && blockIdx.x == 0) {
        report.weight = static_cast<double>(a.rows);
        report.predictions = a.rows;
    }
    reports[blockIdx.x] = report;
}

/// Sums the blocks' reports in order, in one warp, and divides by the positions of a sample.
template <int threads>
__global__ void __launch_bounds__(threads)
    add_loss_reports_kernel(const LossReport* reports, std::int64_t count, std::int64_t positions, LossReport* to) {
    begin_kernel();
    static_assert(threads == 32, "a warp");
    LossReport report = no_loss;
    for (std::int64_t i = threadIdx.x; i < count; i += threads) add_report(report, reports[i]);
    report = warp_report(report);
    if (threadIdx.x != 0) return;
    report.sum /= static_cast<double>(positions);
    report.weight /= static_cast<double>(positions);
    *to = report;
}

}  // namespace impl

namespace ops {

template <impl::CudaElement T, class Targets>
class SoftmaxCrossEntropy<Cuda, T, Targets> {
    using Target = typename Targets::Target;

public:
    explicit SoftmaxCrossEntropy(const CrossEntropySettings& settings) : settings_(settings) {
        impl::require_weight_capacity(settings.class_weights.size());
    }
    SoftmaxCrossEntropy(std::int64_t classes, float label_smoothing)
        : SoftmaxCrossEntropy(CrossEntropySettings{.classes = classes, .label_smoothing = label_smoothing}) {}

    /// The same loss of outputs in another type.
    template <impl::CudaElement U>
    [[nodiscard]] auto in_type() const {
        return SoftmaxCrossEntropy<Cuda, U, Targets>(settings_);
    }

    /// Queues the loss of the rows of `batch` samples; `gradient` is written if it is not null. `report` is written when
    /// the work is complete: it is in the device's memory, or in pinned memory of the host. Partial sums are in the
    /// context's memory.
    void queue(const CudaContext& context, const T* logits, const Target* targets, std::int64_t batch, T* gradient,
               LossReport* report) const {
        const auto queue_with = [&](const auto& of_rows) {
            queue_rows(context,
                       impl::LossArguments<T, std::remove_cvref_t<decltype(of_rows)>>{
                           logits, gradient, batch * settings_.positions, settings_.positions, of_rows},
                       report);
        };
        if constexpr (requires { Targets(settings_, targets); }) {
            queue_with(Targets(settings_, targets));
        } else if (settings_.class_weights.size() <= impl::few_weights) {
            queue_with(weighted<impl::few_weights>(targets));
        } else {
            queue_with(weighted<impl::many_weights>(targets));
        }
    }

    /// Converts a completed report. Throws InvalidArgument for an invalid target.
    [[nodiscard]] LossResult result_of(const LossReport& report) const {
        return impl::result_of<Targets>(report, settings_);
    }

    /// Waits for the result. A captured step uses `queue`.
    LossResult forward(const CudaContext& context, const T* logits, const Target* targets, std::int64_t batch,
                       T* gradient) const {
        queue(context, logits, targets, batch, gradient, impl::result_of_sum<LossReport>(context));
        return result_of(impl::read_result<LossReport>(context));
    }

private:
    /// The maximum number of blocks: their reports are in the context's memory before a result.
    static constexpr std::int64_t max_blocks = impl::SumsMemory::capacity<LossReport>();

    template <std::size_t capacity>
    [[nodiscard]] auto weighted(const Target* targets) const {
        return typename Targets::template With<impl::WeightArray<capacity>>(
            settings_, targets, impl::weight_array<capacity>(settings_.class_weights));
    }

    template <class Arguments>
    static void queue_rows(const CudaContext& context, const Arguments& arguments, LossReport* report) {
        if (arguments.targets.classes <= 8) {
            queue_blocks<8, 1024, 128>(context, arguments, report);
        } else if (arguments.targets.classes <= 16) {
            queue_blocks<16, 1024, 128>(context, arguments, report);
        } else if (arguments.targets.classes <= 64) {
            queue_blocks<32, 1024, 64>(context, arguments, report);
        } else {
            queue_blocks<32, 256, 8>(context, arguments, report);
        }
    }

    template <int lanes, int threads, int rows, class Of>
    static void queue_blocks(const CudaContext& context, const impl::LossArguments<T, Of>& arguments,
                             LossReport* report) {
        const std::int64_t blocks = std::clamp<std::int64_t>((arguments.rows + rows - 1) / rows, 1, max_blocks);
        const bool complete = blocks == 1 && arguments.positions == 1;
        auto* const reports = complete ? report : reinterpret_cast<LossReport*>(impl::sums_memory(context).partial);
        impl::launch_kernel(impl::softmax_cross_entropy_kernel<T, lanes, threads, rows, Of>,
                            static_cast<unsigned>(blocks), threads, context, arguments, reports);
        if (complete) return;
        impl::launch_kernel(impl::add_loss_reports_kernel<32>, 1, 32, context, reports, blocks, arguments.positions,
                            report);
    }

    CrossEntropySettings settings_;
};

}  // namespace ops

}  // namespace cupola::inline CUPOLA_ABI
