// SPDX-License-Identifier: Apache-2.0
//
// Definitions of cupola/processes/run/policy.hpp.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <exception>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <cupola/core/error.hpp>
#include <cupola/core/function_ref.hpp>
#include <cupola/parallel/run_policy.hpp>
#include <cupola/processes/agreement/process_gather.hpp>
#include <cupola/processes/processes.hpp>
#include <cupola/processes/run/policy.hpp>
#include <cupola/processes/run/same_settings.hpp>
#include <cupola/processes/run/sent_error.hpp>

namespace cupola { inline namespace CUPOLA_ABI { namespace impl {

class ProcessRunPolicy final : public RunPolicy {
public:
    /// `processes` must outlive the object.
    [[gnu::cold]] explicit ProcessRunPolicy(ProcessGroup& processes)
        : processes_(processes), blocks_(processes, sizeof(Block)) {}

    [[nodiscard]] ProcessNumber process() const override { return {processes_.count(), processes_.number()}; }
    [[nodiscard]] int number_at_start(int process) const override { return processes_.number_at_start(process); }
    /// "processes 0, 2 were killed, of 4: 2 processes go on from step 8".
    [[nodiscard, gnu::cold]] std::string notice(std::int64_t step) const override {
        if (!processes_.are_survivors()) return {};
        const std::span<const int> lost = processes_.lost();
        const int left = processes_.count();
        std::string numbers;
        for (const int process : lost) numbers += text(numbers.empty() ? "" : ", ", process);
        return text(lost.size() == 1 ? "process " : "processes ", numbers, lost.size() == 1 ? " was" : " were",
                    " killed, of ", left + static_cast<int>(lost.size()), ": ", left,
                    left == 1 ? " process goes" : " processes go", " on from step ", step);
    }

    void restart() override {
        if (!ended_alone_) ended_ = nullptr;
    }
    void in_all(const ExchangeName& name, FunctionRef<void()> work) override {
        const std::exception_ptr error = error_of(work);
        try {
            agree_on(name, 0, error);
        } catch (...) {
            is_common_error_ = ended_ != nullptr;
            throw;
        }
    }
    [[gnu::cold]] void require_same(std::int64_t step, FunctionRef<RunSettings()> settings) override {
        try {
            RunSettings mine;
            const std::exception_ptr error = error_of([&] { mine = settings(); });
            agree_on({"the comparison of settings", step}, 0, error);
            require_same_settings(processes_, mine, step);
        } catch (...) {
            is_common_error_ = true;
            throw;
        }
    }
    void take_of_first(const ExchangeName& name, FunctionRef<void()> work,
                       FunctionRef<void(FunctionRef<void(double&)>)> values) override {
        if (!is_collective()) return work();
        in_all(name, work);
        std::vector<double> all;
        values([&](double& each) { all.push_back(each); });
        const std::size_t bytes = all.size() * sizeof(double);
        ProcessGather gather(processes_, bytes);
        std::memcpy(gather.mine(), all.data(), bytes);
        gather.run(name);
        std::memcpy(all.data(), gather.of(0), bytes);
        std::size_t next = 0;
        values([&](double& each) { each = all[next++]; });
    }
    [[gnu::cold]] void leave(const ExchangeName& name, const std::exception_ptr& error) noexcept override {
        processes_.set_step_flags(0);
        if (is_collective() && !is_common_error_) {
            // The others are in a step and cannot receive the error. From now on there are no exchanges.
            ended_ = error;
            ended_alone_ = true;
            return;
        }
        try {
            agree_on(name, 0, error);
        } catch (...) {  // the caller's error, or a second one
        }
    }

    void begin_steps(std::int64_t first, std::int64_t in_flight) override {
        if (!is_collective()) return;
        first_step_ = first;
        waits_.assign(static_cast<std::size_t>(in_flight), false);
        sent_end_ = agreed_end_ = is_common_error_ = false;
        processes_.set_step_flags(0);
    }
    void before_step(bool ends, FunctionRef<bool()> waits_later) override {
        if (is_collective()) processes_.set_step_flags((ends ? flag_end : 0) | (waits_later() ? flag_wait : 0));
    }
    [[nodiscard]] std::exception_ptr queue(FunctionRef<std::int64_t()> step, FunctionRef<void()> work) override {
        if (!is_collective()) return RunPolicy::queue(step, work);
        const std::int64_t before = step();
        try {
            in_step(step, work);
        } catch (...) {
            if (step() <= before) throw;
            return std::current_exception();
        }
        return nullptr;
    }
    void read(FunctionRef<std::int64_t()> step, FunctionRef<void()> work) override {
        if (is_collective()) {
            in_step(step, work);
        } else {
            work();
        }
    }
    void report(std::int64_t reported, FunctionRef<std::int64_t()> step,
                FunctionRef<std::exception_ptr()> callbacks) override {
        if (is_collective() && reported >= first_step_) {
            const int sent = processes_.step_flags_of_all();
            sent_end_ = sent_end_ || (sent & flag_end) != 0;
            waits_[slot_of(reported)] = (sent & flag_wait) != 0;
        }
        const std::int64_t before = step();
        const std::exception_ptr error = callbacks();
        // A callback has waited for a step that was rolled back; the others do not know that yet.
        if (is_collective() && step() < before && error != nullptr) std::rethrow_exception(error);
    }
    [[nodiscard]] bool waits_after(std::int64_t step, FunctionRef<bool()> mine) const override {
        if (!is_collective()) return mine();
        return step < first_step_ + static_cast<std::int64_t>(waits_.size()) || waits_[slot_of(step)];
    }
    [[nodiscard]] bool ends(bool mine) const override { return is_collective() ? agreed_end_ || sent_end_ : mine; }
    RunEnd agree(Point point, std::int64_t step, RunEnd mine, std::exception_ptr& error) override {
        const bool agrees = is_collective() ? point != Point::step : point != Point::begin && point != Point::end;
        if (!agrees) return mine;
        constexpr int goes_on = 0, stops = 1, interrupted = 2;
        RunEnd result = mine;
        try {
            if (point == Point::end) {
                processes_.set_step_flags(0);
                const std::exception_ptr difference = error_of([&] { processes_.compare_remaining(); });
                if (error == nullptr) error = difference;
            }
            const int all = agree_on({"the end of the run", step},
                                     mine.interrupted ? interrupted
                                     : mine.stop      ? stops
                                                      : goes_on,
                                     error);
            result = {.stop = all != goes_on, .interrupted = all == interrupted};
        } catch (...) {
            if (error == nullptr) error = std::current_exception();
        }
        agreed_end_ = result.stop || error != nullptr;
        is_common_error_ = error != nullptr;
        return result;
    }

    int largest(const ExchangeName& name, int value) override {
        require_not_ended();
        return exchange(name, value, nullptr, false);
    }
    void attempt(const ExchangeName& name, FunctionRef<void()> work) override {
        require_not_ended();
        exchange(name, 0, error_of(work), false);
    }
    [[nodiscard, gnu::cold]] std::optional<std::pair<int, std::string>> first_difference(
        const ExchangeName& name, FunctionRef<RunSettings()> settings) override {
        static_cast<void>(largest(name, 0));
        const std::vector<std::string> all = gathered_texts(processes_, name, joined_settings(settings()));
        const std::optional<SettingDifference> other = first_setting_difference(all);
        if (!other) return {};
        return std::pair(processes_.number_at_start(static_cast<int>(other->process)), std::string(other->name));
    }

private:
    struct Block {
        std::int32_t value = 0, ends = 0;
        SentError error{};
    };
    static constexpr int flag_end = 1, flag_wait = 2;

    [[nodiscard]] bool is_collective() const { return processes_.is_collective(); }
    [[nodiscard]] std::size_t slot_of(std::int64_t step) const {
        return static_cast<std::size_t>(step) % waits_.size();
    }
    [[nodiscard]] static std::exception_ptr error_of(FunctionRef<void()> work) {
        try {
            work();
        } catch (...) {
            return std::current_exception();
        }
        return nullptr;
    }
    void require_not_ended() const {
        if (ended_ != nullptr) std::rethrow_exception(ended_);
    }

    /// Calls `work`, which queues a step or reads its report. In a collective, the error of a step that was rolled back
    /// is common to all processes.
    void in_step(FunctionRef<std::int64_t()> step, FunctionRef<void()> work) {
        const std::int64_t before = step();
        processes_.read_together(true);
        try {
            work();
        } catch (const DivergedError&) {
            leave_step(true);
            throw;
        } catch (const ReplicasDiffer&) {
            leave_step(true);
            throw;
        } catch (...) {
            leave_step(step() < before);
            throw;
        }
        processes_.read_together(false);
    }
    void leave_step(bool is_common_error) {
        processes_.read_together(false);
        is_common_error_ = is_common_error;
    }

    /// Returns the maximum of the processes' values. `error` is the error that ended the work of this process, or null.
    /// If any process has one, all throw: a process its own error, the others that of the first process with one. An
    /// exchange in which another process waits ends too.
    int agree_on(const ExchangeName& name, int value, const std::exception_ptr& error) {
        if (ended_ != nullptr) std::rethrow_exception(error != nullptr ? error : ended_);
        return exchange(name, value, error, true);
    }
    int exchange(const ExchangeName& name, int value, const std::exception_ptr& error, bool ends) {
        const Block mine{.value = value, .ends = error != nullptr && ends ? 1 : 0, .error = SentError(error)};
        std::memcpy(blocks_.mine(), &mine, sizeof mine);
        blocks_.run(name);
        int largest = value, failed = -1;
        bool any_ends = false;
        SentError first;
        for (int p = 0; p < processes_.count(); ++p) {
            Block block;
            std::memcpy(&block, blocks_.of(p), sizeof block);
            largest = std::max(largest, int{block.value});
            any_ends = any_ends || block.ends != 0;
            if (block.error.kind == SentError::Kind::none || failed >= 0) continue;
            failed = p;
            first = block.error;
        }
        if (failed < 0) return largest;
        try {
            if (error != nullptr) std::rethrow_exception(error);
            first.throw_from(processes_.number_at_start(failed));
        } catch (...) {
            if (any_ends) ended_ = std::current_exception();
            throw;
        }
    }

    ProcessGroup& processes_;
    ProcessGather blocks_;
    /// The error that has ended the exchanges; and whether the other processes have not received it.
    std::exception_ptr ended_;
    bool ended_alone_ = false;

    // The following members are used for a collective only.
    std::int64_t first_step_ = 0;
    /// Per slot of a step: whether its report must be waited for; set with the report of the previous step in that
    /// slot.
    std::vector<bool> waits_;
    /// Whether any process has requested the end of the run with a step; all processes read that with the same report.
    bool sent_end_ = false;
    /// Whether the processes have agreed to end; and whether all of them have the error that ended the steps.
    bool agreed_end_ = false, is_common_error_ = false;
};

CUPOLA_DECL std::unique_ptr<RunPolicy> make_run_policy(ProcessGroup& processes) {
    return std::make_unique<ProcessRunPolicy>(processes);
}

}}}  // namespace cupola::CUPOLA_ABI::impl
