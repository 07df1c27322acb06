// SPDX-License-Identifier: Apache-2.0
//
// The rate in images per second at which a GPU makes batches, from bytes to augmented floats: 50,000 images of random bytes,
// the tutorial's augmentation, timed by CUDA events, the median of 5 epochs for each batch size. Prints one line of JSON per
// batch size, which also has the rate at which the host queues the batches: a step of a training does that in addition.
#include <cuda_runtime.h>

#include <cupola/core/monotonic_seconds.hpp>
#include <cupola/data/cuda_batches.hpp>
#include <cupola/data/dataset.hpp>
#include <cupola/device/cuda.hpp>
#include <cupola/models/tutorial_augmentation.hpp>

#include "../../../standard.hpp"
#include "../../random_images.hpp"

using namespace cupola;

namespace {

constexpr std::int64_t image_count = 50'000;
constexpr std::size_t rounds = 5;

void check(cudaError_t status, const char* call) {
    require<DeviceError>(status == cudaSuccess, call, " failed: ", cudaGetErrorString(status));
}

struct Rate {
    double on_device = 0, on_host = 0;  ///< seconds
};

/// The steps of one epoch.
Rate epoch(CudaBatches<TutorialAugmentation>& batches, CudaContext& context, std::int64_t first, std::int64_t steps,
           cudaEvent_t begin, cudaEvent_t end) {
    check(cudaEventRecord(begin, context.stream()), "cudaEventRecord");
    const double start = monotonic_seconds();
    for (std::int64_t step = first; step < first + steps; ++step) [[maybe_unused]]
        const BatchView batch = batches(step, 0, context);
    const double queued = monotonic_seconds();
    check(cudaEventRecord(end, context.stream()), "cudaEventRecord");
    check(cudaEventSynchronize(end), "cudaEventSynchronize");
    float milliseconds = 0;
    check(cudaEventElapsedTime(&milliseconds, begin, end), "cudaEventElapsedTime");
    return {static_cast<double>(milliseconds) * 1e-3, queued - start};
}

template <double Rate::*member>
double median(std::array<Rate, rounds> rates) {
    std::sort(rates.begin(), rates.end(), [](const Rate& a, const Rate& b) { return a.*member < b.*member; });
    return rates[rounds / 2].*member;
}

void run() {
    CudaContext context(0, {});
    const auto scope = context.team();
    const ImageSet images = gpu_tests::random_images(image_count);
    cudaEvent_t begin = nullptr, end = nullptr;
    check(cudaEventCreate(&begin), "cudaEventCreate");
    check(cudaEventCreate(&end), "cudaEventCreate");
    for (const std::int64_t batch : {128, 512, 2048}) {
        CudaBatches<TutorialAugmentation> batches(images, TutorialAugmentation{},
                                                  {.batch_size = batch, .replicas = 1, .seed = 1});
        const std::int64_t steps = image_count / batch;
        epoch(batches, context, 0, steps, begin, end);  // copies the images to the GPU and loads the kernel
        std::array<Rate, rounds> rates;
        std::int64_t first = steps;
        for (Rate& rate : rates) {
            rate = epoch(batches, context, first, steps, begin, end);
            first += steps;
        }
        const auto made = static_cast<double>(steps * batch);
        std::printf("{\"batch\": %lld, \"images_per_second\": %.0f, \"images_queued_per_second\": %.0f}\n",
                    static_cast<long long>(batch), made / median<&Rate::on_device>(rates),
                    made / median<&Rate::on_host>(rates));
    }
    cudaEventDestroy(begin);
    cudaEventDestroy(end);
}

}  // namespace

int main() try { run(); } catch (const std::exception& error) {
    std::fprintf(stderr, "bench_batches: %s\n", error.what());
    return 1;
}
