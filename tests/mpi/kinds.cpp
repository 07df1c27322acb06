// SPDX-License-Identifier: Apache-2.0
//
// Usage: mpirun -n P mpi_kinds [kill FOLDER]
//
// Replicas of several processes that agree on a centre: around MpiConcatMean the bits of one process, between and after
// agreements, continued from any state; around sums, equal on all processes and to a few roundings the same as one process.
// And replicas that exchange with a centre in memory of all processes: the bits of one process, round robin and replayed;
// with `kill`, process 1 is killed while others wait for its exchange, and these write why they end to FOLDER.
// tests/mpi/run starts it.
//
// Covers: cupola/parallel/kinds/centre_agreement.hpp, cupola/parallel/kinds/periodic.hpp,
// cupola/parallel/kinds/elastic_averaging.hpp, cupola/processes/shared_centre.hpp
#include <cupola/mpi.hpp>

#include <algorithm>
#include <cmath>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <cupola/cupola.hpp>
#include <cupola/host.hpp>
#include <cupola/parallel/compressed.hpp>
#include <cupola/parallel/kinds/asynchronous.hpp>
#include <cupola/parallel/kinds/backup.hpp>
#include <cupola/parallel/kinds/elastic_averaging.hpp>
#include <cupola/parallel/kinds/hogwild.hpp>
#include <cupola/parallel/kinds/one_of.hpp>
#include <cupola/parallel/kinds/periodic.hpp>
#include <cupola/parallel/state_transfer.hpp>
#include <cupola/processes/shared_centre.hpp>

namespace {

using namespace cupola;

constexpr int replicas = 4, steps = 7;
constexpr std::int64_t batch_size = 4, features = 16, classes = 4;

/// Wide enough that each of four processes has columns to average.
struct Net : Sequential<Input<features>, Linear<96>, ReLU, Linear<32>, ReLU, Linear<classes>> {};

class Batches {
public:
    Batches() : values_(samples * features), labels_(samples) {
        initialize(values_, normal(1.0), 1, 1, 3, 0);
        for (std::size_t i = 0; i < samples; ++i) labels_[i] = static_cast<std::int32_t>(7 * i % classes);
    }
    /// Their sizes are not equal; some are empty.
    BatchView operator()(std::int64_t place, int replica, HostContext&) const {
        constexpr std::int64_t sizes[] = {batch_size, 2, 0, batch_size, 2};
        const std::int64_t size = sizes[static_cast<std::size_t>(3 * place + replica) % 5];
        const auto first = static_cast<std::size_t>(5 * place + 3 * replica) % (samples - batch_size);
        if (size == 0) return {};
        return {values_.data() + first * features, labels_.data() + first, size, Net::input_shape};
    }

private:
    static constexpr std::size_t samples = 40;
    std::vector<float> values_;
    std::vector<std::int32_t> labels_;
};

template <class Averaging>
using Training = DataParallel<Net, CrossEntropy<classes>, Sgd, Averaging, Host>;

template <class Averaging>
Training<Averaging> training_of(const Averaging& averaging, int devices = 1, int accumulation = 1,
                                int check_every = 2) {
    return Training<Averaging>({.replicas = replicas,
                                .devices = devices,
                                .batch_size = batch_size,
                                .other_batch_sizes = {2},
                                .gradient_accumulation_steps = accumulation,
                                .seed = 5,
                                .optimizer = {.learning_rate = exponential_decay(0.05, 3, 0.9), .momentum = 0.9},
                                .averaging = averaging,
                                .moving_average = {.decay = 0.75, .warm_up = false},
                                .check_every = check_every});
}

bool equal(const TrainingState& a, const TrainingState& b) {
    return a.step == b.step && a.parameters == b.parameters && a.averages == b.averages && a.replicas == b.replicas &&
           a.centre_optimizer == b.centre_optimizer && a.samples_since == b.samples_since;
}

/// The states after each step of a training, or of one that is continued from a state.
template <class Training>
std::vector<TrainingState> states_of(Training&& training, const TrainingState* from = nullptr) {
    const Batches batches;
    if (from != nullptr) training.restore(*from);
    std::vector<TrainingState> states;
    while (training.step() < steps) {
        training.step(batches);
        states.push_back(training.state());
    }
    return states;
}

int errors = 0;

void check(bool good, const char* what, std::string_view name, const MpiEnvironment& mpi) {
    if (good) return;
    std::printf("%s: %s on process %d of %d\n", std::string(name).c_str(), what, mpi.number(), mpi.count());
    ++errors;
}

/// `inside` is around a policy of several processes, `alone` the same in one.
template <class Inside, class Alone>
void check_bits(const MpiEnvironment& mpi, const Inside& inside, const Alone& alone, int devices = 1) {
    const std::string name = text(inside.description(), ", ", devices, " devices");
    const std::vector<TrainingState> expected = states_of(training_of(alone));
    const std::vector<TrainingState> found = states_of(training_of(inside, devices));
    check(std::ranges::equal(found, expected, equal), "other bits than one process", name, mpi);
    // A state of all processes is continued by one, and the reverse, also between two agreements.
    const std::size_t at = static_cast<std::size_t>(inside.every) / 2;
    check(equal(states_of(training_of(alone), &found[at]).back(), expected.back()), "not continued by one process",
          name, mpi);
    check(equal(states_of(training_of(inside, devices), &expected[at]).back(), expected.back()),
          "not continued from one process", name, mpi);
}

template <class Inside, class Alone>
void check_near(const MpiEnvironment& mpi, const Inside& inside, const Alone& alone, double limit, int accumulation) {
    const std::string name = inside.description();
    const TrainingState found = states_of(training_of(inside, 1, accumulation)).back();
    std::vector<float> of_first = found.parameters;
    MPI_Bcast(of_first.data(), static_cast<int>(of_first.size()), MPI_FLOAT, 0, MPI_COMM_WORLD);
    check(found.parameters == of_first, "another centre than process 0", name, mpi);
    const TrainingState expected = states_of(training_of(alone, 1, accumulation)).back();
    double largest = 0;
    for (std::size_t i = 0; i < found.parameters.size(); ++i)
        largest = std::max(largest, static_cast<double>(std::abs(found.parameters[i] - expected.parameters[i])));
    if (!(largest < limit)) std::printf("the largest difference is %g\n", largest);
    check(largest < limit, "another centre than one process", name, mpi);
}

/// One process, whatever the launcher has started.
struct Alone {
    class Lone final : public Processes {
    public:
        Lone() : Processes(1, 0) {}
        void exchange(const ExchangeName&, std::span<const ProcessMessage>, std::span<const ProcessMessage>) override {}
        void sum(const ExchangeName&, std::span<float>) override {}
        std::vector<std::byte*> share(std::size_t) override { return {}; }
    };

    static constexpr std::string_view name = "Alone";
    using Rows = ConcatMean;
    static constexpr Rows rows{};
    [[nodiscard]] std::shared_ptr<Processes> join() const { return std::make_shared<Lone>(); }
};

template <class Carrier>
using Asynchronously =
    OneOf<Carrier, SharedCentre<Asynchronous<Elastic>, Carrier>, SharedCentre<Asynchronous<Downpour>, Carrier>,
          SharedCentre<Hogwild, Carrier>, SharedCentre<Backup, Carrier>>;

/// Asynchronous replicas need samples.
struct FullBatches {
    Batches all;
    BatchView operator()(std::int64_t place, int replica, HostContext& context) const {
        const BatchView batch = all(place, replica, context);
        return batch.size > 0 ? batch : all(place + 1, replica, context);
    }
};

/// The states inside and at the end of a training with steps in flight.
template <class Carrier, class Policy>
std::vector<TrainingState> asynchronous_states(const Carrier& carrier, const Policy& policy, int devices,
                                               const TrainingState* from = nullptr) {
    const SharedCentre<Policy, Carrier> shared{.policy = policy, .processes = carrier};
    auto training = training_of(Asynchronously<Carrier>(shared), devices, 1, 4);
    const FullBatches batches;
    if (from != nullptr) training.restore(*from);
    std::vector<TrainingState> states;
    while (training.step() < 3 * steps) {
        training.queue(batches);
        static_cast<void>(training.poll_report());
        if (training.step() == steps) states.push_back(training.state());
    }
    states.push_back(training.state());
    return states;
}

template <class Policy>
void check_asynchronous(const MpiEnvironment& mpi, Policy policy) {
    const std::string name = policy.description();
    const MpiConcatMean several{.deadline_seconds = 300};
    const bool is_free = policy.order.kind() == Order::Kind::free;
    policy.log = std::make_shared<OrderLog>();
    const std::vector<TrainingState> found = asynchronous_states(several, policy, 1);
    auto replay = policy;
    replay.log = nullptr;
    // Without an order of its own, a run is compared with its replays.
    if (is_free) replay.order = Order::replay(*policy.log);
    const auto expected = asynchronous_states(Alone{}, replay, is_free ? mpi.count() : 1);
    check(std::ranges::equal(found, expected, equal), "other bits than one process", name, mpi);
    const auto again = asynchronous_states(several, replay, 1, &expected.front());
    check(equal(again.back(), expected.back()), "not continued from one process", name, mpi);
}

/// Whether the training is refused with this message.
template <class Policy>
void check_refused(const MpiEnvironment& mpi, const Policy& policy, const MpiConcatMean& processes,
                   std::string_view message) {
    std::string found;
    try {
        static_cast<void>(asynchronous_states(processes, policy, 1));
    } catch (const InvalidArgument& error) {
        found = error.what();
    }
    check(found == message, "is not refused as it should be", Policy::name, mpi);
    if (found != message) std::printf("%s\n", found.c_str());
}

void check_asynchronous(const MpiEnvironment& mpi) {
    for (const Order& order : {Order::round_robin(), Order::free()}) {
        check_asynchronous(mpi, Asynchronous<Elastic>{.rule = {.every = 2}, .ahead = 3, .order = order});
        check_asynchronous(mpi, Asynchronous<Downpour>{.rule = {.every = 3}, .ahead = 3, .order = order});
    }
    const MpiConcatMean processes{.deadline_seconds = 300};
    const TrainingState end = asynchronous_states(processes, Hogwild{}, 1).back();
    std::vector<float> of_first = end.parameters;
    MPI_Bcast(of_first.data(), static_cast<int>(of_first.size()), MPI_FLOAT, 0, MPI_COMM_WORLD);
    check(end.parameters == of_first, "another centre than process 0", Hogwild::name, mpi);
    if (mpi.count() == 1) return;
    check_refused(mpi, Backup{}, processes,
                  text("Backup trains in one process, and this training has ", mpi.count(),
                       ": use Periodic or ElasticAveraging"));
    check_refused(mpi, Hogwild{}, {.deadline_seconds = 300, .shares_memory = false},
                  text("Hogwild exchanges with a centre in memory that all processes share, and of ", mpi.count(),
                       " processes 1 can share memory with process ", mpi.number(),
                       ", those of its machine: between machines use Periodic or ElasticAveraging"));
}

/// Does not return: process 1 is killed while it has a batch for whose exchange the others wait.
void kill_one(const MpiEnvironment& mpi, const std::string& folder) {
    using Averaging = SharedCentre<Asynchronous<Downpour>, MpiConcatMean>;
    const MpiConcatMean processes{.deadline_seconds = 300, .folder = folder};
    const FullBatches full;
    auto training = training_of(Asynchronously<MpiConcatMean>(
        Averaging{.policy = {.ahead = 2, .order = Order::round_robin()}, .processes = processes}));
    while (true) {
        training.step([&](std::int64_t place, int replica, HostContext& context) {
            if (mpi.number() == 1 && place == 5) std::raise(SIGKILL);
            return full(place, replica, context);
        });
    }
}

template <class Inner>
using LocalSgd = Periodic<Inner>;
template <class Inner>
using Diloco = Periodic<Inner, Sgd>;

template <template <class> class Kind>
void check_kind(const MpiEnvironment& mpi, const auto& set) {
    const auto of = [&]<class Inner>(const Inner& inner) {
        Kind<Inner> kind{.averaging = inner};
        set(kind);
        return kind;
    };
    const bool in_fragments = of(ConcatMean{}).rule(replicas).fragments > 1;
    for (const bool shares : {true, false}) {
        const MpiConcatMean rows{.deadline_seconds = 300, .shares_memory = shares};
        check_bits(mpi, of(rows), of(ConcatMean{}));
        if (!in_fragments) check_bits(mpi, of(Compressed<MpiConcatMean>{.policy = rows}), of(Compressed<ConcatMean>{}));
        if (mpi.count() < 4) check_bits(mpi, of(rows), of(ConcatMean{}), 2);
    }
    const MpiAllReduce sums{.deadline_seconds = 300, .bucket_bytes = 4096};
    check_near(mpi, of(sums), of(ConcatMean{}), 1e-5, 1);
    check_near(mpi, of(sums), of(ConcatMean{}), 1e-5, 2);
    if (!in_fragments) check_near(mpi, of(Compressed<MpiAllReduce>{.policy = sums}), of(ConcatMean{}), 2e-2, 1);
}

}  // namespace

int main(int argc, char** argv) {
    try {
        const MpiEnvironment mpi;
        if (argc == 3 && std::string_view(argv[1]) == "kill") kill_one(mpi, argv[2]);
        check_kind<LocalSgd>(mpi, [](auto& kind) { kind.every = 3, kind.from_step = 2; });
        check_kind<Diloco>(mpi, [](auto& kind) {
            kind.every = 3;
            kind.outer = {.learning_rate = 0.7, .momentum = 0.9, .nesterov = true};
        });
        check_kind<ElasticAveraging>(mpi, [](auto& kind) { kind.every = 3; });
        check_kind<LocalSgd>(mpi, [](auto& kind) { kind.every = 4, kind.fragments = 2, kind.delay = 1; });
        check_kind<Diloco>(mpi, [](auto& kind) {
            kind.every = 3, kind.delay = 2, kind.mix = 0.5;
            kind.outer = {.learning_rate = 0.5, .momentum = 0.5};
        });
        check_asynchronous(mpi);
    } catch (const std::exception& error) {
        std::fprintf(stderr, "%s\n", error.what());
        return 1;
    }
    return errors == 0 ? 0 : 1;
}
