// SPDX-License-Identifier: Apache-2.0
//
// One training step after another of one of the networks that are measured, synthetic samples already in memory; it
// talks to turns.py as peers/protocol.py does.
//
//   training_step NETWORK PRECISION BATCH THREADS [REPLICAS] [unfused] [winograd] [recompute]
//                 [local-sgd=N | diloco=N | elastic=N | asynchronous=N]
//
// NETWORK is lrn (the tutorial's), plain (the same without its two LRN), resnet44 or mlp; PRECISION is float or
// bfloat16. Each of REPLICAS has a batch of BATCH on a device of THREADS threads; they are averaged by ConcatMean, or
// have parameters of their own and agree every N steps; `asynchronous` is elastic averaging in which no replica waits
// for another, four steps ahead at most. A time is that between two reports. `unfused` switches the fusion pass off,
// `winograd` takes Winograd's convolution where it is faster, `recompute` computes each block of resnet44 again in
// backward.
#include <cupola/cupola.hpp>
#include <cupola/host.hpp>
#include <cupola/models/cifar10_net.hpp>
#include <cupola/models/resnet.hpp>
#include <cupola/net/recompute.hpp>
#include <cupola/ops/host/winograd_convolution.hpp>
#include <cupola/parallel/kinds/asynchronous.hpp>
#include <cupola/parallel/kinds/elastic_averaging.hpp>
#include <cupola/parallel/kinds/one_of.hpp>
#include <cupola/parallel/kinds/periodic.hpp>

#include "../standard.hpp"
#include "synthetic.hpp"

using namespace cupola;
using benchmarks::Synthetic;

namespace {

constexpr auto small = weights(truncated_normal(0.05)), medium = weights(truncated_normal(0.04));
constexpr auto tenth = biases(constant(0.1));

// clang-format off
struct PlainNet : Sequential<Input<24, 24, 3>,
    Named<"conv1", Conv2d<64, 5, small>>, ReLU, MaxPool2d<3, 2>,
    Named<"conv2", Conv2d<64, 5, small, tenth>>, ReLU, MaxPool2d<3, 2>,
    Flatten,
    Named<"local3", Linear<384, medium, tenth>>, ReLU,
    Named<"local4", Linear<192, medium, tenth>>, ReLU,
    Named<"softmax_linear", Linear<10, weights(truncated_normal(1.0 / 192))>>> {};

struct Mlp : Sequential<Input<784>, Named<"hidden", Linear<128>>, ReLU, Named<"logits", Linear<10>>> {};
// clang-format on

using Averaging = OneOf<ConcatMean, Periodic<ConcatMean>, Periodic<ConcatMean, Sgd>, ElasticAveraging<ConcatMean>,
                        Asynchronous<Elastic>>;

/// "elastic=16"
Averaging averaging_of(std::string_view word) {
    const std::size_t sign = word.find('=');
    const std::string_view name = word.substr(0, sign);
    const std::int64_t every = std::atoll(std::string(word.substr(sign + 1)).c_str());
    if (name == "local-sgd") return Periodic<ConcatMean>{.every = every};
    if (name == "diloco")
        return Periodic<ConcatMean, Sgd>{.every = every,
                                         .outer = {.learning_rate = 0.7, .momentum = 0.9, .nesterov = true}};
    if (name == "asynchronous") return Asynchronous<Elastic>{.rule = {.every = every}, .ahead = 4};
    require(name == "elastic", "there is no averaging ", name);
    return ElasticAveraging<ConcatMean>{.every = every};
}

struct Choice {
    std::string_view network, precision;
    std::int64_t batch = 0;
    int threads = 0, replicas = 1;
    bool unfused = false, winograd = false, recompute = false;
    Averaging averaging{};
};

template <class Net, class Loss>
int serve(const Choice& choice, const Sgd& optimizer) {
    const Synthetic batches(choice.batch, choice.replicas, Net::input_shape);
    const HostOptions device{.threads = choice.threads, .convolution = choice.winograd ? &winograd : nullptr};
    DataParallel<Net, Loss, Sgd, Averaging, Host> training({.replicas = choice.replicas,
                                                            .devices = choice.replicas,
                                                            .device = device,
                                                            .batch_size = choice.batch,
                                                            .seed = 1,
                                                            .optimizer = optimizer,
                                                            .averaging = choice.averaging});
    const char* const warm_up = std::getenv("WARM_UP");  // as protocol.py
    for (int i = warm_up != nullptr ? std::atoi(warm_up) : 5; i > 0; --i) training.step(batches);
    const std::string averaging = choice.averaging.description();
    std::printf(
        "{\"name\": \"Cupola\", \"version\": \"%d.%d.%d\", \"how\": \"%d x %lld samples, %d thread%s each%s%s%s%s%s\", "
        "\"activations\": %zu}\n",
        CUPOLA_VERSION_MAJOR, CUPOLA_VERSION_MINOR, CUPOLA_VERSION_PATCH, choice.replicas,
        static_cast<long long>(choice.batch), choice.threads, choice.threads == 1 ? "" : "s",
        choice.unfused ? ", unfused" : "", choice.winograd ? ", Winograd" : "", choice.recompute ? ", recomputed" : "",
        averaging == "ConcatMean" ? "" : ", ", averaging == "ConcatMean" ? "" : averaging.c_str(),
        training.memory().plan.activations);
    std::fflush(stdout);
    char line[64];
    while (std::fgets(line, sizeof line, stdin) != nullptr) {
        std::vector<double> seconds;
        double loss = 0;
        auto last = std::chrono::steady_clock::now();
        for (int i = std::atoi(line); i > 0; --i) {
            training.queue(batches);
            while (const StepReport* report = training.poll_report(i > 1 ? training.steps_in_flight() - 1 : 0)) {
                loss = report->loss;
                const auto now = std::chrono::steady_clock::now();
                seconds.push_back(std::chrono::duration<double>(now - last).count());
                last = now;
            }
        }
        std::printf("{\"seconds\": [");
        for (std::size_t i = 0; i < seconds.size(); ++i) std::printf("%s%.7f", i == 0 ? "" : ", ", seconds[i]);
        std::printf("], \"loss\": %.6f}\n", loss);
        std::fflush(stdout);
    }
    return 0;
}

template <class Net, class Loss>
int serve_in_precision(const Choice& choice, const Sgd& optimizer = {.learning_rate = 0.01}) {
    if (choice.precision == "float") return serve<Net, Loss>(choice, optimizer);
    require(choice.precision == "bfloat16", "PRECISION is float or bfloat16, not ", choice.precision);
    using Net16 = InPrecision<MixedBFloat16, Net>;
    static constexpr CompileTimeMessage problem = Net16::template operations_diagnostic<Host, MixedBFloat16>();
    if constexpr (problem.empty()) {
        return serve<Net16, Loss>(choice, optimizer);
    } else {
        throw InvalidArgument(std::string(problem.characters, problem.size));
    }
}

struct Recomputed : Recompute<ResNet<44>, "layer?.*"> {};

int run(const Choice& choice) {
    require(!choice.recompute || choice.network == "resnet44", "only the network resnet44 is built with recompute");
    if (choice.network == "lrn" && choice.unfused) return serve_in_precision<Unfused<Cifar10Net>, Cifar10Loss>(choice);
    require(!choice.unfused, "only the network lrn is built unfused");
    if (choice.network == "lrn") return serve_in_precision<Cifar10Net, Cifar10Loss>(choice);
    if (choice.network == "plain") return serve_in_precision<PlainNet, Cifar10Loss>(choice);
    require(choice.network == "resnet44" || choice.network == "mlp", "NETWORK is lrn, plain, resnet44 or mlp, not ",
            choice.network);
    require(choice.precision == "float", "the network ", choice.network, " is built in float");
    if (choice.network == "mlp") return serve<Mlp, LossCollection<CrossEntropy<10>>>(choice, {.learning_rate = 0.01});
    using ResNetLoss = LossCollection<CrossEntropy<11>, WeightDecayAll<2e-4>>;
    const Sgd optimizer{.learning_rate = 0.01, .momentum = 0.9};
    if (choice.recompute) return serve<Recomputed, ResNetLoss>(choice, optimizer);
    return serve<ResNet<44>, ResNetLoss>(choice, optimizer);
}

}  // namespace

int main(int argc, char** argv) try {
    require(argc >= 5,
            "usage: training_step NETWORK PRECISION BATCH THREADS [REPLICAS] [unfused] [winograd] [recompute] "
            "[local-sgd=N | diloco=N | elastic=N | asynchronous=N]");
    Choice choice{
        .network = argv[1], .precision = argv[2], .batch = std::atoll(argv[3]), .threads = std::atoi(argv[4])};
    for (int i = 5; i < argc; ++i) {
        const std::string_view word = argv[i];
        if (word == "unfused") {
            choice.unfused = true;
        } else if (word == "winograd") {
            choice.winograd = true;
        } else if (word == "recompute") {
            choice.recompute = true;
        } else if (word.find('=') != std::string_view::npos) {
            choice.averaging = averaging_of(word);
        } else {
            choice.replicas = std::atoi(argv[i]);
        }
    }
    return run(choice);
} catch (const std::exception& error) {
    std::fprintf(stderr, "training_step: %s\n", error.what());
    return 1;
}
