// SPDX-License-Identifier: Apache-2.0
//
// Softmax cross-entropy on `Cuda`, in double as on every device: several threads per row compute the loss, the
// gradient and whether the prediction is correct, and the thread block that arrives last adds the losses. Sums are in
// an order that depends only on the numbers of rows and classes. Logits and targets are in the device's memory; the
// weights of classes are a kernel's argument, so there are at most 8,000.
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

/// `lanes` threads per row. The losses of at most max_row_losses rows are added by the block that arrives last, and
/// then have the same bits for any grid. Of more rows each group of lanes adds its own, each block its groups' sums,
/// and the block that arrives last those of the blocks, in their order. Either sum is divided by the positions of a
/// sample.
template <class T, int lanes, class Targets>
__global__ void __launch_bounds__(1024)
    softmax_cross_entropy_kernel(const __grid_constant__ LossArguments<T, Targets> a, SumsMemory* sums,
                                 LossReport* to) {
    begin_kernel();
    __shared__ LossReport of_group[1024 / lanes];  // in shared memory because registers are scarce
    const int thread = static_cast<int>(threadIdx.x), group = thread / lanes,
              groups = static_cast<int>(blockDim.x) / lanes;
    const bool few = a.rows <= max_row_losses;
    if (thread % lanes == 0) of_group[group] = no_loss;
    for (std::int64_t first = std::int64_t{blockIdx.x} * groups; first < a.rows;
         first += std::int64_t{gridDim.x} * groups) {
        // A warp's lanes take part in every sum.
        const RowLoss of_row = loss_of_row<lanes>(a, first + group, thread % lanes);
        if (thread % lanes != 0 || first + group >= a.rows) continue;
        if (few) {
            row_losses(*sums).set(first + group, of_row);
        } else {
            add_report(of_group[group], report_of_row(a.targets, first + group, of_row.loss, of_row.state));
        }
    }
    auto* const of_blocks = reinterpret_cast<LossReport*>(sums->partial);
    if (!few) {
        __syncthreads();
        if (thread < 32) {
            LossReport report = no_loss;
            for (int g = thread; g < groups; g += 32) add_report(report, of_group[g]);
            report = warp_report(report);
            if (thread == 0) of_blocks[blockIdx.x] = report;
        }
    }
    if (!arrives_last(sums->arrived, 1, gridDim.x) || thread >= 32) return;
    LossReport report = no_loss;
    if (few) {
        report = report_of_lane(a, row_losses(*sums));
    } else {
        for (unsigned b = threadIdx.x; b < gridDim.x; b += 32) add_report(report, of_blocks[b]);
    }
    report = report_of_rows(a, report);
    if (thread != 0) return;
    report.sum /= static_cast<double>(a.positions);
    report.weight /= static_cast<double>(a.positions);
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

    /// Queues the loss of the rows of `batch` samples; `gradient`, times `factor`, is written if it is not null.
    /// `report` is written when the work is complete: it is in the device's memory, or in pinned memory of the host.
    /// Partial sums are in the context's memory.
    void queue(const CudaContext& context, const T* logits, const Target* targets, std::int64_t batch, T* gradient,
               LossReport* report, const impl::GradientFactor& factor = {}) const {
        const auto queue_with = [&](const auto& of_rows) {
            queue_rows(context,
                       impl::LossArguments<T, std::remove_cvref_t<decltype(of_rows)>>{
                           logits, gradient, batch * settings_.positions, settings_.positions, of_rows, factor},
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
            queue_lanes<8>(context, arguments, report);
        } else if (arguments.targets.classes <= 16) {
            queue_lanes<16>(context, arguments, report);
        } else {
            queue_lanes<32>(context, arguments, report);
        }
    }

    template <int lanes, class Arguments>
    static void queue_lanes(const CudaContext& context, const Arguments& arguments, LossReport* report) {
        using Rows = std::remove_cvref_t<decltype(arguments.targets)>;
        const auto blocks_of = [&](std::int64_t groups) {
            return std::max<std::int64_t>((arguments.rows + groups - 1) / groups, 1);
        };
        // Of more rows, the same on each GPU, because their sum depends on it.
        std::int64_t warps = arguments.targets.classes <= 64 ? 32 : 8;
        if (arguments.rows <= impl::max_row_losses) {
            // A row takes long in double: few of them are on as many multiprocessors as there are.
            warps = std::min<std::int64_t>((blocks_of(32 / lanes) - 1) / context.multiprocessors() + 1, 8);
        }
        const std::int64_t blocks = std::min(blocks_of(warps * (32 / lanes)), max_blocks);
        impl::launch_kernel(impl::softmax_cross_entropy_kernel<T, lanes, Rows>, static_cast<unsigned>(blocks),
                            static_cast<unsigned>(32 * warps), context, arguments, &impl::sums_memory(context), report);
    }

    CrossEntropySettings settings_;
};

}  // namespace ops

}}  // namespace cupola::CUPOLA_ABI
