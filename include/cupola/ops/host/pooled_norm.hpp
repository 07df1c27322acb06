// SPDX-License-Identifier: Apache-2.0
//
// MaxPool2d and then LocalResponseNorm on `Host`, a row of the output at a time: a row is normalised while it is in a
// first-level cache. The pooled values and the places of the maxima are saved; backward turns the gradient of a row
// into that of the pooled row in place and gathers the input rows that are then complete.
#pragma once

#include <cstddef>
#include <cstdint>

#include <cupola/core/element_type.hpp>
#include <cupola/device/host.hpp>
#include <cupola/ops/host/impl/norm_rows.hpp>
#include <cupola/ops/host/impl/pool_rows.hpp>
#include <cupola/ops/pooled_norm.hpp>
#include <cupola/tensor/algorithms.hpp>

namespace cupola::inline CUPOLA_ABI {

namespace ops {

template <class T>
class PooledNorm<Host, T> {
public:
    PooledNorm(const Site<Host, T>& site, const PoolingShape& pooling, const LocalResponseNormShape& norm)
        : pool_(pooling),
          norm_(norm),
          batch_(site.batch),
          mask_(site.masks_for_previous),
          saves_(site.training),
          pooled_bytes_(aligned(static_cast<std::size_t>(site.batch * site.output.size()) * sizeof(T))) {}

    [[nodiscard]] MemoryNeeds needs() const {
        return {.saved = saves_
                             ? pooled_bytes_ + static_cast<std::size_t>(batch_ * pool_.outputs() * pool_.output_row())
                             : 0};
    }

    void forward(const Pass<Host, T>& pass) const {
        parallel_for(pass.context, batch_ * pool_.outputs(), [this, &pass](std::int64_t at) {
            const std::int64_t image = at / pool_.outputs();
            const T* const x = pass.input + image * pool_.inputs() * pool_.input_row();
            T* const y = pass.output + at * pool_.output_row();
            T* const pooled = saves_ ? this->pooled(pass) + at * pool_.output_row() : y;
            pool_.forward(
                at % pool_.outputs(), [&](std::int64_t a) { return x + a * pool_.input_row(); }, pooled,
                saves_ ? places(pass) + at * pool_.output_row() : nullptr, mask_,
                [&](std::int64_t j) { norm_.forward(pooled + j * pool_.channels(), y + j * pool_.channels(), 1); });
        });
    }

    void backward(const Pass<Host, T>& pass) const {
        if (pass.input_gradient == nullptr) return;
        parallel_for(pass.context, batch_, [this, &pass](std::int64_t image) {
            const std::int64_t first = image * pool_.outputs() * pool_.output_row();
            T* const dy = pass.output_gradient + first;
            T* const dx = pass.input_gradient + image * pool_.inputs() * pool_.input_row();
            std::int64_t rows = 0;  // of the pooled gradient that are there
            for (std::int64_t at = 0; at < pool_.inputs(); ++at) {
                for (; rows <= pool_.last_output(at); ++rows) {
                    T* const row = dy + rows * pool_.output_row();
                    norm_.backward(pooled(pass) + first + rows * pool_.output_row(), row, row, pool_.output_width(),
                                   false);
                }
                pool_.backward(at, dy, places(pass) + first, dx + at * pool_.input_row());
            }
        });
    }

private:
    [[nodiscard]] T* pooled(const Pass<Host, T>& pass) const { return reinterpret_cast<T*>(pass.saved); }
    [[nodiscard]] std::uint8_t* places(const Pass<Host, T>& pass) const {
        return reinterpret_cast<std::uint8_t*>(pass.saved + pooled_bytes_);
    }

    impl::PoolRows pool_;
    impl::NormRows norm_;
    std::int64_t batch_;
    bool mask_, saves_;
    std::size_t pooled_bytes_;
};

}  // namespace ops

}  // namespace cupola::inline CUPOLA_ABI
