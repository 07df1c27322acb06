// SPDX-License-Identifier: Apache-2.0
//
// Usage: batch_norm_policies DATA REPLICAS STEPS ROUNDS. ResNet trained by REPLICAS replicas with a global batch of
// 128, once with each replica normalising by its own batch and once synchronised. The policies first, last, all and
// merged train the same parameters and differ in the running statistics that they keep: one training keeps all four.
// Prints a line a policy: name, test accuracy, mean loss of the last 20 steps; then, ROUNDS times, the time of a step
// with each policy. Without STEPS (0) only the times.
#include <atomic>

#include <cupola/cupola.hpp>
#include <cupola/data/open.hpp>
#include <cupola/data/random_crop_flip.hpp>
#include <cupola/host.hpp>
#include <cupola/models/resnet.hpp>
#include <cupola/ops/host/winograd_convolution.hpp>
#include <cupola/parallel/state_transfer.hpp>
#include <cupola/parallel/synchronized.hpp>

#include "../standard.hpp"

using namespace cupola;

namespace {

using Net = ResNet<44>;
using Loss = LossCollection<CrossEntropy<11>, WeightDecayAll<2e-4>>;
template <class Statistics>
using Training = DataParallel<Net, Loss, Sgd, ConcatMean, Host, Statistics>;

constexpr std::int64_t global_batch = 128;

/// Keeps what each policy would.
struct Each {
    static constexpr std::string_view name = "each";
    static constexpr bool synchronized = false;
    struct Kept {
        std::array<std::vector<float>, 4> running;
        std::atomic<const float*> device = nullptr;
    };
    std::shared_ptr<Kept> kept = std::make_shared<Kept>();

    void update(const StatisticsUpdate& u) const {
        // Every device updates statistics of its own; one of them is listened to.
        const float* none = nullptr;
        if (kept->device.compare_exchange_strong(none, u.running)) {
            for (auto& running : kept->running) running.assign(u.running, u.running + Net::buffer_elements);
        }
        if (kept->device == u.running) {
            const auto take = [&](std::size_t i, const auto& policy) {
                StatisticsUpdate mine = u;
                mine.running = kept->running[i].data();
                policy.update(mine);
            };
            take(0, FirstReplica{});
            take(1, LastReplica{});
            take(2, AllReplicas{});
            take(3, Pooled{});
        }
        FirstReplica{}.update(u);
    }
};

template <class Statistics>
typename Training<Statistics>::Options options(int replicas) {
    const int processors = std::min(replicas, omp_get_num_procs());
    return {.replicas = replicas,
            .devices = processors,
            .device = {.threads = std::max(1, omp_get_num_procs() / processors), .convolution = &winograd},
            .batch_size = global_batch / replicas,
            .seed = 1,
            .optimizer = {.learning_rate = 0.1, .momentum = 0.9}};
}

auto batches_of(const ImageData& images, int replicas) {
    return Prefetch(TrainingBatches(images.train, RandomCropFlip{},
                                    {.batch_size = global_batch / replicas, .replicas = replicas, .seed = 1}));
}

template <class Statistics>
double train(Training<Statistics>& training, const ImageData& images, std::int64_t steps) {
    auto batches = batches_of(images, training.options.replicas);
    double last = 0;
    constexpr std::int64_t shown = 20;
    for (std::int64_t step = 0; step < steps; ++step) {
        const double loss = training.step(batches).loss;
        if (step >= steps - shown) last += loss / shown;
    }
    return last;
}

template <class Statistics>
void print_accuracy(const char* name, Training<Statistics>& training, const ImageData& images, double loss) {
    EvaluationBatches test(images.test, ScaledPixels{}, global_batch / training.options.replicas,
                           training.options.devices);
    std::printf("accuracy %s %.4f %.4f\n", name, evaluate(training, test).accuracy(), loss);
    std::fflush(stdout);
}

/// One policy's training, a step at a time.
template <class Statistics>
struct Stepping {
    Training<Statistics> training;
    decltype(batches_of(std::declval<const ImageData&>(), 1)) batches;
    std::vector<double> seconds{};

    Stepping(const ImageData& images, int replicas)
        : training(options<Statistics>(replicas)), batches(batches_of(images, replicas)) {
        training.step(batches);  // makes the plans
    }
    void step() {
        const double begun = monotonic_seconds();
        training.step(batches);
        seconds.push_back(monotonic_seconds() - begun);
    }
    void print() {
        std::ranges::sort(seconds);
        std::printf("time %s %.6f\n", std::string(Statistics::name).c_str(), seconds[seconds.size() / 2]);
        seconds.clear();
    }
};

/// The median step of each policy in each round. They take turns step by step, each first in its turn, so that a
/// machine whose speed changes by the second changes all of them.
void print_times(const ImageData& images, int replicas, int rounds) {
    Stepping<FirstReplica> first(images, replicas);
    Stepping<LastReplica> last(images, replicas);
    Stepping<AllReplicas> all(images, replicas);
    Stepping<Pooled> pooled(images, replicas);
    Stepping<Synchronized> synchronized(images, replicas);
    const std::array<std::function<void()>, 5> steps{[&] { first.step(); }, [&] { last.step(); }, [&] { all.step(); },
                                                     [&] { pooled.step(); }, [&] { synchronized.step(); }};
    for (int round = 0; round < rounds; ++round) {
        for (std::size_t turn = 0; turn < 5 * steps.size(); ++turn)
            steps[(turn + turn / steps.size()) % steps.size()]();
        first.print();
        last.print();
        all.print();
        pooled.print();
        synchronized.print();
        std::fflush(stdout);
    }
}

}  // namespace

int main(int argc, char** argv) try {
    require(argc == 5, "usage: batch_norm_policies DATA REPLICAS STEPS ROUNDS");
    const ImageData images = open_image_data(argv[1], omp_get_num_procs());
    const int replicas = std::atoi(argv[2]);
    const std::int64_t steps = std::atoll(argv[3]);
    if (steps > 0) {
        Each each;
        auto with = options<Each>(replicas);
        with.statistics = each;
        Training<Each> training(with);
        const double loss = train(training, images, steps);
        TrainingState state = training.state();
        const std::array names{"first", "last", "all", "merged"};
        for (std::size_t i = 0; i < names.size(); ++i) {
            state.buffers = each.kept->running[i];
            training.restore(state);
            print_accuracy(names[i], training, images, loss);
        }
    }
    if (steps > 0) {
        Training<Synchronized> training(options<Synchronized>(replicas));
        const double loss = train(training, images, steps);
        print_accuracy("synchronized", training, images, loss);
    }
    print_times(images, replicas, std::atoi(argv[4]));
} catch (const std::exception& error) {
    std::fprintf(stderr, "batch_norm_policies: %s\n", error.what());
    return 1;
}
