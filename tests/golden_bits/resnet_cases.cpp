// SPDX-License-Identifier: Apache-2.0
//
// ResNet<8>: every policy for batch normalisation's statistics, placement, accumulation, Winograd's convolutions,
// bfloat16.
#include <cupola/models/resnet.hpp>
#include <cupola/ops/host/winograd_convolution.hpp>
#include <cupola/parallel/synchronized.hpp>

#include "training_case.hpp"

namespace golden_bits {

namespace {

struct Net : ResNet<8> {};
struct NetBf16 : InPrecision<MixedBFloat16, Net> {};
using Loss = LossCollection<CrossEntropy<11>, WeightDecayAll<2e-4>>;

template <class Statistics, class Network = Net>
Case resnet_case(const std::string& name, const Setting& setting) {
    return {"resnet/" + name,
            [=](int threads, std::int64_t steps) {
                const Sgd optimizer{.learning_rate = 0.05, .momentum = 0.9};
                Setting of_this_run = setting;
                of_this_run.threads = threads;
                of_this_run.steps = steps;
                return run_training<Network, Loss, Sgd, Statistics>(optimizer, of_this_run);
            },
            setting.by_teams};
}

/// The cases of each policy: more replicas than devices, several batches per step, and an empty batch.
template <class Statistics, bool by_teams = false>
void add_policy(std::vector<Case>& cases, const std::string& name) {
    cases.push_back(
        resnet_case<Statistics>(name + "/4_replicas_2_devices", {.replicas = 4, .devices = 2, .by_teams = by_teams}));
    cases.push_back(
        resnet_case<Statistics>(name + "/accumulation_2", {.replicas = 2, .gradient_accumulation_steps = 2}));
    cases.push_back(resnet_case<Statistics>(name + "/unequal",
                                            {.replicas = 3, .devices = 2, .unequal = true, .by_teams = by_teams}));
}

template <class Statistics>
void add_placements(std::vector<Case>& cases, const std::string& name) {
    cases.push_back(resnet_case<Statistics>(name + "/4_replicas_1_device", {.replicas = 4}));
    cases.push_back(resnet_case<Statistics>(name + "/4_replicas_4_devices", {.replicas = 4, .devices = 4}));
    cases.push_back(resnet_case<Statistics>(name + "/restored",
                                            {.replicas = 4, .devices = 2, .average_decay = 0.99, .restored = true}));
}

/// Whether oneDNN has convolutions in bfloat16 here.
bool computes_bfloat16() {
    return (dnnl_get_effective_cpu_isa() & dnnl_cpu_isa_avx512_core_bf16) == dnnl_cpu_isa_avx512_core_bf16;
}

}  // namespace

std::vector<Case> resnet_cases() {
    std::vector<Case> cases;
    add_policy<FirstReplica, true>(cases, "first");
    add_policy<LastReplica>(cases, "last");
    add_policy<AllReplicas>(cases, "all");
    add_policy<Pooled>(cases, "merged");
    add_policy<Synchronized, true>(cases, "synchronized");
    add_placements<FirstReplica>(cases, "first");
    add_placements<Synchronized>(cases, "synchronized");
    cases.push_back(
        resnet_case<FirstReplica>("first/winograd", {.replicas = 2, .convolution = &winograd, .by_teams = true}));
    if (computes_bfloat16()) {
        cases.push_back(
            resnet_case<FirstReplica, NetBf16>("first/bfloat16", {.replicas = 2, .devices = 2, .by_teams = true}));
    }
    cases.push_back(plan_case<Net>("resnet8"));
    cases.push_back(plan_case<NetBf16>("resnet8_bfloat16"));
    cases.push_back(plan_case<ResNet<44>>("resnet44"));
    return cases;
}

}  // namespace golden_bits
