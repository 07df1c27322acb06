// SPDX-License-Identifier: Apache-2.0
// Covers: cupola/optim/constants_writer.hpp, cupola/ops/element_update.hpp, cupola/ops/host/element_update.hpp, cupola/optim/adam.hpp
// Covers: cupola/optim/adam_w.hpp, cupola/optim/rms_prop.hpp, cupola/optim/update_parameters.hpp
//
// The properties of every optimiser: PyTorch's results, padding that is not written, and the same bits from any team of
// threads.
#include <cupola/optim/clipped.hpp>
#include <cupola/optim/optimizer.hpp>

#include "../test.hpp"

#include <cupola/ops/host/element_update.hpp>
#include <cupola/ops/host/gradient_norm.hpp>

#include "each_optimizer.hpp"
#include "golden/golden.hpp"
#include "stepping.hpp"
#include "throws_with.hpp"

static_assert([]<class... O>(std::tuple<O...>*) {
    return (Optimizer<O, Host> && ...);
}(static_cast<EachOptimizer*>(nullptr)));
static_assert(Optimizer<Clipped<Adam>, Host>);
static_assert(!Optimizer<Schedule, Host> && !HasStateNames<Schedule> && HasDescription<Schedule>);

namespace {

/// Calls f with the optimiser of a golden case.
template <class Function>
void with_optimizer(const golden::Case& golden, Function&& f) {
    const auto n = golden.list<double>("numbers");
    const std::string_view kind = golden.text("kind");
    const auto clipped = [&]<class Inner>(const Inner& inner) {
        const double max_norm = golden.number<double>("max_norm"), max_value = golden.number<double>("max_value");
        if (max_norm == 0 && max_value == 0) {
            f(inner);
        } else {
            f(Clipped<Inner>{.optimizer = inner, .max_norm = max_norm, .max_value = max_value});
        }
    };
    if (kind == "sgd")
        clipped(Sgd{.learning_rate = n[0], .momentum = n[1], .nesterov = n[3] != 0, .weight_decay = n[2]});
    if (kind == "sgd" && n[3] != 0)  // the rate of a case is constant: the same parameters
        clipped(NesterovVelocity{.learning_rate = n[0], .momentum = n[1], .weight_decay = n[2]});
    if (kind == "adam") clipped(Adam{n[0], n[1], n[2], n[3], n[4]});
    if (kind == "adamw") clipped(AdamW{n[0], n[1], n[2], n[3], n[4]});
    if (kind == "rmsprop") clipped(RmsProp{n[0], n[1], n[2], n[3], n[4], n[5]});
}

/// An optimiser that calls `apply` so often.
struct Applying {
    int times = 1;

    [[nodiscard]] int state_arenas() const { return 0; }
    [[nodiscard]] std::string_view state_name(int) const { return ""; }
    [[nodiscard]] std::string description() const { return "applying"; }
    [[nodiscard]] double learning_rate_at(std::int64_t) const { return 0.1; }
    template <class Apply>
    void formula(std::int64_t, const Segment&, Apply&& apply) const {
        for (int i = 0; i < times; ++i) apply(impl::SgdFormula{0.1F});
    }
};

}  // namespace

TEST_CASE("twenty steps of each optimiser are PyTorch's, in double and in float, clipped or not") {
    REQUIRE(golden::cases("optimizers").size() >= 14);
    for (const golden::Case& golden : golden::cases("optimizers")) {
        CAPTURE(golden.name());
        int ran = 0;
        with_optimizer(golden, [&](const auto& optimizer) {
            const auto initial = golden.list("initial"), gradients = golden.list("gradients"),
                       trace = golden.list("trace"), float_trace = golden.list("float_trace");
            const auto first = golden.number<std::int64_t>("first");
            const std::size_t size = initial.size();
            stepping::Arena arena(optimizer, {first, std::ssize(initial) - first});
            arena.segments[0].l2 = golden.number<double>("l2");
            arena.scatter(arena.w, initial);
            REQUIRE(gradients.size() == 20 * size);
            for (std::size_t step = 0; step < 20; ++step) {
                CAPTURE(step);
                const auto w = arena.step(static_cast<std::int64_t>(step), gradients.subspan(step * size, size));
                // PyTorch's own two figures are up to 1e-6 apart.
                CHECK(stepping::difference(w, trace.subspan(step * size, size)) < 2e-6);
                CHECK(stepping::difference(w, float_trace.subspan(step * size, size)) < 2e-6);
            }
            CHECK(arena.padding_untouched());
            ++ran;
        });
        CHECK(ran >= 1);
    }
}

TEST_CASE("tensors of any size are updated, and the padding between them is not, with the same bits for any team") {
    with_each_optimizer([](const auto& optimizer) {
        CAPTURE(optimizer.description());
        // One element; less, more and exactly a block of what a thread is given.
        const std::vector<std::int64_t> sizes{1, 17, 4095, 4096, 4097, 20'011};
        constexpr std::size_t total = 1 + 17 + 4095 + 4096 + 4097 + 20'011;
        std::vector<float> trained[2];
        for (const int threads : {1, 2}) {
            stepping::Arena arena(optimizer, sizes, threads);
            arena.segments[3].l2 = 0.1;
            arena.segments[1].rank = 1;
            const auto initial = stepping::numbers(total, 1);
            arena.scatter(arena.w, initial);
            for (std::uint32_t step = 0; step < 3; ++step) arena.step(step, stepping::numbers(total, 100 + step));
            CHECK(arena.padding_untouched());
            auto& result = trained[threads - 1] = arena.gather(arena.w);
            std::size_t alike = 0;
            for (std::size_t i = 0; i < total; ++i) alike += result[i] == initial[i] ? 1 : 0;
            CHECK(alike < total / 100);
        }
        CHECK(trained[0] == trained[1]);
    });
}

TEST_CASE("each element is updated as if alone: the end of a span is treated like its middle") {
    // LAMB and LARS are left out: their step depends on the whole tensor.
    with_each_optimizer([]<class O>(const O& optimizer) {
        if constexpr (!requires { optimizer.max_norm; } && !std::is_same_v<O, Lamb> && !std::is_same_v<O, Lars>) {
            CAPTURE(optimizer.description());
            constexpr std::int64_t size = 37;
            const auto initial = stepping::numbers(size, 5), gradient = stepping::numbers(size, 6);
            stepping::Arena whole(optimizer, {size});
            whole.scatter(whole.w, initial);
            const auto together = whole.step(0, gradient);
            for (std::size_t i = 0; i < size; ++i) {
                stepping::Arena alone(optimizer, {1});
                alone.scatter(alone.w, {&initial[i], 1});
                CHECK(alone.step(0, {&gradient[i], 1})[0] == doctest::Approx(together[i]).epsilon(1e-6));
            }
        }
    });
}

TEST_CASE("an optimiser names its state as PyTorch does and describes itself for the log") {
    CHECK(Sgd{.momentum = 0.9}.state_name(0) == "momentum_buffer");
    CHECK(Adam{}.state_name(0) == "exp_avg");
    CHECK(Adam{}.state_name(1) == "exp_avg_sq");
    CHECK(AdamW{}.state_name(1) == "exp_avg_sq");
    CHECK(Adamax{}.state_name(0) == "exp_avg");
    CHECK(Adamax{}.state_name(1) == "exp_inf");
    CHECK(Adagrad{}.state_name(0) == "sum");
    CHECK(Lamb{}.state_name(0) == "exp_avg");
    CHECK(Lars{}.state_name(0) == "scaled_momentum_buffer");
    CHECK(NesterovVelocity{}.state_name(0) == "velocity");
    CHECK(RmsProp{}.state_name(0) == "square_avg");
    CHECK(RmsProp{.momentum = 0.9}.state_name(1) == "momentum_buffer");
    CHECK(Clipped<Adam>{}.state_name(1) == "exp_avg_sq");

    CHECK(Sgd{}.state_arenas() == 0);
    CHECK(Sgd{.momentum = 0.9}.state_arenas() == 1);
    CHECK(NesterovVelocity{}.state_arenas() == 1);
    CHECK(NesterovVelocity{.momentum = 0}.state_arenas() == 0);
    CHECK(RmsProp{}.state_arenas() == 1);
    CHECK(RmsProp{.momentum = 0.9}.state_arenas() == 2);
    CHECK(Clipped<Lars>{}.state_arenas() == 1);

    CHECK(Sgd{}.description() == "sgd");
    CHECK(Sgd{.momentum = 0.9, .nesterov = true}.description() == "sgd, momentum 0.9, nesterov");
    CHECK(Sgd{.weight_decay = 0.01, .decoupled = true}.description() == "sgd, decoupled weight decay 0.01");
    CHECK(Adam{}.description() == "adam, betas 0.9 and 0.999, epsilon 1e-08");
    CHECK(Adam{.weight_decay = 0.1}.description() == "adam, betas 0.9 and 0.999, epsilon 1e-08, weight decay 0.1");
    CHECK(AdamW{}.description() == "adamw, betas 0.9 and 0.999, epsilon 1e-08, decoupled weight decay 0.01");
    CHECK(Adamax{.weight_decay = 0.1}.description() == "adamax, betas 0.9 and 0.999, epsilon 1e-08, weight decay 0.1");
    CHECK(RmsProp{.momentum = 0.9}.description() ==
          "rmsprop, decay 0.9, epsilon 1e-10, mean square from 1, momentum 0.9");
    CHECK(Lamb{.weight_decay = 0.01}.description() ==
          "lamb, betas 0.9 and 0.999, epsilon 1e-06, weight decay 0.01, biases not adapted");
    CHECK(Lars{.adapt_biases = true}.description() == "lars, momentum 0.9, trust coefficient 0.001, biases adapted");
    CHECK(NesterovVelocity{.weight_decay = 0.1}.description() == "nesterov velocity, momentum 0.9, weight decay 0.1");
    CHECK(Clipped<Sgd>{.max_norm = 5, .max_value = 0.5}.description() ==
          "sgd, gradient clipped to norm 5, gradient clipped to values of 0.5");
    CHECK(learning_rate_description_of(Clipped<AdamW>{.optimizer = {.learning_rate = cosine(0.1, 50)}}) ==
          "cosine from 0.1 to 0 over 50 steps");
}

TEST_CASE("state starts at 0, and RMSProp's mean square at 1, also with clipping") {
    CHECK(state_start_of(Adam{}, 0) == 0.0F);
    CHECK(state_start_of(RmsProp{.momentum = 0.9}, 0) == 1.0F);
    CHECK(state_start_of(RmsProp{.momentum = 0.9}, 1) == 0.0F);
    CHECK(state_start_of(RmsProp{.start = 0}, 0) == 0.0F);
    CHECK(state_start_of(Clipped<RmsProp>{}, 0) == 1.0F);
}

TEST_CASE("an optimiser that applies no formula to a segment, or two, is rejected") {
    for (const int times : {0, 1, 2}) {
        stepping::Arena arena(Applying{times}, {3});
        CHECK(message_of<InvalidArgument>([&] { arena.step(0, std::vector<float>(3, 1.0F)); }) ==
              (times == 1
                   ? "(no exception)"
                   : text("the optimiser Applying must call apply(formula) once per segment, not ", times, " times")));
    }
}

TEST_CASE("invalid settings are rejected") {
    constexpr double nan = std::numeric_limits<double>::quiet_NaN();
    const auto refusal = [](const auto& optimizer) {
        return message_of<InvalidArgument>([&] { check_optimizer(optimizer); });
    };
    CHECK(refusal(Sgd{.momentum = 1.0}) == "sgd's momentum must be at least 0 and less than 1, not 1");
    CHECK(refusal(Sgd{.weight_decay = -1}) == "sgd's weight decay must be at least 0, not -1");
    CHECK(refusal(Adam{.beta1 = 1.5}) == "adam's beta1 must be at least 0 and less than 1, not 1.5");
    CHECK(refusal(Adam{.epsilon = -1e-8}) == "adam's epsilon must be at least 0, not -1e-08");
    CHECK(refusal(Sgd{.weight_decay = 1e39}) == "sgd's weight decay must be at least 0, not 1e+39");  // not a float
    CHECK(refusal(Adam{.weight_decay = nan}) == "adam's weight decay must be at least 0, not nan");
    CHECK(refusal(AdamW{.beta2 = nan}) == "adamw's beta2 must be at least 0 and less than 1, not nan");
    CHECK(refusal(AdamW{.weight_decay = -0.1}) == "adamw's weight decay must be at least 0, not -0.1");
    CHECK(refusal(Adamax{.beta1 = 1}) == "adamax's beta1 must be at least 0 and less than 1, not 1");
    CHECK(refusal(Adamax{.epsilon = 0}) == "adamax's epsilon must be more than 0, not 0");
    CHECK(refusal(Adamax{.weight_decay = -1}) == "adamax's weight decay must be at least 0, not -1");
    CHECK(refusal(RmsProp{.epsilon = 0}) == "rmsprop's epsilon must be more than 0, not 0");
    CHECK(refusal(RmsProp{.decay = -0.1}) == "rmsprop's decay must be at least 0 and less than 1, not -0.1");
    CHECK(refusal(RmsProp{.momentum = 2}) == "rmsprop's momentum must be at least 0 and less than 1, not 2");
    CHECK(refusal(RmsProp{.weight_decay = -2}) == "rmsprop's weight decay must be at least 0, not -2");
    CHECK(refusal(RmsProp{.start = -1}) == "rmsprop's start of the mean square must be at least 0, not -1");
    CHECK(refusal(Adagrad{.initial_accumulator_value = -1}) ==
          "adagrad's start of the sums must be at least 0, not -1");
    CHECK(refusal(Adagrad{.epsilon = 0}) == "adagrad's epsilon must be more than 0, not 0");
    CHECK(refusal(Adagrad{.epsilon = 1e-50}) == "adagrad's epsilon must be at least 1.17549e-38, not 1e-50");
    CHECK(refusal(Adam{.epsilon = 1e-50}) == "adam's epsilon must be at least 1.17549e-38, not 1e-50");
    CHECK(refusal(Adagrad{.weight_decay = -1}) == "adagrad's weight decay must be at least 0, not -1");
    CHECK(refusal(Lamb{.beta2 = 1}) == "lamb's beta2 must be at least 0 and less than 1, not 1");
    CHECK(refusal(Lamb{.weight_decay = -1}) == "lamb's weight decay must be at least 0, not -1");
    CHECK(refusal(Lars{.momentum = -0.9}) == "lars's momentum must be at least 0 and less than 1, not -0.9");
    CHECK(refusal(Lars{.trust_coefficient = 0}) == "lars's trust coefficient must be more than 0, not 0");
    CHECK(refusal(Lars{.weight_decay = -1}) == "lars's weight decay must be at least 0, not -1");
    CHECK(refusal(NesterovVelocity{.momentum = 1}) ==
          "nesterov velocity's momentum must be at least 0 and less than 1, not 1");
    CHECK(refusal(NesterovVelocity{.momentum = nan}) ==
          "nesterov velocity's momentum must be at least 0 and less than 1, not nan");
    CHECK(refusal(NesterovVelocity{.weight_decay = -1}) ==
          "nesterov velocity's weight decay must be at least 0, not -1");
    CHECK(refusal(Clipped<Sgd>{.max_norm = -5}) == "the norm that a gradient is clipped to must be at least 0, not -5");
    CHECK(refusal(Clipped<Sgd>{.max_value = nan}) ==
          "the value that a gradient is clipped to must be at least 0, not nan");
    CHECK(refusal(Clipped<Sgd>{.optimizer = {.momentum = 2}}) ==
          "sgd's momentum must be at least 0 and less than 1, not 2");
    with_each_optimizer([&](const auto& optimizer) { CHECK(refusal(optimizer) == "(no exception)"); });
}
