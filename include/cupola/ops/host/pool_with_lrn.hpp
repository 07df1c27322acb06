// SPDX-License-Identifier: Apache-2.0
//
// MaxPool2d and LocalResponseNorm one after the other on `Host`, one row of the output at a time.
//
// PoolThenLrn: a row is normalised while it is in a first-level cache. The pooled values and the window offsets of the
// maxima are saved; backward converts the gradient of a row to that of the pooled row in place and gathers the input
// rows that are then complete.
//
// LrnThenPool: only the normalised rows of one window exist at a time, in each thread's own memory. Backward gathers a
// row of the normalised values' gradient and converts it to that of the input in place, recomputing the normalisation
// of the input.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include <cupola/core/element_type.hpp>
#include <cupola/device/host.hpp>
#include <cupola/ops/host/impl/norm_rows.hpp>
#include <cupola/ops/host/impl/pool_rows.hpp>
#include <cupola/ops/pool_with_lrn.hpp>
#include <cupola/tensor/algorithms.hpp>

namespace cupola { inline namespace CUPOLA_ABI { namespace ops {

template <class T>
class PoolThenLrn<Host, T> {
public:
    PoolThenLrn(const BuildContext<Host, T>& build, const PoolingShape& pooling, const LocalResponseNormShape& norm)
        : pool_(pooling),
          norm_(norm),
          batch_(build.batch),
          mask_(build.applies_relu_mask_of_previous),
          saves_(build.training),
          pooled_bytes_(aligned(static_cast<std::size_t>(build.batch * build.output.size()) * sizeof(T))) {}

    [[nodiscard]] MemoryNeeds needs() const {
        return {.saved = saves_
                             ? pooled_bytes_ + static_cast<std::size_t>(batch_ * pool_.outputs() * pool_.output_row())
                             : 0};
    }

    [[nodiscard]] OperationWork work(Direction direction) const {
        return impl::NormRows::work(direction, batch_ * pool_.outputs() * pool_.output_row());
    }
    void forward(const ForwardArgs<Host, T>& args) const {
        parallel_for(args.context, batch_ * pool_.outputs(), [this, &args](std::int64_t at) {
            const std::int64_t image = at / pool_.outputs();
            const T* const x = args.input + image * pool_.inputs() * pool_.input_row();
            T* const y = args.output + at * pool_.output_row();
            T* const pooled = saves_ ? this->pooled(args) + at * pool_.output_row() : y;
            pool_.forward(
                at % pool_.outputs(), [&](std::int64_t a) { return x + a * pool_.input_row(); }, pooled,
                saves_ ? places(args) + at * pool_.output_row() : nullptr, mask_, pixels_together,
                [&](std::int64_t j, std::int64_t count) {
                    norm_.forward(pooled + j * pool_.channels(), y + j * pool_.channels(), count);
                });
        });
    }

    void backward(const BackwardArgs<Host, T>& args) const {
        if (args.input_gradient == nullptr) return;
        parallel_for(args.context, batch_, [this, &args](std::int64_t image) {
            const std::int64_t first = image * pool_.outputs() * pool_.output_row();
            T* const dy = args.output_gradient + first;
            T* const dx = args.input_gradient + image * pool_.inputs() * pool_.input_row();
            std::int64_t rows = 0;  // rows of the pooled gradient computed so far
            for (std::int64_t at = 0; at < pool_.inputs(); ++at) {
                for (; rows <= pool_.last_output(at); ++rows) {
                    T* const row = dy + rows * pool_.output_row();
                    norm_.backward(pooled(args) + first + rows * pool_.output_row(), row, row, pool_.output_width(),
                                   false);
                }
                pool_.backward(at, dy, places(args) + first, dx + at * pool_.input_row());
            }
        });
    }

private:
    /// Pixels that are normalised together: of a whole row's pixels the time to load them and that to normalise them
    /// would add up, and for each one alone, what a call costs would.
    static constexpr std::int64_t pixels_together = 4;

    [[nodiscard]] T* pooled(const ForwardArgs<Host, T>& args) const { return reinterpret_cast<T*>(args.saved); }
    [[nodiscard]] std::uint8_t* places(const ForwardArgs<Host, T>& args) const {
        return reinterpret_cast<std::uint8_t*>(args.saved + pooled_bytes_);
    }

    impl::PoolRows pool_;
    impl::NormRows norm_;
    std::int64_t batch_;
    bool mask_, saves_;
    std::size_t pooled_bytes_;
};

template <class T>
class LrnThenPool<Host, T> {
public:
    LrnThenPool(const BuildContext<Host, T>& build, const LocalResponseNormShape& norm, const PoolingShape& pooling)
        : norm_(norm),
          pool_(pooling),
          batch_(build.batch),
          mask_(build.applies_relu_mask_of_previous),
          saves_(build.training),
          threads_(build.context.threads()),
          ring_bytes_(aligned(static_cast<std::size_t>(pool_.window_rows() * pool_.input_row()) * sizeof(T))) {}

    [[nodiscard]] MemoryNeeds needs() const {
        return {.saved = saves_ ? static_cast<std::size_t>(batch_ * pool_.outputs() * pool_.output_row()) : 0,
                .scratch = static_cast<std::size_t>(threads_) * ring_bytes_};
    }

    [[nodiscard]] OperationWork work(Direction direction) const {
        return impl::NormRows::work(direction, batch_ * pool_.inputs() * pool_.input_row());
    }
    void forward(const ForwardArgs<Host, T>& args) const {
        // Each thread has a contiguous range of rows of the batch's output.
        parallel_for(args.context, threads_, [this, &args](std::int64_t thread) {
            T* const ring = reinterpret_cast<T*>(args.scratch + static_cast<std::size_t>(thread) * ring_bytes_);
            const auto slot = [&](std::int64_t a) { return ring + a % pool_.window_rows() * pool_.input_row(); };
            const std::int64_t rows = batch_ * pool_.outputs(), end = rows * (thread + 1) / threads_;
            std::int64_t normed = 0;  // the image's rows below this one are or were in the ring
            for (std::int64_t at = rows * thread / threads_, begin = at; at < end; ++at) {
                const std::int64_t image = at / pool_.outputs(), i = at % pool_.outputs();
                const T* const x = args.input + image * pool_.inputs() * pool_.input_row();
                if (i == 0 || at == begin) normed = 0;
                for (normed = std::max(normed, pool_.first_input(i)); normed < pool_.last_input(i); ++normed) {
                    norm_.forward(x + normed * pool_.input_row(), slot(normed), pool_.input_width());
                }
                pool_.forward(i, slot, args.output + at * pool_.output_row(),
                              saves_ ? places(args) + at * pool_.output_row() : nullptr, false);
            }
        });
    }

    void backward(const BackwardArgs<Host, T>& args) const {
        if (args.input_gradient == nullptr) return;
        parallel_for(args.context, batch_ * pool_.inputs(), [this, &args](std::int64_t at) {
            const std::int64_t first = at / pool_.inputs() * pool_.outputs() * pool_.output_row();
            T* const dx = args.input_gradient + at * pool_.input_row();
            pool_.backward(at % pool_.inputs(), args.output_gradient + first, places(args) + first, dx);
            norm_.backward(args.input + at * pool_.input_row(), dx, dx, pool_.input_width(), mask_);
        });
    }

private:
    [[nodiscard]] std::uint8_t* places(const ForwardArgs<Host, T>& args) const {
        return reinterpret_cast<std::uint8_t*>(args.saved);
    }

    impl::NormRows norm_;
    impl::PoolRows pool_;
    std::int64_t batch_;
    bool mask_, saves_;
    int threads_;
    std::size_t ring_bytes_;
};

}  // namespace ops

}}  // namespace cupola::CUPOLA_ABI
