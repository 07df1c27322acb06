// SPDX-License-Identifier: Apache-2.0
//
// The shortcut of option A on `Cuda`.
#pragma once

#include <cstdint>

#include <cupola/device/cuda.hpp>
#include <cupola/ops/cudnn/impl/launch.cuh>
#include <cupola/ops/cudnn/impl/shortcut_elements.hpp>
#include <cupola/ops/pad_shortcut.hpp>

namespace cupola::inline CUPOLA_ABI {

namespace ops {

template <impl::CudaElement T>
class PadShortcut<Cuda, T> {
public:
    PadShortcut(const Site<Cuda, T>& site, const PadShortcutShape& shape)
        : shape_(shape),
          batch_(site.batch),
          in_packs_(shape.in_channels % n == 0 && shape.out_channels % n == 0 && shape.before % n == 0) {}

    void forward(const Pass<Cuda, T>& pass) const {
        in_packs_&& impl::aligned_for_packs(pass.input, pass.output) ? forward<n>(pass) : forward<1>(pass);
    }
    void backward(const Pass<Cuda, T>& pass) const {
        if (pass.input_gradient == nullptr) return;
        in_packs_&& impl::aligned_for_packs(pass.output_gradient, pass.input_gradient) ? backward<n>(pass)
                                                                                       : backward<1>(pass);
    }

private:
    static constexpr int n = impl::pack_size<T>;

    template <int per_thread>
    void forward(const Pass<Cuda, T>& pass) const {
        const impl::PoolExtents extents = impl::shortcut_extents(shape_, shape_.out_channels, per_thread);
        impl::launch(
            pass.context, extents.outputs(batch_),
            impl::ShortcutForward<T, per_thread>{extents, shape_.in_channels, shape_.before, pass.input, pass.output});
    }
    template <int per_thread>
    void backward(const Pass<Cuda, T>& pass) const {
        const impl::PoolExtents extents = impl::shortcut_extents(shape_, shape_.in_channels, per_thread);
        impl::launch(pass.context, extents.inputs(batch_),
                     impl::ShortcutBackward<T, per_thread>{extents, shape_.out_channels, shape_.before,
                                                           pass.output_gradient, pass.input_gradient});
    }

    PadShortcutShape shape_;
    std::int64_t batch_;
    bool in_packs_;
};

}  // namespace ops

}  // namespace cupola::inline CUPOLA_ABI
