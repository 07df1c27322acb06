// SPDX-License-Identifier: Apache-2.0
//
// The common part of the tests of optimisers: an arena of tensors with padding between them, and steps on it.
#pragma once

#include "../test.hpp"

#include <cupola/device/host.hpp>
#include <cupola/ops/host/element_update.hpp>
#include <cupola/optim/optimizer.hpp>
#include <cupola/optim/update_parameters.hpp>

namespace stepping {

/// Parameters, gradient and state of an optimiser; the padding around the tensors holds `mark`.
template <class Optimizer>
struct Arena {
    static constexpr float mark = 7.5F;
    static constexpr std::int64_t gap = 5;  // not a multiple of any vector's width

    Arena(const Optimizer& used, std::vector<std::int64_t> sizes, int threads = 1)
        : optimizer(used), context(0, {.threads = threads}) {
        std::int64_t offset = gap;
        for (const std::int64_t size : sizes) {
            segments.push_back({offset, size});
            offset += size + gap;
        }
        elements = offset;
        w.assign(static_cast<std::size_t>(elements), mark);
        gradient.assign(static_cast<std::size_t>(elements), mark);
        state.assign(static_cast<std::size_t>(elements * optimizer.state_arenas()), mark);
        for (int a = 0; a < optimizer.state_arenas(); ++a) {
            for (const auto& s : segments) {
                for (std::int64_t i = 0; i < s.size; ++i)
                    at(state, a * elements + s.offset + i) = cupola::state_start_of(optimizer, a);
            }
        }
    }

    static float& at(std::vector<float>& values, std::int64_t i) { return values[static_cast<std::size_t>(i)]; }

    /// Puts `values`, the tensors one after another, into `arena`.
    void scatter(std::vector<float>& arena, std::span<const float> values) {
        std::size_t next = 0;
        for (const auto& s : segments) {
            for (std::int64_t i = 0; i < s.size; ++i) at(arena, s.offset + i) = values[next++];
        }
    }
    [[nodiscard]] std::vector<float> gather(std::vector<float>& arena) {
        std::vector<float> result;
        for (const auto& s : segments) {
            for (std::int64_t i = 0; i < s.size; ++i) result.push_back(at(arena, s.offset + i));
        }
        return result;
    }

    /// The parameters after the update of `step`.
    std::vector<float> step(std::int64_t step, std::span<const float> gradients) {
        scatter(gradient, gradients);
        cupola::update_parameters(optimizer, update(step));
        return gather(w);
    }
    [[nodiscard]] cupola::Update<cupola::Host> update(std::int64_t step) {
        return {.context = context,
                .parameters = w.data(),
                .gradient = gradient.data(),
                .state = state.empty() ? nullptr : state.data(),
                .elements = elements,
                .segments = segments,
                .step = step};
    }

    /// Whether nothing outside the tensors has changed.
    [[nodiscard]] bool padding_untouched() {
        std::vector<bool> inside(static_cast<std::size_t>(elements));
        for (const auto& s : segments) {
            for (std::int64_t i = 0; i < s.size; ++i) inside[static_cast<std::size_t>(s.offset + i)] = true;
        }
        bool untouched = true;
        for (std::size_t i = 0; i < inside.size(); ++i) {
            if (inside[i]) continue;
            untouched = untouched && w[i] == mark && gradient[i] == mark;
            for (std::size_t a = 0; a * inside.size() < state.size(); ++a)
                untouched = untouched && state[a * inside.size() + i] == mark;
        }
        return untouched;
    }

    Optimizer optimizer;
    cupola::HostContext context;
    std::vector<cupola::Segment> segments;
    std::int64_t elements = 0;
    std::vector<float> w, gradient, state;
};

/// norm(a - b) / norm(b).
template <class A, class B>
[[nodiscard]] double difference(const A& a, const B& b) {
    double of_difference = 0, of_b = 0;
    for (std::size_t i = 0; i < a.size(); ++i) {
        const double x = static_cast<double>(a[i]), y = static_cast<double>(b[i]);
        of_difference += (x - y) * (x - y);
        of_b += y * y;
    }
    return std::sqrt(of_difference / of_b);
}

/// `count` numbers in [-1, 1) that look random.
[[nodiscard]] inline std::vector<float> numbers(std::size_t count, std::uint32_t seed) {
    std::vector<float> result(count);
    for (float& value : result) {
        seed = seed * 1664525U + 1013904223U;
        value = static_cast<float>(seed >> 8) / static_cast<float>(1U << 23) - 1.0F;
    }
    return result;
}

/// Twenty steps on the tensors of `arena`, from random numbers, are those of make(segment, parameters in double), one reference
/// per tensor with step(step, gradient) and the parameters `w`.
template <class Optimizer, class Make>
void check_twenty_steps(Arena<Optimizer>& arena, Make&& make) {
    std::size_t total = 0;
    for (const auto& s : arena.segments) total += static_cast<std::size_t>(s.size);
    const auto initial = numbers(total, 3);
    arena.scatter(arena.w, initial);
    std::vector<decltype(make(arena.segments[0], std::vector<double>()))> references;
    for (auto first = initial.begin(); const auto& s : arena.segments) {
        references.push_back(make(s, std::vector<double>(first, first + s.size)));
        first += s.size;
    }
    for (int step = 0; step < 20; ++step) {
        CAPTURE(step);
        const auto gradient = numbers(total, 50 + static_cast<std::uint32_t>(step));
        const auto w = arena.step(step, gradient);
        std::vector<double> expected;
        for (auto& tensor : references) {
            tensor.step(step, gradient.data() + expected.size());
            expected.insert(expected.end(), tensor.w.begin(), tensor.w.end());
        }
        CHECK(difference(w, expected) < 1e-6);
    }
    CHECK(arena.padding_untouched());
}

}  // namespace stepping
