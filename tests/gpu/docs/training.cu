// SPDX-License-Identifier: Apache-2.0
//
// The code of docs/how-to/cuda.md, compiled with the tests of Cuda. Without a GPU it ends with an error message.
#include <cstdio>

#include <cupola/cuda.hpp>
#include <cupola/cupola.hpp>
#include <cupola/data/cuda_batches.hpp>
#include <cupola/models/tutorial_augmentation.hpp>
#include <cupola/nccl.hpp>

using namespace cupola;

struct Net : Sequential<Input<24, 24, 3>, Named<"conv1", Conv2d<64, 5>>, ReLU, MaxPool2d<3, 2>, LocalResponseNorm<4>,
                        Flatten, Linear<10>> {};

double train(const ImageSet& images) {
    CudaBatches batches(images, TutorialAugmentation{}, {.batch_size = 128, .replicas = 4, .seed = 1});

    DataParallel<InPrecision<MixedBFloat16, Net>, CrossEntropy<10>, Sgd, NcclAllReduce, Cuda> training(
        {.replicas = 4, .devices = 2, .batch_size = 128, .seed = 1});
    fit(training, batches, {.steps = 1000}, LogEvery(100));
    return training.step(batches).loss;
}

void show(const StepReport& report) {
    std::printf("step %lld, loss %.2f\n", static_cast<long long>(report.step), report.loss);
}

/// The loop of `fit`, written out.
void train_by_hand(DataParallel<Net, CrossEntropy<10>, Sgd, ConcatMean, Cuda>& training,
                   CudaBatches<TutorialAugmentation>& batches) {
    for (int i = 0; i < 1000; ++i) {
        training.queue(batches);
        while (const StepReport* report = training.poll_report()) show(*report);
    }
    while (const StepReport* report = training.poll_report(0)) show(*report);
}

struct FirstCounts {
    static constexpr std::string_view name = "FirstCounts";
    void average(CudaContext& context, const GradientRows& gradients, std::span<float> mean) const {
        context.queue_copy(mean.data(), gradients.rows[0], mean.size_bytes());
    }
};
static_assert(AveragingPolicy<FirstCounts, Cuda>);

int main() {
    try {
        std::printf("%d GPUs\n", cuda_devices());
        const ImageSet images("grey", {32, 32, 3}, std::vector<std::uint8_t>(1024 * 32 * 32 * 3, 128),
                              std::vector<std::int32_t>(1024, 3), {"0", "1", "2", "3", "4", "5", "6", "7", "8", "9"});
        std::printf("loss %.2f\n", train(images));
        DataParallel<Net, CrossEntropy<10>, Sgd, ConcatMean, Cuda> training({.batch_size = 128});
        CudaBatches batches(images, TutorialAugmentation{}, {.batch_size = 128, .replicas = 1, .seed = 1});
        train_by_hand(training, batches);
    } catch (const Error& error) {
        std::fprintf(stderr, "docs: %s\n", error.what());
        return 1;
    }
    return 0;
}
