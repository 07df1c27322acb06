// SPDX-License-Identifier: Apache-2.0
// Covers: cupola/ops/operation.hpp
//
// Runs one operation forward and backward on a device, under the worst conditions that the contract allows: every output
// is initially NaN, scratch memory contains garbage and has exactly the requested size, guard bytes surround each tensor,
// and everything is run twice. Properties of every operation are checked here; the results are returned. Values are floats
// here for every element type: `rounded` chooses them such that the run converts them without loss.
#pragma once

#include "../test.hpp"

#include <concepts>

#ifndef CUPOLA_TEST_CUDA
#include <cupola/host_operations.hpp>
#endif
#include <cupola/ops/operation.hpp>

#include "../devices.hpp"
#include "../reference/compare.hpp"

namespace operation_run {

using reference::Floats;

/// The values as the element type of `D` has them.
template <class D>
[[nodiscard]] Floats rounded(Floats values) {
    for (float& value : values) value = static_cast<float>(static_cast<ElementOf<D>>(value));
    return values;
}

/// The tolerance of a result in the element type of `D`. BFloat16 has 8 bits: rounding alone is a norm
/// of 1.2e-3, and some results are rounded twice. Float16 has 11.
template <class D>
inline constexpr double tolerance = std::same_as<ElementOf<D>, float>             ? reference::tolerance
                                    : std::same_as<ElementOf<D>, cupola::Float16> ? 1e-3
                                                                                  : 4e-3;
/// The same of the gradient of a convolution's weights, which is float: Cuda's comes from cuDNN in the element type.
#ifdef CUPOLA_TEST_CUDA
template <class D>
inline constexpr double weight_gradient_tolerance = tolerance<D>;
#else
template <class D>
inline constexpr double weight_gradient_tolerance = reference::tolerance;
#endif

/// Device memory of exactly `bytes`, between guards that are checked when it is read; starts as NaN.
template <cupola::Device D>
class Guarded {
public:
    /// At an odd number of units: no place is aligned any better than the contract says.
    Guarded(typename D::Context& context, std::size_t bytes, std::size_t unit = cupola::alignment)
        : context_(&context), bytes_(bytes), guard_(5 * unit), arena_(guard_ + bytes + guard_, "a test") {
        std::vector<std::byte> pattern(guard_, guard_byte);
        D::copy_from_host(context, arena_.data(), pattern.data(), guard_);
        D::copy_from_host(context, arena_.data() + guard_ + bytes, pattern.data(), guard_);
        poison();
    }
    Guarded(typename D::Context& context, const Floats& values) : Guarded(context, values.size() * sizeof(float)) {
        write<float>(values);
    }

    [[nodiscard]] std::byte* bytes() { return arena_.data() + guard_; }
    template <class T = float>
    [[nodiscard]] T* data() {
        return reinterpret_cast<T*>(bytes());
    }

    /// Bytes of ones are a NaN of any type.
    void poison() {
        const std::vector<std::byte> ones(bytes_, std::byte{0xFF});
        D::copy_from_host(*context_, bytes(), ones.data(), bytes_);
    }
    template <class T = float>
    void write(const Floats& values) {
        REQUIRE(values.size() * sizeof(T) == bytes_);
        std::vector<T> elements;
        for (const float value : values) elements.push_back(static_cast<T>(value));
        D::copy_from_host(*context_, bytes(), reinterpret_cast<const std::byte*>(elements.data()), bytes_);
    }
    template <class T = float>
    [[nodiscard]] Floats read() {
        std::vector<T> elements(bytes_ / sizeof(T));
        D::copy_to_host(*context_, reinterpret_cast<std::byte*>(elements.data()), bytes(), elements.size() * sizeof(T));
        return {elements.begin(), elements.end()};
    }
    [[nodiscard]] bool guards_intact() {
        std::vector<std::byte> both(2 * guard_);
        D::copy_to_host(*context_, both.data(), arena_.data(), guard_);
        D::copy_to_host(*context_, both.data() + guard_, arena_.data() + guard_ + bytes_, guard_);
        for (const std::byte value : both) {
            if (value != guard_byte) return false;
        }
        return true;
    }

private:
    static constexpr std::byte guard_byte{0xA5};
    typename D::Context* context_;
    std::size_t bytes_, guard_;
    typename D::Arena arena_;
};

/// The input of a run of an operation.
struct Problem {
    cupola::Shape input, output;
    std::int64_t batch = 1;
    int threads = 1;
    std::uint32_t layer = 0;
    cupola::Activation activation = cupola::Activation::none;
    bool relu_mask_applied_by_next = false, applies_relu_mask_of_previous = false;
    /// Whether the gradient of the input is needed, in the BuildContext and in the pass.
    bool made_for_input_gradient = true;
    bool input_gradient = true;
    /// Whether the gradient of the input is written over that of the output.
    bool in_place = false;
    /// Whether the operation is made for training, and whether this is a pass of training.
    bool made_for_training = true;
    bool training = true;
    /// Whether an operation that is not made for training is made for predictions, which no pass of training uses.
    bool made_for_predictions = true;
    bool accumulate = false;
    std::uint64_t seed = 0;
    std::uint32_t step = 0;
    std::int64_t first_sample = 0;
    Floats x, dy;
    /// The column of a layer that reads ids or bytes, which has no x.
    std::vector<std::byte> column{};
    std::vector<Floats> parameters;
    /// Running statistics; if there are any, the pass also writes those of the batch.
    std::vector<Floats> buffers;
    /// The gradients of the parameters before backward, if it accumulates.
    std::vector<Floats> gradients_before;
};

/// The results of a run.
struct Outcome {
    cupola::MemoryNeeds needs;
    Floats output, input_gradient;
    std::vector<Floats> parameter_gradients;
    std::vector<Floats> statistics;
};

/// An operation behind function pointers, so that its run is compiled once per device and element type.
template <class D, class T>
struct Calls {
    void* operation;
    cupola::MemoryNeeds needs;
    /// Null for an operation without it.
    void (*prepare)(void*, const cupola::ForwardArgs<D, T>&);
    void (*forward)(void*, const cupola::ForwardArgs<D, T>&);
    void (*backward)(void*, const cupola::BackwardArgs<D, T>&);
};
template <class D, class T, cupola::Operation<D, T> Op>
[[nodiscard]] Calls<D, T> calls_of(Op& operation) {
    Calls<D, T> calls{
        .operation = &operation,
        .needs = cupola::memory_needs(operation),
        .prepare = nullptr,
        .forward = [](void* op, const cupola::ForwardArgs<D, T>& args) { static_cast<Op*>(op)->forward(args); },
        .backward = [](void* op, const cupola::BackwardArgs<D, T>& args) { static_cast<Op*>(op)->backward(args); }};
    if constexpr (requires(const cupola::ForwardArgs<D, T>& args) { operation.prepare(args); })
        calls.prepare = [](void* op, const cupola::ForwardArgs<D, T>& args) { static_cast<Op*>(op)->prepare(args); };
    return calls;
}

/// Runs the operation; see the head of this file.
template <class D, class T>
[[nodiscard]] Outcome run_calls(const Problem& problem, typename D::Context& context, const Calls<D, T>& operation) {
    Outcome outcome;
    outcome.needs = operation.needs;
    Guarded<D> x(context, problem.x.size() * sizeof(T)), dy(context, problem.dy.size() * sizeof(T));
    Guarded<D> y(context, static_cast<std::size_t>(problem.batch * problem.output.size()) * sizeof(T));
    Guarded<D> dx(context, problem.x.size() * sizeof(T));
    x.template write<T>(problem.x);
    const auto read = [](Guarded<D>& memory) { return memory.template read<T>(); };
    const Floats x_before = read(x);
    Guarded<D> column(context, problem.column.size());
    D::copy_from_host(context, column.bytes(), problem.column.data(), problem.column.size());
    Guarded<D> packed(context, outcome.needs.packed), saved(context, outcome.needs.saved),
        scratch(context, outcome.needs.scratch, cupola::scratch_alignment<D>);
    std::vector<Guarded<D>> parameters, gradients, buffers, statistics;
    for (const Floats& values : problem.buffers) {
        buffers.emplace_back(context, values);
        statistics.emplace_back(context, values.size() * sizeof(float));
    }
    for (const Floats& values : problem.parameters) {
        parameters.emplace_back(context, values);
        gradients.emplace_back(context, values.size() * sizeof(float));
    }

    cupola::ForwardArgs<D, T> args{.context = context,
                                   .input = x.template data<T>(),
                                   .output = y.template data<T>(),
                                   .column = column.bytes(),
                                   .packed = packed.bytes(),
                                   .saved = saved.bytes(),
                                   .scratch = scratch.bytes(),
                                   .training = problem.training,
                                   .seed = problem.seed,
                                   .step = problem.step,
                                   .first_sample = problem.first_sample};
    for (std::size_t i = 0; i < parameters.size(); ++i) args.parameters[i] = parameters[i].data();

    for (std::size_t i = 0; i < buffers.size(); ++i) {
        args.buffers[i] = buffers[i].data();
        args.statistics[i] = statistics[i].data();
    }

    for (const bool again : {false, true}) {
        CAPTURE(again);
        y.poison();
        saved.poison();
        scratch.poison();
        if (operation.prepare != nullptr) {
            if (!again) operation.prepare(operation.operation, args);
            scratch.poison();
        }
        operation.forward(operation.operation, args);
        const Floats output = read(y);
        CHECK_MESSAGE(reference::same_bits(read(x), x_before), "forward changed its input");
        if (again)
            CHECK_MESSAGE(reference::same_bits(output, outcome.output), "forward gave other bits the second time");
        outcome.output = output;
        outcome.statistics.clear();
        for (Guarded<D>& values : statistics) outcome.statistics.push_back(values.read());

        if (problem.made_for_training) {
            dy.template write<T>(problem.dy);
            dx.poison();
            scratch.poison();
            for (std::size_t i = 0; i < gradients.size(); ++i) {
                if (problem.accumulate) {
                    gradients[i].write(problem.gradients_before[i]);
                } else {
                    gradients[i].poison();
                }
            }
            cupola::BackwardArgs<D, T> backward{args};
            for (std::size_t i = 0; i < gradients.size(); ++i) backward.parameter_gradients[i] = gradients[i].data();
            backward.accumulate = problem.accumulate;
            backward.output_gradient = dy.template data<T>();
            Guarded<D>& written = problem.in_place ? dy : dx;
            backward.input_gradient = problem.input_gradient ? written.template data<T>() : nullptr;
            operation.backward(operation.operation, backward);
            CHECK_MESSAGE(reference::same_bits(read(x), x_before), "backward changed its input");
            CHECK_MESSAGE(reference::same_bits(read(y), output), "backward changed the output");
            std::vector<Floats> parameter_gradients;
            for (Guarded<D>& gradient : gradients) parameter_gradients.push_back(gradient.read());
            const Floats input_gradient = read(written);
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
    intact(column, "column");
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

template <class D, class T, class Make>
[[nodiscard]] Outcome run_in(typename D::Context& context, const Problem& problem, Make make) {
    auto operation =
        make(cupola::BuildContext<D, T>{.context = context,
                                        .batch = problem.batch,
                                        .input = problem.input,
                                        .output = problem.output,
                                        .layer = problem.layer,
                                        .activation = problem.activation,
                                        .relu_mask_applied_by_next = problem.relu_mask_applied_by_next,
                                        .applies_relu_mask_of_previous = problem.applies_relu_mask_of_previous,
                                        .training = problem.made_for_training,
                                        .input_gradient = problem.made_for_input_gradient,
                                        .inference = !problem.made_for_training && problem.made_for_predictions});
    return run_calls<D, T>(problem, context, calls_of<D, T>(operation));
}

/// Runs `make(site)`; see the head of this file.
template <class Where, class Make>
[[nodiscard]] Outcome run(const Problem& problem, Make make) {
    using D = DeviceOf<Where>;
    using T = ElementOf<Where>;
    const CaseContext<D> of_case(problem.threads);
    typename D::Context& context = of_case.get();
    [[maybe_unused]] const auto team = context.team();
    const Outcome outcome = run_in<D, T>(context, problem, make);
    if (problem.made_for_training && problem.training && problem.batch * problem.output.size() <= 2048) {
        // No backward follows a pass of training in a frozen layer, in one that reads the network's input without
        // parameters, and where values are inspected.
        Problem without_backward = problem;
        without_backward.made_for_training = without_backward.made_for_predictions = false;
        const Outcome other = run_in<D, T>(context, without_backward, make);
        CHECK_MESSAGE(reference::same_bits(other.output, outcome.output), "forward gave other bits without a backward");
    }
    return outcome;
}

}  // namespace operation_run
