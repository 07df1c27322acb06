// SPDX-License-Identifier: Apache-2.0
//
// ParameterAgreement: agreement on the parameters: each replica updates its own parameters with its own gradient, and
// every K steps a policy changes them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include <cupola/ops/training_step.hpp>
#include <cupola/parallel/agreement.hpp>
#include <cupola/parallel/agreement/local_devices.hpp>
#include <cupola/parallel/agreement/step_agreement.hpp>
#include <cupola/parallel/replicas/peers.hpp>
#include <cupola/parallel/replicas/replicas.hpp>
#include <cupola/parallel/replicas/sample_counts.hpp>
#include <cupola/parallel/replicas/status.hpp>

namespace cupola { inline namespace CUPOLA_ABI { namespace impl {

template <class A, class D, class T>
class ParameterAgreement final : public StepAgreement<D, T> {
    using Kernels = typename D::Kernels;
    using Step = DeviceStep<D, T>;
    using StepAgreement<D, T>::replicas_;

public:
    [[gnu::cold]] ParameterAgreement(const A& policy, Replicas<D, T>& replicas)
        : StepAgreement<D, T>(replicas), policy_(policy), local_(replicas) {
        require(policy.every() >= 1, A::name, " must act on the parameters every 1 or more steps, not every ",
                policy.every());
        for (int r = 0; r < replicas.placement().replicas(); ++r) rows_.push_back(replicas.parameters(r));
    }

    [[nodiscard]] Peers& peers() override { return none_; }
    void wait(int device, std::int64_t step, bool finished) override { local_.wait(device, step, finished); }
    void end(int device) override { local_.end(device); }

    /// No replica is updated unless the gradients of all replicas are finite, as with the other kinds.
    bool agree(Step& step) override {
        const int device = step.device;
        step.state.attempt([&] { queue_means(step, local_.finite(device)); });
        if (!replicas_.arrive_and_wait(device)) return false;
        local_.update_only_if_all_finite(device);
        if (replicas_.settings().skips_without_weight) {
            // Each row has a divisor of its own; that of the step tells whether any sample counts.
            double weight = 0;
            for (int r = 0; r < replicas_.placement().replicas(); ++r) weight += weight_of(r);
            step.state.queue->write(&step.state.status()->divisor, static_cast<float>(weight));
        }
        return true;
    }
    [[nodiscard]] UpdateGradient gradient(int device, int replica, std::int64_t /*step*/) override {
        return {replicas_.gradients().row(replica), &replicas_.at(device).status()->divisor};
    }

    /// Called on every device's thread after its update is queued.
    void after(Step& step) override {
        if ((step.step + 1) % policy_.every() != 0) return;
        step.state.attempt([&] { local_.wait_for_queue(step); });
        if (!replicas_.arrive_and_wait(step.device)) return;
        if (step.device == 0) {
            step.state.attempt([&] {
                if (step.state.status()->healthy == 0) return;
                policy_.agree(step.state.context(), {.rows = rows_, .columns = replicas_.network().trained_elements});
            });
        }
        if (!replicas_.arrive_and_wait(step.device)) return;
    }

private:
    void queue_means(Step& step, std::int32_t* finite) {
        const int first = replicas_.placement().first_replica(step.device),
                  last = replicas_.placement().first_replica(step.device + 1);
        for (int r = first; r < last; ++r)
            require(step.samples.of_replica(step.step, r) > 0, "replica ", r, " has no samples in step ", step.step,
                    ", and ", A::name, " updates each replica with its own samples");
        for (int r = first; r < last; ++r) {
            step.state.queue->queue([this, device = step.device, r, to = finite,
                                     here = step.samples.of_replica(step.step, r)] { mean(device, r, here, to); });
        }
        local_.wait_for_queue(step);
    }
    /// Inside queued work: divides the row of a replica, which has `samples` samples, by the loss scale and its weight.
    void mean(int device, int replica, std::int64_t samples, std::int32_t* finite) {
        auto& state = replicas_.at(device);
        const std::span<float> row(replicas_.gradients().row(replica), replicas_.elements());
        float divisor = state.status()->divisor;
        if (replicas_.settings().weighted) {
            divisor = static_cast<float>(replicas_.settings().constant_loss_scale() * weight_of(replica) /
                                         static_cast<double>(samples));
        }
        unsigned long long* const ends = state.layout.not_finite(state.queue->status(), replica);
        ops::TrainingStep<Kernels>::mean(state.context(), row, &divisor, row, finite,
                                         {.rows = row.data(), .count = 1, .ends = ends},
                                         scale_on_device(replicas_, device));
    }
    /// The weight of a replica's samples, once its losses are computed.
    [[nodiscard]] double weight_of(int replica) {
        double weight = 0;
        const std::span<const LossReport> reports = replicas_.at(replicas_.placement().device_of(replica)).reports();
        for (int part = 0; part < replicas_.settings().gradient_accumulation_steps; ++part)
            weight += reports[replicas_.placement().batch_number(replica, part)].weight;
        return weight;
    }

    A policy_;
    LocalDevices<D, T> local_;
    Peers none_;
    std::vector<float*> rows_;
};

template <class A, class D, class T>
    requires MovesParameters<A, D>
struct AgreementOf<A, D, T> {
    [[nodiscard]] static AgreementTraits traits(const A&, std::int64_t) { return {.own_parameters = true}; }
    [[nodiscard, gnu::cold]] static std::unique_ptr<StepAgreement<D, T>> make(const A& policy,
                                                                              Replicas<D, T>& replicas) {
        return std::make_unique<ParameterAgreement<A, D, T>>(policy, replicas);
    }
};

}}}  // namespace cupola::CUPOLA_ABI::impl
