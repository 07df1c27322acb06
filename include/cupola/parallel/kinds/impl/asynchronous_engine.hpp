// SPDX-License-Identifier: Apache-2.0
//
// AsynchronousEngine: queues the steps of a training whose replicas do not wait for each other, in the place of a
// StepEngine. While steps are in flight, each device's thread takes one batch after another, computes its gradient with
// the parameters of one of its replicas, updates them, and exchanges with the centre as the CentreExchange says.
//
// An exchange takes a ticket and passes the segments of the centre in the order of the tickets: a segment is handed to
// the next replica when this one has passed it. Nothing else that a replica reads is written by others, so the bits
// depend only on which replica computes which batch, and on the order of the tickets (parallel/kinds/order.hpp).
//
// Where the first gradients of a step count (Backup), a replica copies the centre, and the one that completes a step
// updates it; those that are late drop theirs.
//
// Between two calls the threads are inside a job that ends when no step is in flight: then all other members of a
// training work as they do with a StepEngine.
//
// In several processes each queues the same steps, and computes the batches whose numbers are those of its replicas;
// what the replicas have in common is in a CommonCentre. Included by asynchronous_training.hpp.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <exception>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <cupola/core/error.hpp>
#include <cupola/core/fixed_array.hpp>
#include <cupola/core/function_ref.hpp>
#include <cupola/core/loss_scale.hpp>
#include <cupola/device/host.hpp>
#include <cupola/parallel/agreement/step_agreement.hpp>
#include <cupola/parallel/kinds/centre_exchange.hpp>
#include <cupola/parallel/kinds/impl/asynchronous_agreement.hpp>
#include <cupola/parallel/kinds/impl/common_centre.hpp>
#include <cupola/parallel/kinds/order.hpp>
#include <cupola/parallel/replicas/replicas.hpp>
#include <cupola/parallel/replicas/sample_counts.hpp>
#include <cupola/parallel/step/replica_passes.hpp>
#include <cupola/parallel/step/shared_statistics.hpp>
#include <cupola/parallel/step/step_functions.hpp>
#include <cupola/parallel/step/step_reports.hpp>
#include <cupola/parallel/step_report.hpp>
#include <cupola/tensor/batch_memory.hpp>

namespace cupola { inline namespace CUPOLA_ABI { namespace impl {

/// Defined in parallel/inspection.hpp.
template <class D, class T>
class StepProbe;

template <class D, class T>
class AsynchronousEngine {
    using Kernels = typename D::Kernels;
    using Context = typename Kernels::Context;
    using State = DeviceState<D, T>;
    using Step = DeviceStep<D, T>;
    using Passes = ReplicaPasses<D, T>;
    using Agreement = AsynchronousAgreement<D, T>;

public:
    using BatchSource = typename Passes::BatchSource;
    using Probe = FunctionRef<void(AsynchronousEngine&)>;

    /// As those of StepEngine; the agreement is an AsynchronousAgreement.
    [[gnu::cold]] AsynchronousEngine(const StepFunctions<D>& functions, StepAgreement<D, T>& agreement,
                                     Replicas<D, T>& replicas, std::span<const RegularizedParameter> regularized,
                                     std::string_view policy);
    [[gnu::cold]] ~AsynchronousEngine();
    AsynchronousEngine(const AsynchronousEngine&) = delete;
    AsynchronousEngine& operator=(const AsynchronousEngine&) = delete;

    // The members of StepEngine.

    template <class Joint>
    [[gnu::cold]] void run_jointly() {}
    [[nodiscard]] std::int64_t step() const { return next_; }
    void queue(BatchSource batches, Probe probe);
    template <class Inspector>
    [[gnu::cold]] void show(Inspector& inspector) {
        error_of_probe_ =
            StepProbe<D, T>(replicas_).show(shown_->step, shown_->replica, passes_of(0).batches().of(shown_->replica),
                                            replicas_.gradients().row(shown_->replica), inspector);
    }
    const StepReport* poll(std::int64_t max_in_flight);
    const StepReport& last_report();
    void synchronize();
    [[nodiscard]] SharedStatistics<D, T>& statistics() { return statistics_; }
    [[nodiscard]] double factor_of_row(int) { return 1; }
    [[gnu::cold]] void drain();
    [[gnu::cold]] void restart(std::int64_t step, std::span<const float> running, const LossScaleState& loss_scale);
    [[gnu::cold]] void restore(std::int64_t step, std::span<const float> running, const LossScaleState& loss_scale,
                               FunctionRef<void()> check, FunctionRef<void()> copy);
    [[nodiscard]] const LossScaleState& loss_scale() const { return loss_scale_; }
    /// Not after a failure of another process for which this one has not given up its steps yet.
    [[nodiscard]] bool healthy() const { return !common_ || !common_->has_failed(); }
    [[nodiscard, gnu::cold]] std::string not_repeated() const { return {}; }
    [[nodiscard, gnu::cold]] std::string launches_description() const { return {}; }
    template <class Visit>
    void for_each_recording(int, Visit&&) const {}
    void trace(StepTrace trace) {
        synchronize();
        for (Worker& each : workers_) each.passes->trace(trace);
    }

private:
    /// What a device's thread has of its own.
    struct Worker {
        std::unique_ptr<SampleCounts> counts;
        std::unique_ptr<Passes> passes;
        /// A copy of the batch that it computes.
        HostArena batch;
        /// The number of batches that it has begun: in round robin order it counts on from the first step, in a replay
        /// it is a place in the log.
        std::int64_t begun = 0;
    };
    /// Batch `number` of a step, which a replica computes.
    struct Batch {
        std::int64_t step = 0;
        int number = 0, replica = 0;
        /// Whether the probe sees it.
        bool probed = false;
    };
    /// The turn in which a batch is complete.
    struct Turn {
        bool exchanges = false, averages = false;
        /// The number of the ticket with which it passes the segments of the centre; -1 if it does not.
        std::int64_t ticket = -1;
        /// The number of this turn, from 1 on.
        std::int64_t number = 0;
        /// The batches of the replica between its last exchange and this one.
        std::int64_t since = 0;
        std::int64_t staleness = -1;
    };
    /// A step in flight.
    struct Slot {
        BatchSource batches{};
        /// The batches that are complete, and those that are being requested.
        int complete = 0, requests = 0;
        /// For each batch, the turn in which it is complete, and its replica.
        FixedArray<Turn> turns;
        FixedArray<int> replicas;
    };
    /// The state of the last check, to which a failure returns.
    struct Saved {
        std::int64_t step = -1, changes = -1;
        FixedArray<float> arenas, running;
        FixedArray<std::int64_t> since;
    };
    /// The job ends early, because another device has failed.
    struct Stopped {};
    /// The step of a batch does not need it any more.
    struct Late {};
    /// Where the first gradients of a step count: the step to which they are given, and those that it has.
    struct Open {
        std::int64_t step = 0;
        int count = 0;
        /// For each replica: whether its gradient counts, its weight, and the last step that it has begun.
        FixedArray<unsigned char> counts;
        FixedArray<double> weights;
        FixedArray<std::int64_t> begun;
    };

    [[nodiscard]] int replica_count() const { return replicas_.placement().replicas(); }
    [[nodiscard]] Slot& slot_of(std::int64_t step) { return slots_[static_cast<std::size_t>(step) % slots_.size()]; }
    [[nodiscard]] Passes& passes_of(int device) { return *workers_[static_cast<std::size_t>(device)].passes; }
    [[nodiscard]] bool is_ordered() const { return agreement_.run.order.kind() != Order::Kind::free; }
    [[nodiscard]] const OrderLog* replayed() const { return agreement_.run.order.log(); }
    /// Those of this process between two jobs, and those that replicas exchange with in one.
    [[nodiscard]] float* own_centre() { return replicas_.at(0).worker.centre(); }
    [[nodiscard]] float* own_averages() { return replicas_.at(0).worker.averages(); }
    [[nodiscard]] float* centre() { return common_ ? common_->centre() : own_centre(); }
    [[nodiscard]] float* averages() { return common_ ? common_->averages() : own_averages(); }
    /// The replicas of this process, and the batches that it computes, are [first, end).
    [[nodiscard]] int first_here() const { return replicas_.placement().first_replica(0); }
    [[nodiscard]] int end_here() const {
        return replicas_.placement().first_replica(replicas_.placement().device_count());
    }
    [[nodiscard]] int replicas_here() const { return replicas_.placement().replicas_here(); }
    /// The devices of all processes.
    [[nodiscard]] int all_devices() const {
        return replicas_.placement().device_count() * replicas_.placement().process_count();
    }
    [[nodiscard]] ExchangeArenas arenas_of(int replica);
    template <class Call>
    void for_each_segment(Call&& call) const {
        for (const Segment& each : pieces_) call(each);
    }

    // On the threads of the devices, inside the job.

    void work(int device);
    /// The next batch of a device. False if there is none any more.
    bool claim(int device, Batch& batch);
    bool claim_now(int device, Batch& batch);
    void compute(int device, const Batch& batch);
    [[nodiscard]] BatchView take(Worker& own, const Batch& batch, std::int64_t place, Context& context);
    /// Divides the row by the loss scale and the weight of its samples, unless the rows are averaged first. Returns
    /// whether all is finite.
    [[nodiscard]] bool finish_gradient(int device, const Batch& batch, double& weight);
    void sum_regularized(int device, const Batch& batch);
    void update(int device, const Batch& batch, bool exchanges);
    void pass_centre(int device, const Batch& batch, const Turn& turn);
    void pass_segment(int device, const Batch& batch, const Turn& turn, const Segment& segment);
    void publish(int device, const Batch& batch, const Turn& turn);
    void publish_results(int device, const Batch& batch);
    void count_samples(int device, const Batch& batch);

    // Where the first gradients of a step count.

    [[nodiscard]] bool counts_first() const { return agreement_.exchange->counted() > 0; }
    bool claim_open(int device, Batch& batch);
    [[nodiscard]] bool is_late(const Batch& batch) {
        const std::scoped_lock lock(mutex_);
        return batch.step != open_.step;
    }
    /// Copies the centre to a replica. False if the step has the gradients that it needs.
    bool copy_centre(int device, const Batch& batch);
    void give_gradient(int device, const Batch& batch, double weight);
    /// Whether the error of a batch is one of the training: a step that has the gradients that it needs does not need
    /// the batch, and one that does gets no other gradient then.
    [[nodiscard]] bool is_needed(const Batch& batch);
    void update_centre(int device, std::int64_t step);
    /// Ends the steps in flight with an error.
    void fail(const std::exception_ptr& error);
    /// The same without one of its own, because another process has failed.
    void stop();
    [[nodiscard, gnu::cold]] std::exception_ptr not_finite(int device, const Batch& batch);

    /// The next turn, which is a replica's, by the turns so far.
    Turn draw(int replica, CommonCentre::Turns& turns);
    /// In free order.
    Turn draw(int replica);

    // With the mutex held.

    /// The next number of a batch in free order.
    void skip_claim() {
        ++next_claim_;
        if (next_claim_ % replica_count() == end_here() % replica_count())
            next_claim_ += replica_count() - replicas_here();
    }
    [[nodiscard]] std::int64_t number_of(const Batch& batch) const {
        return batch.step * replica_count() + batch.number;
    }

    /// Ends a request.
    struct Requesting {
        Requesting(AsynchronousEngine& of, std::int64_t of_step) : engine(of), step(of_step) {}
        Requesting(const Requesting&) = delete;
        Requesting& operator=(const Requesting&) = delete;
        ~Requesting() {
            {
                const std::scoped_lock lock(engine.mutex_);
                --engine.slot_of(step).requests;
            }
            engine.for_reader_.notify_all();
        }
        AsynchronousEngine& engine;
        std::int64_t step;
    };

    // On the thread that uses the training.

    void queue_step(BatchSource batches, Probe probe);
    /// Calls `what`; an error in it is one of all processes.
    template <class Do>
    void in_all_processes(Do&& what);
    void begin_job();
    /// Waits until the probe has seen its batch.
    void wait_for_probe();
    void end_job();
    /// Waits until all batches of a step are complete, or the steps have failed.
    void wait_for(std::int64_t step);
    void make_report();
    /// Takes what all processes report of a step that is complete.
    void take_results(std::int64_t step);
    void log_order(std::int64_t step);
    [[noreturn, gnu::cold]] void roll_back();
    void forget();
    void check();
    void save();
    template <class Copy>
    void for_each_saved(Copy&& copy);
    void take_common_centre();
    void share_centre();
    void write_log();
    void require_replayable(const OrderLog& log) const;
    void require_log(std::int64_t step) const;
    static void require_complete(const OrderLog& log, std::int64_t step) {
        require_fitting(log, is_complete_before(log, step), " has batches in flight before step ", step,
                        ": it is of another run, or that run had no checkpoint there");
    }
    /// The log of this training, from the first step on that no log has yet, without batches.
    [[nodiscard, gnu::cold]] OrderLog own_log() const {
        return {.replicas = replica_count(),
                .devices = all_devices(),
                .seed = functions_.seed,
                .rule = agreement_.run.rule,
                .first_step = log_from_};
    }
    /// Throws InvalidArgument unless the batches of a step do not depend on those of step `end` and later.
    void require_reachable(std::int64_t step, std::int64_t end) const;
    /// Ends the job and rolls back if one of the steps from `step` up to `end` depends on one that is not queued. The
    /// devices wait for it, with the batches and the inspector of the caller.
    void end_unless_reachable(std::int64_t step, std::int64_t end);

    const StepFunctions<D>& functions_;
    Replicas<D, T>& replicas_;
    Agreement& agreement_;
    std::span<const RegularizedParameter> regularized_;
    std::string_view policy_;
    SampleCounts counts_;
    StepReports<D, T> reports_;
    SharedStatistics<D, T> statistics_;
    std::exception_ptr error_of_probe_;
    Columns columns_;
    /// Those of the update, and parts of them of at most `piece_elements`.
    FixedArray<Segment> segments_;
    std::vector<Segment> pieces_;
    FixedArray<Worker> workers_;
    FixedArray<Slot> slots_;
    LossScaleState loss_scale_{};
    Saved saved_;
    /// In a replay, for each of its steps the last step whose batches are completed before one of its own.
    std::vector<std::int64_t> needs_;
    /// The steps that were queued, whose reports were made, and whose reports were read.
    std::int64_t next_ = 0, made_ = 0, reported_ = 0;
    bool is_running_ = false, centre_moved_ = false;
    /// Null in one process. Whether what is in it does not belong to this training's steps any more.
    std::unique_ptr<CommonCentre> common_;
    bool is_forgotten_ = true;
    /// The step at which the training was started or restored.
    std::int64_t first_step_ = 0;
    Probe probe_{};
    const Batch* shown_ = nullptr;

    /// The job of the threads, as an object that outlives it.
    struct Job {
        AsynchronousEngine* engine;
        void operator()(int device) const { engine->work(device); }
    } job_{this};

    std::mutex mutex_;
    std::condition_variable for_workers_, for_reader_;
    // With the mutex held while the job runs.
    std::int64_t queued_ = 0, next_claim_ = 0, reserved_ = -1, probed_step_ = -1;
    bool is_ending_ = false, is_stopped_ = false;
    std::exception_ptr failure_;
    /// For each batch number, the next place that is requested.
    FixedArray<std::int64_t> requested_;
    /// The turns that are known before the batches are computed, by replica.
    FixedArray<std::deque<Turn>> turns_of_;
    /// For each piece, the ticket that passes it next.
    FixedArray<std::int64_t> passed_;
    /// Those of this process, unless they are common.
    CommonCentre::Turns turns_;
    /// The number of each replica's last exchange.
    FixedArray<std::int64_t> last_exchange_;
    Open open_;
    /// The rows that a step counts.
    WeightedRows rows_;
    /// Held while the centre is copied or updated outside of an order.
    std::mutex centre_mutex_;
    /// The order since the last time that no step was in flight, from this step on.
    std::int64_t log_from_ = 0;
    std::vector<std::uint16_t> claims_log_, turns_log_;

    static constexpr std::int64_t piece_elements = 16384;
    /// In an error that is about the log which a run continues.
    static constexpr std::string_view to_be_continued = " that is to be continued";
};

}}}  // namespace cupola::CUPOLA_ABI::impl

#include <cupola/parallel/kinds/impl/asynchronous_batches.hpp>
#include <cupola/parallel/kinds/impl/asynchronous_centre.hpp>
#include <cupola/parallel/kinds/impl/asynchronous_state.hpp>
#include <cupola/parallel/kinds/impl/asynchronous_steps.hpp>
