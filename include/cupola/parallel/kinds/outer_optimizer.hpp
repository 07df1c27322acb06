// SPDX-License-Identifier: Apache-2.0
//
// OuterOptimizer: the optimiser that moves the centre of replicas with parameters of their own, without its type.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include <cupola/optim/optimizer.hpp>
#include <cupola/optim/update_parameters.hpp>
#include <cupola/parallel/kinds/centre_updates.hpp>

namespace cupola { inline namespace CUPOLA_ABI { namespace impl {

template <class Kernels>
class OuterOptimizer {
public:
    OuterOptimizer() = default;
    OuterOptimizer(const OuterOptimizer&) = delete;
    OuterOptimizer& operator=(const OuterOptimizer&) = delete;
    virtual ~OuterOptimizer() = default;

    [[nodiscard]] virtual int state_arenas() const = 0;
    [[nodiscard]] virtual std::string_view state_name(int arena) const = 0;
    [[nodiscard]] virtual float state_start(int arena) const = 0;
    [[nodiscard]] virtual double learning_rate_at(std::int64_t agreement) const = 0;
    /// Without its learning rate; empty if it has none.
    [[nodiscard]] virtual std::string description() const = 0;
    virtual void update(const Update<Kernels>& u) const = 0;
    /// Whether an element's update depends on nothing but that element, so that a part of a tensor may be updated.
    [[nodiscard]] virtual bool is_of_elements() const = 0;
};

template <class O, class Kernels>
class OuterOptimizerOf final : public OuterOptimizer<Kernels> {
public:
    explicit OuterOptimizerOf(const O& optimizer) : optimizer_(optimizer) { check_optimizer(optimizer_); }

    [[nodiscard]] int state_arenas() const override { return optimizer_.state_arenas(); }
    [[nodiscard]] std::string_view state_name(int arena) const override { return optimizer_.state_name(arena); }
    [[nodiscard]] float state_start(int arena) const override { return state_start_of(optimizer_, arena); }
    [[nodiscard]] double learning_rate_at(std::int64_t agreement) const override {
        return optimizer_.learning_rate_at(agreement);
    }
    [[nodiscard]] std::string description() const override {
        if constexpr (requires { optimizer_.description(); })
            return optimizer_.description();
        else
            return {};
    }
    void update(const Update<Kernels>& u) const override { update_parameters(optimizer_, outer_update(u)); }
    [[nodiscard]] bool is_of_elements() const override { return HasFormula<O>; }

private:
    O optimizer_;
};

}}}  // namespace cupola::CUPOLA_ABI::impl
