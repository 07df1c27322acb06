// SPDX-License-Identifier: Apache-2.0
//
// The trainings of training_runs.hpp on `Cuda`: on a GPU, or on an emulated one if training_emulated.cpp includes this file.
#include <cupola/cuda.hpp>
#include <cupola/cupola.hpp>
#include <cupola/device/host.hpp>
#include <cupola/ops/host/local_response_norm.hpp>
#ifdef CUPOLA_TEST_NCCL
#include <cupola/nccl.hpp>
#endif

#ifdef CUPOLA_TEST_EMULATED
#include "../emulator/control.hpp"
#else
#include <cupola/models/convnext.hpp>
#include <cupola/models/efficientnet_lite0.hpp>
#include <cupola/models/mobilenet_v2.hpp>
#endif
#include "train.hpp"

namespace training_runs {

#ifndef CUPOLA_TEST_EMULATED
// nvcc matches no partial specialisation on a name. With one, the blocks had no sum there, without an error.
template <class Net>
constexpr int sums = [] {
    int count = 0;
    for (const cupola::LayerInfo& layer : Net::layers) count += layer.kind == cupola::LayerKind::sum ? 1 : 0;
    return count;
}();
static_assert(sums<cupola::MobileNetV2<>> == 10 && cupola::MobileNetV2<>::parameter_count == 3'504'872);
static_assert(sums<cupola::ConvNeXtTiny<>> == 18 && cupola::ConvNeXtTiny<>::parameter_count == 28'589'128);
static_assert(sums<cupola::EfficientNetLite0<>> == 9 && cupola::EfficientNetLite0<>::parameter_count == 4'652'008);
#endif

#ifdef CUPOLA_TEST_NCCL
/// Gives the same bits as a scale of 1 if the scale is applied and removed everywhere.
struct Scaled : cupola::Float32 {
    static constexpr float loss_scale = 1024;
};
struct ScaledConvolutions : cupola::InPrecision<Scaled, Convolutions> {};
struct ScaledFrozenBody : cupola::InPrecision<Scaled, FrozenBody> {};
struct ScaledTwoHeads : cupola::InPrecision<Scaled, TwoHeads> {};
#endif

namespace {

/// Devices share GPUs if there are fewer.
Run placed(Run run) {
    if (run.devices_per_gpu == 0) run.devices_per_gpu = (run.devices + gpus() - 1) / gpus();
    return run;
}

}  // namespace

Result run_on_cuda(const Run& chosen) {
    const Run run = placed(chosen);
#ifdef CUPOLA_TEST_NCCL
    if (run.average == Average::nccl) {
        const auto by_nccl = [&]<class Net, class Loss = TheLoss>() {
            using Training = cupola::DataParallel<Net, Loss, AnyRule, cupola::NcclAllReduce, cupola::Cuda>;
            return train<cupola::Cuda, Training, cupola::impl::CudaPinned>(run, rule_of(run));
        };
        if (run.model == Model::frozen_body) return by_nccl.operator()<ScaledFrozenBody>();
        if (run.model == Model::two_heads) return by_nccl.operator()<ScaledTwoHeads, LossOfHeads>();
        return by_nccl.operator()<ScaledConvolutions>();
    }
#endif
    return run_on<cupola::Cuda, cupola::impl::CudaPinned>(run);
}

Result fit_on_cuda(const Run& run) { return fit_on<cupola::Cuda, cupola::impl::CudaPinned>(placed(run)); }

int gpus() { return cupola::cuda_devices(); }
bool has_nccl() {
#ifdef CUPOLA_TEST_NCCL
    return true;
#else
    return false;
#endif
}

#ifdef CUPOLA_TEST_EMULATED
bool emulated() { return true; }
void refuse_captures(bool refuse) { cupola::emulator::refuse_captures(refuse); }
std::int64_t captures() { return cupola::emulator::captures(); }
std::int64_t launches_of_captures() { return cupola::emulator::launches_of_captures(); }
void set_pace(int pieces) { cupola::emulator::set_pace(pieces); }
void fail_device(int device, std::int64_t after) {
    if (device < 0)
        cupola::emulator::mend();
    else
        cupola::emulator::fail_device(device, after);
}
int overruns() { return cupola::emulator::overruns(); }
#else
bool emulated() { return false; }
void refuse_captures(bool) {}
std::int64_t captures() { return 0; }
std::int64_t launches_of_captures() { return 0; }
void set_pace(int) {}
void fail_device(int, std::int64_t) {}
int overruns() { return 0; }
#endif

}  // namespace training_runs
