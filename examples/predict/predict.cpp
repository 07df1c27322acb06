// SPDX-License-Identifier: Apache-2.0
//
// Classifies pictures: `predict run1/model-100000.safetensors cat.jpg ship.jpg` with a network that cifar10_train has
// trained. A class has the name that it had in the training's data, or its number where the checkpoint does not say it.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <exception>

#include <cupola/data/augmentation.hpp>
#include <cupola/data/image_file.hpp>
#include <cupola/models/cifar10_net.hpp>
#include <cupola/predict.hpp>

using namespace cupola;

int main(int argc, char** argv) try {
    require(argc >= 3, "usage: predict CHECKPOINT.safetensors IMAGE...");
    const Predictor<Cifar10Net> predictor(argv[1]);
    const std::vector<std::string> classes = predictor.classes();
    std::vector<float> sample(static_cast<std::size_t>(Cifar10Net::input_shape.size()));
    std::vector<float> logits(static_cast<std::size_t>(Cifar10Net::output_shape.size()));
    for (int i = 2; i < argc; ++i) {
        const Image image = fitted(read_image(argv[i]), 32, 32);
        CenterCrop{}(image.pixels, image.shape(), RandomStream(0, RngDomain::user, 0, 0), sample.data());
        predictor.predict(sample, logits);
        const auto best = std::ranges::max_element(logits);
        const auto label = static_cast<std::size_t>(best - logits.begin());
        float sum = 0;
        for (const float logit : logits) sum += std::exp(logit - *best);
        std::printf("%s: %s (%.0f %%)\n", argv[i], (label < classes.size() ? classes[label] : text(label)).c_str(),
                    100.0 / static_cast<double>(sum));
    }
    require<DataError>(std::fflush(stdout) == 0 && std::ferror(stdout) == 0, "standard output could not be written");
} catch (const std::exception& error) {
    std::fprintf(stderr, "predict: %s\n", error.what());
    return 1;
}
