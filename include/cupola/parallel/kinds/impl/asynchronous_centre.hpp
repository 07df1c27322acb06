// SPDX-License-Identifier: Apache-2.0
//
// AsynchronousEngine on the threads of the devices: the turns of the replicas, and what each exchanges with the centre.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <span>
#include <utility>

#include <cupola/ops/training_step.hpp>
#include <cupola/optim/moving_average.hpp>
#include <cupola/optim/optimizer.hpp>
#include <cupola/parallel/averaging.hpp>
#include <cupola/parallel/concat_mean.hpp>
#include <cupola/parallel/kinds/centre_exchange.hpp>
#include <cupola/parallel/kinds/impl/asynchronous_engine.hpp>
#include <cupola/parallel/replicas/sample_counts.hpp>

namespace cupola { inline namespace CUPOLA_ABI { namespace impl {

template <class D, class T>
auto AsynchronousEngine<D, T>::draw(int replica) -> Turn {
    Turn turn;
    if (common_) {
        common_->draw([&](CommonCentre::Turns& turns) { turn = draw(replica, turns); });
    } else {
        const std::scoped_lock lock(mutex_);
        turn = draw(replica, turns_);
    }
    return turn;
}

template <class D, class T>
auto AsynchronousEngine<D, T>::draw(int replica, CommonCentre::Turns& turns) -> Turn {
    const auto r = static_cast<std::size_t>(replica);
    const CentreExchange& exchange = *agreement_.exchange;
    Turn turn;
    turn.since = agreement_.since[r];
    turn.exchanges = exchange.is_due(turn.since);
    agreement_.since[r] = (turn.since + 1) % exchange.every();
    turn.number = ++turns.turns;
    turn.averages = functions_.moving_average.on() && turn.number % replica_count() == 0;
    if (turn.exchanges) {
        turn.staleness = turns.exchanges - last_exchange_[r] - 1;
        last_exchange_[r] = turns.exchanges++;
    }
    if (exchange.is_ordered() && (turn.exchanges || turn.averages)) turn.ticket = turns.tickets++;
    return turn;
}

template <class D, class T>
void AsynchronousEngine<D, T>::pass_centre(int device, const Batch& batch, const Turn& turn) {
    if (!turn.exchanges && !turn.averages) return;
    const Stopwatch watch(replicas_.at(device).worker.times(), StepPart::averaging);
    if (turn.ticket < 0) {
        // The average alone has an order, but none that is known.
        const auto pass = [&] {
            for_each_segment([&](const Segment& each) { pass_segment(device, batch, turn, each); });
        };
        if (turn.averages && common_) return common_->update_averages(pass);
        std::unique_lock lock(centre_mutex_, std::defer_lock);
        if (turn.averages) lock.lock();
        return pass();
    }
    for (std::size_t i = 0; i < pieces_.size(); ++i) {
        if (common_) {
            bool is_stopped = false;
            const auto stopped = [&] {
                const std::scoped_lock lock(mutex_);
                is_stopped = is_stopped_;
                return is_stopped;
            };
            if (!common_->wait_for_piece(i, device, turn.ticket, batch.step, stopped)) stop();
            if (stopped()) throw Stopped();
        } else {
            std::unique_lock lock(mutex_);
            for_workers_.wait(lock, [&] { return is_stopped_ || passed_[i] == turn.ticket; });
            if (is_stopped_) throw Stopped();
        }
        pass_segment(device, batch, turn, pieces_[i]);
        if (common_) {
            common_->pass_piece(i, turn.ticket);
            continue;
        }
        {
            const std::scoped_lock lock(mutex_);
            passed_[i] = turn.ticket + 1;
        }
        for_workers_.notify_all();
    }
}

template <class D, class T>
void AsynchronousEngine<D, T>::pass_segment(int device, const Batch& batch, const Turn& turn, const Segment& segment) {
    const ExchangeArenas arenas = arenas_of(batch.replica);
    if (turn.exchanges) agreement_.exchange->exchange(arenas, segment);
    if (!turn.averages) return;
    const float* from = arenas.centre;
    if (turn.ticket < 0) {
        agreement_.exchange->read_centre(arenas, segment);
        from = arenas.row;
    }
    functions_.moving_average.template update<Kernels>(replicas_.context(device), averages() + segment.offset,
                                                       from + segment.offset, segment.size,
                                                       turn.number / replica_count());
}

template <class D, class T>
void AsynchronousEngine<D, T>::publish_results(int device, const Batch& batch) {
    const ReplicaPlacement& placement = replicas_.placement();
    State &from = replicas_.at(device), &to = replicas_.at(placement.device_of(batch.number));
    std::byte *const here = from.queue->status(), *const there = to.queue->landed(batch.step);
    const auto buffers = replicas_.network().buffer_elements;
    const std::size_t losses = replicas_.settings().losses;
    for (int part = 0; part < functions_.gradient_accumulation_steps; ++part) {
        const std::size_t a = placement.batch_number(batch.replica, part),
                          b = placement.batch_number(batch.number, part);
        *to.layout.report(there, b) = *from.layout.report(here, a);
        std::copy_n(from.layout.reports_of_losses(here, a), losses, to.layout.reports_of_losses(there, b));
        *to.layout.bad_id(there, b) = *from.layout.bad_id(here, a);
        std::copy_n(from.layout.statistics(here, a), buffers, to.layout.statistics(there, b));
    }
}

template <class D, class T>
void AsynchronousEngine<D, T>::count_samples(int device, const Batch& batch) {
    const SampleCounts& counts = *workers_[static_cast<std::size_t>(device)].counts;
    for (int part = 0; part < functions_.gradient_accumulation_steps; ++part)
        counts_.of(batch.step, part, batch.number) = counts.of(batch.step, part, batch.number);
}

template <class D, class T>
void AsynchronousEngine<D, T>::publish(int device, const Batch& batch, const Turn& turn) {
    publish_results(device, batch);
    const auto k = static_cast<std::size_t>(batch.number);
    {
        const std::scoped_lock lock(mutex_);
        count_samples(device, batch);
        Slot& slot = slot_of(batch.step);
        slot.turns[k] = turn;
        slot.replicas[k] = batch.replica;
        ++slot.complete;
    }
    if (common_) {
        State& owner = replicas_.at(replicas_.placement().device_of(batch.number));
        std::byte* const block = owner.queue->landed(batch.step);
        for (int part = 0; part < functions_.gradient_accumulation_steps; ++part)
            common_->write(batch.step, batch.number, part, counts_.of(batch.step, part, batch.number),
                           owner.layout.result(block, replicas_.placement().batch_number(batch.number, part)));
        common_->complete(batch.step, batch.number,
                          {.replica = batch.replica, .turn = turn.number, .staleness = turn.staleness});
    }
    for_reader_.notify_all();
}

template <class D, class T>
bool AsynchronousEngine<D, T>::copy_centre(int device, const Batch& batch) {
    const std::scoped_lock lock(centre_mutex_);
    if (is_late(batch)) return false;
    std::copy_n(centre(), replicas_.all_elements(), replicas_.parameters(batch.replica));
    replicas_.at(device).worker.plans().parameters_changed();
    return true;
}

template <class D, class T>
bool AsynchronousEngine<D, T>::is_needed(const Batch& batch) {
    if (!counts_first()) return true;
    const std::scoped_lock lock(mutex_);
    if (batch.step != open_.step || open_.count == agreement_.exchange->counted()) return false;
    open_.count = agreement_.exchange->counted();
    return true;
}

template <class D, class T>
void AsynchronousEngine<D, T>::give_gradient(int device, const Batch& batch, double weight) {
    // A replica writes the results of its own batches alone, so those of a late one are not read.
    publish_results(device, batch);
    const auto k = static_cast<std::size_t>(batch.number);
    {
        const std::scoped_lock lock(mutex_);
        if (batch.step != open_.step || open_.count == agreement_.exchange->counted()) return;
        count_samples(device, batch);
        open_.counts[k] = 1;
        open_.weights[k] = weight;
        if (++open_.count < agreement_.exchange->counted()) return;
    }
    update_centre(device, batch.step);
    {
        const std::scoped_lock lock(mutex_);
        Slot& slot = slot_of(batch.step);
        for (std::size_t r = 0; r < slot.replicas.size(); ++r) slot.replicas[r] = static_cast<int>(r);
        std::ranges::fill(slot.turns, Turn{});
        slot.complete = replica_count();
        std::ranges::fill(open_.counts, 0);
        open_.count = 0;
        ++open_.step;
    }
    for_workers_.notify_all();
    for_reader_.notify_all();
}

template <class D, class T>
void AsynchronousEngine<D, T>::update_centre(int device, std::int64_t step) {
    State& state = replicas_.at(device);
    rows_.clear();
    double weight = 0;
    for (int r = 0; r < replica_count(); ++r) {
        if (open_.counts[static_cast<std::size_t>(r)] == 0) continue;
        rows_.add(replicas_.gradients().row(r), counts_.of_replica(step, r));
        weight += open_.weights[static_cast<std::size_t>(r)];
    }
    const std::span<float> mean = replicas_.gradients().average_span(0);
    const auto elements = static_cast<std::int64_t>(replicas_.elements());
    ConcatMean{}.average(state.context(),
                         GradientRows{.rows = rows_.rows(),
                                      .samples = rows_.samples(),
                                      .total_samples = rows_.total_samples(),
                                      .columns = elements},
                         mean);
    // As the steps of ConcatMean divide it, to the bit.
    double divisor = replicas_.settings().constant_loss_scale();
    if (replicas_.settings().weighted) divisor = divisor / static_cast<double>(rows_.total_samples()) * weight;
    if (const auto by = static_cast<float>(divisor); by != 1.0F) {
        for_each_block(state.context(), elements, [to = mean.data(), by](std::int64_t begin, std::int64_t end) {
            for (std::int64_t i = begin; i < end; ++i) to[i] = to[i] / by;
        });
    }
    for (int owner = 0; owner < replicas_.placement().device_count(); ++owner) {
        double* const to = StatusLayout::regularization(replicas_.at(owner).queue->landed(step));
        for (std::size_t i = 0; i < regularized_.size(); ++i) {
            const std::span<const float> weights(centre() + regularized_[i].offset,
                                                 static_cast<std::size_t>(regularized_[i].size));
            ops::TrainingStep<Kernels>::sum_of_squares(state.context(), weights, to + i);
        }
    }
    const std::scoped_lock lock(centre_mutex_);
    functions_.update(Update<Kernels>{.context = state.context(),
                                      .parameters = centre(),
                                      .gradient = mean.data(),
                                      .state = replicas_.at(0).worker.centre_state(),
                                      .elements = replicas_.network().trained_elements,
                                      .segments = segments_,
                                      .step = step},
                      nullptr);
    if (!functions_.moving_average.on()) return;
    functions_.moving_average.template update<Kernels>(state.context(), averages(), centre(),
                                                       replicas_.network().trained_elements, step + 1);
}

template <class D, class T>
void AsynchronousEngine<D, T>::fail(const std::exception_ptr& error) {
    {
        const std::scoped_lock lock(mutex_);
        if (failure_ == nullptr) failure_ = error;
    }
    if (common_) common_->fail(error);
    stop();
}

template <class D, class T>
void AsynchronousEngine<D, T>::stop() {
    {
        const std::scoped_lock lock(mutex_);
        is_stopped_ = true;
    }
    for_workers_.notify_all();
    for_reader_.notify_all();
}

}}}  // namespace cupola::CUPOLA_ABI::impl
