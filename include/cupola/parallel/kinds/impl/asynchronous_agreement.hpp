// SPDX-License-Identifier: Apache-2.0
//
// AsynchronousAgreement: what AsynchronousEngine knows of its policy, without the policy's type.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include <cupola/core/error.hpp>
#include <cupola/core/fixed_array.hpp>
#include <cupola/parallel/agreement/step_agreement.hpp>
#include <cupola/parallel/kinds/asynchronous_processes.hpp>
#include <cupola/parallel/kinds/centre_exchange.hpp>
#include <cupola/parallel/kinds/impl/common_centre.hpp>
#include <cupola/parallel/replicas/peers.hpp>
#include <cupola/parallel/replicas/replicas.hpp>

namespace cupola { inline namespace CUPOLA_ABI { namespace impl {

/// What AsynchronousEngine knows of its policy. There are no steps in which replicas agree.
template <class D, class T>
class AsynchronousAgreement final : public StepAgreement<D, T> {
public:
    using typename StepAgreement<D, T>::Step;

    /// `other_processes` is null in one process.
    AsynchronousAgreement(Replicas<D, T>& replicas, const AsynchronousRun& of, std::unique_ptr<CentreExchange> rule,
                          std::unique_ptr<AsynchronousProcesses> other_processes = nullptr)
        : StepAgreement<D, T>(replicas),
          run(of),
          exchange(std::move(rule)),
          others(std::move(other_processes)),
          since(static_cast<std::size_t>(replicas.placement().replicas())) {
        if (others != nullptr) common_peers_.emplace(*others);
    }

    [[nodiscard]] Peers& peers() override {
        if (common_peers_) return *common_peers_;
        return none_;
    }
    /// Where there are several processes, before the first step.
    void bind_common(const CommonCentre& common) { common_peers_->bind(common); }
    bool agree(Step&) override { return true; }
    void wait(int, std::int64_t, bool) override {}
    void end(int) override {}
    [[nodiscard]] RowsAfter rows_after(std::int64_t) const override { return RowsAfter::other; }
    [[nodiscard]] std::string name_of_rule() const override { return run.rule; }
    [[nodiscard]] std::string_view replica_state_name(int) const override { return "fetched"; }
    [[nodiscard]] std::span<const std::int64_t> samples_since(std::int64_t) const override { return since; }
    void require_samples_since(std::span<const std::int64_t> batches) const override {
        for (const std::int64_t each : batches)
            require(each < exchange->every(), "the state is of another rule: a replica has ", each,
                    " batches since its last exchange, and exchanges every ", exchange->every());
    }
    void set_samples_since(std::int64_t, std::span<const std::int64_t> batches) override {
        std::ranges::fill(since, 0);
        std::copy_n(batches.begin(), std::min(batches.size(), since.size()), since.begin());
        ++changes;
    }

    const AsynchronousRun run;
    const std::unique_ptr<CentreExchange> exchange;
    /// The other processes; null in one process.
    const std::unique_ptr<AsynchronousProcesses> others;
    /// The batches of each replica since its last exchange; free order counts those of this process's replicas alone.
    FixedArray<std::int64_t> since;
    /// How often the state was set from outside.
    std::int64_t changes = 0;

private:
    Peers none_;
    std::optional<CommonPeers> common_peers_;
};

}}}  // namespace cupola::CUPOLA_ABI::impl
