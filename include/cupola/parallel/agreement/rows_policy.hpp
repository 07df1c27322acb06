// SPDX-License-Identifier: Apache-2.0
//
// RowsPolicy: an averaging policy without its type. Its members are called once per step and device, prepare() once per
// row.
#pragma once

#include <memory>
#include <span>

#include <cupola/parallel/averaging.hpp>

namespace cupola { inline namespace CUPOLA_ABI { namespace impl {

template <class Kernels>
class RowsPolicy {
public:
    using Context = typename Kernels::Context;

    RowsPolicy(const RowsPolicy&) = delete;
    RowsPolicy& operator=(const RowsPolicy&) = delete;
    virtual ~RowsPolicy() = default;
    /// Whether prepare() changes a row.
    const bool prepares;
    virtual void prepare(Context& context, std::span<float> row) const = 0;
    virtual void average(Context& context, const GradientRows& gradients, std::span<float> mean) const = 0;

protected:
    explicit RowsPolicy(bool prepares_rows) : prepares(prepares_rows) {}
};

template <class A, class Kernels>
class RowsPolicyOf final : public RowsPolicy<Kernels> {
    using typename RowsPolicy<Kernels>::Context;

public:
    explicit RowsPolicyOf(const A& policy) : RowsPolicy<Kernels>(PreparesRows<A, Kernels>), policy_(policy) {}
    void prepare([[maybe_unused]] Context& context, [[maybe_unused]] std::span<float> row) const override {
        if constexpr (PreparesRows<A, Kernels>) policy_.prepare(context, row);
    }
    void average(Context& context, const GradientRows& gradients, std::span<float> mean) const override {
        policy_.average(context, gradients, mean);
    }

private:
    A policy_;
};

/// A copy of a policy.
template <class Kernels, class A>
[[nodiscard, gnu::cold]] std::unique_ptr<const RowsPolicy<Kernels>> rows_policy(const A& policy) {
    return std::make_unique<RowsPolicyOf<A, Kernels>>(policy);
}

}}}  // namespace cupola::CUPOLA_ABI::impl
