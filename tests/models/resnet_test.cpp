// SPDX-License-Identifier: Apache-2.0
//
// ResNet<L>: its size and names, PyTorch's results for one step of a small one, and the same network without fusion and
// with synchronised statistics.
#include <cupola/models/resnet.hpp>

#include "../test.hpp"

#include <cupola/cupola.hpp>
#include <cupola/data/random_crop_flip.hpp>
#include <cupola/host.hpp>
#include <cupola/net/plan.hpp>
#include <cupola/parallel/state_transfer.hpp>
#include <cupola/parallel/synchronized.hpp>

#include "golden/golden.hpp"
#include "tutorial.hpp"

static_assert(ResNet<44>::parameter_count == 658'651 && ResNet<44>::output == Extents<11>{});
static_assert(std::is_base_of_v<ResNet<>, ResNet<44>>, "44 layers unless named");
static_assert(ResNet<44>::input == Extents<32, 32, 3>{});
// Six times the multiply-adds of the tutorial's network, 15,399,552. Computed by hand, of 3 x 3 kernels on 32,
// 16 and 8 pixels a side, where kernels that stand over the edge have fewer products.
static_assert([] {
    std::int64_t multiply_adds = 0;
    for (const LayerInfo& layer : ResNet<44>::layers) multiply_adds += layer.multiply_adds;
    const std::int64_t sides[] = {32 * 3 - 2, 16 * 3 - 2, 8 * 3 - 2}, strided[] = {16 * 3 - 1, 8 * 3 - 1};
    std::int64_t by_hand = sides[0] * sides[0] * (3 * 16 + 14 * 16 * 16) + 64 * 11;
    for (int stage = 1; stage < 3; ++stage) {
        const std::int64_t channels = 16 << stage;
        by_hand += strided[stage - 1] * strided[stage - 1] * channels / 2 * channels;
        by_hand += sides[stage] * sides[stage] * 13 * channels * channels;
    }
    return multiply_adds == by_hand;
}());
// The deepest published network: the compilers stay within their limits on constant evaluation.
static_assert(ResNet<200>::layer_count == 3 + 33 * 3 * 8 + 2 + 2);
static_assert(ResNet<44, 10>::parameter_count == 658'651 - 65 && ResNet<20, 10>::output == Extents<10>{});
// The convolutions of the blocks, the first one, and fc.
static_assert([] {
    int convolutions = 0, norms = 0;
    for (const LayerInfo& layer : ResNet<44>::layers) {
        convolutions += layer.kind == LayerKind::convolution ? 1 : 0;
        norms += layer.buffers.count > 0 ? 1 : 0;
    }
    return convolutions == 43 && norms == 43;
}());

namespace {

using Small = ResNet<8>;

/// A plan with memory of its own, every byte of it not a number before the run.
struct Runner {
    HostContext context{0, {.threads = 2}};
    Plan<Host> plan;
    HostArena arena;

    Runner(Plan<Host> (*make)(HostContext&, const PlanOptions&), const PlanOptions& options,
           const std::vector<float>& parameters, const float* running = nullptr)
        : plan(make(context, options)), arena(plan.bytes().total(), "test") {
        auto* floats = reinterpret_cast<float*>(arena.data());
        std::fill(floats, floats + arena.size() / sizeof(float), std::numeric_limits<float>::quiet_NaN());
        plan.bind(arena.data());
        plan.prepare(context, parameters.data(), running);
    }
};

std::vector<float> golden_parameters() {
    const std::vector<golden::Case> of_parameters = golden::cases("resnet_parameters");
    std::vector<float> parameters(static_cast<std::size_t>(Small::parameter_elements));
    std::size_t next = 0;
    for (std::size_t r = 0; r < Small::layer_count; ++r) {
        const LayerInfo& layer = Small::layers[r];
        for (std::size_t p = 0; p < layer.parameters.count; ++p) {
            const golden::Case& g = of_parameters.at(next++);
            REQUIRE(g.name() == parameter_name(Small::layers, r, p));
            std::vector<float> values = golden::uniform(g);
            REQUIRE(std::ssize(values) == layer.parameters.list[p].shape.size());
            if (p == 0 && layer.buffers.count > 0) {
                for (float& value : values) value += 1.0F;
            }
            std::ranges::copy(values, parameters.begin() + layer.offsets[p]);
        }
    }
    return parameters;
}

}  // namespace

TEST_CASE("one step of ResNet<8> gives PyTorch's names, logits, loss, gradients and running statistics") {
    const std::vector<golden::Case> of_parameters = golden::cases("resnet_parameters");
    for (const golden::Case& golden : golden::cases("resnet")) {
        const auto labels = golden.list<std::int32_t>("labels");
        const auto batch = std::ssize(labels);
        const auto expected = golden.list("logits"), buffers = golden.list("buffers"),
                   evaluated = golden.list("evaluated");
        const std::vector<float> parameters = golden_parameters(), images = golden::images(golden, batch * 32 * 32 * 3);
        for (const bool fusion : {true, false}) {
            CAPTURE(fusion);
            const PlanOptions options{.batch = batch};
            Runner run(fusion ? &Plan<Host>::make<Small> : &Plan<Host>::make<Unfused<Small>>, options, parameters);
            std::vector<float> statistics(static_cast<std::size_t>(Small::buffer_elements));
            const float* logits = run.plan.forward(run.context, images.data(), parameters.data(), {},
                                                   {.running = nullptr, .batch = statistics.data()});
            CHECK(tutorial::difference(std::span(logits, expected.size()), expected) < 1e-5);
            const auto loss = CrossEntropy<11>{}.operation<Host>();
            const LossResult result =
                loss.forward(run.context, logits, labels.data(), batch, run.plan.output_gradient());
            CHECK(result.sum / static_cast<double>(batch) ==
                  doctest::Approx(golden.number<double>("cross_entropy")).epsilon(1e-5));

            std::vector<float> gradients(parameters.size(), std::numeric_limits<float>::quiet_NaN());
            run.plan.backward(run.context, images.data(), parameters.data(), gradients.data(), {});
            std::size_t next = 0;
            for (const LayerInfo& layer : Small::layers) {
                for (std::size_t p = 0; p < layer.parameters.count; ++p) {
                    const golden::Case& g = of_parameters.at(next++);
                    CAPTURE(g.name());
                    const float* const ours = gradients.data() + layer.offsets[p];
                    double squares = 0;
                    for (std::int64_t i = 0; i < g.number<std::int64_t>("size"); ++i)
                        squares += static_cast<double>(ours[i]) * static_cast<double>(ours[i]);
                    CHECK(std::sqrt(squares) == doctest::Approx(g.number<double>("gradient_norm")).epsilon(1e-4));
                    std::vector<float> at;
                    for (const std::int64_t place : g.list<std::int64_t>("places")) at.push_back(ours[place]);
                    CHECK(tutorial::difference(at, g.list("gradient")) < 1e-4);
                }
            }

            // The running statistics as a policy makes them, and the evaluation with them.
            std::vector<float> running = initial_buffers(Small::layers);
            std::size_t first = 0;
            for (const RunningStatistics& s : running_statistics(Small::layers)) {
                CHECK(s.decay == doctest::Approx(1 - golden.number<double>("momentum")).epsilon(1e-12));
                const auto channels = static_cast<std::size_t>(s.channels);
                for (const bool variance : {false, true}) {
                    const auto place = static_cast<std::size_t>(variance ? s.variance : s.mean);
                    const double factor = variance ? s.unbiased(batch) : 1.0;
                    for (std::size_t c = place; c < place + channels; ++c) {
                        running[c] = static_cast<float>(s.decay * static_cast<double>(running[c]) +
                                                        (1 - s.decay) * factor * static_cast<double>(statistics[c]));
                    }
                    CHECK(tutorial::difference(std::span(running).subspan(place, channels),
                                               buffers.subspan(first, channels)) < 1e-5);
                    first += channels;
                }
            }
            CHECK(first == buffers.size());
            const PlanOptions for_evaluation{.batch = batch, .training = false};
            Runner evaluation(&Plan<Host>::make<Small>, for_evaluation, parameters, running.data());
            const RngKey outside_training{.training = false};
            logits = evaluation.plan.forward(evaluation.context, images.data(), parameters.data(), outside_training,
                                             {.running = running.data(), .batch = nullptr});
            CHECK(tutorial::difference(std::span(logits, evaluated.size()), evaluated) < 1e-5);
        }
    }
}

TEST_CASE("fusion changes no bit of ResNet") {
    constexpr std::int64_t batch = 3;
    const golden::Case golden = golden::cases("resnet")[0];
    const std::vector<float> parameters = golden_parameters(), images = golden::images(golden, batch * 32 * 32 * 3);
    const auto run = [&](Plan<Host> (*make)(HostContext&, const PlanOptions&)) {
        const PlanOptions options{.batch = batch};
        Runner r(make, options, parameters);
        const float* logits = r.plan.forward(r.context, images.data(), parameters.data(), {});
        std::vector<float> result(logits, logits + batch * 11);
        for (std::size_t i = 0; i < result.size(); ++i)
            r.plan.output_gradient()[i] = 0.01F * static_cast<float>(i % 5) - 0.02F;
        std::vector<float> gradients(parameters.size());
        r.plan.backward(r.context, images.data(), parameters.data(), gradients.data(), {});
        result.insert(result.end(), gradients.begin(), gradients.end());
        return result;
    };
    const std::vector<float> fused = run(&Plan<Host>::make<Small>), plain = run(&Plan<Host>::make<Unfused<Small>>);
    CHECK(std::memcmp(fused.data(), plain.data(), fused.size() * sizeof(float)) == 0);
    CHECK(activation_bytes<ResNet<44>>(128) == 432'013'312);  // as small as any arena can be
}

TEST_CASE("synchronised replicas of ResNet<8> are one replica with the whole batch") {
    using Training = DataParallel<ResNet<8, 10>, CrossEntropy<10>, Sgd, ConcatMean, Host, Synchronized>;
    constexpr std::int64_t global_batch = 16;
    const auto batches = [](int replicas) {
        return Prefetch(TrainingBatches(tutorial::sample().train, RandomCropFlip{},
                                        {.batch_size = global_batch / replicas, .replicas = replicas, .seed = 4}));
    };
    for (const int replicas : {2, 4}) {
        CAPTURE(replicas);
        Training many({.replicas = replicas, .devices = 2, .batch_size = global_batch / replicas, .seed = 4});
        Training one({.batch_size = global_batch, .seed = 4});
        auto of_many = batches(replicas), of_one = batches(1);
        for (int step = 0; step < 3; ++step) {
            one.set_parameters(many.parameters());
            const double loss = one.step(of_one).loss;
            CHECK(many.step(of_many).loss == doctest::Approx(loss).epsilon(1e-5));
            CHECK(tutorial::difference(many.averaged_gradient(), one.averaged_gradient()) < 1e-5);
            CHECK(tutorial::difference(many.state().buffers, one.state().buffers) < 1e-5);
        }
    }
}

TEST_CASE("weights are initialised by Glorot's rule, and the batch norms as the identity") {
    for (const LayerInfo& layer : ResNet<20>::layers) {
        if (layer.parameters.count == 0) continue;
        const bool norm = layer.buffers.count > 0;
        CHECK(layer.parameters.list[0].initializer == (norm ? constant(1) : glorot_uniform()));
        CHECK(layer.parameters.count == (layer.kind == LayerKind::convolution ? 1 : 2));
        if (layer.parameters.count == 2) CHECK(layer.parameters.list[1].initializer == constant(0));
        if (norm) CHECK(layer.kind_parts.batch_norm.decay == 0.997);
    }
}
