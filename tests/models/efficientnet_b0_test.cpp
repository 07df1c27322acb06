// SPDX-License-Identifier: Apache-2.0
//
// A network that models/ does not have, with a table of names of its own: torchvision's EfficientNet-B0. Its outputs
// are compared with PyTorch's and ONNX Runtime's in tests/interop/.
#include "efficientnet_b0.hpp"

#include "../test.hpp"

#include <cupola/host.hpp>
#include <cupola/io/load_parameters.hpp>
#include <cupola/io/onnx.hpp>
#include <cupola/io/torch_file.hpp>
#include <cupola/io/torch_writer.hpp>

#include "../io/file_support.hpp"
#include "../io/onnx_reader.hpp"

// The number of parameters in torchvision's documentation.
static_assert(EfficientNetB0<>::parameter_count == 5'288'548 && EfficientNetB0<>::output == Extents<1000>{});

TEST_CASE(
    "EfficientNetB0, a user's own network, reads torchvision's names and extents, trains, and is written as ONNX") {
    struct Small : EfficientNetB0<10, 32> {};
    using Training = DataParallel<Small, CrossEntropy<10>, Sgd, ConcatMean, Host>;
    const TemporaryFolder folder;
    const std::string weights = folder.path("efficientnet_b0.pth"), model = folder.path("model.onnx");

    Training before({.batch_size = 4, .seed = 1});
    write_torch_file(weights, Small::layers, before.state(), efficientnet_b0::torchvision_names());
    const TorchFile file(weights);
    // Of the 360 tensors of torchvision's file, 49 are a num_batches_tracked.
    CHECK(file.tensors().size() == 360 - 49);
    CHECK(file.at("features.1.0.block.1.fc1.weight").extents == "8,32,1,1");
    CHECK(file.at("features.4.2.block.2.fc2.weight").extents == "480,20,1,1");
    CHECK(file.at("features.7.0.block.3.1.running_var").extents == "320");
    CHECK(file.at("classifier.1.weight").extents == "10,1280");

    Training training({.batch_size = 4, .seed = 2, .optimizer = {.learning_rate = 0.01}});
    const LoadReport report =
        load_parameters(training, weights, {.require_all = true, .names = efficientnet_b0::torchvision_names()});
    CHECK(report.loaded.size() == file.tensors().size());
    CHECK(training.parameters() == before.parameters());

    std::vector<float> images(static_cast<std::size_t>(4 * Small::input_shape.size()));
    initialize(images, normal(1.0), 1, 1, 5, 0);
    const std::vector<std::int32_t> labels{3, 1, 4, 9};
    const std::vector<BatchView> batch{{4,
                                        {{{"input", ElementType::float32, Small::input_shape}, images.data()},
                                         {{"target", ElementType::int32, {1}}, labels.data()}}}};
    const double first = training.step(batch).loss;
    double last = first;
    for (int step = 0; step < 15; ++step) last = training.step(batch).loss;
    CHECK(last < 0.8 * first);

    write_onnx<Small>(model, training);
    const cupola_tests::OnnxModel written = cupola_tests::read_onnx(io_tests::read_bytes(model));
    const std::vector<float> shift = written.initializers.at("head.bias").values<float>();
    CHECK(written.initializers.size() >= file.tensors().size());
    const std::vector<float> trained = training.parameters();
    CHECK(shift.size() == 10);
    CHECK(!std::ranges::search(trained, shift).empty());
}
