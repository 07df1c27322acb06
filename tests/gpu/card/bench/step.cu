// SPDX-License-Identifier: Apache-2.0
//
// The training step of the tutorial's network on a GPU, with synthetic batches that are in its memory already. It
// communicates with side_by_side.py by the protocol of tests/benchmarks/peers/protocol.py. Compiled with each of
// Float32, MixedBFloat16 and MixedFloat16 as CUPOLA_BENCH_PRECISION.
//
//   bench_step_PRECISION BATCH [tf32]              steps, queued as far ahead as in a training; every report is read
//   bench_step_PRECISION BATCH [tf32] augmented    the same with batches that the GPU makes of 50,000 images
//   bench_step_PRECISION BATCH [tf32] nodes        the time of each part of a step, not captured, as one line of JSON
//   bench_step_PRECISION BATCH [tf32] kernels      the kernels of a captured step, if CUPTI was found by the build
//   bench_step_PRECISION BATCH,... [tf32] plans    one line of JSON per batch size: the algorithms of the plans, the memory
//   bench_step_PRECISION BATCH [tf32] again        one line of JSON per time that the plans are made, by a process whose first work on
//                                                  the GPU they are: the choices and the seconds of the first time and of later ones
//   bench_step_PRECISION BATCH empty               what a kernel of a graph and the gap after it take at least
//
// In place of tf32, for TF32 in convolutions and products, tf32-convolutions is PyTorch's default: in convolutions alone.
// With chain the gradients of a layer are not computed side by side, and with early kernels are launched before the end of the one
// before them: see CudaOptions.
// With plans=FILE each of them takes the algorithms from this file; the last also adds those that it had to choose.
#include <cupola/core/monotonic_seconds.hpp>
#include <cupola/cuda.hpp>
#include <cupola/cupola.hpp>
#include <cupola/data/cuda_batches.hpp>
#include <cupola/io/plan_file.hpp>
#include <cupola/models/cifar10_net.hpp>
#include <cupola/models/tutorial_augmentation.hpp>

#include "../../random_images.hpp"
#include "../../synthetic_batches.hpp"
#include "empty_chain.hpp"
#ifdef CUPOLA_BENCH_CUPTI
#include "kernel_times.hpp"
#endif
#include "../../../standard.hpp"
#include "node_times.hpp"
#include "turns.hpp"

using namespace cupola;

namespace {

using Net = InPrecision<CUPOLA_BENCH_PRECISION, Cifar10Net>;
using Loss = Cifar10Loss;

/// Bytes of the GPU that are in use, by all processes.
double used_bytes() {
    std::size_t free = 0, total = 0;
    impl::check_cuda(cudaMemGetInfo(&free, &total), "cudaMemGetInfo");
    return static_cast<double>(total - free);
}

/// Batches that the GPU makes of 50,000 images.
class Augmented {
public:
    explicit Augmented(std::int64_t batch)
        : images_(gpu_tests::random_images(50'000)),
          batches_(images_, TutorialAugmentation{}, {.batch_size = batch, .replicas = 1, .seed = 1}) {}
    [[nodiscard]] CudaBatches<TutorialAugmentation>& source() { return batches_; }

private:
    ImageSet images_;
    CudaBatches<TutorialAugmentation> batches_;
};

/// Batches that are in the memory of the GPU from the start.
class Synthetic {
public:
    explicit Synthetic(std::int64_t batch) : batches_(batch) {}
    [[nodiscard]] const gpu_tests::SyntheticBatches& source() const { return batches_; }

private:
    gpu_tests::SyntheticBatches batches_;
};

template <class Batches = Synthetic>
class Steps {
public:
    /// Runs so many steps before the first that counts; plans are made with the training.
    Steps(std::int64_t batch, const CudaOptions& device, int warm_up = std::min(20, gpu_bench::max_steps))
        : used_before_(used_bytes()),
          batches_(gpu_bench::samples_of(batch)),
          training_({.device = device,
                     .batch_size = gpu_bench::samples_of(batch),
                     .seed = 1,
                     .optimizer = {.learning_rate = 0.01}}) {
        run(warm_up);
    }
    /// Waits for all steps and returns the loss of the last.
    double run(int steps) {
        double loss = 0;
        for (int i = 0; i < steps; ++i) {
            training_.queue(batches_.source());
            while (const StepReport* const report = training_.poll_report()) loss = report->loss;
        }
        while (const StepReport* const report = training_.poll_report(0)) loss = report->loss;
        return loss;
    }
    [[nodiscard]] std::string not_captured() const { return training_.not_captured(); }
    [[nodiscard]] std::string launches() const { return training_.launches_description(); }
    /// The memory that the batches and the training have taken. Other processes that start or end meanwhile falsify it.
    [[nodiscard]] double bytes() const { return used_bytes() - used_before_; }

private:
    double used_before_;
    Batches batches_;
    DataParallel<Net, Loss, Sgd, ConcatMean, Cuda> training_;
};

int kernels(std::int64_t batch, const CudaOptions& device) {
#ifdef CUPOLA_BENCH_CUPTI
    constexpr int recorded = std::min(20, gpu_bench::max_steps);
    Steps<> steps(batch, device);
    bench::KernelTimes::start();
    steps.run(recorded);
    bench::KernelTimes::stop();
    bench::KernelTimes::print(recorded);
    return 0;
#else
    throw DeviceError(text("CUPTI was not there when this was built: the kernels of a step of ", batch, " in ",
                           device.tf32 || device.tf32_convolutions ? "TF32" : "its precision", " are not recorded"));
#endif
}

/// What a kernel and the gap after it take at least: one line of JSON, with the seconds of a kernel by the clock that kernels() has, if
/// CUPTI was found by the build.
int empty(const CudaOptions& device) {
    const CudaContext context(0, device);
    const auto scope = context.team();
    const bench::EmptyChain chain(context);
    std::printf("{\"kernels\": %d, \"seconds\": %.9f", bench::EmptyChain::kernels, chain.seconds_per_kernel());
#ifdef CUPOLA_BENCH_CUPTI
    bench::KernelTimes::start();
    chain.run();
    bench::KernelTimes::stop();
    std::printf(", \"kernel\": %.9f", bench::KernelTimes::mean(bench::EmptyChain::name));
#endif
    std::printf("}\n");
    return 0;
}

std::string quoted(std::string text) {
    std::replace(text.begin(), text.end(), '"', '\'');
    std::replace(text.begin(), text.end(), '\\', '/');
    std::replace_if(
        text.begin(), text.end(), [](char c) { return static_cast<unsigned char>(c) < ' '; }, ' ');
    return '"' + text + '"';
}

void print(const PlanRecord& plan, const char* before) {
    std::printf("%s{\"plan\": %s, \"key\": %s, \"choice\": %s, \"seconds\": %.9f, \"candidates\": [", before,
                quoted(to_string(plan)).c_str(), quoted(plan.key).c_str(), quoted(plan.name).c_str(), plan.seconds);
    const char* comma = "";
    for (const TimedCandidate& one : plan.candidates) {
        std::printf("%s{\"name\": %s, \"seconds\": %.9f}", comma, quoted(one.name).c_str(), one.seconds);
        comma = ", ";
    }
    std::printf("]}");
}

/// The choices are written after each size, so that a run that is cut leaves those that it has made.
int plans(std::string_view batches, const CudaOptions& device, PlanFile& choices) {
    std::size_t printed = 0;
    while (!batches.empty()) {
        const std::size_t comma = std::min(batches.find(','), batches.size());
        const std::int64_t batch = std::atoll(std::string(batches.substr(0, comma)).c_str());
        batches.remove_prefix(std::min(comma + 1, batches.size()));
        const Steps<> steps(batch, device);
        std::printf("{\"batch\": %lld, \"bytes\": %.0f, \"launches\": %s, \"plans\": [", static_cast<long long>(batch),
                    steps.bytes(), quoted(steps.launches()).c_str());
        const std::vector<PlanRecord> records = device.plan_choices->records();
        for (const char* before = ""; printed < records.size(); before = ", ") print(records[printed++], before);
        std::printf("]}\n");
        std::fflush(stdout);
        choices.write();
    }
    return 0;
}

/// Makes the plans of a step again and again, each time with no choices that are known.
int plans_again(std::int64_t batch, CudaOptions device) {
    constexpr int times = 3;
    for (int time = 0; time < times; ++time) {
        device.plan_choices = std::make_shared<PlanChoices>();
        const double began = monotonic_seconds();
        const Steps<> steps(batch, device, 1);
        std::printf("{\"batch\": %lld, \"time\": %d, \"seconds\": %.6f, \"plans\": [", static_cast<long long>(batch),
                    time, monotonic_seconds() - began);
        const char* before = "";
        for (const PlanRecord& plan : device.plan_choices->records()) {
            print(plan, before);
            before = ", ";
        }
        std::printf("]}\n");
        std::fflush(stdout);
    }
    return 0;
}

template <class Batches>
int serve(std::int64_t batch, const CudaOptions& device) {
    Steps<Batches> training(batch, device);
    std::string why = training.not_captured();
    std::replace(why.begin(), why.end(), '"', '\'');
    std::printf(
        "{\"name\": \"Cupola\", \"version\": \"%d.%d.%d\", \"how\": \"%s%s\", \"libraries\": \"%s\", \"tf32\": %s}\n",
        CUPOLA_VERSION_MAJOR, CUPOLA_VERSION_MINOR, CUPOLA_VERSION_PATCH,
        why.empty() ? "captured" : "not captured: ", why.c_str(), Cuda::library_version().c_str(),
        device.tf32 ? "true" : "false");
    std::fflush(stdout);
    gpu_bench::serve_turns([&](int steps) { return training.run(steps); });
    return 0;
}

}  // namespace

int main(int argc, char** argv) try {
    require(argc >= 2,
            "usage: bench_step_PRECISION BATCH [tf32|tf32-convolutions] [chain] [early] "
            "[augmented|nodes|kernels|plans|again|empty] "
            "[plans=FILE]");
    [[maybe_unused]] const int devices = cuda_devices();
    const std::int64_t batch = std::atoll(argv[1]);
    CudaOptions device;
    device.tf32 = false;  // whatever the default is: the words decide
#ifdef CUPOLA_BENCH_EMULATED
    // The candidates take this processor's time to emulate. The plans are those of a GPU only if none of them is left out for it.
    device.plan_seconds *= 100;
#endif
    std::string file;
    std::string_view what;
    for (int i = 2; i < argc; ++i) {
        const std::string_view word = argv[i];
        if (word == "tf32") {
            device.tf32 = true;
        } else if (word == "tf32-convolutions") {
            device.tf32_convolutions = true;
        } else if (word == "chain") {
            device.side_by_side_gradients = false;
        } else if (word == "early") {
            device.dependent_launch = true;
        } else if (word.starts_with("plans=")) {
            file = word.substr(std::string_view("plans=").size());
        } else {
            require(
                word == "augmented" || word == "nodes" || word == "kernels" || word == "plans" || word == "again" ||
                    word == "empty",
                "a word after BATCH is tf32, tf32-convolutions, chain, early, augmented, nodes, kernels, plans, again, empty or "
                "plans=FILE, not ",
                word);
            what = word;
        }
    }
    require(what != "plans" || !file.empty(), "plans needs plans=FILE, the file for them");
    PlanFile choices(file);
    device.plan_choices = choices.choices();
    int status = 0;
    if (what == "kernels") {
        status = kernels(batch, device);
    } else if (what == "plans") {
        status = plans(argv[1], device, choices);
    } else if (what == "again") {
        status = plans_again(batch, device);
    } else if (what == "empty") {
        status = empty(device);
    } else if (what == "augmented") {
        status = serve<Augmented>(batch, device);
    } else if (what.empty()) {
        status = serve<Synthetic>(batch, device);
    } else {
        const std::int64_t samples = gpu_bench::samples_of(batch);
        const gpu_tests::SyntheticBatches batches(samples);
        CudaContext context(0, device);
        constexpr int steps = std::min(30, gpu_bench::max_steps);
        bench::print(bench::node_times<Net, Loss>(device, samples, batches(0, 0, context), steps));
    }
    return status;
} catch (const std::exception& error) {
    std::fprintf(stderr, "%s: %s\n", CUPOLA_BENCH_NAME, error.what());
    return 1;
}
