// SPDX-License-Identifier: Apache-2.0
//
// The number of kernels, copies, fills and calls of libraries in a step of the tutorial's network, counted as they run on an
// emulated GPU, in a step of a small batch; one of 128 samples has as many. With CUPOLA_PRINT_LAUNCHES set, the names are
// printed.
#include "../../test.hpp"

#include <cupola/cuda.hpp>
#include <cupola/cupola.hpp>
#include <cupola/models/cifar10_net.hpp>

#include "../emulator/control.hpp"
#include "../emulator/listener.hpp"
#include "../synthetic_batches.hpp"

namespace {

constexpr std::int64_t batch_size = 2;

/// The name without the namespaces, the type of the function and its arguments.
std::string short_name(std::string_view name) {
    std::string result;
    std::size_t word = 0;
    for (const char c : name.substr(0, name.find(">("))) {
        if (c == ':') {
            result.resize(word);
            continue;
        }
        result += c;
        if (c == '<' || c == ' ' || c == ',') word = result.size();
    }
    constexpr std::string_view before = "the kernel void ";
    return result.starts_with(before) ? result.substr(before.size()) : result;
}

struct Step {
    std::vector<std::string> work;
    std::string description;
    std::int64_t dependent = 0, graphs = 0;
    std::vector<float> parameters{};
    std::vector<std::string> lines{};
};

/// What the fourth step runs, after the captures.
template <class Net>
Step fourth_step(const CudaOptions& options = {}) {
    const gpu_tests::SyntheticBatches batches(batch_size);
    DataParallel<Net, Cifar10Loss, Sgd, ConcatMean, Cuda> training({.replicas = 1,
                                                                    .device = options,
                                                                    .batch_size = batch_size,
                                                                    .seed = 1,
                                                                    .optimizer = {.learning_rate = 0.01},
                                                                    .moving_average = {.decay = 0.9999}});
    for (int i = 0; i < 3; ++i) training.step(batches);
    CHECK(training.not_captured() == "");
    emulator::record_work();
    const std::int64_t dependent = emulator::dependent_kernels(), graphs = emulator::launches_of_captures();
    training.step(batches);
    return {emulator::recorded_work(),
            training.launches_description(),
            emulator::dependent_kernels() - dependent,
            emulator::launches_of_captures() - graphs,
            training.parameters(),
            options.plan_choices->take_lines()};
}

/// `apart` are not in the graph of the passes and the update.
void expect_launches(const char* what, const Step& step, std::size_t most, std::size_t apart = 0) {
    std::string names;
    for (const std::string& each : step.work) names += "  " + short_name(each) + "\n";
    if (std::getenv("CUPOLA_PRINT_LAUNCHES") != nullptr)
        std::printf("%s: %zu launches\n%s", what, step.work.size(), names.c_str());
    INFO(what);
    INFO(names);
    CHECK(step.work.size() <= most);
    CHECK(std::count(step.work.begin(), step.work.end(), "a copy") == 0);
    // All but a copy of the loss scale.
    CHECK(step.description == text("a step queues ", step.work.size(), " kernels and copies, ",
                                   step.work.size() - apart, " of them in 1 graph"));
    CHECK(step.graphs == 1);
}

}  // namespace

TEST_CASE("a step of the tutorial's network has at most so many launches, and their number is reported") {
    expect_launches("float", fourth_step<Cifar10Net>(), 13);
    // One more where padding the images' channels for the tensor cores takes less time than not to.
    expect_launches("bfloat16", fourth_step<Cifar10NetBf16>(), 13 + 1);
    expect_launches("half", fourth_step<InPrecision<MixedFloat16, Cifar10Net>>(), 16, 1);
}

TEST_CASE("branches of the graph and kernels that are launched early change no bits") {
    const Step chain = fourth_step<Cifar10NetBf16>({.side_by_side_gradients = false});
    const Step branches = fourth_step<Cifar10NetBf16>({.side_by_side_gradients = true});
    const Step early = fourth_step<Cifar10NetBf16>({.side_by_side_gradients = true, .dependent_launch = true});
    CHECK(chain.work.size() == branches.work.size());
    CHECK(chain.dependent == 0);
    CHECK(branches.dependent == 0);
    // The padding of the images, both poolings forward, and backward of the second and of the normalisation; also of the first where no
    // branch comes before it. The others begin the graph, follow two branches, or are cooperative.
    CHECK(early.dependent == 5);
    const Step early_chain = fourth_step<Cifar10NetBf16>({.side_by_side_gradients = false, .dependent_launch = true});
    CHECK(early_chain.dependent == 6);
    CHECK(chain.parameters == branches.parameters);
    CHECK(chain.parameters == early.parameters);
    CHECK(chain.parameters == early_chain.parameters);
}

TEST_CASE(
    "on a GPU without cooperative launches the end of a step is several kernels with the same bits, and the log says so") {
    // Other algorithms add in another order each time.
    const Step one = fourth_step<Cifar10Net>({.deterministic = true});
    emulator::set_cooperative(false);
    const Step lacks = fourth_step<Cifar10Net>({.deterministic = true});
    emulator::set_cooperative(true);
    // Three kernels for the end of the step, and seven for the linear layers: three forward, the loss, and three backward.
    CHECK(lacks.work.size() == one.work.size() + 2 + 6);
    CHECK(lacks.parameters == one.parameters);
    const auto says = [](const Step& step) {
        return std::ranges::count_if(step.lines, [](const std::string& line) {
            return line.starts_with("GPU 0 (Emulated GPU) has no cooperative launches");
        });
    };
    CHECK(says(one) == 0);
    CHECK(says(lacks) == 1);
}
