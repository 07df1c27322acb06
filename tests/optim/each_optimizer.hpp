// SPDX-License-Identifier: Apache-2.0
//
// Every optimiser, from the list in optimizers.hpp: a test that uses this needs no line for a new one.
#pragma once

#include "../test.hpp"

#include <cupola/optim/clipped.hpp>
#include <cupola/optimizers.hpp>

namespace each_optimizer_impl {
template <class List>
struct TupleOf;
template <class... O>
struct TupleOf<cupola::impl::TypeList<O...>> {
    using type = std::tuple<O...>;
};
}  // namespace each_optimizer_impl

/// For TYPED_TEST_CASE.
using EachOptimizer = each_optimizer_impl::TupleOf<cupola::Optimizers>::type;

/// Calls f with each optimiser: with a weight decay, with each of its other options in addition, without any, and two of them with clipping.
template <class Function>
void with_each_optimizer(Function&& f) {
    const auto with_options = [&]<class O>(O optimizer) {
        optimizer.learning_rate = 0.1;
        f(optimizer);
        optimizer.weight_decay = 0.01;
        f(optimizer);
        if constexpr (requires { optimizer.decoupled; }) {
            optimizer.decoupled = true;
            f(optimizer);
            optimizer.decoupled = false;
        }
        if constexpr (requires { optimizer.momentum; }) {
            optimizer.momentum = optimizer.momentum == 0 ? 0.9 : 0;
            f(optimizer);
        }
        if constexpr (requires { optimizer.nesterov; }) {
            optimizer.nesterov = true;
            f(optimizer);
        }
    };
    std::apply([&](auto... optimizer) { (with_options(optimizer), ...); }, EachOptimizer{});
    using namespace cupola;
    f(Clipped<AdamW>{.optimizer = {.learning_rate = 0.01}, .max_norm = 0.5, .max_value = 0.01});
    f(Clipped<NesterovVelocity>{.optimizer = {.learning_rate = 0.1}, .max_norm = 0.5});
}
