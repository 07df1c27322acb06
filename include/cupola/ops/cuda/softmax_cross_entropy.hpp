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
#include <cupola/ops/cuda/impl/cross_entropy_rows.cuh>
#include <cupola/ops/cuda/impl/launch.cuh>
#include <cupola/ops/cuda/impl/linear_chain.cuh>
#include <cupola/ops/cuda/impl/pack.hpp>
#include <cupola/ops/cuda/impl/sums_memory.hpp>
#include <cupola/ops/cuda/impl/weight_array.hpp>
#include <cupola/ops/softmax_cross_entropy.hpp>

namespace cupola { inline namespace CUPOLA_ABI {

namespace impl {

/// `lanes` threads per row, `rows` rows at a time; writes reports[blockIdx.x]. A multiprocessor holds 1,024 threads.
template <class T, int lanes, int threads, int rows, class Targets>
__global__ void __launch_bounds__(threads, 1024 / threads)
    softmax_cross_entropy_kernel(LossArguments<T, Targets> a, LossReport* reports) {
    begin_kernel();
    constexpr int at_once = threads / lanes;
    static_assert(rows % at_once == 0, "a warp's lanes take part in every sum");
    __shared__ double losses[rows];
    __shared__ RowState states[rows];
    __shared__ LossReport of_lane[32];  // of the first warp's lanes; in shared memory because registers are scarce
    const Targets& targets = a.targets;
    const int lane = static_cast<int>(threadIdx.x) % lanes;
    if (threadIdx.x < 32) of_lane[threadIdx.x] = no_loss;
    for (std::int64_t part = blockIdx.x; part * rows < a.rows; part += gridDim.x) {
        const std::int64_t first = part * rows;
        for (int s = static_cast<int>(threadIdx.x) / lanes; s < rows; s += at_once) {
            const RowLoss of_row = loss_of_row<lanes>(a, first + s, lane);
            if (lane != 0) continue;
            losses[s] = of_row.loss;
            states[s] = of_row.state;
        }
        __syncthreads();
        for (int s = static_cast<int>(threadIdx.x); s < rows && threadIdx.x < 32; s += 32) {
            const std::int64_t n = first + s;
            if (n >= a.rows) continue;
            add_report(of_lane[threadIdx.x], report_of_row(targets, n, losses[s], states[s]));
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

    /// Queues the loss of the rows of `batch` samples; `gradient` is written if it is not null. `report` is written
    /// when the work is complete: it is in the device's memory, or in pinned memory of the host. Partial sums are in
    /// the context's memory.
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
        // The loss of the last layer of a chain that has not been launched yet joins it.
        using Rows = std::remove_cvref_t<decltype(arguments.targets)>;
        if constexpr (impl::LinearChain<T>::template has_room_for<Rows>) {
            auto* const chain = context.joined_as<impl::LinearChain<T>>();
            if (chain != nullptr && arguments.positions == 1 &&
                chain->takes_loss(arguments.logits, arguments.rows, arguments.targets.classes))
                return chain->set_loss(context, arguments, report);
        }
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

}}  // namespace cupola::CUPOLA_ABI
