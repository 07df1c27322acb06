// SPDX-License-Identifier: Apache-2.0
//
// --device host: what a run does on the processors of this machine. on_cuda.hpp has the same parts.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>

#include <cupola/cupola.hpp>
#include <cupola/host.hpp>
#include <cupola/io/checkpoint_info.hpp>
#include <cupola/ops/host/convolution_algorithm.hpp>

#include "options.hpp"

namespace cifar10 {

using namespace cupola;

/// --convolution: null is oneDNN's direct one, and so is what bf16 has. Throws InvalidArgument for another name.
const ConvolutionAlgorithm* convolution_of(const TrainOptions& options);

/// Where the processors go: one device a replica as far as they last, all threads shared out evenly.
class OnHost {
public:
    using Device = Host;
    static constexpr const char* place = "host";
    static constexpr bool profiles = true;

    explicit OnHost(const TrainOptions& options) : options_(&options), convolution_(convolution_of(options)) {
        const int processors = omp_get_num_procs();
        devices_ = options.num_devices != 0 ? options.num_devices : std::min(options.num_replicas, processors);
        threads_ = options.threads_per_device != 0 ? options.threads_per_device
                                                   : std::max(1, processors / std::max(1, devices_));
        const int left = std::max(0, processors - devices_ * threads_);
        prefetch_workers_ = options.prefetch_workers >= 0 ? options.prefetch_workers : left;
    }

    [[nodiscard]] int devices() const { return devices_; }
    [[nodiscard]] HostOptions device_options() const { return {.threads = threads_, .convolution = convolution_}; }

    /// Where batches come from, made before the training; and the batches, made after it: the workers begin at once.
    template <class Augment>
    [[nodiscard]] auto source(const ImageSet& images, const BatchOptions& options) const {
        return TrainingBatches(images, Augment{}, options);
    }
    template <class Source>
    [[nodiscard]] auto batches(Source& source) const {
        return Prefetch(std::move(source), {.workers = prefetch_workers_});
    }
    template <class Centre>
    [[nodiscard]] auto test_batches(const ImageSet& images) const {
        return EvaluationBatches(images, Centre{}, options_->batch_size, devices_);
    }

    /// For the line `replicas:`.
    [[nodiscard]] std::string description() const {
        return text(devices_, " Host device", devices_ == 1 ? "" : "s", " of ", threads_, " thread",
                    threads_ == 1 ? "" : "s", " (oneDNN ", Host::library_version(), ", ", Host::library_isa(), ", ",
                    convolution_name(), " convolutions), ", prefetch_workers_, " prefetch workers");
    }

    /// What the bits of a result depend on beside the settings of the run.
    void describe(CheckpointInfo& info) const {
        info.set("convolution", convolution_name());
        info.set("threads_per_device", text(threads_));
        info.set("onednn", Host::library_version());
        info.set("isa", text(Host::library_isa(), " (oneDNN), ", compiled_isa, " (Cupola)"));
    }

    /// What is to be done after a step, and at the end of the run: nothing.
    struct Callback {
        void on_step(const StepReport&, Run&) {}
    };
    template <class Training>
    [[nodiscard]] Callback callback(const Training&) {
        return {};
    }
    void finish() {}

private:
    [[nodiscard]] std::string convolution_name() const { return convolution_ == nullptr ? "direct" : "winograd"; }

    const TrainOptions* options_;
    const ConvolutionAlgorithm* convolution_;
    int devices_, threads_, prefetch_workers_;
};

}  // namespace cifar10
