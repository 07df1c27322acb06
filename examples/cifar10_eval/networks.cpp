// SPDX-License-Identifier: Apache-2.0
//
// The networks of --model over all images of a data set, each image once.
#include <algorithm>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include <cupola/core/philox.hpp>
#include <cupola/data/augmentation.hpp>
#include <cupola/data/random_crop_flip.hpp>
#include <cupola/models/cifar10_net.hpp>
#include <cupola/models/resnet.hpp>
#include <cupola/predict.hpp>

#include "evaluation.hpp"

namespace cifar10 {

namespace {

/// `Centre` makes a sample from an image, as the training's evaluation does.
template <class Net, class Centre>
std::optional<Logits> run_model(const ModelRun& run, const ImageSet& images) {
    constexpr std::int64_t batch = 128, sample = Net::input_shape.size(), classes = Net::output_shape.size();
    const Predictor<Net> predictor(run.checkpoint, run.path,
                                   {.max_batch = batch, .device = {.threads = run.threads}, .weights = run.weights});
    const Centre centre;
    const Shape output = centre.output(images.sample_shape());
    require<DataError>(output == Net::input_shape, images.name(), " gives samples of ", to_string(output),
                       ", and the network takes ", to_string(Net::input_shape));
    Logits logits{classes, std::vector<float>(static_cast<std::size_t>(images.size() * classes))};
    std::vector<float> samples(static_cast<std::size_t>(batch * sample));
    for (std::int64_t first = 0; first < images.size(); first += batch) {
        if (run.stop()) return {};
        const std::int64_t count = std::min(batch, images.size() - first);
        for (std::int64_t i = 0; i < count; ++i) {
            const RandomStream random(0, RngDomain::augmentation, 0, static_cast<std::uint64_t>(first + i));
            centre(images.sample(first + i), images.sample_shape(), random, samples.data() + i * sample);
        }
        predictor.predict(
            std::span(samples).first(static_cast<std::size_t>(count * sample)),
            std::span(logits.values)
                .subspan(static_cast<std::size_t>(first * classes), static_cast<std::size_t>(count * classes)));
        run.progress(first + count);
    }
    return logits;
}

}  // namespace

Model tutorial_model() { return {Cifar10Net::layers, &run_model<Cifar10Net, CenterCrop>}; }
Model resnet_model() { return {ResNet<44>::layers, &run_model<ResNet<44>, ScaledPixels>}; }

}  // namespace cifar10
