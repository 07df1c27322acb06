// SPDX-License-Identifier: Apache-2.0

// case: device_without_copies
// expect: Bare is not a device: it lacks `copy_from_host` or `copy_to_host` of (Context&, std::byte* to, const std::byte* from, std::size_t)
/* wrong */ struct Bare : Host {
    static void copy_from_host() = delete;
};
/* right */ using Bare = Host;

// fit on Bare: Net, CrossEntropy<3>, Sgd, ConcatMean

// case: device_without_operations
// A device without operations: one that is like Host but is not Host.
// expect: layer 1 (Linear<8>) has no `static auto operation(const BuildContext&)` for Other
/* wrong */ struct Other : Host {
    static constexpr std::string_view name = "Other";
    using Kernels = Other;
};
/* right */ using Other = Host;

// fit on Other: Net, CrossEntropy<3>, Sgd, ConcatMean

// case: gradients_checked_in_bfloat16
// expect: gradients are checked in float32, and Narrow is computed in bfloat16: name the network without InPrecision
#include <cupola/net/check_gradients.hpp>

struct Narrow : InPrecision<MixedBFloat16, Net> {};

bool run() {
    /* wrong */ return check_gradients<Narrow, CrossEntropy<3>, Host>().operator bool();
    /* right */ return check_gradients<Net, CrossEntropy<3>, Host>().operator bool();
}

// case: half_on_host
// Host computes nothing in IEEE's half, which is Cuda's.
// expect: layer 1 (Linear<8>) has no `static auto operation(const BuildContext&)` for Host in float16
/* wrong */ struct Computed : InPrecision<MixedFloat16, Net> {};
/* right */ struct Computed : InPrecision<MixedBFloat16, Net> {};

// fit: Computed, CrossEntropy<3>, Sgd, ConcatMean

// case: half_predicted_on_host
// A network in IEEE's half, trained on Cuda, is run on Host as it is: there the float one reads its checkpoints.
// expect: layer 1 (Linear<6>) has no `static auto operation(const BuildContext&)` for Host in float16
// errors-at-most: 3
#include <cupola/predict.hpp>

struct Net : Sequential<Input<4>, Linear<6>, ReLU, Linear<3>> {};
/* wrong */ struct Narrow : InPrecision<MixedFloat16, Net> {};
/* right */ struct Narrow : Net {};

void run(const std::string& path, std::span<const float> sample, std::span<float> logits) {
    const Predictor<Narrow> predictor(path);
    predictor.predict(sample, logits);
}

// case: no_device
// expect: HostContext is not a device: it lacks `static constexpr std::string_view name`
/* wrong */ using D = HostContext;
/* right */ using D = Host;

// fit on D: Net, CrossEntropy<3>, Sgd, ConcatMean

// case: offloaded_batch_norm
// Batch normalisation on a device of its own: replicas could not exchange its statistics.
// expect: keeps statistics of its batch, so OnDevice cannot place it on another device; its input is 4 x 4 x 3 from layer 1 (ReLU)
#include <cupola/layers/on_device.hpp>
/* wrong */ struct Net : Sequential<Input<4, 4, 3>, ReLU, OnDevice<Host, BatchNorm2d<>>> {};
/* right */ struct Net : Sequential<Input<4, 4, 3>, OnDevice<Host, ReLU>, BatchNorm2d<>> {};

// case: offloaded_block
// A residual block on a device of its own, which places single layers.
// expect: OnDevice takes a single layer: put it inside the block, not around it
#include <cupola/layers/on_device.hpp>
/* wrong */ struct Net : Sequential<Input<4, 4, 3>, OnDevice<Host, Residual<Identity, ReLU>>> {};
/* right */ struct Net : Sequential<Input<4, 4, 3>, Residual<Identity, OnDevice<Host, ReLU>>> {};

// case: offloaded_embedding
// Ids are not copied to another device.
// expect: reads an input of the network, of int32, and OnDevice cannot place it on another device
#include <cupola/layers/on_device.hpp>
/* wrong */ struct Net : Sequential<Input<3>, OnDevice<Host, Embedding<10, 4>>, Flatten, ReLU> {};
/* right */ struct Net : Sequential<Input<3>, Embedding<10, 4>, Flatten, OnDevice<Host, ReLU>> {};

// case: offloaded_named_value
// A named value inside a list on a device of its own, which places single layers.
// expect: OnDevice takes single layers: put Keep and the modules that read a named value outside it
#include <cupola/layers/on_device.hpp>
/* wrong */ struct Net : Sequential<Input<8, 8, 3>, OnDevice<Host, ReLU, Keep<"skip">, ReLU>, AddFrom<"skip">> {};
/* right */ struct Net : Sequential<Input<8, 8, 3>, ReLU, Keep<"skip">, OnDevice<Host, ReLU>, AddFrom<"skip">> {};
