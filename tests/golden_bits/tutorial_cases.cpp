// SPDX-License-Identifier: Apache-2.0
//
// The tutorial's network: placement, accumulation, six optimizers, moving averages, Winograd's convolutions.
#include <cupola/models/cifar10_net.hpp>
#include <cupola/ops/host/winograd_convolution.hpp>
#include <cupola/optim/clipped.hpp>
#include <cupola/optimizers.hpp>

#include "training_case.hpp"

namespace golden_bits {

namespace {

template <class Optimizer>
Case tutorial_case(const std::string& name, const Optimizer& optimizer, const Setting& setting) {
    return {"tutorial/" + name,
            [=](int threads, std::int64_t steps) {
                Setting of_this_run = setting;
                of_this_run.threads = threads;
                of_this_run.steps = steps;
                return run_training<Cifar10Net, Cifar10Loss>(optimizer, of_this_run);
            },
            setting.by_teams};
}

}  // namespace

std::vector<Case> tutorial_cases() {
    const Sgd plain{.learning_rate = 0.02};
    const Sgd momentum{.learning_rate = 0.02, .momentum = 0.9};
    const Sgd nesterov{.learning_rate = 0.02, .momentum = 0.9, .nesterov = true, .weight_decay = 1e-3};
    const Setting two{.replicas = 2};
    return {
        tutorial_case("sgd/1_replica", plain, {.by_teams = true}),
        tutorial_case("sgd_momentum/4_replicas_1_device", momentum, {.replicas = 4}),
        tutorial_case("sgd_momentum/4_replicas_2_devices", momentum, {.replicas = 4, .devices = 2, .by_teams = true}),
        tutorial_case("sgd_momentum/4_replicas_4_devices", momentum, {.replicas = 4, .devices = 4}),
        tutorial_case("sgd_momentum/accumulation_2", momentum,
                      {.replicas = 2, .devices = 2, .gradient_accumulation_steps = 2}),
        tutorial_case(
            "sgd_momentum/accumulation_2_unequal", momentum,
            {.replicas = 3, .devices = 1, .gradient_accumulation_steps = 2, .unequal = true, .by_teams = true}),
        tutorial_case("sgd_momentum/averages_restored", momentum,
                      {.replicas = 2, .devices = 2, .average_decay = 0.99, .restored = true}),
        tutorial_case("sgd_momentum/averages", momentum, {.replicas = 2, .average_decay = 0.99}),
        tutorial_case("sgd_momentum/winograd", momentum, {.replicas = 2, .convolution = &winograd, .by_teams = true}),
        tutorial_case("sgd_nesterov", nesterov, two),
        tutorial_case("sgd_decoupled", Sgd{.learning_rate = 0.02, .weight_decay = 1e-3, .decoupled = true}, two),
        tutorial_case("adam", Adam{.learning_rate = 1e-3, .weight_decay = 1e-3}, two),
        tutorial_case("adam_restored", Adam{.learning_rate = 1e-3, .weight_decay = 1e-3},
                      {.replicas = 2, .devices = 2, .restored = true}),
        tutorial_case("adam_w", AdamW{.learning_rate = 1e-3}, two),
        tutorial_case("lamb", Lamb{.learning_rate = 1e-2, .weight_decay = 1e-3}, {.replicas = 2, .by_teams = true}),
        tutorial_case("lars", Lars{.learning_rate = 1.0, .weight_decay = 1e-3}, two),
        tutorial_case("rms_prop", RmsProp{.learning_rate = 1e-3, .momentum = 0.9, .weight_decay = 1e-3}, two),
        tutorial_case("clipped_sgd",
                      Clipped<Sgd>{.optimizer = {.learning_rate = 0.02}, .max_norm = 1.0, .max_value = 0.01},
                      {.replicas = 2, .by_teams = true}),
        plan_case<Cifar10Net>("tutorial"),
        plan_case<Cifar10NetBf16>("tutorial_bfloat16"),
    };
}

}  // namespace golden_bits
