// SPDX-License-Identifier: Apache-2.0
//
// MaxPool2d followed by LocalResponseNorm on `Host`, one row of the output at a time: a row is normalised while it is
// in a first-level cache. The pooled values and the window offsets of the maxima are saved; backward converts the
// gradient of a row to that of the pooled row in place and gathers the input rows that are then complete.
#pragma once

#include <cstddef>
#include <cstdint>

#include <cupola/core/element_type.hpp>
#include <cupola/device/host.hpp>
#include <cupola/ops/host/impl/norm_rows.hpp>
#include <cupola/ops/host/impl/pool_rows.hpp>
#include <cupola/ops/pool_then_lrn.hpp>
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

}  // namespace ops

}}  // namespace cupola::CUPOLA_ABI
