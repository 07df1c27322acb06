// SPDX-License-Identifier: Apache-2.0
//
// Agreement between processes: each tells the others what it knows of its replicas, all average, and all vote on whether the
// step counts. The policy's function of the rows averages in slices of the columns, in the order of the replicas of all
// processes, with the bits of one process; or the engine adds the weighted sums of the processes.
//
//   records of all | (slices of the rows) | mean of the own slice | vote | (slices of the mean)
//
// Where the processes have memory in common, all rows and the average are in it, and what is in brackets is left out.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <exception>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <cupola/core/fixed_array.hpp>
#include <cupola/net/step_times.hpp>
#include <cupola/ops/training_step.hpp>
#include <cupola/parallel/agreement.hpp>
#include <cupola/parallel/impl/agreement_of.hpp>
#include <cupola/parallel/impl/other_processes.hpp>
#include <cupola/parallel/impl/process_gather.hpp>
#include <cupola/parallel/impl/replica_records.hpp>
#include <cupola/parallel/impl/rows_agreement.hpp>
#include <cupola/parallel/impl/same_settings.hpp>
#include <cupola/parallel/impl/same_training.hpp>
#include <cupola/parallel/impl/weighted_rows.hpp>
#include <cupola/parallel/processes.hpp>
#include <cupola/tensor/algorithms.hpp>

namespace cupola::inline CUPOLA_ABI {

namespace impl {

template <class A, class D, class T>
class ProcessAgreement : public AgreementInProcess<D, T>, public OtherProcesses {
    using Kernels = typename D::Kernels;
    using Base = AgreementInProcess<D, T>;
    using Base::set_;

public:
    static constexpr bool separate_average = false, own_parameters = false, takes_buckets = false;
    [[nodiscard]] static std::int64_t sums(std::int64_t) { return 0; }
    [[nodiscard]] static std::int64_t bucket_elements(const A&) { return 0; }

    [[gnu::cold]] ProcessAgreement(const A& policy, ReplicaSet<D, T>& set);
    ProcessAgreement(const ProcessAgreement&) = delete;
    ProcessAgreement& operator=(const ProcessAgreement&) = delete;
    ~ProcessAgreement() = default;

    bool agree(int device, SampleCounts& samples, std::int64_t step, bool);
    /// Each device has reduced its slice.
    void reduce(int, std::byte*) {}
    [[nodiscard]] const float* gradient_of(int device, int) const { return set_.average(device); }
    void after_update(int, std::int64_t) {}

    [[nodiscard]] const LossReport& report_of(int replica, int part) const override {
        return *records_.report(replica, part);
    }
    [[nodiscard]] const LossReport* reports_of_losses(int replica, int part) const override {
        return records_.reports_of_losses(replica, part);
    }
    [[nodiscard]] const float* statistics_of(int replica, int part) const override {
        return records_.statistics(replica, part);
    }
    void exchange_sums(std::int64_t step, const std::exception_ptr& error, double* sums, std::size_t size,
                       std::span<const double*> contributions) override;
    void require_same_hashes(std::int64_t step, std::uint64_t parameters, std::span<const float> running,
                             int differs) override;
    [[nodiscard]] int largest(std::int64_t step, int value) override {
        const std::vector<int> all = gathered(*processes_, {"the end of the run", step}, value);
        return *std::max_element(all.begin(), all.end());
    }
    void require_same(std::span<const std::pair<std::string, std::string>> settings) override {
        require_same_settings(*processes_, settings);
    }
    void exchange_texts(std::int64_t step, std::span<std::string> of_replicas) override;

private:
    /// As in StatusBlock::not_finite. A vote is a StepOfProcess, whether the average is finite, and the end of each replica.
    using Ends = unsigned long long;

    /// Runs `exchange` on the first device, also after an error of this process, while the other devices wait. Returns false
    /// if a process has failed.
    template <class Exchange>
    bool in_all(int device, Exchange&& exchange);

    void exchange_records(SampleCounts& samples, std::int64_t step);
    void exchange_rows(std::int64_t step);
    void exchange_average(std::int64_t step);
    void vote(std::int64_t step);

    void queue_divisor(int device, const SampleCounts& samples, std::int64_t step);
    /// The part of the columns that a device averages.
    [[nodiscard]] ReplicaPlacement::ColumnRange columns_of(int device) const;
    void average(int device, const SampleCounts& samples, std::int64_t step);
    /// Divides a device's part by the loss scale, and records what is not finite.
    void reduce_part(int device);

    /// A replica's gradient from column `begin` of this process's slice on; null if it is not here.
    [[nodiscard]] const float* row_from(int replica, std::int64_t begin) const {
        if (const float* const row = set_.row(replica)) return row + begin;
        if (received_.empty()) return nullptr;
        return received_.data() + static_cast<std::int64_t>(replica) * (slice_.end - slice_.begin) + begin -
               slice_.begin;
    }
    /// Whether rows and averages move between processes in messages.
    [[nodiscard]] bool moves_slices() const { return !received_.empty(); }

    A policy_;
    /// Whether the rows of all are averaged in slices; otherwise the processes add their sums.
    bool by_rows_;
    /// Null for a training in one process.
    Processes* processes_;
    ReplicaPlacement::ColumnRange slice_{0, 0};
    ReplicaRecords records_;
    ProcessGather sums_, votes_;
    /// The slices of the rows of other processes, where those are not in common memory.
    FixedArray<float> received_;
    std::vector<ProcessMessage> rows_out_, rows_in_, average_out_, average_in_;
    /// Per device: whether its part of the average is finite, and where the rows are not.
    FixedArray<std::int32_t> finite_;
    FixedArray<FixedArray<Ends>> ends_;
    FixedArray<WeightedRows> rows_;
    FixedArray<FixedArray<float>> weights_;
    bool voted_finite_ = true, made_sums_ = false;
};

template <class A, class D, class T>
    requires(SpansProcesses<A>)
struct AgreementOf<A, D, T> {
    using Type = ProcessAgreement<A, D, T>;
};

template <class A, class D, class T>
ProcessAgreement<A, D, T>::ProcessAgreement(const A& policy, ReplicaSet<D, T>& set)
    : Base(set),
      policy_(policy),
      by_rows_(!adds_sums(policy)),
      processes_(set.processes()),
      finite_(static_cast<std::size_t>(set.device_count())),
      ends_(finite_.size()),
      rows_(finite_.size()),
      weights_(finite_.size()) {
    const std::int64_t elements = set.network().trained_elements;
    const auto replicas = static_cast<std::size_t>(set.replicas());
    for (auto& each : ends_) each = FixedArray<Ends>(replicas);
    for (WeightedRows& each : rows_) each = WeightedRows(set.replicas());
    for (auto& each : weights_) each = FixedArray<float>(replicas);
    slice_ = {0, elements};
    if (processes_ == nullptr) return;
    set.join(*this);
    records_ = ReplicaRecords(*processes_, set.replicas_per_process(), set.gradient_accumulation_steps(), set.losses(),
                              set.network().buffer_elements);
    votes_ = ProcessGather(*processes_, sizeof(StepOfProcess) + (1 + replicas) * sizeof(Ends));
    if (by_rows_) {
        const int me = processes_->number(), here = set.replicas_per_process(), count = processes_->count();
        slice_ = set.columns_of_process(me, elements);
        if (set.row((me + 1) % count * here) != nullptr) return;  // in common memory
        const std::int64_t width = slice_.end - slice_.begin;
        received_ = FixedArray<float>(std::max<std::size_t>(1, replicas * static_cast<std::size_t>(width)));
        const auto add = [](std::vector<ProcessMessage>& to, int process, float* from, std::int64_t floats) {
            if (floats > 0)
                to.push_back(
                    {process, reinterpret_cast<std::byte*>(from), static_cast<std::size_t>(floats) * sizeof(float)});
        };
        for (int p = 0; p < count; ++p) {
            if (p == me) continue;
            const auto [begin, end] = set.columns_of_process(p, elements);
            for (int r = 0; r < here; ++r) {
                add(rows_out_, p, set.row(me * here + r) + begin, end - begin);
                add(rows_in_, p, received_.data() + (p * here + r) * width, width);
            }
            add(average_out_, p, set.average(0) + slice_.begin, width);
            add(average_in_, p, set.average(0) + begin, end - begin);
        }
    }
}

template <class A, class D, class T>
template <class Exchange>
bool ProcessAgreement<A, D, T>::in_all(int device, Exchange&& exchange) {
    static_cast<void>(set_.arrive_and_wait(device));
    if (device == 0) set_.attempt_always(0, [&] { exchange(); });
    return set_.arrive_and_wait(device);
}

template <class A, class D, class T>
bool ProcessAgreement<A, D, T>::agree(int device, SampleCounts& samples, std::int64_t step, bool) {
    auto& state = set_.at(device);
    state.attempt([&] { Base::wait_for_queue(device, step); });
    if (!in_all(device, [&] { exchange_records(samples, step); })) return false;
    if (moves_slices() && !in_all(device, [&] { exchange_rows(step); })) return false;
    state.attempt([&] {
        require(samples.of_step(step) > 0, "step ", step, " has no samples on any replica");
        queue_divisor(device, samples, step);
        average(device, samples, step);
    });
    if (!by_rows_) {
        if (!in_all(device, [&] {
                if (processes_ != nullptr && !set_.first_error())
                    processes_->sum({"the sum of the gradients", step}, set_.average_span(0));
            }))
            return false;
    }
    state.attempt([&] { reduce_part(device); });
    if (!in_all(device, [&] { vote(step); })) return false;
    if (!voted_finite_) {
        std::byte* const block = state.queue->status();
        state.queue->write(StatusBlock::healthy(block), std::int32_t{0});
        for (int r = 0; r < set_.replicas(); ++r) {
            Ends* const end = set_.status(device).not_finite(block, r);
            for (const auto& each : ends_) *end = std::max(*end, each[static_cast<std::size_t>(r)]);
        }
    }
    return !moves_slices() || in_all(device, [&] { exchange_average(step); });
}

template <class A, class D, class T>
void ProcessAgreement<A, D, T>::exchange_records(SampleCounts& samples, std::int64_t step) {
    if (processes_ == nullptr) return;
    const Stopwatch watch(set_.at(0).worker.times(), StepPart::waiting);
    const std::exception_ptr error = set_.first_error();
    begin_block(records_.gather().mine(), step, error);
    const int first = set_.first_replica(0), last = set_.first_replica(set_.device_count());
    for (int r = first; !error && r < last; ++r) {
        for (int part = 0; part < set_.gradient_accumulation_steps(); ++part)
            records_.write(r, part, samples.of(step, part, r), &set_.report_of(step, r, part),
                           set_.reports_of_losses(step, r, part), set_.statistics_of(step, r, part));
    }
    records_.gather().run({"the records of the replicas", step});
    require_all_in_step(records_.gather(), *processes_, step);
    for (int r = 0; r < set_.replicas(); ++r) {
        if (set_.is_here(r)) continue;
        for (int part = 0; part < set_.gradient_accumulation_steps(); ++part)
            samples.of(step, part, r) = records_.samples(r, part);
    }
}

template <class A, class D, class T>
void ProcessAgreement<A, D, T>::exchange_rows(std::int64_t step) {
    const Stopwatch watch(set_.at(0).worker.times(), StepPart::averaging);
    processes_->exchange({"the slices of the gradients", step}, rows_out_, rows_in_);
}

template <class A, class D, class T>
void ProcessAgreement<A, D, T>::exchange_average(std::int64_t step) {
    const Stopwatch watch(set_.at(0).worker.times(), StepPart::averaging);
    processes_->exchange({"the slices of the average", step}, average_out_, average_in_);
}

template <class A, class D, class T>
void ProcessAgreement<A, D, T>::vote(std::int64_t step) {
    const std::size_t replicas = ends_[0].size();
    FixedArray<Ends>& mine = ends_[0];
    Ends finite = 1;
    for (std::size_t d = 0; d < finite_.size(); ++d) {
        if (finite_[d] == 0) finite = 0;
        for (std::size_t r = 0; r < replicas; ++r) mine[r] = std::max(mine[r], ends_[d][r]);
    }
    voted_finite_ = finite != 0;
    if (processes_ == nullptr) return;
    const Stopwatch watch(set_.at(0).worker.times(), StepPart::waiting);
    begin_block(votes_.mine(), step, set_.first_error());
    std::memcpy(votes_.mine() + sizeof(StepOfProcess), &finite, sizeof finite);
    std::memcpy(votes_.mine() + sizeof(StepOfProcess) + sizeof finite, mine.data(), replicas * sizeof(Ends));
    votes_.run({"the vote on the step", step});
    require_all_in_step(votes_, *processes_, step);
    for (int p = 0; p < processes_->count(); ++p) {
        const std::byte* const vote = votes_.of(p) + sizeof(StepOfProcess);
        Ends one = 0;
        std::memcpy(&one, vote, sizeof one);
        if (one == 0) finite = 0;
        for (std::size_t r = 0; r < replicas; ++r) {
            std::memcpy(&one, vote + (1 + r) * sizeof one, sizeof one);
            mine[r] = std::max(mine[r], one);
        }
    }
    voted_finite_ = finite != 0;
}

template <class A, class D, class T>
void ProcessAgreement<A, D, T>::queue_divisor(int device, const SampleCounts& samples, std::int64_t step) {
    if (!set_.weighted()) return;
    double weight = 0;
    for (int part = 0; part < set_.gradient_accumulation_steps(); ++part) {
        for (int r = 0; r < set_.replicas(); ++r) {
            if (samples.of(step, part, r) > 0) weight += set_.report_of(step, r, part).weight;
        }
    }
    // As weigh() of a single device computes it.
    const double scale = set_.network().loss_scale / static_cast<double>(samples.of_step(step));
    typename D::Queue& queue = *set_.at(device).queue;
    queue.write(StatusBlock::divisor(queue.status()), static_cast<float>(scale * weight));
}

template <class A, class D, class T>
auto ProcessAgreement<A, D, T>::columns_of(int device) const -> ReplicaPlacement::ColumnRange {
    if (by_rows_) return set_.columns_of(device);
    // The devices of each process add all columns of its rows.
    return ReplicaPlacement(set_.device_count(), set_.device_count(), false)
        .columns_of(device, set_.network().trained_elements);
}

template <class A, class D, class T>
void ProcessAgreement<A, D, T>::average(int device, const SampleCounts& samples, std::int64_t step) {
    const auto index = static_cast<std::size_t>(device);
    finite_[index] = 1;
    std::fill(ends_[index].begin(), ends_[index].end(), 0);
    const auto [begin, end] = columns_of(device);
    const auto columns = static_cast<std::size_t>(end - begin);
    if (set_.average_in_place()) return;
    const Stopwatch watch(set_.at(device).worker.times(), StepPart::averaging);
    const std::span<float> part = set_.average_span(device).subspan(static_cast<std::size_t>(begin), columns);
    if (part.empty()) return;
    WeightedRows& rows = rows_[index];
    rows.clear();
    if (by_rows_) {
        for (int r = 0; r < set_.replicas(); ++r) rows.add(row_from(r, begin), samples.of_replica(step, r));
        policy_.rows.average(set_.context(device),
                             {.rows = rows.rows(),
                              .samples = rows.samples(),
                              .total_samples = rows.total_samples(),
                              .columns = end - begin},
                             part);
    } else {
        for (int r = set_.first_replica(0); r < set_.first_replica(set_.device_count()); ++r)
            rows.add(set_.row(r) + begin, samples.of_replica(step, r));
        FixedArray<float>& weights = weights_[index];
        for (std::size_t i = 0; i < rows.rows().size(); ++i) {
            weights[i] =
                static_cast<float>(static_cast<double>(rows.samples()[i]) / static_cast<double>(samples.of_step(step)));
        }
        ops::TrainingStep<Kernels>::weighted_sum(set_.context(device), rows.rows(),
                                                 {weights.data(), rows.rows().size()}, part);
    }
}

template <class A, class D, class T>
void ProcessAgreement<A, D, T>::reduce_part(int device) {
    const auto index = static_cast<std::size_t>(device);
    const auto [begin, end] = columns_of(device);
    const std::span<float> part =
        set_.average_span(device).subspan(static_cast<std::size_t>(begin), static_cast<std::size_t>(end - begin));
    const Stopwatch watch(set_.at(device).worker.times(), StepPart::averaging);
    auto& context = set_.context(device);
    const float divisor = *StatusBlock::divisor(set_.at(device).queue->status());
    using Step = ops::TrainingStep<Kernels>;
    Step::mean(context, part, &divisor, part, &finite_[index]);
    if (finite_[index] != 0) return;
    constexpr float one = 1;
    for (int r = 0; r < set_.replicas(); ++r) {
        const float* const row = row_from(r, begin);
        if (row == nullptr) continue;
        Step::mean(context, part, &one, part, &finite_[index],
                   {.rows = row,
                    .stride = 0,
                    .count = 1,
                    .first_column = begin,
                    .ends = &ends_[index][static_cast<std::size_t>(r)]});
    }
}

template <class A, class D, class T>
void ProcessAgreement<A, D, T>::exchange_sums(std::int64_t step, const std::exception_ptr& error, double* sums,
                                              std::size_t size, std::span<const double*> contributions) {
    const auto here = static_cast<std::size_t>(set_.replicas_per_process());
    const std::size_t bytes_of_sums = here * size * sizeof(double), flags = here * sizeof(std::int64_t);
    if (!made_sums_) sums_ = ProcessGather(*processes_, sizeof(StepOfProcess) + flags + bytes_of_sums);
    made_sums_ = true;
    const auto first_of = [&](int p) { return static_cast<std::size_t>(p) * here; };
    const std::size_t mine = first_of(processes_->number());
    begin_block(sums_.mine(), step, error);
    for (std::size_t i = 0; i < here; ++i) {
        const std::int64_t there = contributions[mine + i] != nullptr ? 1 : 0;
        std::memcpy(sums_.mine() + sizeof(StepOfProcess) + i * sizeof there, &there, sizeof there);
    }
    std::memcpy(sums_.mine() + sizeof(StepOfProcess) + flags, sums + mine * size, bytes_of_sums);
    sums_.run({"the statistics of the batches", step});
    require_all_in_step(sums_, *processes_, step);
    for (int p = 0; p < processes_->count(); ++p) {
        if (p == processes_->number()) continue;
        const std::byte* const from = sums_.of(p) + sizeof(StepOfProcess);
        for (std::size_t i = 0; i < here; ++i) {
            std::int64_t there = 0;
            std::memcpy(&there, from + i * sizeof there, sizeof there);
            contributions[first_of(p) + i] = there != 0 ? sums + (first_of(p) + i) * size : nullptr;
        }
        std::memcpy(sums + first_of(p) * size, from + flags, bytes_of_sums);
    }
}

template <class A, class D, class T>
void ProcessAgreement<A, D, T>::require_same_hashes(std::int64_t step, std::uint64_t parameters,
                                                    std::span<const float> running, int differs) {
    struct Hashes {
        std::uint64_t parameters, running;
        std::int64_t differs;
    };
    const auto all = gathered(*processes_, {"the hash of the parameters", step},
                              Hashes{parameters, hash_of(set_.context(0), running), differs});
    for (std::size_t p = 0; p < all.size(); ++p) {
        if (all[p].differs >= 0)
            throw ReplicasDiffer(text("after step ", step, " the parameters of device ", all[p].differs, " of process ",
                                      p, " differ from those of its device 0: a device computed a different result"),
                                 step, static_cast<int>(all[p].differs));
        const bool same = all[p].parameters == all[0].parameters;
        if (same && all[p].running == all[0].running) continue;
        throw ReplicasDiffer(
            text("after step ", step, " the ", same ? "running statistics" : "parameters", " of process ", p,
                 " differ from those of process 0: a process computed a different "
                 "result"),
            step, 0);
    }
}

template <class A, class D, class T>
void ProcessAgreement<A, D, T>::exchange_texts(std::int64_t step, std::span<std::string> of_replicas) {
    std::string joined;
    const auto here = static_cast<std::size_t>(set_.replicas_per_process());
    for (std::size_t i = 0; i < here; ++i)
        joined += of_replicas[static_cast<std::size_t>(set_.first_replica(0)) + i] + '\n';
    const std::vector<std::string> all =
        gathered_texts(*processes_, {"the search for what is not finite", step}, joined);
    for (std::size_t r = 0; r < of_replicas.size(); ++r) {
        std::string_view rest = all[r / here];
        for (std::size_t i = 0; i < r % here; ++i) rest.remove_prefix(std::min(rest.size(), rest.find('\n') + 1));
        of_replicas[r] = std::string(rest.substr(0, rest.find('\n')));
    }
}

}  // namespace impl

}  // namespace cupola::inline CUPOLA_ABI
