// SPDX-License-Identifier: Apache-2.0
//
// AsynchronousEngine between its jobs: the state to which a failure returns, and the order log.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <span>
#include <string>
#include <utility>

#include <cupola/core/error.hpp>
#include <cupola/core/fixed_array.hpp>
#include <cupola/net/finite.hpp>
#include <cupola/optim/moving_average.hpp>
#include <cupola/parallel/kinds/impl/asynchronous_engine.hpp>
#include <cupola/parallel/kinds/order.hpp>
#include <cupola/parallel/step/check.hpp>

namespace cupola { inline namespace CUPOLA_ABI { namespace impl {

template <class D, class T>
template <class Copy>
void AsynchronousEngine<D, T>::for_each_saved(Copy&& copy) {
    const ReplicaPlacement& placement = replicas_.placement();
    const std::size_t state = static_cast<std::size_t>(replicas_.settings().state_arenas) * replicas_.elements();
    for (int r = first_here(); r < end_here(); ++r) {
        copy(std::span(replicas_.parameters(r), replicas_.all_elements()));
        copy(std::span(replicas_.at(placement.device_of(r)).worker.state(placement.copy_of(r)), state));
    }
    copy(std::span(own_centre(), replicas_.all_elements()));
    copy(std::span(replicas_.at(0).worker.centre_state(),
                   static_cast<std::size_t>(replicas_.settings().centre_states) * replicas_.elements()));
    if (functions_.moving_average.on()) copy(std::span(own_averages(), replicas_.elements()));
}

template <class D, class T>
void AsynchronousEngine<D, T>::save() {
    float* to = saved_.arenas.data();
    for_each_saved([&](std::span<float> each) { to = std::copy(each.begin(), each.end(), to); });
    std::ranges::copy(statistics_.values(), saved_.running.begin());
    std::ranges::copy(agreement_.since, saved_.since.begin());
    saved_.step = next_;
    saved_.changes = agreement_.changes;
}

template <class D, class T>
void AsynchronousEngine<D, T>::check() {
    if (functions_.check_every == 0 || next_ == 0 || next_ % functions_.check_every != 0 || saved_.step == next_)
        return;
    const auto require_finite = [&](float* values, const std::string& of) {
        const std::span<const float> all(values, replicas_.all_elements());
        if (all_finite(all)) return;
        const std::string found = non_finite_parameter(replicas_.network().layers, all);
        if (!found.empty())
            throw DivergedError(text("after step ", next_ - 1, " parameter ", found, of,
                                     ": training diverged in this step or one since the last check; the training has "
                                     "the state of step ",
                                     saved_.step, ", the last that was checked"),
                                next_ - 1, -1);
    };
    try {
        for (int r = first_here(); r < end_here(); ++r)
            require_finite(replicas_.parameters(r), text(" of replica ", r));
        require_finite(own_centre(), " of the centre");
        const std::string found = all_finite(statistics_.values())
                                      ? std::string()
                                      : invalid_buffer(replicas_.network().layers, statistics_.values());
        if (!found.empty()) throw_update_diverged(next_ - 1, text("running statistic ", found));
    } catch (const DivergedError&) {
        fail(std::current_exception());
        roll_back();
    }
    in_all_processes([&] {
        if (common_ && !common_->meet_to_check(next_)) roll_back();
    });
    save();
}

template <class D, class T>
void AsynchronousEngine<D, T>::roll_back() {
    stop();
    end_job();
    const std::exception_ptr of_all = common_ ? common_->give_up() : nullptr;
    const std::exception_ptr error = failure_ != nullptr ? failure_ : of_all;
    const float* from = saved_.arenas.data();
    for_each_saved([&](std::span<float> each) {
        std::copy_n(from, each.size(), each.begin());
        from += each.size();
    });
    std::ranges::copy(saved_.since, agreement_.since.begin());
    statistics_.restart(saved_.running);
    const FixedArray<float> zeros(replicas_.elements());
    replicas_.threads().run([&](int device) {
        auto& worker = replicas_.at(device).worker;
        worker.set(worker.buffers(), saved_.running);
        worker.plans().parameters_changed();
    });
    for (int r = first_here(); r < end_here(); ++r) std::copy(zeros.begin(), zeros.end(), replicas_.gradients().row(r));
    next_ = saved_.step;
    forget();
    centre_moved_ = true;
    share_centre();
    std::rethrow_exception(error);
}

template <class D, class T>
void AsynchronousEngine<D, T>::take_common_centre() {
    if (!common_ || !centre_moved_) return;
    std::copy_n(centre(), replicas_.all_elements(), own_centre());
    if (functions_.moving_average.on()) std::copy_n(averages(), replicas_.elements(), own_averages());
}

template <class D, class T>
void AsynchronousEngine<D, T>::share_centre() {
    if (!std::exchange(centre_moved_, false)) return;
    for (int device = 0; device < replicas_.placement().device_count(); ++device) {
        auto& worker = replicas_.at(device).worker;
        worker.plans().parameters_changed();
        if (device == 0) continue;
        std::copy_n(own_centre(), replicas_.all_elements(), worker.centre());
        std::copy_n(replicas_.at(0).worker.centre_state(),
                    static_cast<std::size_t>(replicas_.settings().centre_states) * replicas_.elements(),
                    worker.centre_state());
        if (functions_.moving_average.on()) std::copy_n(own_averages(), replicas_.elements(), worker.averages());
    }
}

template <class D, class T>
void AsynchronousEngine<D, T>::require_replayable(const OrderLog& log) const {
    require_log_of(own_log(), log);
    const ReplicaPlacement& placement = replicas_.placement();
    for (std::size_t n = 0; n < log.claims.size(); ++n) {
        const auto number = static_cast<int>(n % static_cast<std::size_t>(log.replicas));
        const int replica = log.claims[n], process = placement.process_of(replica);
        require(placement.process_of(number) == process, "in the order log replica ", replica, " computes batch ",
                number, " of step ", log.first_step + static_cast<std::int64_t>(n) / log.replicas,
                ", which is prepared in process ", placement.process_of(number), " of ", placement.process_count(),
                ", and the replica is in process ", process, ": replay it in one process");
    }
}

template <class D, class T>
void AsynchronousEngine<D, T>::require_log(std::int64_t step) const {
    if (const OrderLog* const log = replayed()) {
        require_fitting(*log, step >= log->first_step && step < log->end_step(), " has the steps ", log->first_step,
                        " to ", log->end_step() - 1, ", and not step ", step);
        // Later ones are those before which the training has waited.
        if (step == first_step_) require_complete(*log, step);
    }
    const OrderLog* const log = agreement_.run.log.get();
    if (log == nullptr || log->replicas == 0 || step != log_from_) return;
    require_log_of(own_log(), *log, to_be_continued);
    require_fitting(*log, step >= log->first_step && step <= log->end_step(), to_be_continued, " has the steps ",
                    log->first_step, " to ", log->end_step() - 1, ", and the training continues at step ", step);
    if (step != first_step_) return;
    require_valid(*log);
    require_complete(*log, step);
}

template <class D, class T>
void AsynchronousEngine<D, T>::require_reachable(std::int64_t step, std::int64_t end) const {
    const OrderLog* const log = replayed();
    if (log == nullptr) return;
    const std::int64_t needed = log->first_step + needs_[static_cast<std::size_t>(step - log->first_step)];
    require(needed < end, "the order log has batches of step ", needed, " before the last of step ", step,
            ": a replay has as many steps in flight as the run that was recorded, and evaluates and saves where that "
            "did");
}

template <class D, class T>
void AsynchronousEngine<D, T>::end_unless_reachable(std::int64_t step, std::int64_t end) {
    try {
        for (; step < end; ++step) require_reachable(step, next_);
    } catch (const InvalidArgument&) {
        fail(std::current_exception());
        roll_back();
    }
}

template <class D, class T>
void AsynchronousEngine<D, T>::write_log() {
    if (log_from_ == next_) return;
    if (OrderLog* const log = agreement_.run.log.get()) {
        if (log->replicas == 0) *log = own_log();
        const auto kept = static_cast<std::size_t>((log_from_ - log->first_step) * replica_count());
        log->claims.resize(kept);
        log->turns.resize(kept);
        turns_log_.resize(claims_log_.size());
        log->claims.insert(log->claims.end(), claims_log_.begin(), claims_log_.end());
        log->turns.insert(log->turns.end(), turns_log_.begin(), turns_log_.end());
    }
    claims_log_.clear();
    turns_log_.clear();
    log_from_ = next_;
}

}}}  // namespace cupola::CUPOLA_ABI::impl
