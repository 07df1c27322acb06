// SPDX-License-Identifier: Apache-2.0
//
// AsynchronousEngine on the thread that uses the training: the construction, the steps and their reports.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <exception>
#include <memory>
#include <mutex>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include <cupola/core/error.hpp>
#include <cupola/core/fixed_array.hpp>
#include <cupola/core/loss_scale.hpp>
#include <cupola/device/host.hpp>
#include <cupola/parallel/agreement/step_agreement.hpp>
#include <cupola/parallel/impl/segments_of.hpp>
#include <cupola/parallel/kinds/centre_exchange.hpp>
#include <cupola/parallel/kinds/impl/asynchronous_engine.hpp>
#include <cupola/parallel/kinds/order.hpp>
#include <cupola/parallel/replicas/replicas.hpp>
#include <cupola/parallel/replicas/sample_counts.hpp>
#include <cupola/parallel/step/replica_passes.hpp>
#include <cupola/parallel/step/step_functions.hpp>
#include <cupola/parallel/step_report.hpp>
#include <cupola/tensor/batch_memory.hpp>

namespace cupola { inline namespace CUPOLA_ABI { namespace impl {

template <class D, class T>
AsynchronousEngine<D, T>::AsynchronousEngine(const StepFunctions<D>& functions, StepAgreement<D, T>& agreement,
                                             Replicas<D, T>& replicas,
                                             std::span<const RegularizedParameter> regularized, std::string_view policy)
    : functions_(functions),
      replicas_(replicas),
      agreement_(static_cast<Agreement&>(agreement)),
      regularized_(regularized),
      policy_(policy),
      counts_(replicas.placement().replicas(), functions.gradient_accumulation_steps,
              replicas.settings().steps_in_flight),
      reports_(replicas, agreement_.peers(), counts_, functions, regularized),
      statistics_(replicas, agreement_.peers(), counts_),
      segments_(segments_of(replicas.network().layers, regularized, functions.groups)),
      workers_(static_cast<std::size_t>(replicas.placement().device_count())),
      slots_(static_cast<std::size_t>(replicas.settings().steps_in_flight)),
      requested_(static_cast<std::size_t>(replicas.placement().replicas())),
      turns_of_(requested_.size()),
      last_exchange_(requested_.size()),
      rows_(replicas.placement().replicas()) {
    for (const RequiredColumn& each : replicas.settings().required) columns_.push_back(each.column);
    for (const Segment& each : segments_) {
        for (std::int64_t begin = 0; begin < each.size; begin += piece_elements)
            pieces_.push_back({.offset = each.offset + begin, .size = std::min(piece_elements, each.size - begin)});
    }
    passed_ = FixedArray<std::int64_t>(pieces_.size());
    open_.counts = FixedArray<unsigned char>(requested_.size());
    open_.weights = FixedArray<double>(requested_.size());
    open_.begun = FixedArray<std::int64_t>(requested_.size());
    for (Slot& each : slots_) {
        each.turns = FixedArray<Turn>(requested_.size());
        each.replicas = FixedArray<int>(requested_.size());
    }
    std::ranges::fill(replicas.gradients().average_span(0), 0.0F);
    std::size_t saved = 0;
    for_each_saved([&](std::span<float> each) { saved += each.size(); });
    saved_.arenas = FixedArray<float>(saved);
    saved_.running = FixedArray<float>(static_cast<std::size_t>(replicas.network().buffer_elements));
    saved_.since = FixedArray<std::int64_t>(requested_.size());
    const std::size_t bytes = batch_bytes(columns_, functions.batch_size);
    for (int device = 0; device < replicas.placement().device_count(); ++device) {
        Worker& own = workers_[static_cast<std::size_t>(device)];
        own.counts = std::make_unique<SampleCounts>(replica_count(), functions.gradient_accumulation_steps, 1);
        own.passes = std::make_unique<Passes>(functions, replicas, agreement_.peers(), *own.counts);
        own.batch = HostArena(bytes, "a batch of an asynchronous replica");
    }
    if (const OrderLog* const kept = agreement_.run.log.get(); kept != nullptr && kept->replicas > 0)
        require_log_of(own_log(), *kept, to_be_continued);
    const OrderLog* const log = replayed();
    if (log == nullptr) return;
    require_log_of(own_log(), *log);
    needs_.resize(static_cast<std::size_t>(log->end_step() - log->first_step));
    std::vector<std::vector<std::int64_t>> batches(requested_.size());
    for (std::size_t n = log->claims.size(); n-- > 0;)
        batches[log->claims[n]].push_back(static_cast<std::int64_t>(n) / log->replicas);
    std::int64_t latest = 0;
    for (const std::uint16_t replica : log->turns) {
        const std::int64_t step = batches[replica].back();
        batches[replica].pop_back();
        latest = std::max(latest, step);
        needs_[static_cast<std::size_t>(step)] = latest;
    }
}

template <class D, class T>
AsynchronousEngine<D, T>::~AsynchronousEngine() = default;

template <class D, class T>
ExchangeArenas AsynchronousEngine<D, T>::arenas_of(int replica) {
    const ReplicaPlacement& placement = replicas_.placement();
    auto& worker = replicas_.at(placement.device_of(replica)).worker;
    const int copy = placement.copy_of(replica);
    float* kept = nullptr;
    if (agreement_.exchange->keeps_values())
        kept =
            worker.state(copy) + static_cast<std::size_t>(replicas_.settings().state_arenas - 1) * replicas_.elements();
    return {.parameters = worker.parameters(copy),
            .row = replicas_.gradients().row(replica),
            .kept = kept,
            .centre = centre()};
}

template <class D, class T>
void AsynchronousEngine<D, T>::queue(BatchSource batches, Probe probe) {
    if (next_ - reported_ == agreement_.run.ahead) static_cast<void>(poll(0));
    const bool is_check = functions_.check_every > 0 && next_ > 0 && next_ % functions_.check_every == 0;
    if (probe || (is_check && saved_.step != next_)) synchronize();
    const std::int64_t step = next_;
    functions_.require_learning_rate_at(step);
    require_log(step);
    if (probe) {
        require_reachable(step, step + 1);
        shown_ = nullptr;
        if (const OrderLog* const log = replayed()) {
            const int first = log->claims[static_cast<std::size_t>((step - log->first_step) * replica_count())];
            require(first == 0, "step ", step, " cannot be inspected: in the order log its batch 0 is replica ", first,
                    "'s, and an inspector sees replica 0");
        }
    }
    if (saved_.changes != agreement_.changes) save();
    {
        const std::scoped_lock lock(mutex_);
        counts_.clear(step);
        Slot& slot = slot_of(step);
        slot.batches = batches;
        slot.complete = slot.requests = 0;
        if (probe) {
            error_of_probe_ = nullptr;
            probe_ = probe;
            reserved_ = step * replica_count();
            next_claim_ = reserved_ + 1;
        }
        claims_log_.resize(claims_log_.size() + requested_.size());
        const auto from = claims_log_.end() - replica_count();
        if (const OrderLog* const log = replayed()) {
            const std::int64_t first = (step - log->first_step) * replica_count();
            std::copy_n(log->claims.begin() + first, replica_count(), from);
            for (int k = 0; k < replica_count(); ++k) {
                const std::uint16_t replica = log->turns[static_cast<std::size_t>(first + k)];
                turns_of_[replica].push_back(draw(replica));
            }
        } else if (is_ordered()) {
            for (int k = 0; k < replica_count(); ++k) {
                from[k] = static_cast<std::uint16_t>(k);
                turns_of_[static_cast<std::size_t>(k)].push_back(draw(k));
            }
        }
        queued_ = step + 1;
    }
    ++next_;
    if (is_running_)
        for_workers_.notify_all();
    else
        begin_job();
    if (!probe) return;
    synchronize();
    probe_ = {};
    if (error_of_probe_) std::rethrow_exception(std::exchange(error_of_probe_, nullptr));
    require(std::exchange(shown_, nullptr) != nullptr, "replica 0 was late in step ", step,
            ", so its inspector was not called; the step is done");
}

template <class D, class T>
void AsynchronousEngine<D, T>::begin_job() {
    is_running_ = true;
    centre_moved_ = true;
    replicas_.threads().post(job_);
}

template <class D, class T>
void AsynchronousEngine<D, T>::end_job() {
    if (!is_running_) return;
    {
        const std::scoped_lock lock(mutex_);
        is_ending_ = true;
    }
    for_workers_.notify_all();
    is_running_ = false;
    replicas_.threads().wait();
    is_ending_ = false;
}

template <class D, class T>
void AsynchronousEngine<D, T>::wait_for(std::int64_t step) {
    end_unless_reachable(step, step + 1);
    std::unique_lock lock(mutex_);
    const Slot& slot = slot_of(step);
    for_reader_.wait(lock, [&] { return is_stopped_ || (slot.complete == replica_count() && slot.requests == 0); });
    const bool is_stopped = is_stopped_;
    lock.unlock();
    if (is_stopped) roll_back();
}

template <class D, class T>
void AsynchronousEngine<D, T>::make_report() {
    const std::int64_t step = made_;
    wait_for(step);
    static_cast<void>(reports_.read(step));
    reports_.finish(step, functions_.learning_rate_at(step), loss_scale_, loss_scale_);
    const Slot& slot = slot_of(step);
    for (int k = 0; k < replica_count(); ++k) {
        ReplicaReport& report = reports_.replica_of(step, k);
        report.replica = slot.replicas[static_cast<std::size_t>(k)];
        report.staleness = slot.turns[static_cast<std::size_t>(k)].staleness;
    }
    statistics_.update(step, functions_, !is_running_);
    ++made_;
}

template <class D, class T>
const StepReport* AsynchronousEngine<D, T>::poll(std::int64_t max_in_flight) {
    if (reported_ + max_in_flight >= next_) return nullptr;
    while (made_ <= reported_) make_report();
    return &reports_.of(reported_++);
}

template <class D, class T>
const StepReport& AsynchronousEngine<D, T>::last_report() {
    synchronize();
    reported_ = next_;
    return reports_.of(next_ - 1);
}

template <class D, class T>
void AsynchronousEngine<D, T>::synchronize() {
    end_unless_reachable(made_, next_);
    end_job();
    if (is_stopped_) roll_back();
    while (made_ < next_) make_report();
    share_centre();
    write_log();
    check();
}

template <class D, class T>
void AsynchronousEngine<D, T>::drain() {
    {
        const std::scoped_lock lock(mutex_);
        is_stopped_ = true;
    }
    end_job();
    is_stopped_ = false;
    failure_.reset();
}

template <class D, class T>
void AsynchronousEngine<D, T>::restart(std::int64_t step, std::span<const float> running,
                                       const LossScaleState& loss_scale) {
    next_ = step;
    loss_scale_ = loss_scale;
    statistics_.restart(running);
    saved_.step = saved_.changes = -1;
    forget();
}

template <class D, class T>
void AsynchronousEngine<D, T>::forget() {
    made_ = reported_ = queued_ = log_from_ = first_step_ = next_;
    next_claim_ = turns_ = next_ * replica_count();
    tickets_ = exchanges_ = 0;
    reserved_ = -1;
    probe_ = {};
    is_stopped_ = false;
    failure_.reset();
    claims_log_.clear();
    turns_log_.clear();
    std::ranges::fill(requested_, next_ * functions_.gradient_accumulation_steps);
    std::ranges::fill(passed_, 0);
    std::ranges::fill(last_exchange_, -1);
    open_.step = next_;
    open_.count = 0;
    std::ranges::fill(open_.counts, 0);
    std::ranges::fill(open_.begun, next_ - 1);
    for (std::deque<Turn>& each : turns_of_) each.clear();
    for (Worker& each : workers_) each.begun = 0;
    const std::int64_t steps = replicas_.settings().landed_steps;
    for (State& state : replicas_.devices()) {
        for (std::int64_t s = 0; s <= steps; ++s) {
            std::byte* const block = s == steps ? state.queue->status() : state.queue->landed(s);
            StepStatus* const status = step_status(block);
            status->healthy = 1;
            status->failed = 0;
            status->divisor = static_cast<float>(replicas_.settings().constant_loss_scale());
            status->loss_scale = loss_scale_;
            for (int r = 0; r < replica_count(); ++r) *state.layout.not_finite(block, r) = 0;
        }
    }
}

}}}  // namespace cupola::CUPOLA_ABI::impl
