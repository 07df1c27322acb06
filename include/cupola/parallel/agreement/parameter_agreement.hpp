// SPDX-License-Identifier: Apache-2.0
//
// Agreement on the parameters: each replica updates its own parameters with its own gradient, and every K steps a policy
// changes them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <cupola/ops/training_step.hpp>
#include <cupola/parallel/agreement.hpp>
#include <cupola/parallel/agreement/local.hpp>
#include <cupola/parallel/replicas/loss_scaling.hpp>
#include <cupola/parallel/replicas/replicas.hpp>
#include <cupola/parallel/replicas/sample_counts.hpp>
#include <cupola/parallel/replicas/status.hpp>

namespace cupola { inline namespace CUPOLA_ABI { namespace impl {

template <class A, class D, class T>
class ParameterAgreement : public AgreementInProcess<D, T> {
    using Kernels = typename D::Kernels;
    using Base = AgreementInProcess<D, T>;
    using Base::replicas_;

public:
    static constexpr bool own_parameters = true;

    ParameterAgreement(const A& policy, Replicas<D, T>& replicas) : Base(replicas), policy_(policy) {
        require(policy.every() >= 1, A::name, " must act on the parameters every 1 or more steps, not every ",
                policy.every());
        for (int r = 0; r < replicas.placement().replicas(); ++r) {
            rows_.push_back(replicas.parameters(r));
        }
    }

    /// No replica is updated unless the gradients of all replicas are finite, as with the other kinds.
    bool agree(int device, const SampleCounts& samples, std::int64_t step, bool) {
        auto& state = replicas_.at(device);
        typename D::Queue& queue = *state.queue;
        std::int32_t* const finite = Base::finite(device);
        state.attempt([&] {
            for (int r = replicas_.placement().first_replica(device);
                 r < replicas_.placement().first_replica(device + 1); ++r)
                require(samples.of_replica(step, r) > 0, "replica ", r, " has no samples in step ", step, ", and ",
                        A::name, " updates each replica with its own samples");
            for (int r = replicas_.placement().first_replica(device);
                 r < replicas_.placement().first_replica(device + 1); ++r) {
                queue.queue([this, device, r, block = queue.status(), to = finite, here = samples.of_replica(step, r)] {
                    const std::span<float> row(replicas_.gradients().row(r), replicas_.elements());
                    float divisor = step_status(block)->divisor;
                    if (replicas_.settings().weighted) {
                        const double weight = weight_of(device, r);
                        divisor = static_cast<float>(replicas_.settings().constant_loss_scale() * weight /
                                                     static_cast<double>(here));
                    }
                    ops::TrainingStep<Kernels>::mean(
                        replicas_.context(device), row, &divisor, row, to,
                        {.rows = row.data(), .count = 1, .ends = replicas_.at(device).layout.not_finite(block, r)},
                        scale_on_device(replicas_, device));
                });
            }
            Base::wait_for_queue(device, step);
        });
        if (!replicas_.arrive_and_wait(device)) return false;
        Base::update_only_if_all_finite(device);
        if (replicas_.settings().skips_without_weight) {
            // Each row has a divisor of its own; that of the step tells whether any sample counts.
            double weight = 0;
            for (int r = 0; r < replicas_.placement().replicas(); ++r)
                weight += weight_of(replicas_.placement().device_of(r), r);
            queue.write(&step_status(queue.status())->divisor, static_cast<float>(weight));
        }
        return true;
    }
    void reduce(int, std::byte*) {}
    [[nodiscard]] const float* gradient_of(int, int replica) const { return replicas_.gradients().row(replica); }

    /// Called on every device's thread after its update is queued.
    void after_update(int device, std::int64_t step) {
        if ((step + 1) % policy_.every() != 0) return;
        auto& state = replicas_.at(device);
        state.attempt([&] { Base::wait_for_queue(device, step); });
        if (!replicas_.arrive_and_wait(device)) return;
        if (device == 0) {
            state.attempt([&] {
                if (state.status()->healthy == 0) return;
                policy_.agree(replicas_.context(0), {.rows = rows_, .columns = replicas_.network().trained_elements});
            });
        }
        if (!replicas_.arrive_and_wait(device)) return;
    }

private:
    /// The weight of a replica's samples, once its losses are computed.
    [[nodiscard]] double weight_of(int device, int replica) {
        double weight = 0;
        for (int part = 0; part < replicas_.settings().gradient_accumulation_steps; ++part)
            weight += replicas_.at(device).reports()[replicas_.placement().batch_number(replica, part)].weight;
        return weight;
    }

    A policy_;
    std::vector<float*> rows_;
};

}}}  // namespace cupola::CUPOLA_ABI::impl
