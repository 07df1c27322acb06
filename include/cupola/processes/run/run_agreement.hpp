// SPDX-License-Identifier: Apache-2.0
//
// RunAgreement: what the processes of a training agree on between two steps, so that all go on, or all end with the same
// error. Every such exchange begins with a block of one size, in which a process that has failed says so: the others hear of
// it in whichever exchange they are.
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
#include <cupola/processes/agreement/process_gather.hpp>
#include <cupola/processes/processes.hpp>
#include <cupola/processes/run/same_settings.hpp>
#include <cupola/processes/run/sent_error.hpp>

namespace cupola { inline namespace CUPOLA_ABI {

/// For fit(), its callbacks and a TrainingRun; see DataParallel::run_agreement(). The members are called by all processes, in the same order, until one of them throws; after a failed agree() none
/// exchanges anything until restart().
class RunAgreement {
public:
    /// `processes` must outlive the object.
    [[gnu::cold]] explicit RunAgreement(ProcessGroup& processes)
        : processes_(processes), blocks_(processes, sizeof(Block)) {}
    RunAgreement(const RunAgreement&) = delete;
    RunAgreement& operator=(const RunAgreement&) = delete;

    [[nodiscard]] int number() const { return processes_.number(); }
    /// As in Processes.
    [[nodiscard]] int number_at_start(int process) const { return processes_.number_at_start(process); }

    /// The largest of the processes' values. `error` is what has ended the work of this process, or null. If any has one, all
    /// throw: a process its own, the others that of the first process. An exchange by which another process waits ends too.
    int agree(const ExchangeName& name, int value, const std::exception_ptr& error = nullptr) {
        if (ended_ != nullptr) std::rethrow_exception(error != nullptr ? error : ended_);
        return exchange(name, value, error, true);
    }
    /// Runs `work`; if it throws on any process, all throw as agree() does.
    void in_all(const ExchangeName& name, FunctionRef<void()> work) { agree(name, 0, error_of(work)); }
    /// Tells the others that this process leaves the run because of `error`, unless they know.
    [[gnu::cold]] void leave(const ExchangeName& name, const std::exception_ptr& error) noexcept {
        try {
            agree(name, 0, error);
        } catch (...) {  // that of the caller, or a second one
        }
    }
    /// The exchanges begin again, on all processes, after an error that all have thrown.
    void restart() {
        if (!alone_) ended_ = nullptr;
    }

    // See ProcessGroup::is_collective().

    /// Whether the processes agree at the same steps only, and by values that travel with the steps.
    [[nodiscard]] bool is_by_steps() const { return processes_.is_collective(); }
    /// The steps that are queued from now on carry these bits.
    void tell(int bits) { processes_.tell(bits); }
    /// The bits of all processes in the step whose report was read last.
    [[nodiscard]] int told() const { return processes_.told(); }
    // See ProcessGroup.
    void read_together(bool on) { processes_.read_together(on); }
    void compare_rest() { processes_.compare_rest(); }
    /// The values of process 0, on all.
    void take_of_first(const ExchangeName& name, std::span<double> values) {
        require_not_ended();
        impl::ProcessGather gather(processes_, values.size_bytes());
        std::memcpy(gather.mine(), values.data(), values.size_bytes());
        gather.run(name);
        std::memcpy(values.data(), gather.of(0), values.size_bytes());
    }
    /// `error` has ended the work of this process where the others cannot hear of it: from now on there are no exchanges.
    void end_alone(std::exception_ptr error) {
        ended_ = std::move(error);
        alone_ = true;
    }

    // For a callback, which is called on all processes whatever becomes of it: after an error of these the exchanges go on.

    /// The largest of the processes' values.
    int largest(const ExchangeName& name, int value) {
        require_not_ended();
        return exchange(name, value, nullptr, false);
    }
    /// Runs `work`; if it throws on any process, all throw.
    void attempt(const ExchangeName& name, FunctionRef<void()> work) {
        require_not_ended();
        exchange(name, 0, error_of(work), false);
    }
    /// The first process whose settings are not those of process 0, by its number at the start, and the name of the first of these; none if all have the
    /// same.
    [[nodiscard, gnu::cold]] std::optional<std::pair<int, std::string>> first_difference(const ExchangeName& name,
                                                                                         impl::Settings settings) {
        static_cast<void>(largest(name, 0));
        const std::vector<std::string> all = impl::gathered_texts(processes_, name, impl::joined_settings(settings));
        const std::optional<impl::OtherSetting> other = impl::first_other_setting(all);
        if (!other) return {};
        return std::pair(processes_.number_at_start(static_cast<int>(other->process)), std::string(other->name));
    }
    /// Throws InvalidArgument, which names the first difference, unless all processes have the same settings.
    [[gnu::cold]] void require_same(impl::Settings settings, std::int64_t step = -1) {
        static_cast<void>(largest({"the comparison of settings", step}, 0));
        impl::require_same_settings(processes_, settings, step);
    }

private:
    struct Block {
        std::int32_t value = 0, leaves = 0;
        impl::SentError error{};
    };

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

    int exchange(const ExchangeName& name, int value, const std::exception_ptr& error, bool leaves) {
        const Block mine{.value = value, .leaves = error != nullptr && leaves ? 1 : 0, .error = impl::SentError(error)};
        std::memcpy(blocks_.mine(), &mine, sizeof mine);
        blocks_.run(name);
        int largest = value, failed = -1;
        bool left = false;
        impl::SentError first;
        for (int p = 0; p < processes_.count(); ++p) {
            Block block;
            std::memcpy(&block, blocks_.of(p), sizeof block);
            largest = std::max(largest, int{block.value});
            left = left || block.leaves != 0;
            if (block.error.kind == impl::SentError::Kind::none || failed >= 0) continue;
            failed = p;
            first = block.error;
        }
        if (failed < 0) return largest;
        try {
            if (error != nullptr) std::rethrow_exception(error);
            first.throw_of(processes_.number_at_start(failed));
        } catch (...) {
            if (left) ended_ = std::current_exception();
            throw;
        }
    }

    ProcessGroup& processes_;
    impl::ProcessGather blocks_;
    /// What has ended the exchanges; and whether the others do not know.
    std::exception_ptr ended_;
    bool alone_ = false;
};

namespace impl {

[[nodiscard, gnu::cold]] inline std::shared_ptr<RunAgreement> make_run_agreement(ProcessGroup& processes) {
    return std::make_shared<RunAgreement>(processes);
}

}  // namespace impl

}}  // namespace cupola::CUPOLA_ABI
