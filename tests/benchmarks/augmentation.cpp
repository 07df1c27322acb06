// SPDX-License-Identifier: Apache-2.0
// The images per second from bytes to augmented batches, as cifar10_train makes them, on one thread.
//
//   augmentation [rounds]        one line of JSON: images per second in each round, for the tutorial's augmentations, for the padded,
//                               cropped and flipped images of ResNet and for the test's crop
#include <cupola/data/batches.hpp>
#include <cupola/data/random_crop_flip.hpp>
#include <cupola/models/tutorial_augmentation.hpp>

#include "../data/labelled.hpp"
#include "../standard.hpp"

using namespace cupola;

namespace {

constexpr std::int64_t images = 50'000, batch = 128, steps = 100;

ImageSet random_images() {
    std::vector<std::uint8_t> pixels(static_cast<std::size_t>(images * 32 * 32 * 3));
    std::vector<std::int32_t> labels(static_cast<std::size_t>(images));
    std::uint32_t state = 12345;
    for (auto& value : pixels) {
        state = state * 1664525U + 1013904223U;
        value = static_cast<std::uint8_t>(state >> 24);
    }
    for (std::size_t i = 0; i < labels.size(); ++i) labels[i] = static_cast<std::int32_t>(i % 10);
    std::vector<std::string> classes;
    for (int c = 0; c < 10; ++c) classes.push_back("class " + std::to_string(c));
    return {"random images", {32, 32, 3}, std::move(pixels), std::move(labels), std::move(classes)};
}

/// Images a second of one round; the steps are those that follow the last round's.
template <class Batches>
double rate(const Batches& batches, int round) {
    static std::vector<float> samples(static_cast<std::size_t>(batch * 32 * 32 * 3));
    static std::vector<std::int32_t> labels(static_cast<std::size_t>(batch));
    const auto start = std::chrono::steady_clock::now();
    for (std::int64_t step = round * steps; step < (round + 1) * steps; ++step)
        batches.fill(step, 0, labelled(batches, samples.data(), labels.data()));
    return static_cast<double>(batch * steps) /
           std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

void print(const char* name, const std::vector<double>& values, const char* end) {
    std::printf("\"%s\": [", name);
    for (std::size_t i = 0; i < values.size(); ++i) std::printf("%s%.0f", i == 0 ? "" : ", ", values[i]);
    std::printf("]%s", end);
}

}  // namespace

int main(int argc, char** argv) {
    const int rounds = argc > 1 ? std::atoi(argv[1]) : 5;
    const ImageSet data = random_images();
    const BatchOptions options{.batch_size = batch, .replicas = 1, .seed = 1};
    const TrainingBatches tutorial(data, TutorialAugmentation{}, options);
    const TrainingBatches padded(data, RandomCropFlip{}, options);
    const TrainingBatches centre(data, CenterCrop{}, options);
    std::vector<double> of_tutorial, of_padded, of_centre;
    for (int round = 0; round <= rounds; ++round) {
        const double a = rate(tutorial, round), b = rate(padded, round), c = rate(centre, round);
        if (round == 0) continue;  // pages are there only now
        of_tutorial.push_back(a);
        of_padded.push_back(b);
        of_centre.push_back(c);
    }
    std::printf("{");
    print("tutorial", of_tutorial, ", ");
    print("random_crop_flip", of_padded, ", ");
    print("center_crop", of_centre, "}\n");
}
