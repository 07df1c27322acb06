// SPDX-License-Identifier: Apache-2.0
//
// The shortcut of option A on `Cuda`.
#pragma once

#include <cstdint>

#include <cupola/device/cuda.hpp>
#include <cupola/ops/cuda/impl/launch.cuh>
#include <cupola/ops/cuda/impl/shortcut_elements.hpp>
#include <cupola/ops/option_a_shortcut.hpp>

namespace cupola::inline CUPOLA_ABI {

namespace ops {

template <impl::CudaElement T>
class OptionAShortcut<Cuda, T> {
public:
    OptionAShortcut(const BuildContext<Cuda, T>& build, const OptionAShortcutShape& shape)
        : shape_(shape),
          batch_(build.batch),
          in_packs_(shape.in_channels % n == 0 && shape.out_channels % n == 0 && shape.before % n == 0) {}

    void forward(const PassArgs<Cuda, T>& args) const {
        in_packs_&& impl::aligned_for_packs(args.input, args.output) ? forward<n>(args) : forward<1>(args);
    }
    void backward(const PassArgs<Cuda, T>& args) const {
        if (args.input_gradient == nullptr) return;
        in_packs_&& impl::aligned_for_packs(args.output_gradient, args.input_gradient) ? backward<n>(args)
                                                                                       : backward<1>(args);
    }

private:
    static constexpr int n = impl::pack_size<T>;

    template <int per_thread>
    void forward(const PassArgs<Cuda, T>& args) const {
        const impl::PoolExtents extents = impl::shortcut_extents(shape_, shape_.out_channels, per_thread);
        impl::launch(
            args.context, extents.outputs(batch_),
            impl::ShortcutForward<T, per_thread>{extents, shape_.in_channels, shape_.before, args.input, args.output});
    }
    template <int per_thread>
    void backward(const PassArgs<Cuda, T>& args) const {
        const impl::PoolExtents extents = impl::shortcut_extents(shape_, shape_.in_channels, per_thread);
        impl::launch(args.context, extents.inputs(batch_),
                     impl::ShortcutBackward<T, per_thread>{extents, shape_.out_channels, shape_.before,
                                                           args.output_gradient, args.input_gradient});
    }

    OptionAShortcutShape shape_;
    std::int64_t batch_;
    bool in_packs_;
};

}  // namespace ops

}  // namespace cupola::inline CUPOLA_ABI
