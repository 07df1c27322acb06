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
#include <cupola/core/function_ref.hpp>
#include <cupola/core/loss_scale.hpp>
#include <cupola/device/host.hpp>
#include <cupola/optim/segments_of.hpp>
#include <cupola/parallel/agreement/step_agreement.hpp>
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
    // A process that has a log of its own to continue refuses it in the first step, of which it tells the others.
    if (const OrderLog* const kept = agreement_.run.log.get();
        agreement_.others == nullptr && kept != nullptr && kept->replicas > 0)
        require_log_of(own_log(), *kept, to_be_continued);
    const OrderLog* const log = replayed();
    if (log != nullptr) require_replayable(*log);
    if (agreement_.others != nullptr) {
        common_ = std::make_unique<CommonCentre>(
            *agreement_.others, replicas.placement(),
            CommonCentre::Sizes{.elements = replicas.network().trained_elements,
                                .all_elements = replicas.network().parameter_elements,
                                .averages = functions.moving_average.on(),
                                .pieces = pieces_.size(),
                                .steps = replicas.settings().steps_in_flight,
                                .parts = functions.gradient_accumulation_steps,
                                .losses = replicas.settings().losses,
                                .regularized = regularized.size(),
                                .buffers = static_cast<std::size_t>(replicas.network().buffer_elements)});
        agreement_.bind_common(*common_);
        if (replicas.placement().process_number() == 0) replicas.report_shared_memory(common_->bytes());
    }
    if (log == nullptr) return;
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
    in_all_processes([&] {
        queue_step(batches, probe);
        if (probe) wait_for_probe();
    });
    if (!probe) return;
    if (error_of_probe_) std::rethrow_exception(std::exchange(error_of_probe_, nullptr));
    require(std::exchange(shown_, nullptr) != nullptr, "replica 0 was late in step ", step() - 1,
            ", so its inspector was not called; the step is done");
}

template <class D, class T>
template <class Do>
void AsynchronousEngine<D, T>::in_all_processes(Do&& what) {
    const std::int64_t given_up = common_ ? common_->given_up() : 0;
    try {
        what();
    } catch (...) {
        // The others wait for this process, so an error of its own ends that for all.
        if (common_ && common_->given_up() == given_up) {
            fail(std::current_exception());
            roll_back();
        }
        throw;
    }
}

template <class D, class T>
void AsynchronousEngine<D, T>::wait_for_probe() {
    if (!common_) {
        synchronize();
        probe_ = {};
        return;
    }
    // Other processes may have no inspector, so this one alone waits.
    std::unique_lock lock(mutex_);
    for_reader_.wait(lock, [&] { return is_stopped_ || probed_step_ < 0; });
    if (!is_stopped_) {
        probe_ = {};
        return;
    }
    // A device may still be on its way to the probe, until the job has ended.
    lock.unlock();
    roll_back();
}

template <class D, class T>
void AsynchronousEngine<D, T>::queue_step(BatchSource batches, Probe probe) {
    // The state that the training was started or restored with.
    if (saved_.step < 0) save();
    if (common_ && common_->has_failed()) roll_back();
    if (next_ - reported_ == agreement_.run.ahead) static_cast<void>(poll(0));
    const bool is_check = functions_.check_every > 0 && next_ > 0 && next_ % functions_.check_every == 0;
    if ((probe && !common_) || (is_check && saved_.step != next_)) synchronize();
    const std::int64_t step = next_;
    functions_.require_learning_rate_at(step);
    require_log(step);
    if (probe) {
        require_reachable(step, step + 1);
        shown_ = nullptr;
        if (const OrderLog* const log = replayed()) {
            const int seen = first_here();
            const int first = log->claims[static_cast<std::size_t>((step - log->first_step) * replica_count() + seen)];
            require(first == seen, "step ", step, " cannot be inspected: in the order log its batch ", seen,
                    " is replica ", first, "'s, and an inspector sees replica ", seen);
        }
    }
    if (saved_.changes != agreement_.changes) save();
    if (common_ && is_running_ && !common_->wait_for_place(step)) roll_back();
    {
        const std::scoped_lock lock(mutex_);
        counts_.clear(step);
        Slot& slot = slot_of(step);
        slot.batches = batches;
        slot.complete = slot.requests = 0;
        const OrderLog* const log = replayed();
        const std::int64_t first = log == nullptr ? 0 : (step - log->first_step) * replica_count();
        for (int k = 0; is_ordered() && k < replica_count(); ++k) {
            const int replica = log == nullptr ? k : log->turns[static_cast<std::size_t>(first + k)];
            // Each process draws the turns of all.
            const Turn turn = draw(replica, turns_);
            if (replicas_.placement().is_here(replica)) turns_of_[static_cast<std::size_t>(replica)].push_back(turn);
        }
        if (probe) {
            error_of_probe_ = nullptr;
            probe_ = probe;
            probed_step_ = step;
            if (!is_ordered()) reserved_ = step * replica_count() + first_here();
        }
        queued_ = step + 1;
    }
    ++next_;
    if (is_running_)
        for_workers_.notify_all();
    else
        begin_job();
}

template <class D, class T>
void AsynchronousEngine<D, T>::begin_job() {
    if (common_) {
        const auto fill = [&] {
            if (is_forgotten_) common_->clear(first_step_, first_step_ * replica_count());
            std::copy_n(own_centre(), replicas_.all_elements(), centre());
            if (functions_.moving_average.on()) std::copy_n(own_averages(), replicas_.elements(), averages());
        };
        if (!common_->begin(queued_ - 1, fill)) roll_back();
        is_forgotten_ = false;
    }
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
    in_all_processes([&] {
        if (common_ && !common_->wait_for_step(step)) roll_back();
    });
    std::unique_lock lock(mutex_);
    const Slot& slot = slot_of(step);
    for_reader_.wait(lock, [&] { return is_stopped_ || (slot.complete == replicas_here() && slot.requests == 0); });
    const bool is_stopped = is_stopped_;
    lock.unlock();
    if (is_stopped) roll_back();
}

template <class D, class T>
void AsynchronousEngine<D, T>::make_report() {
    const std::int64_t step = made_;
    wait_for(step);
    if (common_) take_results(step);
    static_cast<void>(reports_.read(step));
    reports_.finish(step, functions_.learning_rate_at(step), loss_scale_, loss_scale_);
    const Slot& slot = slot_of(step);
    for (int k = 0; k < replica_count(); ++k) {
        ReplicaReport& report = reports_.replica_of(step, k);
        report.replica = slot.replicas[static_cast<std::size_t>(k)];
        report.staleness = slot.turns[static_cast<std::size_t>(k)].staleness;
    }
    statistics_.update(step, functions_, !is_running_);
    log_order(step);
    ++made_;
    if (common_) common_->set_reported(step);
}

template <class D, class T>
void AsynchronousEngine<D, T>::take_results(std::int64_t step) {
    Slot& slot = slot_of(step);
    for (int k = 0; k < replica_count(); ++k) {
        const CommonCentre::Completed batch = common_->completed(step, k);
        slot.replicas[static_cast<std::size_t>(k)] = static_cast<int>(batch.replica);
        slot.turns[static_cast<std::size_t>(k)] = {.number = batch.turn, .staleness = batch.staleness};
        for (int part = 0; part < functions_.gradient_accumulation_steps; ++part)
            counts_.of(step, part, k) = common_->samples(step, k, part);
    }
    for (State& state : replicas_.devices())
        std::copy_n(common_->regularization(step), regularized_.size(),
                    StatusLayout::regularization(state.queue->landed(step)));
}

template <class D, class T>
void AsynchronousEngine<D, T>::log_order(std::int64_t step) {
    if (agreement_.run.log == nullptr) return;
    const Slot& slot = slot_of(step);
    claims_log_.resize(static_cast<std::size_t>((next_ - log_from_) * replica_count()));
    // Turns of steps that another process has queued, and this one has not, may come before the last of this step.
    const auto turns = static_cast<std::size_t>((step - log_from_ + agreement_.run.ahead) * replica_count());
    turns_log_.resize(std::max(turns_log_.size(), turns));
    for (int k = 0; k < replica_count(); ++k) {
        const auto replica = static_cast<std::uint16_t>(slot.replicas[static_cast<std::size_t>(k)]);
        claims_log_[static_cast<std::size_t>((step - log_from_) * replica_count() + k)] = replica;
        // Turns are numbered from 1 on.
        const std::int64_t turn = slot.turns[static_cast<std::size_t>(k)].number - 1 - log_from_ * replica_count();
        turns_log_[static_cast<std::size_t>(turn)] = replica;
    }
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
    take_common_centre();
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
    if (common_) common_->wake();
    end_job();
    forget();
}

template <class D, class T>
void AsynchronousEngine<D, T>::restore(std::int64_t step, std::span<const float> running,
                                       const LossScaleState& loss_scale, FunctionRef<void()> check,
                                       FunctionRef<void()> copy) {
    std::exception_ptr refused;
    try {
        check();
    } catch (...) {
        if (!common_) throw;
        refused = std::current_exception();
    }
    if (common_) {
        // Another process may still wait for batches of this one, for an inspection or for a report.
        if (saved_.step < 0) save();
        in_all_processes([&] {
            if (!common_->meet_to_restore(next_, refused != nullptr)) roll_back();
            const int refusals = common_->refusals();
            if (refusals == 0 || refusals == replicas_.placement().process_count()) return;
            // The state of some alone is refused, whose error is one of all.
            if (refused != nullptr) std::rethrow_exception(refused);
            common_->wait_for_failure({"the error of a process that refuses its state", next_});
            roll_back();
        });
        if (refused != nullptr) std::rethrow_exception(refused);
    }
    in_all_processes([&] {
        drain();
        copy();
        restart(step, running, loss_scale);
    });
}

template <class D, class T>
void AsynchronousEngine<D, T>::restart(std::int64_t step, std::span<const float> running,
                                       const LossScaleState& loss_scale) {
    if (common_ && !common_->restart({"the state of the training", step})) roll_back();
    centre_moved_ = false;  // the state is on all devices, and the common memory has the one before it
    next_ = step;
    loss_scale_ = loss_scale;
    statistics_.restart(running);
    saved_.step = saved_.changes = -1;
    forget();
}

template <class D, class T>
void AsynchronousEngine<D, T>::forget() {
    made_ = reported_ = queued_ = log_from_ = first_step_ = next_;
    next_claim_ = next_ * replica_count() + first_here();
    turns_ = {.turns = next_ * replica_count()};
    reserved_ = probed_step_ = -1;
    probe_ = {};
    is_stopped_ = false;
    failure_ = nullptr;
    is_forgotten_ = true;
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
