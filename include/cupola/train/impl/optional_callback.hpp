// SPDX-License-Identifier: Apache-2.0
//
// A callback of `fit` that may be absent, so that runs with and without a folder use one instantiation of the training
// loop.
#pragma once

#include <cstdint>
#include <optional>
#include <utility>

#include <cupola/train/fit.hpp>

namespace cupola { inline namespace CUPOLA_ABI { namespace impl {

template <Callback C>
class OptionalCallback {
public:
    template <class... Arguments>
    C& emplace(Arguments&&... arguments) {
        return callback_.emplace(std::forward<Arguments>(arguments)...);
    }
    [[nodiscard]] C* get() { return callback_ ? &*callback_ : nullptr; }
    void reset() { callback_.reset(); }

    void on_begin(Run& run)
        requires HasOnBegin<C>
    {
        if (callback_) callback_->on_begin(run);
    }
    void on_step(const StepReport& report, Run& run)
        requires HasOnStep<C>
    {
        if (callback_) callback_->on_step(report, run);
    }
    void on_record(const HistoryRecord& record, Run& run)
        requires HasOnRecord<C>
    {
        if (callback_) callback_->on_record(record, run);
    }
    void on_end(Run& run)
        requires HasOnEnd<C>
    {
        if (callback_) callback_->on_end(run);
    }
    [[nodiscard]] bool should_inspect(std::int64_t step)
        requires HasShouldInspect<C>
    {
        return callback_ && callback_->should_inspect(step);
    }
    template <class Inspection>
    void inspect(const Inspection& inspection)
        requires HasShouldInspect<C>
    {
        callback_->inspect(inspection);
    }
    [[nodiscard]] bool synchronize_after(std::int64_t step)
        requires HasSynchronizeAfter<C>
    {
        return callback_ && callback_->synchronize_after(step);
    }

private:
    std::optional<C> callback_;
};

}}}  // namespace cupola::CUPOLA_ABI::impl
