// SPDX-License-Identifier: Apache-2.0
//
// Usage: two_processes OUT PROCESS PROCESSES ID_FILE STEPS [--die-at STEP] [--step-seconds SECONDS]. One process of a
// training that averages by NcclAllReduce. There are two replicas in total, so PROCESSES is 1 or 2; each replica has the same
// batches in both cases. Writes the losses and the parameters to OUT as JSON. two_processes.py starts the processes and
// compares their results.
//
// Exit status: 0; 3 with the message of an error; 77 without a GPU. With --die-at the process kills itself before step STEP.
#include <csignal>

#include <cupola/cuda.hpp>
#include <cupola/cupola.hpp>
#include <cupola/nccl.hpp>

#include "../../standard.hpp"

namespace {

using namespace cupola;

/// With a Dropout, whose random numbers depend on the number of the replica among those of all processes.
struct Net : Sequential<Input<8, 8, 3>, Conv2d<8, 3>, ReLU, MaxPool2d<2, 2>, Flatten, Dropout<0.2>, Linear<24>, ReLU,
                        Linear<10>> {};
using Training = DataParallel<Net, CrossEntropy<10>, Sgd, NcclAllReduce, Cuda>;

constexpr int all_replicas = 2;
constexpr std::int64_t batch = 32, features = 8 * 8 * 3;

/// The batches of all replicas and steps, in memory that the GPU reads.
class Samples {
public:
    explicit Samples(std::int64_t steps)
        : samples_(static_cast<std::size_t>(steps) * all_replicas * batch),
          values_(samples_ * features * sizeof(float)),
          labels_(samples_ * sizeof(std::int32_t)) {
        initialize({values(), samples_ * features}, normal(1.0), 1, 1, 11, 0);
        for (std::size_t n = 0; n < samples_; ++n) {
            labels()[n] = static_cast<std::int32_t>(n * n % 10);
            for (std::size_t i = n * n % 10; i < features; i += 10) values()[n * features + i] += 0.7F;
        }
    }
    [[nodiscard]] BatchView of(std::int64_t step, int replica) {
        const std::int64_t first = (step * all_replicas + replica) * batch;
        return {values() + first * features, labels() + first, batch, Net::input_shape};
    }

private:
    [[nodiscard]] float* values() { return reinterpret_cast<float*>(values_.data()); }
    [[nodiscard]] std::int32_t* labels() { return reinterpret_cast<std::int32_t*>(labels_.data()); }

    std::size_t samples_;
    impl::CudaPinned values_, labels_;
};

template <class Numbers>
void write_numbers(std::FILE* file, const char* name, const Numbers& numbers) {
    std::fprintf(file, "\"%s\": [", name);
    const char* between = "";
    for (const auto number : numbers) {
        std::fprintf(file, "%s%.9g", between, static_cast<double>(number));
        between = ", ";
    }
    std::fprintf(file, "]");
}

struct Arguments {
    std::string out;
    NcclAllReduce averaging{.start_seconds = 40, .heartbeat_seconds = 2};
    std::int64_t steps = 0, die_at = -1;
};

void run(const Arguments& arguments) {
    Samples samples(arguments.steps);
    std::vector<double> losses;
    std::vector<float> parameters;
    {
        Training::Options options;
        options.replicas = all_replicas;
        options.device.deterministic = true;
        options.device.plan_seconds = 0;  // processes that time their plans may choose others
        options.batch_size = batch;
        options.seed = 5;
        options.optimizer = {.learning_rate = 0.05, .momentum = 0.9};
        options.averaging = arguments.averaging;
        options.check_every = 3;  // the processes compare their parameters
        Training training(options);
        for (std::int64_t step = 0; step < arguments.steps; ++step) {
            if (step == arguments.die_at) std::raise(SIGKILL);
            const auto batches = [&](std::int64_t place, int replica, CudaContext&) {
                return samples.of(place, replica);
            };
            losses.push_back(training.step(batches).loss);
        }
        parameters = training.parameters();
    }
    std::FILE* const file = std::fopen(arguments.out.c_str(), "w");
    require<DataError>(file != nullptr, arguments.out, " cannot be written");
    std::fprintf(file, "{");
    write_numbers(file, "losses", losses);
    std::fprintf(file, ", ");
    write_numbers(file, "parameters", parameters);
    std::fprintf(file, "}\n");
    require<DataError>(std::fclose(file) == 0, arguments.out, " could not be written");
}

}  // namespace

int main(int count, char** words) {
    Arguments arguments;
    bool understood = count >= 6 && count % 2 == 0;
    if (understood) {
        arguments.out = words[1];
        arguments.averaging.process = std::atoi(words[2]);
        arguments.averaging.processes = std::atoi(words[3]);
        arguments.averaging.id_file = words[4];
        arguments.steps = std::atoll(words[5]);
    }
    for (int i = 6; understood && i + 1 < count; i += 2) {
        const std::string_view option = words[i];
        if (option == "--die-at")
            arguments.die_at = std::atoll(words[i + 1]);
        else if (option == "--step-seconds")
            arguments.averaging.step_seconds = std::atof(words[i + 1]);
        else
            understood = false;
    }
    if (!understood || arguments.steps < 1 || arguments.averaging.processes < 1 ||
        arguments.averaging.processes > all_replicas) {
        std::fprintf(stderr,
                     "usage: two_processes OUT PROCESS 1|2 ID_FILE STEPS [--die-at STEP] [--step-seconds SECONDS]\n");
        return 2;
    }
    try {
        static_cast<void>(cuda_devices());
    } catch (const DeviceError& error) {
        std::printf("skipped: %s\n", error.what());
        return 77;
    }
    try {
        run(arguments);
    } catch (const std::exception& error) {
        std::fprintf(stderr, "error: %s\n", error.what());
        return 3;
    }
    return 0;
}
