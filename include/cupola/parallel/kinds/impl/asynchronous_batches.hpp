// SPDX-License-Identifier: Apache-2.0
//
// AsynchronousEngine on the threads of the devices: which batch a device computes next, and its gradient and update.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <deque>
#include <exception>
#include <mutex>
#include <span>
#include <utility>

#include <cupola/core/error.hpp>
#include <cupola/core/finite.hpp>
#include <cupola/net/finite.hpp>
#include <cupola/ops/training_step.hpp>
#include <cupola/optim/elastic_update.hpp>
#include <cupola/optim/optimizer.hpp>
#include <cupola/parallel/kinds/centre_exchange.hpp>
#include <cupola/parallel/kinds/impl/asynchronous_engine.hpp>
#include <cupola/parallel/kinds/order.hpp>
#include <cupola/parallel/replicas/sample_counts.hpp>
#include <cupola/parallel/step/failure.hpp>
#include <cupola/tensor/batch_memory.hpp>
#include <cupola/tensor/require_batch.hpp>

namespace cupola { inline namespace CUPOLA_ABI { namespace impl {

template <class D, class T>
void AsynchronousEngine<D, T>::work(int device) {
    State& state = replicas_.at(device);
    Batch batch;
    try {
        [[maybe_unused]] const auto team = state.context().team();
        while (claim(device, batch)) compute(device, batch);
    } catch (const Stopped&) {
    } catch (...) {
        fail(std::current_exception());
    }
}

template <class D, class T>
bool AsynchronousEngine<D, T>::claim(int device, Batch& batch) {
    std::unique_lock lock(mutex_);
    while (!is_stopped_) {
        if (counts_first() ? claim_open(device, batch) : claim_now(device, batch)) return true;
        // A step needs gradients of other devices before the next one is open.
        const bool is_waiting_for_step = counts_first() && open_.step < queued_;
        if (is_ending_ && !is_waiting_for_step) return false;
        for_workers_.wait(lock);
    }
    return false;
}

template <class D, class T>
bool AsynchronousEngine<D, T>::claim_now(int device, Batch& batch) {
    Worker& own = workers_[static_cast<std::size_t>(device)];
    const ReplicaPlacement& placement = replicas_.placement();
    const int first = placement.first_replica(device), count = placement.replicas_of(device);
    const std::int64_t end = queued_ * replica_count();
    std::int64_t number = 0;
    int replica = first + static_cast<int>(own.begun % count);
    if (const OrderLog* const log = replayed()) {
        // The places before the first step in flight were passed by an earlier job.
        number = std::max(own.begun, (log_from_ - log->first_step) * replica_count());
        const std::int64_t last = end - log->first_step * replica_count();
        const auto is_own = [&] {
            const int computes = log->claims[static_cast<std::size_t>(number)];
            return placement.is_here(computes) && placement.device_of(computes) == device;
        };
        while (number < last && !is_own()) ++number;
        own.begun = number;
        if (number >= last) return false;
        replica = log->claims[static_cast<std::size_t>(number)];
        number += log->first_step * replica_count();
    } else if (is_ordered()) {
        const std::int64_t step = first_step_ + own.begun / count;
        if (step >= queued_) return false;
        number = step * replica_count() + replica;
    } else {
        if (next_claim_ == reserved_) skip_claim();
        if (device == 0 && reserved_ >= 0 && reserved_ < next_claim_) {
            number = std::exchange(reserved_, -1);
            replica = first;
        } else {
            if (next_claim_ >= end) return false;
            number = next_claim_;
            skip_claim();
        }
    }
    ++own.begun;
    batch = {
        .step = number / replica_count(), .number = static_cast<int>(number % replica_count()), .replica = replica};
    batch.probed = probe_ && batch.step == probed_step_ && batch.number == first_here() && replica == first_here();
    return true;
}

template <class D, class T>
bool AsynchronousEngine<D, T>::claim_open(int device, Batch& batch) {
    Worker& own = workers_[static_cast<std::size_t>(device)];
    const int first = replicas_.placement().first_replica(device), count = replicas_.placement().replicas_of(device);
    if (open_.step >= queued_) return false;
    for (int i = 0; i < count; ++i) {
        const int replica = first + static_cast<int>(own.begun++ % count);
        std::int64_t& begun = open_.begun[static_cast<std::size_t>(replica)];
        if (begun == open_.step) continue;
        begun = open_.step;
        batch = {.step = open_.step, .number = replica, .replica = replica};
        batch.probed = probe_ && batch.step == probed_step_ && replica == first_here();
        return true;
    }
    return false;
}

template <class D, class T>
void AsynchronousEngine<D, T>::compute(int device, const Batch& batch) {
    State& state = replicas_.at(device);
    Worker& own = workers_[static_cast<std::size_t>(device)];
    const ExchangeArenas arenas = arenas_of(batch.replica);
    const CentreExchange& exchange = *agreement_.exchange;
    own.counts->clear(batch.step);
    if (counts_first() && !copy_centre(device, batch)) return;
    Step step{.device = device,
              .step = batch.step,
              .replicas = replicas_,
              .samples = *own.counts,
              .state = state,
              .samples_of = batch.number};
    for_each_segment([&](const Segment& each) { exchange.before_passes(arenas, each); });
    state.worker.plans().trained_parameters_changed();
    const auto source = [&](std::int64_t place, int, Context& context) { return take(own, batch, place, context); };
    try {
        own.passes->queue_replica(step, batch.replica, source);
    } catch (const Late&) {
        return;
    }
    double weight = 0;
    bool is_finite_here = false;
    try {
        const std::int64_t samples = own.counts->of_replica(batch.step, batch.number);
        require(samples > 0, "batch ", batch.number, " of step ", batch.step, " has no samples, and a batch of ",
                policy_, " needs some");
        is_finite_here = finish_gradient(device, batch, weight);
    } catch (...) {
        if (is_needed(batch)) fail(std::current_exception());
        return;
    }
    if (!is_finite_here) {
        if (!is_needed(batch)) return;
        // The step does not become complete: its report would be read before the failure is known.
        publish_results(device, batch);
        {
            const std::scoped_lock lock(mutex_);
            count_samples(device, batch);
        }
        return fail(not_finite(device, batch));
    }
    if (counts_first() && is_late(batch)) return;
    if (batch.probed) {
        shown_ = &batch;
        probe_(*this);
        {
            const std::scoped_lock lock(mutex_);
            probed_step_ = -1;
        }
        for_reader_.notify_all();
    }
    if (counts_first()) return give_gradient(device, batch, weight);
    sum_regularized(device, batch);
    Turn turn;
    std::int64_t since = 0;
    {
        std::unique_lock lock(mutex_);
        if (is_ordered()) {
            // The turn of a batch in a log may be after those of a step that is not queued yet.
            std::deque<Turn>& known = turns_of_[static_cast<std::size_t>(batch.replica)];
            for_workers_.wait(lock, [&] { return is_stopped_ || !known.empty(); });
            if (is_stopped_) throw Stopped();
            turn = known.front();
            known.pop_front();
            since = turn.since;
        } else {
            since = agreement_.since[static_cast<std::size_t>(batch.replica)];
            turn.exchanges = exchange.is_due(since);
        }
    }
    for_each_segment([&](const Segment& each) { exchange.before_update(arenas, each, since); });
    update(device, batch, turn.exchanges);
    if (!is_ordered()) turn = draw(batch.replica);
    pass_centre(device, batch, turn);
    publish(device, batch, turn);
}

template <class D, class T>
BatchView AsynchronousEngine<D, T>::take(Worker& own, const Batch& batch, std::int64_t place, Context& context) {
    std::int64_t& requested = requested_[static_cast<std::size_t>(batch.number)];
    BatchSource batches;
    std::int64_t first = place;
    {
        // A source gives the batches of one number in their order.
        std::unique_lock lock(mutex_);
        const auto is_next = [&] { return counts_first() ? requested <= place : requested == place; };
        for_workers_.wait(lock, [&] { return is_stopped_ || is_next(); });
        if (is_stopped_) throw Stopped();
        // The batches of a step are valid until its report is read.
        if (counts_first() && batch.step != open_.step) throw Late();
        Slot& slot = slot_of(batch.step);
        ++slot.requests;
        batches = slot.batches;
        first = requested;
    }
    const Requesting requesting(*this, batch.step);
    // Also those of steps for which this replica was late.
    for (; first < place; ++first) static_cast<void>(batches(first, batch.number, context));
    const BatchView given = batches(place, batch.number, context);
    require_batch(given, replicas_.settings().required);
    BatchView result = given;
    if (given.size > 0 && given.size <= functions_.batch_size) {
        const BatchSpan copy = batch_in(own.batch.data(), columns_, functions_.batch_size);
        for (std::size_t i = 0; i < columns_.size(); ++i)
            std::memcpy(copy.data(i), given.data_of(columns_[i].name, columns_[i].type),
                        static_cast<std::size_t>(given.size) * columns_[i].bytes());
        result = copy.view(given.size);
    }
    {
        const std::scoped_lock lock(mutex_);
        requested = place + 1;
    }
    for_workers_.notify_all();
    return result;
}

template <class D, class T>
bool AsynchronousEngine<D, T>::finish_gradient(int device, const Batch& batch, double& weight) {
    State& state = replicas_.at(device);
    const Stopwatch watch(state.worker.times(), StepPart::averaging);
    std::byte* const block = state.queue->status();
    const SampleCounts& counts = *workers_[static_cast<std::size_t>(device)].counts;
    bool finite = true;
    for (int part = 0; part < functions_.gradient_accumulation_steps; ++part) {
        if (counts.of(batch.step, part, batch.number) == 0) continue;
        const LossReport& report = *state.layout.report(block, replicas_.placement().batch_number(batch.replica, part));
        finite = finite && is_finite(report.sum);
        weight += report.weight;
    }
    float divisor = static_cast<float>(replicas_.settings().constant_loss_scale());
    if (finite && replicas_.settings().weighted) {
        const std::int64_t samples = counts.of_replica(batch.step, batch.number);
        require(is_nan(weight) || weight > 0, "no sample of batch ", batch.number, " in step ", batch.step,
                " counts, of ", samples, ": ", functions_.reason_of_no_weight(), "; ", policy_,
                " needs some in each batch");
        divisor =
            static_cast<float>(replicas_.settings().constant_loss_scale() * weight / static_cast<double>(samples));
    }
    if (counts_first()) divisor = 1;
    const std::span<float> row(replicas_.gradients().row(batch.replica), replicas_.elements());
    std::int32_t row_is_finite = 1;
    unsigned long long* const ends = state.layout.not_finite(block, batch.replica);
    ops::TrainingStep<Kernels>::mean(state.context(), row, &divisor, row, &row_is_finite,
                                     {.rows = row.data(), .count = 1, .ends = ends}, nullptr);
    return finite && row_is_finite != 0;
}

template <class D, class T>
std::exception_ptr AsynchronousEngine<D, T>::not_finite(int device, const Batch& batch) {
    State& state = replicas_.at(device);
    double sum = 0;
    const SampleCounts& counts = *workers_[static_cast<std::size_t>(device)].counts;
    std::int64_t samples = 0;
    for (int part = 0; part < functions_.gradient_accumulation_steps; ++part) {
        if (counts.of(batch.step, part, batch.number) == 0) continue;
        sum += state.layout.report(state.queue->status(), replicas_.placement().batch_number(batch.replica, part))->sum;
        samples += counts.of(batch.step, part, batch.number);
    }
    const bool is_loss = !is_finite(sum);
    const std::string what =
        is_loss ? text("the loss of replica ", batch.replica, " is ", sum / static_cast<double>(samples))
                : text("the gradient of replica ", batch.replica, " is not finite");
    const TakenBatch& taken = passes_of(device).batches().of(batch.replica);
    Plan<Kernels, T>& plan = state.worker.plans().inspection(replicas_.network().make, taken.batch.size);
    std::string where = first_not_finite(state.worker, plan, replicas_.network().layers,
                                         replicas_.parameters(batch.replica), taken.batch, taken.key);
    if (where.empty() && !is_loss) {
        const auto element =
            static_cast<std::int64_t>(*state.layout.not_finite(state.queue->status(), batch.replica)) - 1;
        where = text("every output is finite; the gradient of ", parameter_at(replicas_.network().layers, element),
                     " is not");
    }
    try {
        // A label or an id that is not valid.
        static_cast<void>(reports_.part_not_finite(batch.step, batch.number));
        throw DivergedError(text(what, " at step ", batch.step, where.empty() ? "" : ": ", where,
                                 "; training diverged or a batch holds numbers that are not finite; the training has "
                                 "the state of step ",
                                 saved_.step, ", the last that was checked"),
                            batch.step, batch.replica);
    } catch (...) {
        return std::current_exception();
    }
}

template <class D, class T>
void AsynchronousEngine<D, T>::sum_regularized(int device, const Batch& batch) {
    const ReplicaPlacement& placement = replicas_.placement();
    const int owner = placement.device_of(batch.number);
    // The report of a device's first batch says the sums for all of them; in several processes that of the first batch.
    if (batch.number != (common_ ? 0 : placement.first_replica(owner))) return;
    State& state = replicas_.at(device);
    const Stopwatch watch(state.worker.times(), StepPart::regularization);
    double* const to = common_ ? common_->regularization(batch.step)
                               : StatusLayout::regularization(replicas_.at(owner).queue->landed(batch.step));
    for (std::size_t i = 0; i < regularized_.size(); ++i) {
        const std::span<const float> weights(replicas_.parameters(batch.replica) + regularized_[i].offset,
                                             static_cast<std::size_t>(regularized_[i].size));
        ops::TrainingStep<Kernels>::sum_of_squares(state.context(), weights, to + i);
    }
}

template <class D, class T>
void AsynchronousEngine<D, T>::update(int device, const Batch& batch, bool exchanges) {
    State& state = replicas_.at(device);
    const Stopwatch watch(state.worker.times(), StepPart::optimizer);
    const int copy = replicas_.placement().copy_of(batch.replica);
    float* const row = replicas_.gradients().row(batch.replica);
    const Update<Kernels> u{.context = state.context(),
                            .parameters = state.worker.parameters(copy),
                            .gradient = row,
                            .state = state.worker.state(copy),
                            .elements = replicas_.network().trained_elements,
                            .segments = segments_,
                            .step = batch.step};
    // The difference to zeros, which the average of the gradients is here.
    const ElasticForce force{.centre = replicas_.gradients().average(0), .difference = row, .moving_rate = 0};
    functions_.update(u, exchanges && agreement_.exchange->takes_position() ? &force : nullptr);
}

}}}  // namespace cupola::CUPOLA_ABI::impl
