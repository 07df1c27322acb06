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
// training work as they do with a StepEngine. Included by asynchronous_training.hpp.
#pragma once

#include <algorithm>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <deque>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <cupola/core/error.hpp>
#include <cupola/core/finite.hpp>
#include <cupola/core/fixed_array.hpp>
#include <cupola/core/function_ref.hpp>
#include <cupola/core/loss_scale.hpp>
#include <cupola/device/host.hpp>
#include <cupola/net/finite.hpp>
#include <cupola/ops/training_step.hpp>
#include <cupola/optim/elastic_update.hpp>
#include <cupola/optim/moving_average.hpp>
#include <cupola/optim/optimizer.hpp>
#include <cupola/parallel/agreement/step_agreement.hpp>
#include <cupola/parallel/averaging.hpp>
#include <cupola/parallel/concat_mean.hpp>
#include <cupola/parallel/impl/segments_of.hpp>
#include <cupola/parallel/kinds/centre_exchange.hpp>
#include <cupola/parallel/kinds/order.hpp>
#include <cupola/parallel/replicas/peers.hpp>
#include <cupola/parallel/replicas/replicas.hpp>
#include <cupola/parallel/replicas/sample_counts.hpp>
#include <cupola/parallel/replicas/weighted_rows.hpp>
#include <cupola/parallel/step/check.hpp>
#include <cupola/parallel/step/failure.hpp>
#include <cupola/parallel/step/replica_passes.hpp>
#include <cupola/parallel/step/shared_statistics.hpp>
#include <cupola/parallel/step/step_functions.hpp>
#include <cupola/parallel/step/step_probe.hpp>
#include <cupola/parallel/step/step_reports.hpp>
#include <cupola/parallel/step/step_trace.hpp>
#include <cupola/parallel/step_report.hpp>
#include <cupola/tensor/batch_memory.hpp>
#include <cupola/tensor/require_batch.hpp>

namespace cupola { inline namespace CUPOLA_ABI { namespace impl {

/// What AsynchronousEngine knows of its policy. There are no steps in which replicas agree.
template <class D, class T>
class AsynchronousAgreement final : public StepAgreement<D, T> {
public:
    using typename StepAgreement<D, T>::Step;

    AsynchronousAgreement(Replicas<D, T>& replicas, const AsynchronousRun& of, std::unique_ptr<CentreExchange> rule)
        : StepAgreement<D, T>(replicas),
          run(of),
          exchange(std::move(rule)),
          since(static_cast<std::size_t>(replicas.placement().replicas())) {}

    [[nodiscard]] Peers& peers() override { return none_; }
    bool agree(Step&) override { return true; }
    void wait(int, std::int64_t, bool) override {}
    void end(int) override {}
    [[nodiscard]] RowsAfter rows_after(std::int64_t) const override { return RowsAfter::other; }
    [[nodiscard]] std::string name_of_rule() const override { return run.rule; }
    [[nodiscard]] std::string_view replica_state_name(int) const override { return "fetched"; }
    [[nodiscard]] std::span<const std::int64_t> samples_since(std::int64_t) const override { return since; }
    void require_samples_since(std::span<const std::int64_t> batches) const override {
        for (const std::int64_t each : batches)
            require(each < exchange->every(), "the state is of another rule: a replica has ", each,
                    " batches since its last exchange, and exchanges every ", exchange->every());
    }
    void set_samples_since(std::int64_t, std::span<const std::int64_t> batches) override {
        std::ranges::fill(since, 0);
        std::copy_n(batches.begin(), std::min(batches.size(), since.size()), since.begin());
        ++changes;
    }

    const AsynchronousRun run;
    const std::unique_ptr<CentreExchange> exchange;
    /// The batches of each replica since its last exchange.
    FixedArray<std::int64_t> since;
    /// How often the state was set from outside.
    std::int64_t changes = 0;

private:
    Peers none_;
};

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
    using Inspector = typename StepProbe<D, T>::Inspector;
    using Probe = FunctionRef<void(AsynchronousEngine&)>;

    /// As those of StepEngine; the agreement is an AsynchronousAgreement.
    [[gnu::cold]] AsynchronousEngine(const StepFunctions<D>& functions, StepAgreement<D, T>& agreement,
                                     Replicas<D, T>& replicas, std::span<const RegularizedParameter> regularized,
                                     std::string_view policy);
    [[gnu::cold]] ~AsynchronousEngine();
    AsynchronousEngine(const AsynchronousEngine&) = delete;
    AsynchronousEngine& operator=(const AsynchronousEngine&) = delete;

    // The members of StepEngine.

    [[gnu::cold]] void run_in_step() {}
    [[nodiscard]] std::int64_t step() const { return next_; }
    void queue(BatchSource batches, Probe probe);
    [[gnu::cold]] void show(Inspector inspector) {
        inspection_.show(shown_->step, shown_->replica, passes_of(0).batches().of(shown_->replica),
                         replicas_.gradients().row(shown_->replica), inspector);
    }
    const StepReport* poll(std::int64_t max_in_flight);
    const StepReport& last_report();
    void synchronize();
    [[nodiscard]] SharedStatistics<D, T>& statistics() { return statistics_; }
    [[nodiscard]] double factor_of_row(int) { return 1; }
    [[gnu::cold]] void drain();
    [[gnu::cold]] void restart(std::int64_t step, std::span<const float> running, const LossScaleState& loss_scale);
    [[nodiscard]] const LossScaleState& loss_scale() const { return loss_scale_; }
    [[nodiscard]] bool healthy() const { return true; }
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
        /// Of each batch.
        FixedArray<Turn> turns;
        FixedArray<int> replicas;
    };
    /// Why the steps in flight are given up.
    struct Failure {
        std::exception_ptr error;
        /// Without an exception: what of the batch is not finite, and where.
        Batch batch;
        std::string what, where;
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
    [[nodiscard]] float* centre() { return replicas_.at(0).worker.centre(); }
    [[nodiscard]] float* averages() { return replicas_.at(0).worker.averages(); }
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
    void update_centre(int device, std::int64_t step);
    void fail(Failure failure);
    [[nodiscard, gnu::cold]] Failure not_finite(int device, const Batch& batch);

    // With the mutex held.

    /// The next turn, which is a replica's.
    Turn draw(int replica);
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

    void begin_job();
    void end_job();
    /// Waits until all batches of a step are complete, or the steps have failed.
    void wait_for(std::int64_t step);
    void make_report();
    [[noreturn, gnu::cold]] void roll_back();
    void forget();
    void check();
    void save();
    template <class Copy>
    void for_each_saved(Copy&& copy);
    void share_centre();
    void write_log();
    void require_log(std::int64_t step) const;
    static void require_complete(const OrderLog& log, std::int64_t step) {
        require(impl::is_complete_before(log, step), "the order log has batches in flight before step ", step,
                ": it is of another run, or that run had no checkpoint there");
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
    StepProbe<D, T> inspection_;
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
    std::int64_t queued_ = 0, next_claim_ = 0, reserved_ = -1;
    bool is_ending_ = false, is_stopped_ = false;
    std::optional<Failure> failure_;
    /// For each batch number, the next place that is requested.
    FixedArray<std::int64_t> requested_;
    /// The turns that are known before the batches are computed, by replica.
    FixedArray<std::deque<Turn>> turns_of_;
    /// For each piece, the ticket that passes it next.
    FixedArray<std::int64_t> passed_;
    std::int64_t turns_ = 0, tickets_ = 0, exchanges_ = 0;
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
};

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
      inspection_(replicas),
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
    const OrderLog* const log = replayed();
    if (log == nullptr) return;
    require(log->replicas == replica_count() && log->devices == replicas.placement().device_count() &&
                log->seed == functions.seed && log->rule == agreement_.run.rule,
            "the order log is of another training: it has ", log->replicas, " replicas on ", log->devices,
            " devices, seed ", log->seed, " and the rule ", log->rule, ", and this training has ", replica_count(),
            " on ", replicas.placement().device_count(), ", seed ", functions.seed, " and ", agreement_.run.rule);
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

// The steps.

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
            inspection_.begin();
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
    inspection_.rethrow();
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

// The job.

template <class D, class T>
void AsynchronousEngine<D, T>::work(int device) {
    State& state = replicas_.at(device);
    Batch batch;
    try {
        [[maybe_unused]] const auto team = state.context().team();
        while (claim(device, batch)) compute(device, batch);
    } catch (const Stopped&) {
    } catch (...) {
        fail({.error = std::current_exception(), .batch = batch, .what = {}, .where = {}});
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
        const auto owner = [&] { return placement.device_of(log->claims[static_cast<std::size_t>(number)]); };
        while (number < last && owner() != device) ++number;
        own.begun = number;
        if (number >= last) return false;
        replica = log->claims[static_cast<std::size_t>(number)];
        number += log->first_step * replica_count();
    } else if (is_ordered()) {
        const std::int64_t step = first_step_ + own.begun / count;
        if (step >= queued_) return false;
        number = step * replica_count() + replica;
    } else if (reserved_ >= 0 && device == 0) {
        number = std::exchange(reserved_, -1);
        replica = first;
    } else {
        if (next_claim_ >= end) return false;
        number = next_claim_++;
    }
    ++own.begun;
    batch = {
        .step = number / replica_count(), .number = static_cast<int>(number % replica_count()), .replica = replica};
    claims_log_[static_cast<std::size_t>(number - log_from_ * replica_count())] = static_cast<std::uint16_t>(replica);
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
    state.worker.plans().parameters_changed();
    const auto source = [&](std::int64_t place, int, Context& context) { return take(own, batch, place, context); };
    try {
        own.passes->queue_replica(step, batch.replica, source);
    } catch (const Late&) {
        return;
    }
    const std::int64_t samples = own.counts->of_replica(batch.step, batch.number);
    require(samples > 0, "batch ", batch.number, " of step ", batch.step, " has no samples, and a batch of ", policy_,
            " needs some");
    double weight = 0;
    const bool is_finite_here = finish_gradient(device, batch, weight);
    if (counts_first() && is_late(batch)) return;
    if (!is_finite_here) {
        // The step does not become complete: its report would be read before the failure is known.
        publish_results(device, batch);
        {
            const std::scoped_lock lock(mutex_);
            if (counts_first() && batch.step != open_.step) return;
            count_samples(device, batch);
        }
        return fail(not_finite(device, batch));
    }
    if (probe_ && device == 0 && batch.number == 0 && batch.replica == 0) {
        shown_ = &batch;
        probe_(*this);
    }
    if (counts_first()) return give_gradient(device, batch, weight);
    sum_regularized(device, batch);
    Turn turn;
    std::int64_t since = 0;
    {
        std::unique_lock lock(mutex_);
        if (is_ordered()) {
            // The turn of a batch in a log may be behind those of a step that is not queued yet.
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
    if (!is_ordered()) {
        const std::scoped_lock lock(mutex_);
        turn = draw(batch.replica);
    }
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
auto AsynchronousEngine<D, T>::not_finite(int device, const Batch& batch) -> Failure {
    State& state = replicas_.at(device);
    Failure failure{.error = nullptr, .batch = batch, .what = {}, .where = {}};
    double sum = 0;
    const SampleCounts& counts = *workers_[static_cast<std::size_t>(device)].counts;
    std::int64_t samples = 0;
    for (int part = 0; part < functions_.gradient_accumulation_steps; ++part) {
        if (counts.of(batch.step, part, batch.number) == 0) continue;
        sum += state.layout.report(state.queue->status(), replicas_.placement().batch_number(batch.replica, part))->sum;
        samples += counts.of(batch.step, part, batch.number);
    }
    const bool is_loss = !is_finite(sum);
    failure.what = is_loss ? text("the loss of replica ", batch.replica, " is ", sum / static_cast<double>(samples))
                           : text("the gradient of replica ", batch.replica, " is not finite");
    const TakenBatch& taken = passes_of(device).batches().of(batch.replica);
    Plan<Kernels, T>& plan = state.worker.plans().inspection(replicas_.network().make, taken.batch.size);
    failure.where = first_not_finite(state.worker, plan, replicas_.network().layers,
                                     replicas_.parameters(batch.replica), taken.batch, taken.key);
    if (!failure.where.empty() || is_loss) return failure;
    const auto element = static_cast<std::int64_t>(*state.layout.not_finite(state.queue->status(), batch.replica)) - 1;
    failure.where =
        text("every output is finite; the gradient of ", parameter_at(replicas_.network().layers, element), " is not");
    return failure;
}

template <class D, class T>
void AsynchronousEngine<D, T>::sum_regularized(int device, const Batch& batch) {
    const ReplicaPlacement& placement = replicas_.placement();
    const int owner = placement.device_of(batch.number);
    // The report of a device's first batch says the sums for all of them.
    if (batch.number != placement.first_replica(owner)) return;
    State& state = replicas_.at(device);
    const Stopwatch watch(state.worker.times(), StepPart::regularization);
    double* const to = StatusLayout::regularization(replicas_.at(owner).queue->landed(batch.step));
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
    if (exchanges && agreement_.exchange->takes_position()) {
        // The difference to zeros, which the average of the gradients is here.
        functions_.update(u, {.centre = replicas_.gradients().average(0), .difference = row, .moving_rate = 0});
    } else {
        functions_.update(u);
    }
}

template <class D, class T>
auto AsynchronousEngine<D, T>::draw(int replica) -> Turn {
    const auto r = static_cast<std::size_t>(replica);
    const CentreExchange& exchange = *agreement_.exchange;
    Turn turn;
    turn.since = agreement_.since[r];
    turn.exchanges = exchange.is_due(turn.since);
    agreement_.since[r] = (turn.since + 1) % exchange.every();
    turn.number = ++turns_;
    turn.averages = functions_.moving_average.on() && turns_ % replica_count() == 0;
    if (turn.exchanges) {
        turn.staleness = exchanges_ - last_exchange_[r] - 1;
        last_exchange_[r] = exchanges_++;
    }
    if (exchange.is_ordered() && (turn.exchanges || turn.averages)) turn.ticket = tickets_++;
    turns_log_.push_back(static_cast<std::uint16_t>(replica));
    return turn;
}

template <class D, class T>
void AsynchronousEngine<D, T>::pass_centre(int device, const Batch& batch, const Turn& turn) {
    if (!turn.exchanges && !turn.averages) return;
    const Stopwatch watch(replicas_.at(device).worker.times(), StepPart::averaging);
    if (turn.ticket < 0) {
        // The average alone has an order, but none that is known.
        std::unique_lock lock(centre_mutex_, std::defer_lock);
        if (turn.averages) lock.lock();
        for_each_segment([&](const Segment& each) { pass_segment(device, batch, turn, each); });
        return;
    }
    for (std::size_t i = 0; i < pieces_.size(); ++i) {
        {
            std::unique_lock lock(mutex_);
            for_workers_.wait(lock, [&] { return is_stopped_ || passed_[i] == turn.ticket; });
            if (is_stopped_) throw Stopped();
        }
        pass_segment(device, batch, turn, pieces_[i]);
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
    double divisor = replicas_.settings().constant_loss_scale();
    if (replicas_.settings().weighted) divisor *= weight / static_cast<double>(rows_.total_samples());
    if (divisor != 1) scale(state.context(), mean, 1 / divisor);
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
                                      .step = step});
    if (!functions_.moving_average.on()) return;
    functions_.moving_average.template update<Kernels>(state.context(), averages(), centre(),
                                                       replicas_.network().trained_elements, step + 1);
}

template <class D, class T>
void AsynchronousEngine<D, T>::fail(Failure failure) {
    {
        const std::scoped_lock lock(mutex_);
        is_stopped_ = true;
        if (!failure_) failure_ = std::move(failure);
    }
    for_workers_.notify_all();
    for_reader_.notify_all();
}

// The state.

template <class D, class T>
template <class Copy>
void AsynchronousEngine<D, T>::for_each_saved(Copy&& copy) {
    const ReplicaPlacement& placement = replicas_.placement();
    const std::size_t state = static_cast<std::size_t>(replicas_.settings().state_arenas) * replicas_.elements();
    for (int r = 0; r < replica_count(); ++r) {
        copy(std::span(replicas_.parameters(r), replicas_.all_elements()));
        copy(std::span(replicas_.at(placement.device_of(r)).worker.state(placement.copy_of(r)), state));
    }
    copy(std::span(centre(), replicas_.all_elements()));
    copy(std::span(replicas_.at(0).worker.centre_state(),
                   static_cast<std::size_t>(replicas_.settings().centre_states) * replicas_.elements()));
    if (functions_.moving_average.on()) copy(std::span(averages(), replicas_.elements()));
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
        for (int r = 0; r < replica_count(); ++r) require_finite(replicas_.parameters(r), text(" of replica ", r));
        require_finite(centre(), " of the centre");
        const std::string found = all_finite(statistics_.values())
                                      ? std::string()
                                      : invalid_buffer(replicas_.network().layers, statistics_.values());
        if (!found.empty()) throw_update_diverged(next_ - 1, text("running statistic ", found));
    } catch (const DivergedError&) {
        fail({.error = std::current_exception(), .batch = {}, .what = {}, .where = {}});
        roll_back();
    }
    save();
}

template <class D, class T>
void AsynchronousEngine<D, T>::roll_back() {
    end_job();
    Failure failure = std::move(*failure_);
    std::exception_ptr error = failure.error;
    const std::int64_t step = failure.batch.step;
    if (error == nullptr) {
        try {
            // A label or an id that is not valid.
            static_cast<void>(reports_.part_not_finite(step, failure.batch.number));
            throw DivergedError(text(failure.what, " at step ", step, failure.where.empty() ? "" : ": ", failure.where,
                                     "; training diverged or a batch holds numbers that are not finite; the training "
                                     "has the state of step ",
                                     saved_.step, ", the last that was checked"),
                                step, failure.batch.replica);
        } catch (...) {
            error = std::current_exception();
        }
    }
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
    for (int r = 0; r < replica_count(); ++r) std::copy(zeros.begin(), zeros.end(), replicas_.gradients().row(r));
    next_ = saved_.step;
    forget();
    centre_moved_ = true;
    share_centre();
    std::rethrow_exception(error);
}

template <class D, class T>
void AsynchronousEngine<D, T>::share_centre() {
    if (!std::exchange(centre_moved_, false)) return;
    for (int device = 0; device < replicas_.placement().device_count(); ++device) {
        auto& worker = replicas_.at(device).worker;
        worker.plans().parameters_changed();
        if (device == 0) continue;
        std::copy_n(centre(), replicas_.all_elements(), worker.centre());
        std::copy_n(replicas_.at(0).worker.centre_state(),
                    static_cast<std::size_t>(replicas_.settings().centre_states) * replicas_.elements(),
                    worker.centre_state());
        if (functions_.moving_average.on()) std::copy_n(averages(), replicas_.elements(), worker.averages());
    }
}

template <class D, class T>
void AsynchronousEngine<D, T>::require_log(std::int64_t step) const {
    if (const OrderLog* const log = replayed()) {
        require(step >= log->first_step && step < log->end_step(), "the order log has the steps ", log->first_step,
                " to ", log->end_step() - 1, ", and not step ", step);
        // Later ones are those before which the training has waited.
        if (step == first_step_) require_complete(*log, step);
    }
    const OrderLog* const log = agreement_.run.log.get();
    if (log == nullptr || log->replicas == 0 || step != log_from_) return;
    require(log->replicas == replica_count() && log->devices == replicas_.placement().device_count() &&
                log->seed == functions_.seed && log->rule == agreement_.run.rule,
            "the order log that is to be continued is of another training: it has ", log->replicas, " replicas on ",
            log->devices, " devices, seed ", log->seed, " and the rule ", log->rule);
    require(step >= log->first_step && step <= log->end_step(), "the order log that is to be continued has the steps ",
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
        fail({.error = std::current_exception(), .batch = {}, .what = {}, .where = {}});
        roll_back();
    }
}

template <class D, class T>
void AsynchronousEngine<D, T>::write_log() {
    if (log_from_ == next_) return;
    if (OrderLog* const log = agreement_.run.log.get()) {
        if (log->replicas == 0)
            *log = {.replicas = replica_count(),
                    .devices = replicas_.placement().device_count(),
                    .seed = functions_.seed,
                    .rule = agreement_.run.rule,
                    .first_step = log_from_};
        const auto kept = static_cast<std::size_t>((log_from_ - log->first_step) * replica_count());
        log->claims.resize(kept);
        log->turns.resize(kept);
        log->claims.insert(log->claims.end(), claims_log_.begin(), claims_log_.end());
        log->turns.insert(log->turns.end(), turns_log_.begin(), turns_log_.end());
    }
    claims_log_.clear();
    turns_log_.clear();
    log_from_ = next_;
}

}}}  // namespace cupola::CUPOLA_ABI::impl
