// SPDX-License-Identifier: Apache-2.0
//
// Runs a loss on a device as a training does: made from the extents of the output, on memory between guards, both with a
// wait for the result and queued, which must agree in every bit.
#pragma once

#include "../test.hpp"

#include <cupola/core/extents.hpp>
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

template <cupola::Device D, class Loss>
[[nodiscard]] Outcome run(const Loss& loss, const cupola::Shape& output, const Floats& outputs,
                          const std::vector<typename Loss::Target>& targets, int threads = 1,
                          bool with_gradient = true) {
    using Target = typename Loss::Target;
    const std::int64_t batch = static_cast<std::int64_t>(outputs.size()) / output.size();
    REQUIRE(static_cast<std::int64_t>(targets.size()) == batch * Loss::target(output).size());
    const CaseContext<D> of_case(threads);
    typename D::Context& context = of_case.get();
    [[maybe_unused]] const auto team = context.team();
    operation_run::Guarded<D> x(context, outputs), gradient(context, outputs.size() * sizeof(float)),
        t(context, targets.size() * sizeof(Target)), report(context, sizeof(cupola::LossReport));
    D::copy_from_host(context, t.bytes(), reinterpret_cast<const std::byte*>(targets.data()),
                      targets.size() * sizeof(Target));
    const auto operation = loss.template operation<D>(output);
    const auto* const of_batch = t.template data<const Target>();
    float* const to = with_gradient ? gradient.data() : nullptr;

    Outcome outcome;
    operation.queue(context, x.data(), of_batch, batch, to, report.template data<cupola::LossReport>());
    cupola::LossReport queued{};
    D::copy_to_host(context, reinterpret_cast<std::byte*>(&queued), report.bytes(), sizeof queued);
    const Floats queued_gradient = gradient.read();
    gradient.poison();
    outcome.result = operation.forward(context, x.data(), of_batch, batch, to);
    outcome.gradient = gradient.read();

    const cupola::LossResult again = operation.result_of(queued);
    CHECK(std::memcmp(&again, &outcome.result, sizeof again) == 0);
    CHECK_MESSAGE(reference::same_bits(queued_gradient, outcome.gradient), "a queued loss has another gradient");
    CHECK_MESSAGE(reference::same_bits(x.read(), outputs), "the loss changed its outputs");
    for (operation_run::Guarded<D>* memory : {&x, &t, &gradient, &report})
        CHECK_MESSAGE(memory->guards_intact(), "the loss wrote outside its memory");
    if (!with_gradient) {
        for (const float value : outcome.gradient) CHECK(std::isnan(value));
    }
    return outcome;
}

/// Whether two numbers differ by no more than rounding in float.
[[nodiscard]] inline bool close(double result, double expected) {
    return std::abs(result - expected) <= reference::tolerance * std::abs(expected) + 1e-12;
}

}  // namespace loss_run
