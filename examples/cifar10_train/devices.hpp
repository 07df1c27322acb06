// SPDX-License-Identifier: Apache-2.0
//
// --device: the parts of a run that depend on the device, for this machine's processors and for the GPUs that this
// process sees (by nvcc). Both have the same members.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include <cupola/cupola.hpp>
#include <cupola/parallel/compressed.hpp>
#ifdef __CUDACC__
#include <cupola/cuda.hpp>
#include <cupola/data/cuda_batches.hpp>
#include <cupola/io/plan_file.hpp>
#include <cupola/io/standard_output.hpp>
#include <cupola/parallel/cuda/concat_mean.hpp>
#include <cupola/processes/nccl_launch.hpp>
#ifdef CUPOLA_EXAMPLE_NCCL
#include <cupola/nccl.hpp>
#endif
#else
#include <cupola/device/processors.hpp>
#include <cupola/host.hpp>
#include <cupola/ops/host/convolution_algorithm.hpp>
#include <cupola/parallel/pipeline.hpp>
#ifdef CUPOLA_EXAMPLE_MPI
#include <cupola/mpi.hpp>
#endif
#endif

#include "averaging.hpp"
#include "options.hpp"

namespace cifar10 {

/// The device-dependent part of a run.
template <Place place>
class Side;

#ifndef __CUDACC__

/// The algorithm of --convolution: null is oneDNN's direct algorithm, which bf16 uses with AMX and without AVX-512.
const ConvolutionAlgorithm* convolution_of(const TrainOptions& options);

/// A network that --pipeline cuts, with a name of its own.
template <class Net>
struct InParts : ChosenSplit<Net> {};

/// The assignment of the processors: one device per replica as far as they suffice, with all threads divided evenly.
template <>
class Side<Place::host> {
public:
    using Device = Host;
    template <class Net>
    using Network = InParts<Net>;
    static constexpr bool profiles = true;

    explicit Side(const TrainOptions& options)
        : options_(&options), convolution_(convolution_of(options)), log_(order_log_of(options)) {
        const int processors = std::max(1, usable_processors().count() / options.processes_here);
        // Where the network is in parts, as many groups of devices as the processors suffice for.
        const int groups = std::min(options.replicas_here(), std::max(1, processors / options.pipeline));
        devices_ = options.num_devices != 0 ? options.num_devices : groups * options.pipeline;
        threads_ = options.threads_per_device != 0 ? options.threads_per_device
                                                   : std::max(1, processors / std::max(1, devices_));
        const int left = std::max(0, processors - devices_ * threads_);
        prefetch_workers_ = options.prefetch_workers >= 0 ? options.prefetch_workers : left;
    }

    [[nodiscard]] int devices() const { return devices_; }
    [[nodiscard]] int prefetch_workers() const { return prefetch_workers_; }
    [[nodiscard]] CutChoice cut() const {
        return {.parts = options_->pipeline,
                .timetable = options_->pipeline_schedule == "gpipe" ? &by_timetable<GPipe> : nullptr};
    }
    [[nodiscard]] HostOptions device_options() const { return {.threads = threads_, .convolution = convolution_}; }

    /// The source of the batches, made before the training; and the batches, made after it, since the workers begin at
    /// once.
    template <class Augment>
    [[nodiscard]] auto source(const ImageSet& images, const BatchOptions& options) const {
        return TrainingBatches(images, Augment{}, options);
    }
    template <class Source>
    [[nodiscard]] auto batches(Source& source) const {
        return Prefetch(std::move(source), {.workers = prefetch_workers_,
                                            .first_replica = options_->first_replica(),
                                            .replicas = options_->replicas_here()});
    }
    template <class Centre>
    [[nodiscard]] auto test_batches(const ImageSet& images) const {
        return EvaluationBatches(images, Centre{}, options_->batch_size, devices_);
    }

    /// The text of the line `replicas:`.
    [[nodiscard]] std::string description() const {
        return text(devices_, " Host device", devices_ == 1 ? "" : "s", " of ", threads_, " thread",
                    threads_ == 1 ? "" : "s", " (oneDNN ", Host::library_version(), ", ", Host::library_isa(), ", ",
                    convolution_name(), " convolutions), ", prefetch_workers_, " prefetch workers",
                    options_->process_count == 1 ? std::string()
                                                 : text(", in each of ", options_->process_count, " processes"));
    }

    /// The callback after a step and at the end of the run.
    template <class Training>
    [[nodiscard]] OrderLogFile<Training> callback(Training& training) {
        return {log_, options_->order_log, options_->run.writes,
                options_->run.folder.empty() ? 0 : options_->run.checkpoint_every, &training};
    }
    void finish() {}

    /// Calls `run` with the averaging that the flags name.
    template <Precision precision, class Run>
    int with_averaging(Run&& run) const {
        if constexpr (precision == Precision::float32) {
            return run(options_->asynchronous() ? asynchronous_policy(*options_, log_)
                                                : synchronous_policy<HostAveraging>(*options_));
        } else {
            return run(synchronous_policy<SynchronousAveraging>(*options_));
        }
    }

private:
    [[nodiscard]] std::string convolution_name() const { return convolution_ == nullptr ? "direct" : "winograd"; }

    const TrainOptions* options_;
    const ConvolutionAlgorithm* convolution_;
    std::shared_ptr<OrderLog> log_;
    int devices_, threads_, prefetch_workers_;
};

#else

/// Calls `run` with the averaging, compressed if --gradient-compression says so.
template <class Run, class Averaging>
int run_compressed(const TrainOptions& options, Run&& run, const Averaging& averaging) {
    if (options.gradient_compression == "bfloat16") return run(Compressed<Averaging>{.policy = averaging});
    return run(averaging);
}

/// One GPU per replica as far as they suffice.
template <>
class Side<Place::cuda> {
public:
    using Device = Cuda;
    template <class Net>
    using Network = Net;
    static constexpr bool profiles = false;

    explicit Side(const TrainOptions& options)
        : options_(&options),
          plans_(plan_path(options)),
          devices_(options.num_devices != 0 ? options.num_devices
                                            : std::min(options.replicas_here(), places_on(options))),
          first_gpu_(options.by_nccl() && options.processes == 0 ? NcclAllReduce::first_gpu(devices_, cuda_devices())
                                                                 : 0) {}

    [[nodiscard]] int devices() const { return devices_; }
    [[nodiscard]] CutChoice cut() const { return {}; }
    [[nodiscard]] CudaOptions device_options() const {
        return {.tf32 = options_->tf32,
                .tf32_convolutions = options_->tf32_convolutions,
                .deterministic = options_->deterministic,
                .plan_seconds = options_->plan_seconds,
                .plan_choices = plans_.choices(),
                .first_gpu = first_gpu_,
                .devices_per_gpu = options_->devices_per_gpu};
    }

    /// The data set is copied to each GPU once, as bytes, and batches are made from it there.
    template <class Augment>
    [[nodiscard]] auto source(const ImageSet& images, const BatchOptions& options) const {
        return CudaBatches<Augment>(images, Augment{}, options);
    }
    template <class Source>
    [[nodiscard]] Source& batches(Source& source) const {
        return source;
    }
    template <class Centre>
    [[nodiscard]] auto test_batches(const ImageSet& images) const {
        return CudaEvaluationBatches<Centre>(images, Centre{}, options_->batch_size);
    }

    /// The text of the line `replicas:`.
    [[nodiscard]] std::string description() const {
        return text(devices_, " Cuda device", devices_ == 1 ? "" : "s", " (", Cuda::gpu_name(), ", ",
                    Cuda::library_version(),
                    options_->tf32                ? ", TF32"
                    : options_->tf32_convolutions ? ", TF32 in convolutions"
                                                  : "",
                    options_->deterministic ? ", deterministic" : "", ")",
                    options_->process_count == 1 ? std::string()
                                                 : text(", in each of ", options_->process_count, " processes"));
    }

    /// After the first step all plans of the training are chosen; in the third, all work that can be captured has been
    /// captured.
    template <class Training>
    struct Callback {
        Side* side;
        const Training* training;
        int reports = 0;

        void on_step(const StepReport&, Run&) {
            ++reports;
            if (reports == 1) side->write_plans();
            if (reports != 3) return;
            const StandardOutput output(side->options_->run.log.json);
            const std::string why = training->not_captured(), launches = training->launches_description();
            if (!why.empty()) output.print_message(text("not captured: ", why));
            if (!launches.empty()) output.print_message(launches);
        }
    };
    template <class Training>
    [[nodiscard]] Callback<Training> callback(const Training& training) {
        return {this, &training};
    }
    /// At the end of the run there are also the plans of the evaluation.
    void finish() {
        const StandardOutput output(options_->run.log.json);
        for (const std::string& line : plans_.choices()->take_lines()) output.print_message(line);
        write_plans();
    }

    /// Calls `run` with the averaging that --averaging and --inner name. A step in float16 may be skipped, which no
    /// policy with a centre does.
    template <Precision precision, class Run>
    int with_averaging(Run&& run) const {
        constexpr bool has_rules = precision != Precision::float16;
#ifdef CUPOLA_EXAMPLE_NCCL
        if (options_->by_nccl()) {
            // One type for each, because buckets of a gradient are averaged while it is computed, and rows are not.
            const auto around = [&]<class Carrier>(const Carrier& carrier) {
                if constexpr (has_rules) {
                    if (options_->own_parameters()) return run(rule_around<NamedRule<Carrier>>(*options_, carrier));
                }
                return run(carrier);
            };
            return run_compressed(*options_, around,
                                  NcclAllReduce{.processes = options_->process_count,
                                                .process = options_->process_number,
                                                .id_file = options_->id_file,
                                                .address = options_->address,
                                                .folder = options_->run.folder,
                                                .step_seconds = options_->deadline,
                                                .heartbeat_seconds = std::min(5.0, options_->deadline / 2)});
        }
#endif
        if constexpr (has_rules) {
            return run(averaging_around<NamedAveraging<ConcatMean>>(*options_, ConcatMean{}));
        } else {
            return run(ConcatMean{});
        }
    }

private:
    /// The number of devices that the GPUs have room for.
    static int places_on(const TrainOptions& options) {
        constexpr std::int64_t most = 1 << 20;
        return static_cast<int>(std::min(most, std::int64_t{cuda_devices()} * options.devices_per_gpu));
    }

    /// The file of --plan-choices, or cudnn-plans.txt in --train-dir; empty if neither is given. Each process times the
    /// candidates on its own GPU and keeps its choices in a file of its own: cudnn-plans.txt.1 is that of process 1.
    static std::string plan_path(const TrainOptions& options) {
        const bool named = !options.plan_choices.empty() || options.run.folder.empty();
        std::string path = named ? options.plan_choices : options.run.folder + "/cudnn-plans.txt";
        if (!path.empty() && options.process_number > 0) path += text('.', options.process_number);
        return path;
    }

    /// The folder of process 0 need not exist where another process runs.
    void write_plans() {
        try {
            plans_.write();
        } catch (const DataError& error) {
            if (options_->run.writes) throw;
            StandardOutput(options_->run.log.json).print_message(text("warning: ", error.what()));
        }
    }

    const TrainOptions* options_;
    PlanFile plans_;
    int devices_, first_gpu_;
};

#endif

}  // namespace cifar10
