// SPDX-License-Identifier: Apache-2.0
//
// Backup: synchronous training with replicas to spare (Chen, Monga, Bengio, Jozefowicz 2016; SyncReplicasOptimizer of
// TensorFlow). Each step is one update by the mean of the first `count` gradients, by their samples; the other
// replicas are late. What they have computed is dropped, and they go on with the step that the others are at.
//
//   DataParallel<Net, Loss, Sgd, Backup, Host> training({.replicas = 5, .devices = 5, .averaging = {.count = 4}});
//
// In the report of a step a late replica has no samples, and an epoch does not see those that it had. Given which
// replicas count, the bits are those of ConcatMean with these replicas alone; which ones do is not repeatable, unless
// all count or there is one device. All replicas compute with the parameters of the centre (the model), which the
// optimiser updates.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include <cupola/core/compile_time_message.hpp>
#include <cupola/core/error.hpp>
#include <cupola/parallel/kinds/centre_exchange.hpp>
#include <cupola/parallel/kinds/impl/asynchronous_training.hpp>

namespace cupola { inline namespace CUPOLA_ABI {

namespace impl {

class FirstGradients final : public CentreExchange {
public:
    explicit FirstGradients(int count) : count_(count) {}

    [[nodiscard]] std::int64_t every() const override { return 1; }
    [[nodiscard]] bool is_due(std::int64_t) const override { return false; }
    [[nodiscard]] int counted() const override { return count_; }
    void exchange(const ExchangeArenas&, const Segment&) const override {}

private:
    int count_;
};

}  // namespace impl

struct Backup {
    static constexpr std::string_view name = "Backup";
    static constexpr bool asynchronous = true;
    static constexpr bool updates_centre = true;

    /// The gradients that a step needs, 1 to the number of replicas.
    int count = 1;
    /// The largest number of steps that are queued, 1 or more.
    std::int64_t ahead = 2;

    [[nodiscard]] AsynchronousRun run() const { return {.ahead = ahead, .rule = std::string(name)}; }
    [[nodiscard]] std::unique_ptr<CentreExchange> exchange(int replicas) const {
        require(count >= 1 && count <= replicas, name, " must count 1 to ", replicas, " gradients of ", replicas,
                replicas == 1 ? " replica" : " replicas", ", not ", count);
        return std::make_unique<impl::FirstGradients>(count);
    }
    /// "Backup, the first 4 gradients of a step"
    [[nodiscard]] std::string description() const {
        return text(name, ", the first ", count, count == 1 ? " gradient" : " gradients", " of a step");
    }
    template <class D>
    [[nodiscard]] static consteval CompileTimeMessage diagnostic() {
        return impl::asynchronous_diagnostic<Backup, D>();
    }
};

}}  // namespace cupola::CUPOLA_ABI
