// SPDX-License-Identifier: Apache-2.0
//
// CentreAgreement: replicas with parameters of their own agree on their centre by a CentreRule. Between agreements each
// replica is updated with its own gradient. After the update of a step in which they agree, the rows of the gradients,
// which are free then, hold the replicas' differences to the centre, and the agreement inside averages them as it
// averages gradients. Each device moves its own centre by the mean, of the whole arena or of one fragment, after the
// same update or a later one.
//
// Included by the header of each policy that agrees on a centre.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include <cupola/core/error.hpp>
#include <cupola/core/fixed_array.hpp>
#include <cupola/net/stopwatch.hpp>
#include <cupola/ops/training_step.hpp>
#include <cupola/optim/elastic_update.hpp>
#include <cupola/optim/moving_average.hpp>
#include <cupola/optim/update_parameters.hpp>
#include <cupola/parallel/agreement.hpp>
#include <cupola/parallel/agreement/local_devices.hpp>
#include <cupola/parallel/agreement/row_averaging.hpp>
#include <cupola/parallel/agreement/step_agreement.hpp>
#include <cupola/parallel/kinds/centre_rows.hpp>
#include <cupola/parallel/kinds/centre_rule.hpp>
#include <cupola/parallel/kinds/centre_updates.hpp>
#include <cupola/parallel/kinds/outer_optimizer.hpp>
#include <cupola/parallel/replicas/replicas.hpp>

namespace cupola { inline namespace CUPOLA_ABI { namespace impl {

template <class D, class T>
class CentreAgreement final : public StepAgreement<D, T> {
    using Kernels = typename D::Kernels;
    using Step = DeviceStep<D, T>;
    using Outer = OuterOptimizer<Kernels>;
    using StepAgreement<D, T>::replicas_;

public:
    /// `outer` may be null. `policy` is the name of the policy, for errors.
    [[gnu::cold]] CentreAgreement(std::string_view policy, const CentreRule& rule, std::unique_ptr<const Outer> outer,
                                  std::unique_ptr<RowAveraging<D, T>> rows, Replicas<D, T>& replicas);
    [[gnu::cold]] ~CentreAgreement() override;

    [[nodiscard]] Peers& peers() override { return rows_->peers(); }
    [[nodiscard]] ProcessGroup* processes() override { return rows_->processes(); }
    void begin(std::int64_t step, const SampleCounts& samples, std::span<const float> running) override {
        rows_->begin(step, samples, running);
        const std::int64_t moves = rule_.moves_in(step);
        if (outer_ == nullptr || moves < 0) return;
        const std::int64_t agreement = rule_.agreement_of(step, moves);
        const double rate = outer_->learning_rate_at(agreement);
        require(is_finite(rate) && rate >= 0, "the outer learning rate of agreement ", agreement, " is ", rate,
                "; the step is not made");
    }
    void wait(int device, std::int64_t step, bool finished) override { rows_->wait(device, step, finished); }
    void end(int device) override { rows_->end(device); }
    void break_off(int device, std::int64_t step, const std::string& why) override {
        rows_->break_off(device, step, why);
    }
    [[nodiscard]] bool healthy() const override { return rows_->healthy(); }
    void bind(std::span<const Segment> of_update, const MovingAverage& average) override {
        segments_ = of_update;
        for (const ColumnRange& each : columns_) {
            of_fragments_.push_back(segments_within(of_update, each.begin, each.end));
            outer_of_fragments_.push_back(outer_segments(of_fragments_.back()));
        }
        average_ = average;
    }

    bool agree(Step& step) override;
    void reduce(int device, std::int64_t step) override;
    [[nodiscard]] UpdateGradient gradient(int device, int replica, std::int64_t step) override {
        if (rule_.averages_gradients(step)) return rows_->gradient(device, replica, step);
        return {replicas_.gradients().row(replica), &replicas_.at(device).status()->divisor};
    }
    /// A replica without samples keeps its parameters and the optimiser's state.
    [[nodiscard]] bool moves(int device, int copy, std::int64_t step) const override {
        return moves_[place(first(device) + copy, step)] != 0;
    }
    [[nodiscard]] bool has_force(std::int64_t step) const override { return rule_.in_update && rule_.agrees_in(step); }
    [[nodiscard]] ElasticForce force(int device, int copy, std::int64_t /*step*/) const override {
        return {.centre = replicas_.at(device).worker.centre(),
                .difference = replicas_.gradients().row(first(device) + copy),
                .moving_rate = rule_.moving_rate};
    }
    [[nodiscard]] int variant_of_update(std::int64_t step) const override {
        return rule_.averages_gradients(step) ? 0 : has_force(step) ? 2 : 1;
    }
    [[nodiscard]] RowsAfter rows_after(std::int64_t step) const override {
        if (rule_.averages_gradients(step)) return RowsAfter::gradients;
        return rule_.begins_in(step) >= 0 ? RowsAfter::differences : RowsAfter::means;
    }
    void after(Step& step) override;

    [[nodiscard]] std::string name_of_rule() const override {
        std::string result = text(policy_, " every ", rule_.every, rule_.every == 1 ? " step" : " steps",
                                  fragments_description_of(rule_));
        if (outer_ == nullptr) return result;
        const std::string outer = outer_->description();
        return result + ", the centre by " + (outer.empty() ? "an optimiser" : outer);
    }
    [[nodiscard]] std::string_view centre_state_name(int arena) const override {
        return arena < outer_states() ? outer_->state_name(arena) : std::string_view("mean_difference");
    }
    void complete_state(std::int64_t next) override;
    [[nodiscard]] std::span<const std::int64_t> samples_since(std::int64_t step) const override {
        return rule_.in_update ? std::span<const std::int64_t>() : since(0, step);
    }
    void set_samples_since(std::int64_t step, std::span<const std::int64_t> samples) override;
    void require_samples_since(std::span<const std::int64_t> samples) const override {
        require(samples.empty() || samples.size() == counts(), "a state of ", equal_weights_.size(), " replicas in ",
                rule_.fragments, rule_.fragments == 1 ? " fragment" : " fragments", " has ", samples.size(),
                " numbers of samples");
    }

private:
    using ColumnRange = ReplicaPlacement::ColumnRange;
    static constexpr std::size_t largest_counts = std::size_t{1} << 20;

    [[nodiscard]] int first(int device) const { return replicas_.placement().first_replica(device); }
    [[nodiscard]] bool is_alone() const {
        return replicas_.placement().device_count() == 1 && replicas_.placement().process_count() == 1;
    }
    /// The samples of each replica between the last agreement and a step, of each fragment, of a device's thread. Those
    /// of all steps in flight are kept, so that a training continues from the step before one that failed.
    [[nodiscard]] std::span<std::int64_t> since(int device, std::int64_t step) const {
        const auto slot = static_cast<std::size_t>(step % kept_steps);
        return {since_[static_cast<std::size_t>(device)].data() + slot * counts(), counts()};
    }
    [[nodiscard]] std::span<std::int64_t> since(int device, std::int64_t step, std::size_t fragment) const {
        return since(device, step).subspan(fragment * equal_weights_.size(), equal_weights_.size());
    }
    [[nodiscard]] std::size_t counts() const {
        return static_cast<std::size_t>(rule_.fragments) * equal_weights_.size();
    }
    [[nodiscard]] int outer_states() const { return outer_ == nullptr ? 0 : outer_->state_arenas(); }
    /// Where the centre moves later: the mean that moves it, after the outer optimiser's state.
    [[nodiscard]] float* mean_difference(int device) {
        return replicas_.at(device).worker.centre_state() +
               static_cast<std::size_t>(outer_states()) * replicas_.elements();
    }
    void count_samples(const Step& step);
    [[nodiscard]] std::size_t place(int replica, std::int64_t step) const {
        return static_cast<std::size_t>(step % kept_steps) * equal_weights_.size() + static_cast<std::size_t>(replica);
    }

    /// Inside queued work: divides the row of a replica by the loss scale and the weight of its samples.
    void mean(int device, int replica, std::int64_t samples, std::int32_t* finite);
    void queue_means(Step& step, std::int32_t* finite);
    [[nodiscard]] double weight_of(int replica);

    [[nodiscard]] Update<Kernels> update_of(int device, float* parameters, const float* gradient, float* state,
                                            std::span<const Segment> segments) {
        return {.context = replicas_.context(device),
                .parameters = parameters,
                .gradient = gradient,
                .state = state,
                .elements = replicas_.network().trained_elements,
                .segments = segments};
    }
    [[nodiscard]] Update<Kernels> update_of(int device, std::int64_t fragment, float* parameters, const float* gradient,
                                            float* state) {
        return update_of(device, parameters, gradient, state, of_fragments_[static_cast<std::size_t>(fragment)]);
    }
    /// Queues work that has no effect once the training is not healthy.
    template <class Work>
    void queue_update(Step& step, Work work) {
        step.state.attempt([&] {
            typename D::Queue& queue = *step.state.queue;
            queue.queue([&queue, work] {
                const std::int32_t* const healthy = &step_status(queue.status())->healthy;
                if constexpr (requires { queue.update_by_value(healthy, work); }) {
                    queue.update_by_value(healthy, work);
                } else {
                    queue.update(healthy, work);
                }
            });
        });
    }
    void take_differences(int device, std::int64_t fragment);
    bool begin_fragment(Step& step, std::int64_t fragment);
    bool move_fragment(Step& step, std::int64_t fragment);
    void move_centre(int device, std::int64_t step, std::int64_t fragment);
    /// Of the columns of a fragment.
    void update_average(int device, std::int64_t step, ColumnRange columns);
    /// Copies the mean that is complete now.
    void take_mean(int device, std::int64_t fragment) {
        update_by_formula(TakeCentre{}, update_of(device, fragment, mean_difference(device),
                                                  replicas_.gradients().average(device), nullptr));
    }

    static constexpr std::int64_t kept_steps = D::max_steps_in_flight + 1;

    std::string_view policy_;
    CentreRule rule_;
    std::unique_ptr<const Outer> outer_;
    std::unique_ptr<RowAveraging<D, T>> rows_;
    LocalDevices<D, T> local_;
    /// For each device: see since(); and a 1 in its memory.
    mutable FixedArray<FixedArray<std::int64_t>> since_;
    FixedArray<typename Kernels::Arena> ones_;
    std::vector<std::int64_t> equal_weights_;
    /// For each step in flight and replica of this process, whether it moves; bytes, which several threads may write.
    std::vector<char> moves_;
    std::span<const Segment> segments_;
    /// The fragments.
    std::vector<ColumnRange> columns_;
    std::vector<std::vector<Segment>> of_fragments_, outer_of_fragments_;
    /// For each device, the fragment whose mean mean_difference() gets once it is complete; -1 if it has it.
    FixedArray<std::int64_t> under_way_;
    /// The last step that has begun one.
    std::int64_t begun_ = -1;
    MovingAverage average_;
};

template <class A, class D, class T>
    requires AgreesOnCentre<A>
struct AgreementOf<A, D, T> {
    using Inner = AgreementOf<typename A::Averaging, D, T>;

    [[nodiscard]] static AgreementTraits traits(const A& policy, std::int64_t elements) {
        AgreementTraits traits = Inner::traits(policy.averaging, elements);
        traits.centre = true;
        if constexpr (requires { policy.outer.state_arenas(); }) traits.centre_states = policy.outer.state_arenas();
        if constexpr (requires { policy.delay; }) {
            if (policy.delay > 0) ++traits.centre_states;
        }
        // A row may be complete, and be used by its replica, before the replicas average anything.
        traits.takes_buckets = false;
        return traits;
    }
    [[nodiscard, gnu::cold]] static std::unique_ptr<StepAgreement<D, T>> make(const A& policy,
                                                                              Replicas<D, T>& replicas) {
        using Kernels = typename D::Kernels;
        std::unique_ptr<const OuterOptimizer<Kernels>> outer;
        if constexpr (requires { policy.outer.state_arenas(); })
            outer =
                std::make_unique<OuterOptimizerOf<std::remove_cvref_t<decltype(policy.outer)>, Kernels>>(policy.outer);
        const CentreRule rule = policy.rule(replicas.placement().replicas());
        // Without it the update has no force, and leaves no differences in the rows.
        require(has_elastic_force<A> || !rule.in_update, A::name,
                " has a rule with in_update and lacks `static constexpr bool has_force = true`");
        std::unique_ptr<RowAveraging<D, T>> rows;
        if constexpr (AveragesRows<typename A::Averaging, Kernels>)
            rows = std::make_unique<CentreRows<D, T>>(rows_policy<Kernels>(policy.averaging), replicas);
        else
            rows = Inner::make(policy.averaging, replicas);
        return std::make_unique<CentreAgreement<D, T>>(A::name, rule, std::move(outer), std::move(rows), replicas);
    }
};

template <class D, class T>
CentreAgreement<D, T>::~CentreAgreement() {
    try {
        // The engine of the processes would write memory that is gone.
        rows_->finish_rows();
    } catch (const Error&) {  // it does not write any more, either
    }
}

template <class D, class T>
CentreAgreement<D, T>::CentreAgreement(std::string_view policy, const CentreRule& rule,
                                       std::unique_ptr<const Outer> outer, std::unique_ptr<RowAveraging<D, T>> rows,
                                       Replicas<D, T>& replicas)
    : StepAgreement<D, T>(replicas),
      policy_(policy),
      rule_(rule),
      outer_(std::move(outer)),
      rows_(std::move(rows)),
      local_(replicas),
      since_(static_cast<std::size_t>(replicas.placement().device_count())),
      ones_(since_.size()),
      equal_weights_(static_cast<std::size_t>(replicas.placement().replicas()), 1),
      moves_(static_cast<std::size_t>(kept_steps) * equal_weights_.size(), 1),
      under_way_(since_.size()) {
    rule.check(policy);
    const std::int64_t elements = replicas.network().trained_elements;
    require(rule.fragments <= std::max(elements, std::int64_t{1}), policy, " cannot divide the ", elements,
            " elements of the parameters' arena into ", rule.fragments, " fragments");
    require(counts() <= largest_counts, policy, " counts the samples of ", equal_weights_.size(), " replicas in ",
            rule.fragments, " fragments, which are more than ", largest_counts, " numbers");
    for (std::int64_t f = 0; f < rule.fragments; ++f)
        columns_.push_back({elements * f / rule.fragments, elements * (f + 1) / rule.fragments});
    require(rule.fragments == 1 || outer_ == nullptr || outer_->is_of_elements(), policy, " with ", rule.fragments,
            " fragments needs an outer optimiser with a formula of one element: another one reads whole tensors");
    require(rule.fragments == 1 || rows_->divide(columns_), policy, " with ", rule.fragments,
            " fragments needs an averaging that can average a part of the parameters: ConcatMean, MpiConcatMean or "
            "MpiAllReduce");
    std::ranges::fill(under_way_, -1);
    // A device decides in the update whether it skips a step, and the agreement is after that.
    replicas.settings().require_no_skipping(policy);
    require(!replicas.settings().weighted || D::host_memory || replicas.settings().gradient_accumulation_steps == 1,
            policy, " with a weighted loss on ", D::name, " needs gradient_accumulation_steps = 1, not ",
            replicas.settings().gradient_accumulation_steps);
    replicas.threads().run([&](int device) {
        const auto index = static_cast<std::size_t>(device);
        since_[index] = FixedArray<std::int64_t>(static_cast<std::size_t>(kept_steps) * counts());
        ones_[index] = typename Kernels::Arena(sizeof(float), "a number of the agreement");
        const float one[] = {1};
        auto& worker = replicas_.at(device).worker;
        worker.set(reinterpret_cast<float*>(ones_[index].data()), one);
    });
    for (int arena = 0; arena < replicas.settings().centre_states; ++arena) {
        const std::vector<float> values(replicas_.elements(), arena < outer_states() ? outer_->state_start(arena) : 0);
        replicas.threads().run([&](int device) {
            auto& worker = replicas_.at(device).worker;
            worker.set(worker.centre_state() + static_cast<std::size_t>(arena) * replicas_.elements(), values);
        });
    }
}

template <class D, class T>
bool CentreAgreement<D, T>::agree(Step& step) {
    const bool averages = rule_.averages_gradients(step.step);
    for (int r = first(step.device); r < first(step.device + 1); ++r)
        moves_[place(r, step.step)] = averages || step.samples.of_replica(step.step, r) > 0 ? 1 : 0;
    if (averages) return rows_->agree(step);
    auto& state = step.state;
    std::int32_t finite = 1;
    state.attempt([&] {
        for (int r = first(step.device); !D::host_memory && r < first(step.device + 1); ++r)
            require(moves_[place(r, step.step)] != 0, "replica ", r, " has no samples in step ", step.step, ", and on ",
                    D::name, ' ', policy_, " updates each replica with its own samples");
        // Alone, a device that repeats the update does so together with the means: see reduce().
        if (is_alone() && !replicas_.settings().weighted) return;
        const bool on_host = D::host_memory && !rows_->exchanges_health_on_device();
        queue_means(step, on_host ? &finite : &state.status()->healthy);
        if ((is_alone() && !D::host_memory) || rows_->exchanges_health_on_device()) return;
        local_.wait_for_queue(step);
        if (D::host_memory) return;
        std::vector<std::int32_t> copy;
        finite = state.queue->on_host(state.context(), &state.status()->healthy, 1, copy)[0];
    });
    if (D::host_memory && is_alone() && finite == 0) state.queue->write(&state.status()->healthy, std::int32_t{0});
    if (!rows_->exchange_health(step, finite)) return false;
    // Where the samples of all replicas are known now, all devices leave the step.
    if (rows_->exchanges_health_on_device()) return state.error == nullptr;
    state.attempt(
        [&] { require(step.samples.of_step(step.step) > 0, "step ", step.step, " has no samples on any replica"); });
    return state.error == nullptr;
}

template <class D, class T>
void CentreAgreement<D, T>::reduce(int device, std::int64_t step) {
    if (rule_.averages_gradients(step)) return rows_->reduce(device, step);
    if (!is_alone() || replicas_.settings().weighted) return;
    auto& state = replicas_.at(device);
    const Stopwatch watch(state.worker.times(), StepPart::averaging);
    for (int r = first(device); r < first(device + 1); ++r) {
        if (moves(device, r - first(device), step)) mean(device, r, 1, &state.status()->healthy);
    }
}

template <class D, class T>
void CentreAgreement<D, T>::queue_means(Step& step, std::int32_t* finite) {
    const Stopwatch watch(step.state.worker.times(), StepPart::averaging);
    for (int r = first(step.device); r < first(step.device + 1); ++r) {
        if (!moves(step.device, r - first(step.device), step.step)) continue;
        step.state.queue->queue([this, device = step.device, r, finite, here = step.samples.of_replica(step.step, r)] {
            mean(device, r, here, finite);
        });
    }
}

template <class D, class T>
void CentreAgreement<D, T>::mean(int device, int replica, std::int64_t samples, std::int32_t* finite) {
    auto& state = replicas_.at(device);
    const std::span<float> row(replicas_.gradients().row(replica), replicas_.elements());
    const float* divisor = &state.status()->divisor;
    [[maybe_unused]] float own = 1;
    if (replicas_.settings().weighted) {
        const double scale = replicas_.settings().constant_loss_scale() / static_cast<double>(samples);
        if constexpr (D::host_memory) {
            own = static_cast<float>(scale * weight_of(replica));
            divisor = &own;
        } else {
            const std::span<const LossReport> report =
                state.reports().subspan(replicas_.placement().batch_number(replica, 0), 1);
            ops::TrainingStep<Kernels>::weigh(state.context(), report, scale, &state.status()->divisor);
        }
    }
    unsigned long long* const ends = state.layout.not_finite(state.queue->status(), replica);
    ops::TrainingStep<Kernels>::mean(state.context(), row, divisor, row, finite,
                                     {.rows = row.data(), .count = 1, .ends = ends}, nullptr);
}

template <class D, class T>
double CentreAgreement<D, T>::weight_of(int replica) {
    double weight = 0;
    const std::span<const LossReport> reports = replicas_.at(replicas_.placement().device_of(replica)).reports();
    for (int part = 0; part < replicas_.settings().gradient_accumulation_steps; ++part)
        weight += reports[replicas_.placement().batch_number(replica, part)].weight;
    return weight;
}

template <class D, class T>
void CentreAgreement<D, T>::count_samples(const Step& step) {
    const auto before = since(step.device, step.step), to = since(step.device, step.step + 1);
    if (rule_.averages_gradients(step.step)) return static_cast<void>(std::ranges::fill(to, 0));
    for (std::size_t i = 0; i < to.size(); ++i)
        to[i] = before[i] + step.samples.of_replica(step.step, static_cast<int>(i % equal_weights_.size()));
}

template <class D, class T>
void CentreAgreement<D, T>::set_samples_since(std::int64_t step, std::span<const std::int64_t> samples) {
    for (int device = 0; device < replicas_.placement().device_count(); ++device) {
        const std::span<std::int64_t> to = since(device, step);
        std::ranges::fill(to, 0);
        std::copy_n(samples.begin(), std::min(samples.size(), to.size()), to.begin());
    }
    if (rule_.delay == 0) return;
    rows_->finish_rows();
    std::ranges::fill(under_way_, -1);
    if (!samples.empty()) return;
    // Parameters that were set from outside: a mean of the ones before them moves nothing.
    const std::vector<float> zeros(replicas_.elements());
    replicas_.threads().run(
        [&](int device) { replicas_.at(device).worker.set(mean_difference(device), std::span<const float>(zeros)); });
}

template <class D, class T>
void CentreAgreement<D, T>::complete_state(std::int64_t next) {
    if (under_way_[0] < 0) return;
    rows_->finish_rows();
    // A step that has failed has begun the sum of its gradients; when it is repeated it begins another one.
    if (begun_ >= next) {
        std::ranges::fill(under_way_, -1);
        return;
    }
    replicas_.threads().run([&](int device) {
        auto& fragment = under_way_[static_cast<std::size_t>(device)];
        take_mean(device, std::exchange(fragment, -1));
    });
}

template <class D, class T>
void CentreAgreement<D, T>::take_differences(int device, std::int64_t fragment) {
    auto& worker = replicas_.at(device).worker;
    for (int copy = 0; copy < replicas_.placement().copies(device); ++copy)
        update_by_formula(TakeDifferences{},
                          update_of(device, fragment, replicas_.gradients().row(first(device) + copy),
                                    worker.parameters(copy), worker.centre()));
}

template <class D, class T>
void CentreAgreement<D, T>::move_centre(int device, std::int64_t step, std::int64_t fragment) {
    auto& worker = replicas_.at(device).worker;
    const float* const mean = rule_.delay == 0 ? replicas_.gradients().average(device) : mean_difference(device);
    auto u = update_of(device, fragment, worker.centre(), mean, worker.centre_state());
    if (outer_ != nullptr) {
        u.segments = outer_of_fragments_[static_cast<std::size_t>(fragment)];
        u.step = rule_.agreement_of(step, fragment);
        outer_->update(u);
    } else {
        update_by_formula(MoveCentre(rule_.factor), u);
    }
    if (rule_.in_update) return;
    for (int copy = 0; copy < replicas_.placement().copies(device); ++copy) {
        const auto take = update_of(device, fragment, worker.parameters(copy), worker.centre(), nullptr);
        if (rule_.mix == 0)
            update_by_formula(TakeCentre{}, take);
        else
            update_by_formula(MixCentre(rule_.mix), take);
    }
}

template <class D, class T>
void CentreAgreement<D, T>::update_average(int device, std::int64_t step, ColumnRange columns) {
    if (!average_.on()) return;
    auto& worker = replicas_.at(device).worker;
    // The last move, whose differences are those after a step from from_step on; or where that was not the rule yet.
    const std::int64_t last = step - rule_.every;
    const std::int64_t before = rule_.averages_gradients(step)          ? step - 1
                                : last - rule_.delay >= rule_.from_step ? last
                                                                        : rule_.from_step - 1;
    const Stopwatch watch(worker.times(), StepPart::moving_average);
    average_.template update<Kernels>(worker.context(), worker.averages() + columns.begin,
                                      worker.centre() + columns.begin, columns.end - columns.begin, before + 2,
                                      step + 1);
}

template <class D, class T>
void CentreAgreement<D, T>::after(Step& step) {
    count_samples(step);
    if (rule_.averages_gradients(step.step)) {
        return queue_update(step, [this, device = step.device, number = step.step] {
            auto& own = replicas_.at(device).worker;
            update_by_formula(TakeCentre{}, update_of(device, own.centre(), own.parameters(), nullptr, segments_));
            update_average(device, number, {0, replicas_.network().trained_elements});
        });
    }
    const std::int64_t begins = rule_.begins_in(step.step), moves = rule_.moves_in(step.step);
    // With a delay the steps of the two are never the same.
    if (begins >= 0 && !begin_fragment(step, begins)) return;
    if (moves >= 0 && !move_fragment(step, moves)) return;
    if (begins < 0) return;
    if (!is_alone()) {
        // The next step writes the rows and the average, which others may still read.
        step.state.attempt([&] {
            step.state.queue->mark();
            rows_->wait(step.device, step.step, false);
        });
        if (!replicas_.arrive_and_wait(step.device)) return;
    }
    std::ranges::fill(since(step.device, step.step + 1, static_cast<std::size_t>(begins)), 0);
}

template <class D, class T>
bool CentreAgreement<D, T>::begin_fragment(Step& step, std::int64_t fragment) {
    const int device = step.device;
    if (!rule_.in_update) {
        queue_update(step, [this, device, fragment] { take_differences(device, fragment); });
    } else if constexpr (D::host_memory) {
        // The force on the centre is that on the replicas: none on one that has not moved.
        for (int r = first(device); r < first(device + 1); ++r) {
            if (moves(device, r - first(device), step.step)) continue;
            step.state.attempt([&] {
                step.state.queue->queue([this, r] {
                    std::fill_n(replicas_.gradients().row(r), replicas_.network().trained_elements, 0.0F);
                });
            });
        }
    }
    const auto number = static_cast<std::size_t>(fragment);
    const std::span<const std::int64_t> weights =
        rule_.in_update ? std::span<const std::int64_t>(equal_weights_) : since(device, step.step + 1, number);
    const auto* const one = reinterpret_cast<const float*>(ones_[static_cast<std::size_t>(device)].data());
    if (rule_.delay == 0) return rows_->average_rows(step, weights, one, static_cast<int>(fragment));
    if (!rows_->begin_rows(step, weights, one, static_cast<int>(fragment))) return false;
    if (device == 0) begun_ = step.step;
    std::int64_t& under_way = under_way_[static_cast<std::size_t>(device)];
    under_way = rows_->may_be_under_way() ? fragment : -1;
    if (under_way < 0) queue_update(step, [this, device, fragment] { take_mean(device, fragment); });
    return true;
}

template <class D, class T>
bool CentreAgreement<D, T>::move_fragment(Step& step, std::int64_t fragment) {
    const int device = step.device;
    if (rule_.delay > 0) {
        std::int64_t& under_way = under_way_[static_cast<std::size_t>(device)];
        if (under_way >= 0) {
            if (!rows_->finish_rows(step)) return false;
            step.state.attempt(
                [&] { step.state.queue->queue([this, device, fragment] { take_mean(device, fragment); }); });
            under_way = -1;
        }
        // It was not known to be finite, or is that of a state which was restored.
        const ColumnRange columns = columns_[static_cast<std::size_t>(fragment)];
        const auto* const one = reinterpret_cast<const float*>(ones_[static_cast<std::size_t>(device)].data());
        step.state.attempt([&] {
            step.state.queue->queue([this, device, columns, one] {
                const std::span<float> mean(mean_difference(device) + columns.begin,
                                            static_cast<std::size_t>(columns.end - columns.begin));
                ops::TrainingStep<Kernels>::mean(replicas_.context(device), mean, one, mean,
                                                 &replicas_.at(device).status()->healthy, {}, nullptr);
            });
        });
    }
    queue_update(step, [this, device, fragment, number = step.step] {
        move_centre(device, number, fragment);
        update_average(device, number, columns_[static_cast<std::size_t>(fragment)]);
    });
    step.state.worker.plans().trained_parameters_changed();
    return true;
}

}}}  // namespace cupola::CUPOLA_ABI::impl
