// SPDX-License-Identifier: Apache-2.0
//
// One small policy per kind of agreement: a function of the rows, a collective, and one that moves parameters.
#pragma once

#include <barrier>

#include <cupola/parallel/agreement.hpp>
#include <cupola/parallel/agreement/collective_agreement.hpp>
#include <cupola/parallel/agreement/rows_agreement.hpp>
#include <cupola/parallel/kinds/periodic.hpp>

#include "../standard.hpp"

/// The mean of the rows, each by its samples, added in double.
struct MeanInDouble {
    static constexpr std::string_view name = "MeanInDouble";

    void average(cupola::HostContext&, const cupola::GradientRows& gradients, std::span<float> mean) const {
        for (std::size_t i = 0; i < mean.size(); ++i) {
            double sum = 0;
            for (std::size_t r = 0; r < gradients.rows.size(); ++r) {
                sum += static_cast<double>(gradients.samples[r]) * static_cast<double>(gradients.rows[r][i]);
            }
            mean[i] = static_cast<float>(sum / static_cast<double>(gradients.total_samples));
        }
    }
};

/// A sum over the devices of one process: each gives its own, and all add them in the devices' order.
template <class D>
class SumAcross {
public:
    template <class Policy>
    SumAcross(const Policy&, const cupola::CollectiveSetup& setup)
        : elements_(static_cast<std::size_t>(setup.elements)),
          loss_scale_(setup.loss_scale),
          given_(static_cast<std::size_t>(setup.devices)),
          summed_(given_.size()),
          samples_(given_.size()),
          weights_(given_.size()),
          barrier_(std::make_unique<std::barrier<>>(setup.devices)) {}

    template <class Policy>
    [[nodiscard]] static std::int64_t bucket_elements(const Policy& policy) {
        return policy.bucket_elements;
    }
    template <class Policy>
    [[nodiscard]] static cupola::ProcessNumber process(const Policy&) {
        return {};
    }
    [[nodiscard]] bool healthy() const { return true; }
    void join(int device, typename D::Queue&, cupola::HostContext&, const cupola::RankBlocks&) {
        given_[at(device)].resize(elements_);
        summed_[at(device)].resize(elements_ + 1);
    }
    void begin(int device, typename D::Queue&, cupola::HostContext&, const cupola::StepShape& shape) {
        samples_[at(device)] = static_cast<float>(shape.samples_here) * (shape.scaled ? loss_scale_ : 1.0F);
        weights_[at(device)] = shape.weight_here;
    }
    void give(int device, typename D::Queue& queue, cupola::HostContext& context, std::size_t,
              const cupola::GradientBucket& bucket, const cupola::WeightedGradients& rows) {
        const auto begin = static_cast<std::size_t>(bucket.begin), count = static_cast<std::size_t>(bucket.end) - begin;
        queue.queue([this, device, &context, rows, begin, count] {
            std::vector<const float*> parts;
            for (const float* const row : rows.rows) parts.push_back(row + begin);
            cupola::ops::TrainingStep<cupola::Host>::weighted_sum(context, parts, rows.weights,
                                                                  std::span(given_[at(device)]).subspan(begin, count));
        });
    }
    cupola::GradientSums finish(int device, typename D::Queue& queue, cupola::HostContext&) {
        queue.mark();
        wait(device, queue, 0, false);
        barrier_->arrive_and_wait();
        std::vector<float>& sums = summed_[at(device)];
        sums.assign(sums.size(), 0.0F);
        for (std::size_t other = 0; other < given_.size(); ++other) {
            for (std::size_t i = 0; i < elements_; ++i) sums[i] += given_[other][i];
            sums[elements_] += weights_[other] != nullptr ? *weights_[other] : samples_[other];
        }
        barrier_->arrive_and_wait();
        return {std::span(sums).first(elements_), sums.data() + elements_};
    }
    void wait(int, typename D::Queue& queue, std::int64_t step, bool finished) {
        while (!(finished ? queue.finished(step) : queue.reached())) {
        }
    }
    void break_off(int, std::int64_t, const std::string&) noexcept {}
    void end(int, typename D::Queue& queue) { queue.synchronize(); }

private:
    static std::size_t at(int device) { return static_cast<std::size_t>(device); }

    std::size_t elements_;
    float loss_scale_;
    std::vector<std::vector<float>> given_, summed_;
    std::vector<float> samples_;
    std::vector<const float*> weights_;
    std::unique_ptr<std::barrier<>> barrier_;
};

struct DeviceSum {
    static constexpr std::string_view name = "DeviceSum";
    std::int64_t bucket_elements = 64;
    template <class D>
    using Collective = SumAcross<D>;
};

/// Local SGD (Stich 2018).
using LocalSgd = cupola::Periodic<cupola::ConcatMean>;
