// SPDX-License-Identifier: Apache-2.0
//
// A training whose steps are queued, but for the queueing itself: what waits for steps, reads what they report, and
// finds out why one came to nothing. parallel/cuda_data_parallel.hpp adds the step.
#pragma once

#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <cupola/device/cuda.hpp>
#include <cupola/device/wait_until.hpp>
#include <cupola/ops/cudnn/training_step.hpp>
#include <cupola/parallel/impl/first_not_finite.hpp>
#include <cupola/parallel/impl/queued_device.hpp>
#include <cupola/parallel/impl/trained_network.hpp>
#include <cupola/parallel/nccl_all_reduce.hpp>
#include <cupola/parallel/statistics.hpp>

namespace cupola::inline CUPOLA_ABI {

namespace impl {

struct NoGroup {};
template <class Averaging, class D>
struct GroupFor {
    using Type = NoGroup;
};
template <class D>
struct GroupFor<NcclAllReduce, D> {
    using Type = typename GroupOf<NcclAllReduce, D>::Type;
};

template <class Net, class Loss, class Optimizer, class Averaging, class D, class Statistics>
class QueuedTraining : public TrainedNetwork<Net, Loss, Optimizer, Averaging, D, Statistics> {
    using Base = TrainedNetwork<Net, Loss, Optimizer, Averaging, D, Statistics>;
    using Group = typename GroupFor<Averaging, D>::Type;

public:
    using typename Base::Context;
    using typename Base::Options;
    /// How many steps are queued at most before the oldest is waited for.
    static constexpr std::int64_t most_ahead = most_steps_ahead;

    /// Makes the plans and allocates all memory, and with NcclAllReduce meets the other processes. Throws
    /// InvalidArgument, DeviceError, or OutOfMemory: before anything is allocated if what the memory report counts does
    /// not fit.
    [[gnu::cold]] explicit QueuedTraining(const Options& options)
        : Base(options), queued_(static_cast<std::size_t>(options.devices)), running_(initial_buffers(Net::rows)) {
        for (auto& sizes : sizes_) sizes.resize(static_cast<std::size_t>(options.replicas * options.accumulation));
        threads_.run([&](int device) { make_queue(device); });
        if constexpr (sums_on_devices) {
            std::vector<int> first;
            for (int device = 0; device < options.devices; ++device)
                first.push_back(first_replica_of_all() + first_replica(device));
            group_ = std::make_unique<Group>(options.averaging, options.devices, first);
            group_->start();
        }
    }

    ~QueuedTraining() { end_steps(); }

    /// The report of the oldest step that was not collected, if more than `ahead` steps were not; else null. With 0 it
    /// waits for every step that was queued. Valid until two more steps are queued. Throws what became of that step.
    const StepReport* collect(std::int64_t ahead = most_ahead) {
        if (step_ - collected_ <= ahead) return nullptr;
        while (checked_ <= collected_) check_step();
        return &reports_[place_of_step(collected_++)];
    }

    // What waits for the steps that are queued. An error of theirs comes out here too.

    template <class Batches>
    Evaluation evaluate(Batches&& batches, std::int64_t count, Weights weights = Weights::trained) {
        settle();
        return Base::evaluate(std::forward<Batches>(batches), count, weights);
    }
    [[nodiscard]] std::vector<float> predict(TensorView<const float, typename Base::InputExtents> samples,
                                             Weights weights = Weights::trained) {
        settle();
        return Base::predict(samples, weights);
    }
    [[nodiscard]] std::vector<float> parameters(int device = 0) {
        settle();
        return Base::parameters(device);
    }
    void set_parameters(std::span<const float> values) {
        settle();
        Base::set_parameters(values);
    }
    [[nodiscard]] TrainingState state() {
        settle();
        return Base::state();
    }
    /// Forgets the steps that are queued, whatever became of them.
    void restore(const TrainingState& state) {
        end_steps();
        Base::restore(state);
        running_ = state.buffers;
        forget_steps();
    }
    [[nodiscard]] std::vector<float> gradient(int replica) {
        settle();
        std::vector<float> result = Base::gradient(replica);
        // A row of several keeps the loss's scale; one that is the average has been divided.
        if (loss_scale != 1 && row(replica) != this->average_row(device_of(replica))) {
            for (float& value : result) value /= loss_scale;
        }
        return result;
    }
    [[nodiscard]] std::vector<float> averaged_gradient() {
        settle();
        return Base::averaged_gradient();
    }

    /// Whether the parameters are those after a whole step; never again after NCCL has failed, as its sums were broken
    /// off.
    [[nodiscard]] bool sound() const {
        if constexpr (sums_on_devices) {
            if (group_ != nullptr && group_->failed()) return false;
        }
        return Base::sound();
    }

    /// Why work is queued piece by piece that was to be captured, for the log; empty while there is none.
    [[nodiscard, gnu::cold]] std::string not_captured() const {
        if (!captures_update) return "the update: the optimiser does not say that it may be captured";
        for (const auto& queue : queued_) {
            if (std::string why = queue->refused(); !why.empty()) return why;
        }
        return {};
    }
    /// Calls visit(captured) for each graph of a device.
    template <class Visit>
    void for_each_captured(int device, Visit&& visit) const {
        queued_[static_cast<std::size_t>(device)]->for_each_captured(visit);
    }

protected:
    using Base::at, Base::row, Base::first_replica, Base::device_of;
    using Base::checks_after, Base::require_equal_parameters, Base::require_finite_state, Base::throw_update_diverged,
        Base::sums_on_devices;
    using Base::options_, Base::threads_, Base::devices_, Base::regularized_, Base::tally_, Base::step_;
    using typename Base::DeviceState, typename Base::Element;

    static constexpr auto elements = static_cast<std::size_t>(Net::parameter_elements);
    static constexpr float loss_scale = Net::Precision::loss_scale;
    /// An optimiser may launch with arguments that a captured step would repeat; those that take them from
    /// `context.cells()` say so.
    static constexpr bool captures_update = requires { requires Optimizer::captured; };
    /// A wait that takes longer than any step did not end.
    static constexpr double patience_seconds = 600;

    [[nodiscard]] QueuedDevice& queue_of(int device) { return *queued_[static_cast<std::size_t>(device)]; }
    [[nodiscard]] int local(int replica) const { return replica - first_replica(device_of(replica)); }
    /// The first of this process's replicas among those of all processes.
    [[nodiscard]] int first_replica_of_all() const {
        if constexpr (sums_on_devices) return options_.averaging.process * options_.replicas;
        return 0;
    }

    [[nodiscard]] std::vector<std::int64_t>& sizes_of(std::int64_t step) { return sizes_[place_of_step(step)]; }
    [[nodiscard]] std::int64_t& size_of(std::int64_t step, int part, int replica) {
        return sizes_of(step)[static_cast<std::size_t>(part * options_.replicas + replica)];
    }
    [[nodiscard]] std::int64_t samples_of(std::int64_t step, int replica) {
        std::int64_t samples = 0;
        for (int part = 0; part < options_.accumulation; ++part) samples += size_of(step, part, replica);
        return samples;
    }
    /// The last of a replica's batches that has samples, whose samples are still there; the first if none has.
    [[nodiscard]] int last_part(std::int64_t step, int replica) {
        int part = options_.accumulation - 1;
        while (part > 0 && size_of(step, part, replica) == 0) --part;
        return part;
    }
    [[nodiscard]] PassKey key_of(std::int64_t step, int part, int replica) const {
        return {.seed = options_.seed,
                .step = static_cast<std::uint32_t>(step * options_.accumulation + part),
                .first_sample = (first_replica_of_all() + replica) * options_.batch_size};
    }

    // Waiting.

    /// Until a step that was queued is done on a device; called on its thread.
    void wait_for(int device, std::int64_t step) {
        if (step < checked_ || step >= step_) return;  // done, or not queued
        if constexpr (sums_on_devices) {
            group_->wait(device, queue_of(device).finished(step).get(), step);
        } else {
            poll(device, queue_of(device).finished(step), step);
        }
    }
    /// Until all that is queued on a device is done.
    void wait_for_queue(int device) {
        StepEvent& event = queue_of(device).gradients_ready();
        event.record(at(device).worker.context());
        poll(device, event, step_);
    }
    static void poll(int device, const StepEvent& event, std::int64_t step) {
        wait_until([&] { return event.happened(); }, patience_seconds, "device ", device, " has not finished step ",
                   step, " after ", patience_seconds, " s");
    }

    /// Waits until nothing is queued any more, whatever became of it. A step that came to nothing may have left a sum
    /// on one device that another never comes to: what a device has queued is waited for with a deadline, and a device
    /// that failed breaks the sums off.
    [[gnu::cold]] void end_steps() {
        threads_.run([&](int device) {
            try {
                for (std::int64_t s = checked_; s < step_; ++s) wait_for(device, s);
                if constexpr (sums_on_devices) {
                    if (group_ != nullptr) {
                        StepEvent& event = queue_of(device).gradients_ready();
                        event.record(at(device).worker.context());
                        group_->wait(device, event.get(), step_);
                    }
                }
            } catch (const Error& error) {
                if constexpr (sums_on_devices) {
                    if (group_ != nullptr) group_->break_off(device, step_, error.what());
                }
            }
            try {
                at(device).worker.context().synchronize();
            } catch (const Error&) {  // a GPU that failed has ended too
            }
        });
    }

    /// Waits for all steps, and gives the devices the running statistics, which the host keeps.
    [[gnu::cold]] void settle() {
        while (checked_ < step_) check_step();
        if constexpr (Net::buffer_elements > 0) {
            threads_.run([&](int device) { at(device).worker.set(at(device).worker.buffers(), running_); });
        }
    }

    // What has become of a step.

    const StepReport& last_report() {
        while (checked_ < step_) check_step();
        collected_ = step_;
        return reports_[place_of_step(step_ - 1)];
    }

    /// Waits for the next step, and makes its report of what arrived.
    void check_step() {
        const std::int64_t step = checked_;
        threads_.run([&](int device) { wait_for(device, step); });
        bool sound = true;
        for (int r = 0; r < options_.replicas; ++r) sound = read_report(step, r) && sound;
        for (int device = 0; device < options_.devices; ++device) {
            std::byte* const arrived = queue_of(device).arrived(step);
            sound = sound && *ReportBlock::sound(arrived) != 0;
            at(device).hash = *ReportBlock::hash(arrived);
        }
        if (!sound) give_up(step);
        tally_.finish(step, options_.optimizer.learning_rate_at(step));
        if constexpr (Net::buffer_elements > 0) update_statistics(step);
        if (checks_after(step)) {
            for (int d = 0; d < options_.devices; ++d)
                at(d).finite = *ReportBlock::finite(queue_of(d).arrived(step)) != 0;
            for (DeviceState& device : devices_) device.updating = true;  // not sound(), unless they are equal
            require_equal_parameters(step);
            require_finite_state(step);
            if (!cupola::all_finite(running_))
                throw_update_diverged(step, "running statistic " + invalid_buffer(Net::rows, running_));
            for (DeviceState& device : devices_) device.updating = false;
        }
        reports_[place_of_step(step)] = tally_.report();
        ++checked_;
    }

    /// Makes a replica's report of what arrived; false if its loss is not finite.
    bool read_report(std::int64_t step, int replica) {
        QueuedDevice& queue = queue_of(device_of(replica));
        std::byte* const arrived = queue.arrived(step);
        tally_.begin(replica);
        ReplicaReport& report = tally_.of(replica);
        bool finite = true;
        for (int part = 0; part < options_.accumulation; ++part) {
            if (size_of(step, part, replica) == 0) continue;
            const LossReport& arrived_report = *queue.block().report(arrived, queue.batch_of(local(replica), part));
            report.correct += arrived_report.correct;
            report.parts[0].value += arrived_report.sum;
            finite = finite && std::isfinite(arrived_report.sum);
        }
        const std::int64_t samples = samples_of(step, replica);
        std::vector<double>& regularization = at(device_of(replica)).regularization;
        for (std::size_t i = 0; i < regularized_.size(); ++i) {
            regularization[i] = 0.5 * regularized_[i].coefficient * ReportBlock::regularization(arrived)[i];
        }
        if (samples > 0) tally_.complete(replica, samples, regularization);
        return finite;
    }

    /// Every device updates the same running statistics, so the host does, in the order of the steps.
    void update_statistics(std::int64_t step) {
        Base::take_statistics(
            at(0), running_.data(), [&](int part, int r) { return size_of(step, part, r); },
            [&](int part, int r) {
                QueuedDevice& queue = queue_of(device_of(r));
                return queue.block().statistics(queue.arrived(step), queue.batch_of(local(r), part));
            });
    }

    /// The step came to nothing, and so did those after it. Finds out why, and leaves the training as it was before.
    [[noreturn, gnu::cold]] void give_up(std::int64_t step) {
        threads_.run([&](int device) {
            for (std::int64_t s = step; s < step_; ++s) wait_for(device, s);
        });
        std::exception_ptr error;
        try {
            find_mistake(step);
        } catch (...) {
            error = std::current_exception();
        }
        step_ = step;
        forget_steps();
        std::rethrow_exception(error);
    }

    /// Throws what was wrong with the replicas' batches, or with a gradient.
    [[noreturn, gnu::cold]] void find_mistake(std::int64_t step) {
        for (int r = 0; r < options_.replicas; ++r) {
            for (int part = 0; part < options_.accumulation; ++part) {
                if (size_of(step, part, r) == 0) continue;
                QueuedDevice& queue = queue_of(device_of(r));
                const LossReport& report = *queue.block().report(queue.arrived(step), queue.batch_of(local(r), part));
                const LossResult result = options_.loss.data.template operation<D>().result_of(report);
                if (std::isfinite(result.sum)) continue;
                const bool there = part == last_part(step, r);
                throw_diverged(step, text("the loss of replica ", r, " is ", tally_.of(r).total),
                               there ? where_not_finite(step, r, nullptr)
                                     : text("it is that of batch ", part + 1, " of ", options_.accumulation),
                               r);
            }
        }
        for (int r = 0; r < options_.replicas; ++r) {
            bool finite = true;
            threads_.run([&](int device) {
                if (device != device_of(r) || samples_of(step, r) == 0) return;
                finite = all_finite(at(device).worker.context(), std::span<const float>(row(r), elements));
            });
            if (!finite)
                throw_diverged(step, text("the gradient of replica ", r, " is not finite"),
                               where_not_finite(step, r, row(r)), r);
        }
        throw_diverged(step, "the averaged gradient is not finite", {}, -1);
    }

    [[nodiscard, gnu::cold]] std::string where_not_finite(std::int64_t step, int replica, const float* gradient) {
        std::string where;
        const int part = last_part(step, replica), its_device = device_of(replica);
        threads_.run([&](int device) {
            if (device != its_device) return;
            auto& worker = at(device).worker;
            QueuedDevice& queue = queue_of(device);
            const BatchView batch{queue.samples(local(replica)), queue.labels(local(replica)),
                                  size_of(step, part, replica), Net::input};
            if (batch.size == 0) return;
            const PassKey key = key_of(step, part, replica);
            queue_set(worker.context(), ReportBlock::step(queue.on_device()), key.step);
            auto& plan = worker.template inspection_plan<Net>(batch.size);
            where = shown_culprit(first_not_finite(worker, plan, Net::rows, batch, key, gradient));
        });
        return where;
    }

    void forget_steps() {
        collected_ = checked_ = step_;
        threads_.run([&](int device) {
            queue_set(at(device).worker.context(), ReportBlock::sound(queue_of(device).on_device()), std::int32_t{1});
        });
    }

    Group& group() { return *group_; }

    /// Before a step is queued: its places are those of the step before the last two, whose report is dropped if nobody
    /// asked.
    void make_room() {
        if (step_ - collected_ == static_cast<std::int64_t>(step_places)) (void)collect();
    }

private:
    // Construction.

    [[gnu::cold]] void make_queue(int device) {
        DeviceState& state = at(device);
        const int replicas = first_replica(device + 1) - first_replica(device);
        const ReportBlock block(regularized_.size(), static_cast<std::size_t>(replicas * options_.accumulation),
                                Net::buffer_elements);
        auto& queue = queued_[static_cast<std::size_t>(device)];
        const QueuedDevice::Sizes sizes{.replicas = replicas,
                                        .accumulation = options_.accumulation,
                                        .features = Net::input.size(),
                                        .batch_size = options_.batch_size,
                                        .sums = sums_on_devices ? Net::parameter_elements + 1 : 0};
        queue = std::make_unique<QueuedDevice>(block, sizes, device);
        queue_set(state.worker.context(), ReportBlock::sound(queue->on_device()), std::int32_t{1});
        queue_set(state.worker.context(), ReportBlock::loss_scale(queue->on_device()), loss_scale);
        StepCells cells = queue->cells();
        if (!captures_update) cells.constants = nullptr;
        state.worker.context().set_cells(cells);
    }

    std::vector<std::unique_ptr<QueuedDevice>> queued_;
    std::unique_ptr<Group> group_;
    /// How many samples each batch has of the steps that are not collected yet.
    std::array<std::vector<std::int64_t>, step_places> sizes_;
    std::vector<float> running_;
    std::array<StepReport, step_places> reports_;
    /// The oldest step that has not been waited for, and the oldest whose report nobody has collected.
    std::int64_t checked_ = 0, collected_ = 0;
};

}  // namespace impl

}  // namespace cupola::inline CUPOLA_ABI
