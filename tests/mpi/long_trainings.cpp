// SPDX-License-Identifier: Apache-2.0
//
// Usage: mpirun -n P long_trainings POLICY STEPS FOLDER
// Trainings of four replicas with one policy for averages: ConcatMean (one process), MpiConcatMean, "MpiConcatMean by messages"
// (no shared memory) or MpiAllReduce. Each process writes the bytes of all its reports and of its last state to
// FOLDER/TRAINING.PROCESS, and process 0 the losses to FOLDER/TRAINING.losses. tests/mpi/thousand_steps.py starts it and compares.
#include <fstream>

#include <cupola/cupola.hpp>
#include <cupola/host.hpp>
#include <cupola/layers/option_a_shortcut.hpp>
#include <cupola/mpi.hpp>
#include <cupola/parallel/synchronized.hpp>

#include "../labelled_samples.hpp"
#include "../standard.hpp"
#include "processes/process_trainings.hpp"

namespace {

using namespace cupola;
using processes::AnyStatistics;

constexpr std::int64_t batch = 4;

/// The kinds of layer of the tutorial's network, and dropout.
struct Tutorial
    : Sequential<Input<8, 8, 3>, Named<"conv1", Conv2d<8, 5>>, ReLU, MaxPool2d<3, 2>, LocalResponseNorm<2>, Flatten,
                 Named<"local3", Linear<24>>, ReLU, Dropout<0.5>, Named<"softmax_linear", Linear<10>>> {};
/// ResNet's: a stage of each kind, with both shortcuts.
struct SmallResNet
    : Sequential<
          Input<8, 8, 3>, Named<"conv1", Conv2d<8, 3, no_bias>>, Named<"bn1", BatchNorm2d<>>, ReLU,
          Named<"layer1", Residual<Identity, Named<"conv1", Conv2d<8, 3, no_bias>>, Named<"bn1", BatchNorm2d<>>, ReLU,
                                   Named<"conv2", Conv2d<8, 3, no_bias>>, Named<"bn2", BatchNorm2d<>>>>,
          ReLU,
          Named<"layer2", Residual<OptionAShortcut<16, 2>, Named<"conv1", Conv2d<16, 3, stride(2), pad(1), no_bias>>,
                                   Named<"bn1", BatchNorm2d<>>, ReLU, Named<"conv2", Conv2d<16, 3, no_bias>>,
                                   Named<"bn2", BatchNorm2d<>>>>,
          ReLU, GlobalAvgPool2d, Dropout<0.2>, Named<"fc", Linear<10>>> {};

struct Case {
    const char* name;
    bool unequal = false;
    int accumulation = 1;
};
constexpr Case cases[] = {{"equal"}, {"unequal", true}, {"accumulated", false, 2}, {"unequal-accumulated", true, 2}};

class Batches : LabelledSamples {
public:
    explicit Batches(bool unequal) : LabelledSamples(40, {8, 8, 3}, 10), unequal_(unequal) {}
    BatchView operator()(std::int64_t place, int replica, HostContext&) const {
        constexpr std::int64_t sizes[] = {batch, 2, 0, batch, 3};
        const std::int64_t size = unequal_ ? sizes[static_cast<std::size_t>(3 * place + replica) % 5] : batch;
        return size == 0 ? BatchView{} : view((5 * place + 3 * replica) % (40 - batch), size);
    }

private:
    bool unequal_;
};

struct Request {
    int steps = 0, process = 0;
    std::string folder{};
};

template <class Net, class Averaging, class Statistics>
void train(const Request& request, const std::string& name, const Case& c, const Averaging& averaging,
           const Statistics& statistics) {
    DataParallel<Net, LossCollection<CrossEntropy<10>, WeightDecayAll<1e-3>>, Sgd, Averaging, Host, Statistics>
        training({.replicas = 4,
                  .batch_size = batch,
                  .other_batch_sizes = {2, 3},
                  .gradient_accumulation_steps = c.accumulation,
                  .seed = 5,
                  .optimizer = {.learning_rate = 0.01, .momentum = 0.9},
                  .averaging = averaging,
                  .statistics = statistics,
                  .moving_average = {.decay = 0.99},
                  .check_every = 10});
    const Batches batches(c.unequal);
    std::vector<std::byte> trace;
    std::vector<double> losses;
    for (int step = 0; step < request.steps; ++step) {
        const StepReport& report = training.step(batches);
        processes::append(trace, report);
        losses.push_back(report.loss);
    }
    const std::vector<std::byte> state = processes::trace_of(training, batches, 0);
    trace.insert(trace.end(), state.begin(), state.end());

    const std::string file = text(request.folder, "/", name, "-", c.name);
    std::ofstream(text(file, ".", request.process), std::ios::binary)
        .write(reinterpret_cast<const char*>(trace.data()), static_cast<std::streamsize>(trace.size()));
    if (request.process == 0) {
        std::ofstream lines(file + ".losses");
        lines.precision(17);
        for (const double loss : losses) lines << loss << '\n';
    }
}

template <class Averaging>
void train_all(const Request& request, const Averaging& averaging) {
    for (const Case& c : cases) train<Tutorial>(request, "tutorial", c, averaging, FirstReplica{});
    constexpr const char* policies[] = {"first_replica", "last_replica", "all_replicas", "pooled"};
    for (const Case& c : cases) {
        for (int which = 0; which < 4; ++which) {
            train<SmallResNet>(request, text("resnet-", policies[which]), c, averaging, AnyStatistics{.which = which});
        }
        // Synchronised statistics do not go with both.
        if (c.unequal && c.accumulation > 1) continue;
        train<SmallResNet>(request, "resnet-synchronized", c, averaging, Synchronized{});
    }
}

void run(std::string_view policy, Request request) {
    if (policy == ConcatMean::name) return train_all(request, ConcatMean{});
    const MpiEnvironment mpi;
    request.process = mpi.number();
    // Long, because other programs may use this machine.
    constexpr double deadline = 300;
    if (policy == MpiConcatMean::name) return train_all(request, MpiConcatMean{.deadline_seconds = deadline});
    if (policy == "MpiConcatMean by messages")
        return train_all(request, MpiConcatMean{.deadline_seconds = deadline, .shares_memory = false});
    if (policy == MpiAllReduce::name) return train_all(request, MpiAllReduce{.deadline_seconds = deadline});
    throw InvalidArgument(text("there is no policy ", policy));
}

}  // namespace

int main(int argc, char** argv) try {
    require(argc == 4, "usage: long_trainings POLICY STEPS FOLDER");
    run(argv[1], {.steps = std::atoi(argv[2]), .folder = argv[3]});
    return 0;
} catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
}
