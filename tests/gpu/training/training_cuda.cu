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

// The trainings are in parts, of which each translation unit has every CUPOLA_TEST_UNITS-th: nvcc takes minutes for all of them.
#ifndef CUPOLA_TEST_UNITS
#define CUPOLA_TEST_UNITS 1
#define CUPOLA_TEST_UNIT 0
#endif
#define CUPOLA_TEST_HAS_PART(part) ((part) % CUPOLA_TEST_UNITS == CUPOLA_TEST_UNIT)

namespace training_runs {

/// The trainings of each model, those by an optimiser that is not captured, and those by NCCL.
Result convolutions_on_cuda(const Run& run);
Result bfloat16_on_cuda(const Run& run);
Result half_on_cuda(const Run& run);
Result normalized_on_cuda(const Run& run);
Result offloaded_on_cuda(const Run& run);
Result frozen_body_on_cuda(const Run& run);
Result frozen_middle_on_cuda(const Run& run);
Result weighted_on_cuda(const Run& run);
Result two_heads_on_cuda(const Run& run);
Result uncaptured_on_cuda(const Run& run);
Result convolutions_by_nccl(const Run& run);
Result frozen_body_by_nccl(const Run& run);
Result two_heads_by_nccl(const Run& run);

#ifdef CUPOLA_TEST_NCCL
/// Gives the same bits as a scale of 1 if the scale is applied and removed everywhere.
struct Scaled : cupola::Float32 {
    static constexpr float loss_scale = 1024;
};
#endif

namespace {

template <Model model>
Result run_model_on_cuda(const Run& run) {
    return run_model<model, cupola::Cuda, cupola::impl::CudaPinned>(run);
}

#ifdef CUPOLA_TEST_NCCL
template <class Net, class Loss>
Result run_by_nccl(const Run& run) {
    using Training = cupola::DataParallel<Net, Loss, AnyRule, cupola::NcclAllReduce, cupola::Cuda>;
    return train<cupola::Cuda, Training, cupola::impl::CudaPinned>(run, rule_of(run));
}
#endif

}  // namespace

#if CUPOLA_TEST_HAS_PART(1)
Result normalized_on_cuda(const Run& run) { return run_model_on_cuda<Model::normalized>(run); }
#endif
#if CUPOLA_TEST_HAS_PART(2)
Result two_heads_on_cuda(const Run& run) { return run_model_on_cuda<Model::two_heads>(run); }
#endif
#if CUPOLA_TEST_HAS_PART(3)
Result weighted_on_cuda(const Run& run) { return run_model_on_cuda<Model::weighted>(run); }
#endif
#if CUPOLA_TEST_HAS_PART(4)
Result bfloat16_on_cuda(const Run& run) { return run_model_on_cuda<Model::convolutions_bfloat16>(run); }
#endif
#if CUPOLA_TEST_HAS_PART(5)
Result half_on_cuda(const Run& run) { return run_model_on_cuda<Model::convolutions_half>(run); }
#endif
#if CUPOLA_TEST_HAS_PART(6)
Result offloaded_on_cuda(const Run& run) { return run_model_on_cuda<Model::offloaded>(run); }
#endif
#if CUPOLA_TEST_HAS_PART(7)
Result frozen_body_on_cuda(const Run& run) { return run_model_on_cuda<Model::frozen_body>(run); }
#endif
#if CUPOLA_TEST_HAS_PART(8)
Result frozen_middle_on_cuda(const Run& run) { return run_model_on_cuda<Model::frozen_middle>(run); }
#endif
#if CUPOLA_TEST_HAS_PART(9)
Result uncaptured_on_cuda(const Run& run) { return run_uncaptured<cupola::Cuda, cupola::impl::CudaPinned>(run); }
#endif
#ifdef CUPOLA_TEST_NCCL
#if CUPOLA_TEST_HAS_PART(10)
struct ScaledTwoHeads : cupola::InPrecision<Scaled, TwoHeads> {};
Result two_heads_by_nccl(const Run& run) { return run_by_nccl<ScaledTwoHeads, LossOfHeads>(run); }
#endif
#if CUPOLA_TEST_HAS_PART(11)
struct ScaledConvolutions : cupola::InPrecision<Scaled, Convolutions> {};
Result convolutions_by_nccl(const Run& run) { return run_by_nccl<ScaledConvolutions, TheLoss>(run); }
#endif
#if CUPOLA_TEST_HAS_PART(12)
struct ScaledFrozenBody : cupola::InPrecision<Scaled, FrozenBody> {};
Result frozen_body_by_nccl(const Run& run) { return run_by_nccl<ScaledFrozenBody, TheLoss>(run); }
#endif
#endif

#if CUPOLA_TEST_HAS_PART(0)

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

Result convolutions_on_cuda(const Run& run) { return run_model_on_cuda<Model::convolutions>(run); }

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
        if (run.model == Model::frozen_body) return frozen_body_by_nccl(run);
        if (run.model == Model::two_heads) return two_heads_by_nccl(run);
        return convolutions_by_nccl(run);
    }
#endif
    switch (run.model) {
        case Model::convolutions_bfloat16: return bfloat16_on_cuda(run);
        case Model::convolutions_half: return half_on_cuda(run);
        case Model::normalized: return normalized_on_cuda(run);
        case Model::offloaded: return offloaded_on_cuda(run);
        case Model::frozen_body: return frozen_body_on_cuda(run);
        case Model::frozen_middle: return frozen_middle_on_cuda(run);
        case Model::weighted: return weighted_on_cuda(run);
        case Model::two_heads: return two_heads_on_cuda(run);
        case Model::convolutions: break;
    }
    return is_uncaptured(run) ? uncaptured_on_cuda(run) : convolutions_on_cuda(run);
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

#endif  // CUPOLA_TEST_HAS_PART(0)

}  // namespace training_runs
