// SPDX-License-Identifier: Apache-2.0
//
// Runs one operation forward and backward on a device, as hostile to it as the contract allows: every output starts as
// NaN, scratch memory holds garbage and is exactly as large as asked for, guard bytes stand around each tensor, and
// everything is run twice. What holds for every operation is checked here; what it computed is returned.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include <doctest/doctest.h>
#include <cupola/ops/operation.hpp>

#include "../devices.hpp"
#include "../reference/compare.hpp"

namespace operation_run {

using reference::Floats;

/// Device memory of exactly `bytes`, between guards that are checked when it is read; starts as NaN.
template <cupola::Device D>
class Guarded {
public:
    Guarded(typename D::Context& context, std::size_t bytes)
        : context_(&context), bytes_(bytes), arena_(guard + bytes + guard, "a test") {
        std::vector<std::byte> pattern(guard, guard_byte);
        D::copy_from_host(context, arena_.data(), pattern.data(), guard);
        D::copy_from_host(context, arena_.data() + guard + bytes, pattern.data(), guard);
        poison();
    }
    Guarded(typename D::Context& context, const Floats& values) : Guarded(context, values.size() * sizeof(float)) {
        write(values);
    }

    [[nodiscard]] std::byte* bytes() { return arena_.data() + guard; }
    [[nodiscard]] float* data() { return reinterpret_cast<float*>(bytes()); }

    /// Four bytes of ones are a NaN.
    void poison() {
        const std::vector<std::byte> ones(bytes_, std::byte{0xFF});
        D::copy_from_host(*context_, bytes(), ones.data(), bytes_);
    }
    void write(const Floats& values) {
        REQUIRE(values.size() * sizeof(float) == bytes_);
        D::copy_from_host(*context_, bytes(), reinterpret_cast<const std::byte*>(values.data()), bytes_);
    }
    [[nodiscard]] Floats read() {
        Floats values(bytes_ / sizeof(float));
        D::copy_to_host(*context_, reinterpret_cast<std::byte*>(values.data()), bytes(), values.size() * sizeof(float));
        return values;
    }
    [[nodiscard]] bool guards_intact() {
        std::vector<std::byte> both(2 * guard);
        D::copy_to_host(*context_, both.data(), arena_.data(), guard);
        D::copy_to_host(*context_, both.data() + guard, arena_.data() + guard + bytes_, guard);
        for (const std::byte value : both) {
            if (value != guard_byte) return false;
        }
        return true;
    }

private:
    static constexpr std::size_t guard = 4 * cupola::alignment;
    static constexpr std::byte guard_byte{0xA5};
    typename D::Context* context_;
    std::size_t bytes_;
    typename D::Arena arena_;
};

/// What an operation is run on.
struct Problem {
    cupola::Shape input, output;
    std::int64_t batch = 1;
    int threads = 1;
    std::uint32_t layer = 0;
    cupola::Activation activation = cupola::Activation::none;
    bool masked_by_next = false, masks_for_previous = false;
    /// Whether backward is asked for the gradient of the input: the site says so, and the pass.
    bool site_input_gradient = true;
    bool input_gradient = true;
    /// Whether backward exists for the site, and whether this is a pass of training.
    bool site_training = true;
    bool training = true;
    bool accumulate = false;
    std::uint64_t seed = 0;
    std::uint32_t step = 0;
    std::int64_t first_sample = 0;
    Floats x, dy;
    std::vector<Floats> parameters;
    /// Running statistics; where there are any, the pass has a place for the batch's.
    std::vector<Floats> buffers;
    /// What the parameters' gradients hold before backward, where it accumulates.
    std::vector<Floats> gradients_before;
};

/// What came out.
struct Outcome {
    cupola::MemoryNeeds needs;
    Floats output, input_gradient;
    std::vector<Floats> parameter_gradients;
    std::vector<Floats> statistics;
};

/// Runs `make(site)`; see the head of this file.
template <cupola::Device D, class Make>
[[nodiscard]] Outcome run(const Problem& problem, Make make) {
    typename D::Context context(0, device_options<D>(problem.threads));
    [[maybe_unused]] const auto team = context.team();
    const cupola::Site<D> site{.context = context,
                               .batch = problem.batch,
                               .input = problem.input,
                               .output = problem.output,
                               .layer = problem.layer,
                               .activation = problem.activation,
                               .masked_by_next = problem.masked_by_next,
                               .masks_for_previous = problem.masks_for_previous,
                               .training = problem.site_training,
                               .input_gradient = problem.site_input_gradient};
    auto operation = make(site);
    static_assert(cupola::Operation<decltype(operation), D>);

    Outcome outcome;
    outcome.needs = cupola::memory_needs(operation);
    Guarded<D> x(context, problem.x), dy(context, problem.dy.size() * sizeof(float));
    Guarded<D> y(context, static_cast<std::size_t>(problem.batch * problem.output.size()) * sizeof(float));
    Guarded<D> dx(context, problem.x.size() * sizeof(float));
    Guarded<D> packed(context, outcome.needs.packed), saved(context, outcome.needs.saved),
        scratch(context, outcome.needs.scratch);
    std::vector<Guarded<D>> parameters, gradients, buffers, statistics;
    for (const Floats& values : problem.buffers) {
        buffers.emplace_back(context, values);
        statistics.emplace_back(context, values.size() * sizeof(float));
    }
    for (const Floats& values : problem.parameters) {
        parameters.emplace_back(context, values);
        gradients.emplace_back(context, values.size() * sizeof(float));
    }

    cupola::Pass<D> pass{.context = context,
                         .input = x.data(),
                         .output = y.data(),
                         .accumulate = problem.accumulate,
                         .packed = packed.bytes(),
                         .saved = saved.bytes(),
                         .scratch = scratch.bytes(),
                         .training = problem.training,
                         .seed = problem.seed,
                         .step = problem.step,
                         .first_sample = problem.first_sample};
    for (std::size_t i = 0; i < parameters.size(); ++i) {
        pass.parameters[i] = parameters[i].data();
        pass.parameter_gradients[i] = gradients[i].data();
    }

    for (std::size_t i = 0; i < buffers.size(); ++i) {
        pass.buffers[i] = buffers[i].data();
        pass.statistics[i] = statistics[i].data();
    }

    for (const bool again : {false, true}) {
        CAPTURE(again);
        y.poison();
        saved.poison();
        scratch.poison();
        if constexpr (requires { operation.prepare(pass); }) {
            if (!again) operation.prepare(pass);
            scratch.poison();
        }
        operation.forward(pass);
        const Floats output = y.read();
        CHECK_MESSAGE(reference::same_bits(x.read(), problem.x), "forward changed its input");
        if (again)
            CHECK_MESSAGE(reference::same_bits(output, outcome.output), "forward gave other bits the second time");
        outcome.output = output;
        outcome.statistics.clear();
        for (Guarded<D>& values : statistics) outcome.statistics.push_back(values.read());

        if (problem.site_training) {
            dy.write(problem.dy);
            dx.poison();
            scratch.poison();
            for (std::size_t i = 0; i < gradients.size(); ++i) {
                if (problem.accumulate) {
                    gradients[i].write(problem.gradients_before[i]);
                } else {
                    gradients[i].poison();
                }
            }
            cupola::Pass<D> backward = pass;
            backward.output_gradient = dy.data();
            backward.input_gradient = problem.input_gradient ? dx.data() : nullptr;
            operation.backward(backward);
            CHECK_MESSAGE(reference::same_bits(x.read(), problem.x), "backward changed its input");
            CHECK_MESSAGE(reference::same_bits(y.read(), output), "backward changed the output");
            std::vector<Floats> parameter_gradients;
            for (Guarded<D>& gradient : gradients) parameter_gradients.push_back(gradient.read());
            const Floats input_gradient = dx.read();
            if (again) {
                CHECK_MESSAGE(reference::same_bits(input_gradient, outcome.input_gradient),
                              "backward gave another input gradient the second time");
                for (std::size_t i = 0; i < gradients.size(); ++i) {
                    CHECK_MESSAGE(reference::same_bits(parameter_gradients[i], outcome.parameter_gradients[i]),
                                  "backward gave another gradient the second time, of parameter ", i);
                }
            }
            outcome.input_gradient = input_gradient;
            outcome.parameter_gradients = parameter_gradients;
        }
        for (std::size_t i = 0; i < parameters.size(); ++i) {
            CHECK_MESSAGE(reference::same_bits(parameters[i].read(), problem.parameters[i]), "it changed parameter ",
                          i);
        }
    }

    const auto intact = [](Guarded<D>& memory, const std::string& name) {
        CHECK_MESSAGE(memory.guards_intact(), "it wrote outside its ", name);
    };
    intact(x, "input");
    intact(y, "output");
    intact(dx, "input gradient");
    intact(dy, "output gradient");
    intact(packed, "packed weights");
    intact(saved, "saved memory");
    intact(scratch, "scratch memory");
    for (std::size_t i = 0; i < buffers.size(); ++i) {
        CHECK_MESSAGE(reference::same_bits(buffers[i].read(), problem.buffers[i]), "it changed buffer ", i);
        intact(buffers[i], "buffers");
        intact(statistics[i], "statistics");
    }
    for (Guarded<D>& parameter : parameters) intact(parameter, "parameters");
    for (Guarded<D>& gradient : gradients) intact(gradient, "parameter gradients");
    return outcome;
}

}  // namespace operation_run
