// SPDX-License-Identifier: Apache-2.0
//
// Usage: mpirun -n P mpi_runs FOLDER [HOW PROCESS STEP]
// A TrainingRun of four replicas by MPI: by epochs, with a validation, a metric, patience, the best state and checkpoints; ended by
// a signal, by a full disk, or different on one process. Process 0 prints the final state's checksum. tests/mpi/run starts it.
#include <csignal>
#include <filesystem>

#include <cupola/cupola.hpp>
#include <cupola/host.hpp>
#include <cupola/io/crc32c.hpp>
#include <cupola/metrics.hpp>
#include <cupola/mpi.hpp>
#include <cupola/parallel/state_transfer.hpp>
#include <cupola/train/training_run.hpp>

#include "../standard.hpp"

namespace {

using namespace cupola;

struct Net : Sequential<Input<4, 4, 1>, Named<"conv", Conv2d<8, 3, no_bias>>, Named<"bn", BatchNorm2d<>>, ReLU, Flatten,
                        Dropout<0.25>, Named<"out", Linear<2>>> {};
using Training = DataParallel<Net, CrossEntropy<2>, Sgd, MpiConcatMean, Host, Pooled>;

/// Images whose class is that of their brighter half.
struct Images {
    std::vector<float> values;
    std::vector<std::int32_t> labels;
    Images(std::size_t count, std::uint64_t seed) : values(count * 16), labels(count) {
        initialize(values, normal(1.0), 1, 1, seed, 0);
        for (std::size_t i = 0; i < count; ++i) {
            double difference = 0;
            for (std::size_t k = 0; k < 16; ++k)
                difference += (k < 8 ? 1 : -1) * static_cast<double>(values[16 * i + k]);
            labels[i] = difference > 0 ? 1 : 0;
        }
    }
};

struct Arguments {
    std::string_view how;
    int process = 0;
    std::int64_t step = -1;
};

/// Ends the run in one of the ways.
template <class Training>
struct Ends {
    Training* training;
    const Arguments* arguments;
    int number;
    std::string folder;
    void on_step(const StepReport& report, Run&) const {
        if (report.step != arguments->step || number != arguments->process) return;
        if (arguments->how == "term") std::raise(SIGTERM);
        if (arguments->how == "kill") std::raise(SIGKILL);
        // No file can be made in a folder that is not there.
        if (arguments->how == "flip") {
            std::vector<float> parameters = training->parameters();
            parameters[5] = std::bit_cast<float>(std::bit_cast<std::uint32_t>(parameters[5]) ^ 1U);
            training->set_parameters(parameters);
        }
        if (arguments->how == "full") std::filesystem::rename(folder, folder + "-moved");
    }
};

int run(const std::string& folder, const Arguments& arguments) {
    const MpiEnvironment mpi;
    const bool other = mpi.number() == 1 && arguments.step == 0;
    const auto is_other = [&](std::string_view what) { return other && arguments.how == what; };
    TrainingRunOptions options{.folder = is_other("elsewhere") ? folder + "-elsewhere" : folder,
                               .resume = Resume::if_there,
                               .writes = mpi.number() == 0};
    options.checkpoint_every = is_other("checkpoints") ? 5 : 4;
    options.keep_best = true;
    TrainingRun run(options);
    const Images images(58, is_other("data") ? 4 : 3), unseen(20, is_other("validation") ? 8 : 7);
    const InMemory data(Net::input_shape, images.values, images.labels, 2),
        validation(Net::input_shape, unseen.values, unseen.labels, 2);
    Training training(
        {.replicas = 4,
         .device = {.threads = 1},
         .batch_size = 4,
         .seed = 5,
         .optimizer = {.learning_rate = exponential_decay(is_other("schedule") ? 0.06 : 0.05, 8, 0.9), .momentum = 0.9},
         .averaging = {.deadline_seconds = 60, .folder = std::filesystem::path(folder).parent_path()},
         .moving_average = {.decay = 0.9}});
    InMemoryBatches batches(data, {.batch_size = 4, .replicas = 4, .seed = 5});
    EvaluationBatches test(validation, IdentityTransform{}, 4);
    const int status = run.train(training, batches, NoTest{},
                                 {.epochs = is_other("epochs") ? 9 : 10,
                                  .validation = test,
                                  .metrics = {metrics::Accuracy{}},
                                  .patience = is_other("patience") ? 4 : 3,
                                  .restore_best = true},
                                 Ends<Training>{&training, &arguments, mpi.number(), folder});
    const TrainingState state = training.state();
    std::uint32_t sum = crc32c(std::as_bytes(std::span(state.parameters)));
    sum = crc32c(std::as_bytes(std::span(state.averages)), sum);
    sum = crc32c(std::as_bytes(std::span(state.buffers)), sum);
    for (const OptimizerState& each : state.optimizer) sum = crc32c(std::as_bytes(std::span(each.values)), sum);
    std::printf("process %d: status %d, step %lld, %d records, state %08x\n", mpi.number(), status,
                static_cast<long long>(state.step), static_cast<int>(run.history().records.size()), sum);
    return status;
}

}  // namespace

int main(int argc, char** argv) try {
    const auto argument = [&](int i) { return argc > i ? argv[i] : ""; };
    return run(argument(1),
               {.how = argument(2), .process = std::atoi(argument(3)), .step = std::atoll(argc > 4 ? argv[4] : "-1")});
} catch (const std::exception& error) {
    std::fprintf(stderr, "error: %s\n", error.what());
    return 1;
}
