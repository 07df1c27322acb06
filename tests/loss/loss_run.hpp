// SPDX-License-Identifier: Apache-2.0
//
// Runs a loss on a device as a training does: made from the extents of the output, on memory between guards, both with a
// wait for the result and queued, which must agree in every bit.
#pragma once

#include "../test.hpp"

#include <cupola/core/extents.hpp>
#include <cupola/core/function_ref.hpp>
#include <cupola/ops/loss_report.hpp>

#include "../devices.hpp"
#include "../ops/operation_run.hpp"
#include "../reference/compare.hpp"

namespace loss_run {

using reference::Floats;

inline constexpr float not_a_number = std::numeric_limits<float>::quiet_NaN(),
                       infinity = std::numeric_limits<float>::infinity();

struct Outcome {
    cupola::LossResult result;
    Floats gradient;
};

/// A batch and a loss of it behind functions, so that its run is compiled once per device.
template <class D>
struct Problem {
    const Floats& outputs;
    std::span<const std::byte> targets;
    int threads;
    bool with_gradient;
    cupola::FunctionRef<void(typename D::Context&, const float* outputs, const void* targets, float* gradient,
                             cupola::LossReport* report)>
        queue;
    cupola::FunctionRef<cupola::LossResult(typename D::Context&, const float* outputs, const void* targets,
                                           float* gradient)>
        forward;
    cupola::FunctionRef<cupola::LossResult(const cupola::LossReport&)> result_of;
};

template <class D>
[[nodiscard]] Outcome run_problem(const Problem<D>& problem) {
    const CaseContext<D> of_case(problem.threads);
    typename D::Context& context = of_case.get();
    [[maybe_unused]] const auto team = context.team();
    operation_run::Guarded<D> x(context, problem.outputs), gradient(context, problem.outputs.size() * sizeof(float)),
        t(context, problem.targets.size()), report(context, sizeof(cupola::LossReport));
    D::copy_from_host(context, t.bytes(), problem.targets.data(), problem.targets.size());
    float* const to = problem.with_gradient ? gradient.data() : nullptr;

    Outcome outcome;
    problem.queue(context, x.data(), t.bytes(), to, report.template data<cupola::LossReport>());
    cupola::LossReport queued{};
    D::copy_to_host(context, reinterpret_cast<std::byte*>(&queued), report.bytes(), sizeof queued);
    const Floats queued_gradient = gradient.read();
    gradient.poison();
    outcome.result = problem.forward(context, x.data(), t.bytes(), to);
    outcome.gradient = gradient.read();

    const cupola::LossResult again = problem.result_of(queued);
    CHECK(std::memcmp(&again, &outcome.result, sizeof again) == 0);
    CHECK_MESSAGE(reference::same_bits(queued_gradient, outcome.gradient), "a queued loss has another gradient");
    CHECK_MESSAGE(reference::same_bits(x.read(), problem.outputs), "the loss changed its outputs");
    for (operation_run::Guarded<D>* memory : {&x, &t, &gradient, &report})
        CHECK_MESSAGE(memory->guards_intact(), "the loss wrote outside its memory");
    if (!problem.with_gradient) {
        for (const float value : outcome.gradient) CHECK(std::isnan(value));
    }
    return outcome;
}

template <cupola::Device D, class Loss>
[[nodiscard]] Outcome run(const Loss& loss, const cupola::Shape& output, const Floats& outputs,
                          const std::vector<typename Loss::Target>& targets, int threads = 1,
                          bool with_gradient = true) {
    using Target = typename Loss::Target;
    using Context = typename D::Context;
    const std::int64_t batch = static_cast<std::int64_t>(outputs.size()) / output.size();
    REQUIRE(static_cast<std::int64_t>(targets.size()) == batch * Loss::target(output).size());
    const auto operation = loss.template operation<D>(output);
    const auto queue = [&](Context& context, const float* x, const void* t, float* to, cupola::LossReport* report) {
        operation.queue(context, x, static_cast<const Target*>(t), batch, to, report);
    };
    const auto forward = [&](Context& context, const float* x, const void* t, float* to) {
        return operation.forward(context, x, static_cast<const Target*>(t), batch, to);
    };
    const auto result_of = [&](const cupola::LossReport& report) { return operation.result_of(report); };
    return run_problem<D>({.outputs = outputs,
                           .targets = std::as_bytes(std::span(targets)),
                           .threads = threads,
                           .with_gradient = with_gradient,
                           .queue = queue,
                           .forward = forward,
                           .result_of = result_of});
}

/// Whether two numbers differ by no more than rounding in float.
[[nodiscard]] inline bool close(double result, double expected) {
    return std::abs(result - expected) <= reference::tolerance * std::abs(expected) + 1e-12;
}

}  // namespace loss_run
