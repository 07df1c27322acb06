// SPDX-License-Identifier: Apache-2.0
//
// The checks that convolutions and linear layers have in common. `Operation` has Case (with `bias`, and a describe()), cases<D>(), the
// plain loops oracle(c), problem_of<D>(c, seed, threads), run<D>(c, problem), and weight_tolerance<D>.
#pragma once

#include "../test.hpp"

#include "../reference/compare.hpp"
#include "../reference/relu.hpp"
#include "operation_run.hpp"

namespace weighted_operation {

using operation_run::Outcome, operation_run::Problem, operation_run::tolerance;
using reference::distance_of_sums, reference::Floats, reference::magnitudes;

/// Calls check(c, seed) for each case, or for each of which the number is `first` modulo `step`.
template <class Operation, class D, class Check>
void for_each_case(const Check& check, std::size_t first = 0, std::size_t step = 1) {
    const std::vector<typename Operation::Case> all = Operation::template cases<D>();
    for (std::size_t i = first; i < all.size(); i += step) {
        const typename Operation::Case& c = all[i];
        const std::uint64_t seed = reference::fresh_seed();
        INFO(describe(c), ", seed ", seed);
        check(c, seed);
    }
}

/// For what is on top of the operation itself, which agrees() checks in each case: the same, or, in the emulator and
/// under sanitizers, where all take minutes, a third of the cases from `first` on, a number below 3.
template <class Operation, class D, class Check>
void for_some_cases(std::size_t first, const Check& check) {
    constexpr bool is_slow = sanitized || emulated;
    for_each_case<Operation, D>(check, is_slow ? first : 0, is_slow ? 3 : 1);
}

/// All gradients of the outcome, for the gradient `dy` of its output.
template <class Operation, class D>
void check_gradients(const typename Operation::Case& c, const Problem& problem, const Outcome& outcome,
                     const Floats& dy) {
    const auto r = Operation::oracle(c);
    CHECK(distance_of_sums(outcome.input_gradient, input_gradient_of(r), dy, problem.parameters[0]) < tolerance<D>);
    CHECK(distance_of_sums(outcome.parameter_gradients[0], weight_gradient_of(r), dy, problem.x) <
          Operation::template weight_tolerance<D>);
    if (c.bias) CHECK(distance_of_sums(outcome.parameter_gradients[1], bias_gradient_of(r), dy) < reference::tolerance);
}

template <class Operation, class D>
void agrees() {
    for_each_case<Operation, D>([](const auto& c, std::uint64_t seed) {
        for (const int threads : thread_counts<D>()) {
            CAPTURE(threads);
            const Problem problem = Operation::template problem_of<D>(c, seed, threads);
            const Floats b = c.bias ? problem.parameters[1] : Floats{};
            const Outcome outcome = Operation::template run<D>(c, problem);
            CHECK(distance_of_sums(outcome.output, forward_of(Operation::oracle(c)), problem.x, problem.parameters[0],
                                   b) < tolerance<D>);
            check_gradients<Operation, D>(c, problem, outcome, problem.dy);
        }
    });
}

/// Checks outputs, with a fused ReLU or without, against plain loops.
template <class Operation, class D>
void check_output(const typename Operation::Case& c, const Problem& problem, const Outcome& outcome) {
    const auto r = Operation::oracle(c);
    const Floats &x = problem.x, &w = problem.parameters[0];
    const Floats b = c.bias ? problem.parameters[1] : Floats{};
    const auto before = r.forward(x, w, b);
    const auto terms = [&] { return r.forward(magnitudes(x), magnitudes(w), magnitudes(b)); };
    const auto expected = problem.activation == Activation::relu ? reference::relu(before) : before;
    CHECK(reference::distance_of_sums_at(before, outcome.output, expected, terms) < tolerance<D>);
}

template <class Operation, class D>
void fused_relu_agrees() {
    for_some_cases<Operation, D>(0, [](const auto& c, std::uint64_t seed) {
        Problem problem = Operation::template problem_of<D>(c, seed, 2);
        problem.activation = Activation::relu;
        const Outcome outcome = Operation::template run<D>(c, problem);
        check_output<Operation, D>(c, problem, outcome);
        check_gradients<Operation, D>(c, problem, outcome, reference::relu_mask(outcome.output, problem.dy));
    });
}

template <class Operation, class D>
void adds_to_gradients(std::initializer_list<Activation> activations) {
    for_some_cases<Operation, D>(1, [&](const auto& c, std::uint64_t seed) {
        for (const Activation activation : activations) {
            CAPTURE(static_cast<int>(activation));
            const auto r = Operation::oracle(c);
            Problem problem = Operation::template problem_of<D>(c, seed, 2);
            problem.accumulate = true;
            problem.activation = activation;
            const Outcome outcome = Operation::template run<D>(c, problem);
            const Floats dy =
                activation == Activation::relu ? reference::relu_mask(outcome.output, problem.dy) : problem.dy;
            CHECK(distance_of_sums(outcome.parameter_gradients[0], reference::added_to_first(weight_gradient_of(r)),
                                   problem.gradients_before[0], dy,
                                   problem.x) < Operation::template weight_tolerance<D>);
            if (c.bias)
                CHECK(distance_of_sums(outcome.parameter_gradients[1], reference::added_to_first(bias_gradient_of(r)),
                                       problem.gradients_before[1], dy) < reference::tolerance);
            CHECK(distance_of_sums(outcome.input_gradient, input_gradient_of(r), dy, problem.parameters[0]) <
                  tolerance<D>);
        }
    });
}

/// `packs`: whether the weights are packed for each direction.
template <class Operation, class D>
void skips_input_gradient(const typename Operation::Case& c, bool packs) {
    for (const bool known_before : {true, false}) {
        CAPTURE(known_before);
        Problem problem = Operation::template problem_of<D>(c, reference::fresh_seed(), 1);
        const Outcome full = Operation::template run<D>(c, problem);
        problem.input_gradient = false;
        problem.made_for_input_gradient = !known_before;
        const Outcome outcome = Operation::template run<D>(c, problem);
        for (const float value : outcome.input_gradient) CHECK(std::isnan(value));
        CHECK(reference::same_bits(outcome.output, full.output));
        CHECK(reference::same_bits(outcome.parameter_gradients[0], full.parameter_gradients[0]));
        if (known_before && packs) CHECK(outcome.needs.packed < full.needs.packed);
    }
}

inline void check_same_gradients(const Outcome& a, const Outcome& b) {
    CHECK(reference::same_bits(a.input_gradient, b.input_gradient));
    for (std::size_t i = 0; i < b.parameter_gradients.size(); ++i) {
        CHECK(reference::same_bits(a.parameter_gradients[i], b.parameter_gradients[i]));
    }
}

/// The operation of this problem, with the activation inside, has the bits of both one after the other, forward and
/// backward. `most` is the activation's limit, -1 for ReLU.
template <class Operation, class D>
void fused_has_bits(const typename Operation::Case& c, Problem problem, Activation activation, float most) {
    const auto run = [&c](const Problem& of) { return Operation::template run<D>(c, of); };
    problem.activation = Activation::none;
    Outcome apart = run(problem);
    problem.activation = activation;
    const Outcome fused = run(problem);
    reference::apply_relu(apart.output, most);
    CHECK(reference::same_bits_but_zeros_sign(fused.output, apart.output));
    if (most > 0.0F) CHECK(std::ranges::count(fused.output, most) > 0);

    // Backward of the two: the mask first, then the operation.
    problem.activation = Activation::none;
    problem.dy = reference::relu_mask(fused.output, problem.dy, most);
    check_same_gradients(fused, run(problem));
}

template <class Operation, class D>
void fused_relu_has_bits() {
    for_some_cases<Operation, D>(2, [](const auto& c, std::uint64_t seed) {
        fused_has_bits<Operation, D>(c, Operation::template problem_of<D>(c, seed, 2), Activation::relu, -1.0F);
    });
}

/// With inputs so large that many outputs are beyond the limit.
template <class Operation, class D>
void fused_relu6_has_bits(const typename Operation::Case& c) {
    Problem problem = Operation::template problem_of<D>(c, reference::fresh_seed(), 2);
    for (float& x : problem.x) x *= 16.0F;
    fused_has_bits<Operation, D>(c, problem, Activation::relu6, reference::most_of_relu6);
}

/// An operation whose ReLU mask the next operation applies does not apply it.
template <class Operation, class D>
void mask_applied_by_next() {
    for_some_cases<Operation, D>(0, [](const auto& c, std::uint64_t seed) {
        Problem problem = Operation::template problem_of<D>(c, seed, 2);
        const auto run = [&c](const Problem& of) { return Operation::template run<D>(c, of); };
        const reference::Floats dy = problem.dy;
        problem.activation = Activation::relu;
        const Outcome itself = run(problem);
        problem.relu_mask_applied_by_next = true;
        problem.dy = reference::relu_mask(itself.output, dy);
        const Outcome masked = run(problem);
        CHECK(reference::same_bits(masked.output, itself.output));
        check_same_gradients(masked, itself);

        // A gradient without the mask is not masked.
        problem.dy = dy;
        const Outcome unmasked = run(problem);
        problem.activation = Activation::none;
        problem.relu_mask_applied_by_next = false;
        CHECK(reference::same_bits(unmasked.input_gradient, run(problem).input_gradient));
    });
}

}  // namespace weighted_operation
