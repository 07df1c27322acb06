// SPDX-License-Identifier: Apache-2.0
//
// Steps of 8 batches of ResNet-44 as a whole or in two parts, synthetic samples already in memory; it talks to turns.py
// as peers/protocol.py does.
//
//   pipeline KIND BATCH
//
// KIND is whole, on a device of two threads; 1F1B or GPipe, in two parts on devices of one thread, with a cut behind it
// ("1F1B layer2.0"); or times: the whole network on two devices of one thread, as many batches in all, whose answers
// also have the time of a step of each of those, in seconds, with the times of the parts that it has measured. So it
// measures with both processors at work, as they are in a pipeline.
#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <fstream>
#include <string>
#include <vector>

#include <cupola/cupola.hpp>
#include <cupola/host.hpp>
#include <cupola/models/resnet.hpp>
#include <cupola/net/step_times.hpp>
#include <cupola/parallel/pipeline.hpp>

#include "../standard.hpp"
#include "synthetic.hpp"

using namespace cupola;
using benchmarks::Synthetic;

namespace {

constexpr int batches_per_step = 8;
using Whole = ResNet<44>;
template <FixedString name, Timetable S>
struct Cut : SplitAt<Whole, name> {
    using PipelineTimetable = S;
};
template <class Net>
using Training = DataParallel<Net, LossCollection<CrossEntropy<11>, WeightDecayAll<2e-4>>, Sgd, ConcatMean, Host>;

/// The bytes of this process that are in memory.
std::size_t resident_bytes() {
    std::ifstream status("/proc/self/status");
    for (std::string word; status >> word;) {
        std::size_t kilobytes = 0;
        if (word == "VmRSS:" && status >> kilobytes) return 1024 * kilobytes;
    }
    throw DataError("/proc/self/status has no VmRSS");
}

template <class T>
double median(std::vector<T> values) {
    std::ranges::nth_element(values, values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2));
    return static_cast<double>(values[values.size() / 2]);
}

/// The time of a step of the timetable in seconds, with the median times of the parts for a batch.
template <Timetable S>
double timetable_seconds(const std::array<std::vector<double>, 2>& forward,
                         const std::array<std::vector<double>, 2>& backward) {
    constexpr double nanoseconds = 1e9;
    std::array<std::int64_t, 2> costs{}, costs_of_backward{}, slot_counts{};
    for (std::size_t k = 0; k < 2; ++k) {
        costs[k] = static_cast<std::int64_t>(nanoseconds * median(forward[k]));
        costs_of_backward[k] = static_cast<std::int64_t>(nanoseconds * median(backward[k]));
    }
    const TimetableRun run = run_timetable<S>(costs, costs_of_backward, batches_per_step, slot_counts);
    return static_cast<double>(run.length) / nanoseconds;
}

/// The members of an answer with the times of the parts of a cut network and of a step of its timetable.
template <class Net>
std::string times_of_parts(const std::string& kind, const StepTimes& times) {
    std::vector<NodeInfo> nodes(Whole::layers.size());
    nodes.resize(fuse(Whole::layers, Whole::fusion, nodes));
    std::array<std::vector<double>, 2> forward, backward;
    for (std::size_t step = 0; step < times.steps(); ++step) {
        std::array<double, 2> of_forward{}, of_backward{};
        const auto of = [](const StepTimes::Entry& entry) {
            return entry.calls == 0 ? 0.0 : entry.seconds / static_cast<double>(entry.calls);
        };
        for (std::size_t i = 0; i < nodes.size(); ++i) {
            const std::size_t part = CutInfoOf<Net>::value.part_of(nodes[i].layer);
            of_forward[part] += of(times.at(step, Direction::forward, i));
            of_backward[part] += of(times.at(step, Direction::backward, i));
        }
        of_forward[1] += of(times.at(step, StepPart::loss));
        for (std::size_t k = 0; k < 2; ++k) {
            forward[k].push_back(of_forward[k]);
            backward[k].push_back(of_backward[k]);
        }
    }
    return text(
        ", \"", kind, "\": {\"forward\": [", Decimals{median(forward[0]), 7}, ", ", Decimals{median(forward[1]), 7},
        "], \"backward\": [", Decimals{median(backward[0]), 7}, ", ", Decimals{median(backward[1]), 7},
        "], \"seconds\": ", Decimals{timetable_seconds<typename Net::PipelineTimetable>(forward, backward), 7}, "}");
}

/// Calls f.operator()<Net>(kind) for each kind of a network that is cut.
template <class F>
void for_each_cut(F&& f) {
    f.template operator()<Cut<"layer2.0", OneForwardOneBackward>>("1F1B layer2.0");
    f.template operator()<Cut<"layer2.0", GPipe>>("GPipe layer2.0");
    f.template operator()<Cut<"layer2.1", OneForwardOneBackward>>("1F1B layer2.1");
    f.template operator()<Cut<"layer2.2", OneForwardOneBackward>>("1F1B layer2.2");
}

template <class Net>
int serve(std::int64_t batch, int replicas, int devices, int threads, bool timed) {
    const Synthetic batches(batch, replicas, Net::input_shape);
    const std::size_t before = resident_bytes();
    Training<Net> training({.replicas = replicas,
                            .devices = devices,
                            .device = {.threads = threads},
                            .batch_size = batch,
                            .gradient_accumulation_steps = batches_per_step / replicas,
                            .seed = 1,
                            .optimizer = {.learning_rate = 0.01, .momentum = 0.9}});
    const char* const warm_up = std::getenv("WARM_UP");  // as protocol.py
    for (int i = warm_up != nullptr ? std::atoi(warm_up) : 3; i > 0; --i) training.step(batches);
    const std::size_t used = resident_bytes() - std::min(before, resident_bytes());
    std::printf(
        "{\"name\": \"Cupola\", \"how\": \"%d x %lld samples, %d x %d threads\", \"planned\": %zu, \"used\": %zu}\n",
        batches_per_step, static_cast<long long>(batch), devices, threads, training.memory().total(), used);
    std::fflush(stdout);
    char line[64];
    while (std::fgets(line, sizeof line, stdin) != nullptr) {
        const int count = std::max(1, std::atoi(line));
        StepTimes times(Net::layers.size(), count);
        if (timed) training.time_steps(&times);
        std::vector<double> seconds;
        double loss = 0;
        for (int i = 0; i < count; ++i) {
            const auto begun = std::chrono::steady_clock::now();
            loss = training.step(batches).loss;
            seconds.push_back(std::chrono::duration<double>(std::chrono::steady_clock::now() - begun).count());
            if (timed) times.end_step(seconds.back());
        }
        if (timed) training.time_steps(nullptr);
        std::printf("{\"seconds\": [");
        for (std::size_t i = 0; i < seconds.size(); ++i) std::printf("%s%.7f", i == 0 ? "" : ", ", seconds[i]);
        std::string parts;
        if (timed)
            for_each_cut([&]<class Each>(const std::string& kind) { parts += times_of_parts<Each>(kind, times); });
        std::printf("], \"loss\": %.6f%s}\n", loss, parts.c_str());
        std::fflush(stdout);
    }
    return 0;
}

int run(const std::string& kind, std::int64_t batch) {
    if (kind == "whole") return serve<Whole>(batch, 1, 1, 2, false);
    if (kind == "times") return serve<Whole>(batch, 2, 2, 1, true);
    int status = -1;
    for_each_cut([&]<class Net>(const std::string& name) {
        if (name == kind) status = serve<Net>(batch, 1, 2, 1, false);
    });
    require(status != -1, "KIND is whole, times, or a timetable and a cut as \"1F1B layer2.0\", not ", kind);
    return status;
}

}  // namespace

int main(int argc, char** argv) try {
    require(argc == 3, "usage: pipeline KIND BATCH");
    return run(argv[1], std::atoll(argv[2]));
} catch (const std::exception& error) {
    std::fprintf(stderr, "pipeline: %s\n", error.what());
    return 1;
}
