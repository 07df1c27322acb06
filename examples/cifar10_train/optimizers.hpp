// SPDX-License-Identifier: Apache-2.0
//
// The optimisers that the command line can name, as one type: a training is instantiated once and not once per
// optimiser.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <variant>

#include <cupola/cupola.hpp>
#include <cupola/optim/elastic_update.hpp>
#include <cupola/optimizers.hpp>

namespace cifar10 {

class NamedOptimizer {
    template <class Question>
    decltype(auto) ask(Question&& question) const {
        return std::visit(std::forward<Question>(question), which_);
    }

public:
    static constexpr bool uses_segment_factors = true;

    NamedOptimizer() = default;

    /// Throws InvalidArgument for an unknown name.
    NamedOptimizer(std::string_view name, Schedule rate) {
        if (name == "sgd") {
            which_ = Sgd{.learning_rate = std::move(rate)};
        } else if (name == "momentum") {
            which_ = Sgd{.learning_rate = std::move(rate), .momentum = 0.9};
        } else if (name == "nesterov") {
            which_ = Sgd{.learning_rate = std::move(rate), .momentum = 0.9, .nesterov = true};
        } else if (name == "nesterov-velocity") {
            which_ = NesterovVelocity{.learning_rate = std::move(rate)};
        } else if (name == "adam") {
            which_ = Adam{.learning_rate = std::move(rate)};
        } else if (name == "adamw") {
            which_ = AdamW{.learning_rate = std::move(rate)};
        } else if (name == "adamax") {
            which_ = Adamax{.learning_rate = std::move(rate)};
        } else if (name == "adagrad") {
            which_ = Adagrad{.learning_rate = std::move(rate)};
        } else if (name == "rmsprop") {
            which_ = RmsProp{.learning_rate = std::move(rate)};
        } else if (name == "lars") {
            which_ = Lars{.learning_rate = std::move(rate)};
        } else if (name == "lamb") {
            which_ = Lamb{.learning_rate = std::move(rate)};
        } else {
            throw InvalidArgument(text("there is no --optimizer ", name));
        }
    }

    [[nodiscard]] int state_arenas() const {
        return ask([](const auto& o) { return o.state_arenas(); });
    }
    [[nodiscard]] std::string_view state_name(int arena) const {
        return ask([&](const auto& o) { return o.state_name(arena); });
    }
    [[nodiscard]] double state_start(int arena) const {
        return ask([&](const auto& o) { return static_cast<double>(state_start_of(o, arena)); });
    }
    [[nodiscard]] double learning_rate_at(std::int64_t step) const {
        return ask([&](const auto& o) { return o.learning_rate_at(step); });
    }
    [[nodiscard]] std::string learning_rate_description() const {
        return ask([](const auto& o) { return learning_rate_description_of(o); });
    }
    [[nodiscard]] std::string description() const {
        return ask([](const auto& o) { return o.description(); });
    }
    void check() const {
        ask([](const auto& o) { check_optimizer(o); });
    }
    template <class Device>
    void update(const Update<Device>& u) const {
        ask([&](const auto& o) { update_parameters(o, u); });
    }
    template <class Device>
    void constants(const Update<Device>& u, ConstantsWriter& to) const {
        ask([&](const auto& o) { write_constants(o, u, to); });
    }
    template <class Device>
    void update(const Update<Device>& u, const ElasticForce& force) const {
        ask([&](const auto& o) { update_parameters(o, u, force); });
    }
    template <class Device>
    void constants(const Update<Device>& u, const ElasticForce& force, ConstantsWriter& to) const {
        ask([&](const auto& o) { write_constants(o, u, force, to); });
    }

private:
    std::variant<Sgd, NesterovVelocity, Adam, AdamW, Adamax, Adagrad, RmsProp, Lars, Lamb> which_;
};

}  // namespace cifar10
