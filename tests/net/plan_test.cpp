// SPDX-License-Identifier: Apache-2.0
// Covers: cupola/ops/plan_node.hpp, cupola/net/plan_arguments.hpp
#include <cupola/net/plan.hpp>

#include "../test.hpp"

#include <concepts>

#include "golden/golden.hpp"
#include "tutorial.hpp"

namespace {

/// A plan with memory of its own, every byte of it not a number before the run.
template <class Net>
struct Runner {
    HostContext context{0, {.threads = 2}};
    Plan<Host> plan;
    HostArena arena;
    Runner(const PlanOptions& options)
        : plan(Plan<Host>::make<Net>(context, options)), arena(plan.bytes().total(), "test") {
        auto* floats = reinterpret_cast<float*>(arena.data());
        std::fill(floats, floats + arena.size() / sizeof(float), std::numeric_limits<float>::quiet_NaN());
        plan.bind(arena.data());
    }
};

}  // namespace

TEST_CASE("one step of the tutorial's network gives PyTorch's logits, loss and gradients") {
    const std::vector<golden::Case> of_parameters = golden::cases("network_parameters");
    for (const golden::Case& golden : golden::cases("network")) {
        CAPTURE(golden.name());
        using Net = tutorial::Net;
        const auto labels = golden.list<std::int32_t>("labels");
        const auto batch = std::ssize(labels);
        std::vector<float> parameters(static_cast<std::size_t>(Net::parameter_elements));
        std::size_t next = 0;
        for (const LayerInfo& layer : Net::layers) {
            for (std::size_t p = 0; p < layer.parameters.count; ++p) {
                const std::vector<float> values = golden::uniform(of_parameters.at(next++));
                REQUIRE(std::ssize(values) == layer.parameters.list[p].shape.size());
                std::ranges::copy(values, parameters.begin() + layer.offsets[p]);
            }
        }
        const std::vector<float> images = golden::images(golden, batch * 24 * 24 * 3);
        Runner<Net> run({.batch = batch});
        run.plan.prepare(run.context, parameters.data());
        const float* logits = run.plan.forward(run.context, images.data(), parameters.data(), {});
        const auto expected = golden.list("logits");
        CHECK(tutorial::difference(std::span(logits, expected.size()), expected) < 1e-5);
        const auto loss = CrossEntropy<10>{}.operation<Host>();
        const LossResult result = loss.forward(run.context, logits, labels.data(), batch, run.plan.output_gradient());
        CHECK(result.sum / static_cast<double>(batch) ==
              doctest::Approx(golden.number<double>("cross_entropy")).epsilon(1e-5));
        std::vector<float> gradients(parameters.size(), std::numeric_limits<float>::quiet_NaN());
        run.plan.backward(run.context, images.data(), parameters.data(), gradients.data(), {});
        next = 0;
        for (const LayerInfo& layer : Net::layers) {
            for (std::size_t p = 0; p < layer.parameters.count; ++p) {
                const golden::Case& g = of_parameters.at(next++);
                CAPTURE(g.name());
                // The golden gradient is of the total: the decay's share is coefficient * w.
                const bool decays = p == 0 && (layer.name == "local3" || layer.name == "local4");
                const auto at = [&](std::int64_t i) {
                    const auto place = static_cast<std::size_t>(layer.offsets[p] + i);
                    return static_cast<double>(gradients[place]) +
                           (decays ? 0.004 * static_cast<double>(parameters[place]) : 0.0);
                };
                double squares = 0;
                for (std::int64_t i = 0; i < g.number<std::int64_t>("size"); ++i) squares += at(i) * at(i);
                CHECK(std::sqrt(squares) == doctest::Approx(g.number<double>("gradient_norm")).epsilon(1e-5));
                std::vector<double> ours;
                for (const std::int64_t place : g.list<std::int64_t>("places")) ours.push_back(at(place));
                CHECK(tutorial::difference(ours, g.list("gradient")) < 2e-5);
            }
        }
    }
}

TEST_CASE("backward adds if `accumulate` is set, and overwrites otherwise") {
    using Net = tutorial::SmallNet;
    std::vector<float> parameters(static_cast<std::size_t>(Net::parameter_elements));
    initialize(parameters, normal(0.1), 1, 1, 5, 0);
    std::vector<float> images(3 * 24 * 24 * 3);
    initialize(images, normal(1.0), 1, 1, 6, 0);
    Runner<Net> run({.batch = 3});
    run.plan.prepare(run.context, parameters.data());
    const auto gradients = [&](std::vector<float> before, bool accumulate) {
        run.plan.forward(run.context, images.data(), parameters.data(), {});
        std::fill(run.plan.output_gradient(), run.plan.output_gradient() + 30, 0.25F);
        run.plan.backward(run.context, images.data(), parameters.data(), before.data(), {}, accumulate);
        return before;
    };
    const std::vector<float> once = gradients(std::vector<float>(parameters.size(), 7.0F), false);
    const std::vector<float> twice = gradients(once, true);
    double largest = 0;
    for (const LayerInfo& layer : Net::layers) {
        for (std::size_t p = 0; p < layer.parameters.count; ++p) {
            for (std::int64_t i = 0; i < layer.parameters.list[p].shape.size(); ++i) {
                const auto place = static_cast<std::size_t>(layer.offsets[p] + i);
                largest = std::max(largest, static_cast<double>(std::abs(once[place])));
                REQUIRE(twice[place] == doctest::Approx(2 * once[place]).epsilon(1e-5));
            }
        }
    }
    CHECK(largest > 0);
}

TEST_CASE("the gradient of the batch is computed on request and equals the derivative of the output") {
    struct Net : Sequential<Input<6, 6, 2>, Conv2d<4, 3>, ReLU, AvgPool2d<2>, Flatten, Linear<3>> {};
    std::vector<float> parameters(static_cast<std::size_t>(Net::parameter_elements));
    initialize(parameters, normal(0.5), 1, 1, 5, 0);
    std::vector<float> images(2 * 72), direction(2 * 72);
    initialize(images, normal(1.0), 1, 1, 6, 0);
    initialize(direction, normal(1.0), 1, 1, 7, 0);
    Runner<Net> run({.batch = 2, .input_gradient = true});
    run.plan.prepare(run.context, parameters.data());
    const auto sum = [&](double step) {
        std::vector<float> moved = images;
        for (std::size_t i = 0; i < moved.size(); ++i) moved[i] += static_cast<float>(step) * direction[i];
        const float* output = run.plan.forward(run.context, moved.data(), parameters.data(), {});
        double total = 0;
        for (int i = 0; i < 6; ++i) total += static_cast<double>(output[i]);
        return total;
    };
    sum(0);
    std::fill(run.plan.output_gradient(), run.plan.output_gradient() + 6, 1.0F);
    std::vector<float> gradients(parameters.size());
    run.plan.backward(run.context, images.data(), parameters.data(), gradients.data(), {});
    double slope = 0;
    for (std::size_t i = 0; i < images.size(); ++i) {
        slope += static_cast<double>(run.plan.input_gradient()[i]) * static_cast<double>(direction[i]);
    }
    CHECK((sum(1e-3) - sum(-1e-3)) / 2e-3 == doctest::Approx(slope).epsilon(2e-3));
}

TEST_CASE("a plan for inspection shows every layer's output as in training, including tensors that training drops") {
    struct Net : Sequential<Input<6, 6, 2>, Conv2d<4, 3>, ReLU, MaxPool2d<2>, Flatten, Dropout<0.5>, Linear<3>> {};
    std::vector<float> parameters(static_cast<std::size_t>(Net::parameter_elements));
    initialize(parameters, normal(0.5), 1, 1, 5, 0);
    std::vector<float> images(4 * 72);
    initialize(images, normal(1.0), 1, 1, 6, 0);
    const RngKey key{.seed = 3, .step = 2, .first_sample = 8};
    const PlanOptions for_training{.batch = 4}, for_inspection{.batch = 4, .inspect = true};
    Runner<Net> training(for_training), inspection(for_inspection);
    training.plan.prepare(training.context, parameters.data());
    inspection.plan.prepare(inspection.context, parameters.data());
    const float* output = training.plan.forward(training.context, images.data(), parameters.data(), key);
    std::vector<std::vector<float>> seen;
    inspection.plan.forward_each(inspection.context, images.data(), parameters.data(), {}, key,
                                 [&](std::size_t layer, const float* values, std::int64_t elements) {
                                     CHECK(layer == seen.size());
                                     CHECK(elements == 4 * Net::layers[layer].output.size());
                                     seen.emplace_back(values, values + elements);
                                 });
    REQUIRE(seen.size() == Net::layer_count);
    CHECK(std::equal(seen.back().begin(), seen.back().end(), output));
    // The convolution's output, which the fused plan cuts at zero as it writes.
    CHECK(*std::min_element(seen[0].begin(), seen[0].end()) < 0.0F);
    for (std::size_t i = 0; i < seen[0].size(); ++i) REQUIRE(seen[1][i] == std::max(seen[0][i], 0.0F));
    CHECK(seen[3] == seen[2]);  // a view
    const auto dropped = std::count(seen[4].begin(), seen[4].end(), 0.0F);
    CHECK(dropped > std::count(seen[3].begin(), seen[3].end(), 0.0F));
    CHECK(inspection.plan.bytes().saved == 0);
    CHECK_THROWS_AS(training.plan.forward_each(training.context, images.data(), parameters.data(), {}, key,
                                               [](std::size_t, const float*, std::int64_t) {}),
                    InvalidArgument);
}

namespace {

// Forward is not given what is backward's; backward is given what forward has.
template <class Args>
concept HasGradients = requires(Args& args) {
    args.output_gradient;
    args.input_gradient;
    args.parameter_gradients;
    args.accumulate;
};
static_assert(!HasGradients<ForwardArgs<Host>> && HasGradients<BackwardArgs<Host>>);
static_assert(std::derived_from<BackwardArgs<Host>, ForwardArgs<Host>>);

/// y = w x, one w per element; it keeps the pointers of its last call.
struct Spy {
    struct Seen {
        const float *input, *weight;
        float *output, *output_gradient, *input_gradient, *weight_gradient;
        bool accumulate, training;
        std::uint32_t step;
        bool operator==(const Seen&) const = default;
    };
    static inline Seen forward_seen{}, backward_seen{};

    static constexpr ShapeResult output(const Shape& input) { return input; }
    static constexpr Parameters parameters(const Shape& input) {
        return Parameter{.name = "weight", .shape = {input.size()}, .initializer = constant(1)};
    }
    struct Operation {
        void forward(const ForwardArgs<Host>& args) const {
            forward_seen = {args.input, args.parameters[0], args.output, nullptr, nullptr, nullptr,
                            false,      args.training,      args.step};
        }
        void backward(const BackwardArgs<Host>& args) const {
            backward_seen = {args.input,           args.parameters[0],  args.output,
                             args.output_gradient, args.input_gradient, args.parameter_gradients[0],
                             args.accumulate,      args.training,       args.step};
        }
    };
    static Operation operation(const BuildContext<Host>&) { return {}; }
};
struct Spied : Sequential<Input<4>, Linear<8>, Spy, Linear<2>> {};
struct SpiedFirst : Sequential<Input<4>, Spy, Linear<2>> {};

}  // namespace

TEST_CASE("a plan binds an operation's tensors once, and a call passes only what changes") {
    Runner<Spied> run({.batch = 2});
    const auto floats = [](std::int64_t count) { return std::vector<float>(static_cast<std::size_t>(count)); };
    std::vector<float> parameters = floats(Spied::parameter_elements), others = parameters, gradients = parameters,
                       other_gradients = parameters, images = floats(2 * 4);
    const auto at = static_cast<std::size_t>(Spied::layers[1].offsets[0]);
    const auto call = [&](std::vector<float>& p, std::vector<float>& g, const RngKey& key, bool accumulate) {
        run.plan.prepare(run.context, p.data());
        run.plan.forward(run.context, images.data(), p.data(), key);
        run.plan.backward(run.context, images.data(), p.data(), g.data(), key, accumulate);
    };
    call(parameters, gradients, {.step = 3}, false);
    const Spy::Seen forward = Spy::forward_seen, backward = Spy::backward_seen;
    CHECK(forward.weight == parameters.data() + at);
    CHECK(backward.weight_gradient == gradients.data() + at);
    CHECK((forward.step == 3 && backward.step == 3 && forward.training && !backward.accumulate));
    CHECK((backward.input == forward.input && backward.output == forward.output));

    call(others, other_gradients, {.step = 4}, true);
    CHECK((Spy::forward_seen.input == forward.input && Spy::forward_seen.output == forward.output));
    CHECK((Spy::backward_seen.output_gradient == backward.output_gradient &&
           Spy::backward_seen.input_gradient == backward.input_gradient));
    CHECK(Spy::forward_seen.weight == others.data() + at);
    CHECK(Spy::backward_seen.weight_gradient == other_gradients.data() + at);
    CHECK((Spy::forward_seen.step == 4 && Spy::backward_seen.accumulate));
    run.plan.forward(run.context, images.data(), others.data(), {.training = false});
    CHECK_FALSE(Spy::forward_seen.training);
    CHECK(Spy::forward_seen.step == 0);

    // Other memory: everything moves with it.
    HostArena other(run.plan.bytes().total(), "test");
    run.plan.bind(other.data());
    call(parameters, gradients, {}, false);
    CHECK(reinterpret_cast<const std::byte*>(Spy::forward_seen.output) - other.data() ==
          reinterpret_cast<const std::byte*>(forward.output) - run.arena.data());
    CHECK(reinterpret_cast<const std::byte*>(Spy::backward_seen.input_gradient) - other.data() ==
          reinterpret_cast<const std::byte*>(backward.input_gradient) - run.arena.data());
}

TEST_CASE("the first operation reads the batch of each call") {
    Runner<SpiedFirst> run({.batch = 1});
    const std::vector<float> parameters(static_cast<std::size_t>(SpiedFirst::parameter_elements));
    const std::vector<float> first(4), second(4);
    run.plan.prepare(run.context, parameters.data());
    run.plan.forward(run.context, first.data(), parameters.data(), {});
    CHECK(Spy::forward_seen.input == first.data());
    run.plan.forward(run.context, second.data(), parameters.data(), {});
    CHECK(Spy::forward_seen.input == second.data());
}

TEST_CASE("a plan without memory does not run") {
    HostContext context(0, {.threads = 1});
    auto plan = PlanOf<SpiedFirst, Host>::make<SpiedFirst>(context, {.batch = 1});
    const std::vector<float> parameters(static_cast<std::size_t>(SpiedFirst::parameter_elements)), images(4);
    const char* const message = "a plan cannot run before bind() gives it memory";
    CHECK_THROWS_WITH_AS(plan.prepare(context, parameters.data()), message, InvalidArgument);
    CHECK_THROWS_WITH_AS(plan.forward(context, images.data(), parameters.data(), {}), message, InvalidArgument);
}

TEST_CASE("a plan rejects another context than the one it was made with") {
    Runner<SpiedFirst> run({.batch = 1});
    HostContext other(0, {.threads = 1});
    const std::vector<float> parameters(static_cast<std::size_t>(SpiedFirst::parameter_elements)), images(4);
    CHECK_THROWS_WITH_AS(run.plan.prepare(other, parameters.data()),
                         "a plan must run on the context that it was made with", InvalidArgument);
    CHECK_THROWS_AS(run.plan.forward(other, images.data(), parameters.data(), {}), InvalidArgument);
}
