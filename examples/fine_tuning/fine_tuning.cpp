// SPDX-License-Identifier: Apache-2.0
//
// Fine-tuning: a network learns to tell eight directions of stripes from 4,000 images. Its body is loaded by pattern
// into a network with a new head for another task with only 60 images: whether stripes of two directions cross at a
// right angle. The body is frozen: it has no gradients and no optimiser state, and backward ends at the head.
// `fine_tuning FILE` writes the pretrained network to FILE.
// Prints the report of the load, the network, the loss every 200 steps, and the accuracies.
#include <cmath>
#include <cstdio>
#include <numbers>
#include <vector>

#include <cupola/cupola.hpp>
#include <cupola/host.hpp>
#include <cupola/io/checkpoint.hpp>
#include <cupola/io/load_parameters.hpp>
#include <cupola/net/frozen.hpp>
#include <cupola/net/summary.hpp>

using namespace cupola;

template <std::int64_t classes>
struct Stripes : Sequential<Input<16, 16, 1>, Named<"body.conv1", Conv2d<16, 5>>, Named<"body.norm1", BatchNorm2d<>>,
                            ReLU, MaxPool2d<2>, Named<"body.conv2", Conv2d<32, 3>>, Named<"body.norm2", BatchNorm2d<>>,
                            ReLU, GlobalAvgPool2d, Named<"head", Linear<classes>>> {};
struct Pretrained : Stripes<8> {};
struct Scratch : Stripes<2> {};
struct Tuned : Frozen<Scratch, "body.*"> {};

struct Images {
    std::vector<float> pixels;
    std::vector<std::int32_t> labels;

    /// Stripes of one of eight directions, the label; or of two, labelled by whether they cross at a right angle.
    Images(std::uint64_t seed, std::uint64_t count, bool two) {
        for (std::uint64_t i = 0; i < count; ++i) {
            const RandomStream random(seed, RngDomain::user, 0, i);
            const auto words = random.words(0);
            const int first = int(8 * uniform(words[0])), right = uniform(words[1]) < 0.5F ? 1 : 0;
            const int second = first + (right == 1 ? 4 : 1 + int(3 * uniform(words[2])));
            labels.push_back(two ? right : first);
            for (std::uint32_t k = 0; k < 256; ++k) {
                const auto wave = [&](int direction, float phase) {
                    const float angle = std::numbers::pi_v<float> * float(direction) / 8;
                    return std::sin(std::cos(angle) * float(k % 16) + std::sin(angle) * float(k / 16) + 6.3F * phase);
                };
                const float noise = 2 * uniform(random.words(k + 1)[0]) - 1, stripes = wave(first, uniform(words[3]));
                pixels.push_back(noise + stripes + (two ? wave(second, uniform(words[2])) : 0));
            }
        }
    }
};

template <class Net, std::int64_t classes>
using Training = DataParallel<Net, CrossEntropy<classes>, Adam, ConcatMean, Host>;

template <std::int64_t classes, class T>
double accuracy_after(T& training, std::int64_t steps, const Images& train, const Images& test) {
    constexpr Shape shape{16, 16, 1};
    const InMemory data(shape, train.pixels, train.labels, classes), unseen(shape, test.pixels, test.labels, classes);
    fit(training, InMemoryBatches(data, {.batch_size = 20, .seed = 1}), {.steps = steps}, LogEvery{200});
    return evaluate(training, EvaluationBatches(unseen, IdentityTransform{}, 20)).accuracy();
}

int main(int argc, char** argv) try {
    require(argc == 2 && *argv[1] != '-', "usage: fine_tuning FILE");
    const Images many(1, 4000, false), unseen(2, 1000, false), few(3, 60, true), test(4, 1000, true);
    Training<Pretrained, 8> pretraining({.batch_size = 20, .seed = 1});
    std::printf("pretrained: accuracy = %.3f\n", accuracy_after<8>(pretraining, 600, many, unseen));
    write_checkpoint(argv[1], Pretrained::layers, {.state = pretraining.state()});

    Training<Scratch, 2> scratch({.batch_size = 20, .seed = 1});
    Training<Tuned, 2> tuned({.batch_size = 20, .seed = 1, .optimizer = {.learning_rate = 0.01}});
    const LoadReport report = load_parameters(tuned, argv[1], {.patterns = {"body.*"}});
    std::printf("%s\n%s", to_string(report).c_str(), summary<Tuned>(20).c_str());
    std::printf("from initial values: accuracy = %.3f\n", accuracy_after<2>(scratch, 600, few, test));
    std::printf("new head: accuracy = %.3f\n", accuracy_after<2>(tuned, 600, few, test));
} catch (const Error& error) {
    return std::fprintf(stderr, "%s\n", error.what()), 1;
}
