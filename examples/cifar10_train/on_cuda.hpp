// SPDX-License-Identifier: Apache-2.0
//
// --device cuda: what a run does on the GPUs that this process sees. on_host.hpp has the same parts. For nvcc.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>

#include <cupola/cuda.hpp>
#include <cupola/cupola.hpp>
#include <cupola/data/cuda_batches.hpp>
#include <cupola/io/checkpoint_info.hpp>
#include <cupola/parallel/cuda_concat_mean.hpp>
#ifdef CUPOLA_EXAMPLE_NCCL
#include <cupola/nccl.hpp>
#endif

#include "../standard_output.hpp"
#include "options.hpp"
#include "plan_file.hpp"

namespace cifar10 {

using namespace cupola;

/// One GPU a replica as far as they last.
class OnCuda {
public:
    using Device = Cuda;
    static constexpr const char* place = "cuda";
    static constexpr bool profiles = false;

    explicit OnCuda(const TrainOptions& options)
        : options_(&options),
          plans_(options),
          devices_(options.num_devices != 0 ? options.num_devices : std::min(options.num_replicas, cuda_devices())) {
        cudaDeviceProp properties{};
        gpu_ = cudaGetDeviceProperties(&properties, 0) == cudaSuccess ? properties.name : "a GPU without a name";
    }

    [[nodiscard]] int devices() const { return devices_; }
    [[nodiscard]] CudaOptions device_options() const {
        return {.tf32 = options_->tf32, .deterministic = options_->deterministic, .plan_choices = plans_.choices()};
    }

    /// The data set goes to each GPU once, as bytes, and a batch is made of it there.
    template <class Augment>
    [[nodiscard]] auto source(const ImageSet& images, const BatchOptions& options) const {
        return CudaBatches<Augment>(images, Augment{}, options);
    }
    /// Those of this process's replicas, which are numbered from 0 in each.
    template <class Source>
    [[nodiscard]] auto batches(Source& source) const {
        const int first = std::max(0, options_->process) * options_->num_replicas;
        return [&source, first](std::int64_t step, int replica, CudaContext& context) {
            return source(step, first + replica, context);
        };
    }
    template <class Centre>
    [[nodiscard]] auto test_batches(const ImageSet& images) const {
        return CudaEvaluationBatches<Centre>(images, Centre{}, options_->batch_size);
    }

    /// For the line `replicas:`.
    [[nodiscard]] std::string description() const {
        return text(devices_, " Cuda device", devices_ == 1 ? "" : "s", " (", gpu_, ", ", Cuda::library_version(),
                    options_->tf32 ? ", TF32" : "", options_->deterministic ? ", deterministic" : "", ")",
                    options_->processes == 1 ? std::string()
                                             : text(", in process ", options_->process, " of ", options_->processes));
    }

    /// What the bits of a result depend on beside the settings of the run.
    void describe(CheckpointInfo& info) const {
        info.set("gpu", gpu_);
        info.set("cuda", Cuda::library_version());
        if (options_->tf32) info.set("tf32", "on");
        if (options_->deterministic) info.set("deterministic", "on");
        // NCCL adds up the devices in an order of its own; ConcatMean's sum is the same for any number of them.
        if (options_->averaging == "nccl") info.set("ranks", text(devices_ * options_->processes));
    }

    /// After the first step the training's plans are all chosen; in the second its work is captured, or not.
    template <class Training>
    struct Callback {
        OnCuda* side;
        const Training* training;
        int reports = 0;

        void on_step(const StepReport&, Run&) {
            ++reports;
            if (reports == 1) side->plans_.write();
            if (reports != 2) return;
            const std::string why = training->not_captured();
            if (!why.empty()) StandardOutput(side->options_->json).say(text("not captured: ", why));
        }
    };
    template <class Training>
    [[nodiscard]] Callback<Training> callback(const Training& training) {
        return {this, &training};
    }
    /// At the end there are those of the evaluation too.
    void finish() { plans_.write(); }

private:
    const TrainOptions* options_;
    PlanFile plans_;
    int devices_;
    std::string gpu_;
};

}  // namespace cifar10
