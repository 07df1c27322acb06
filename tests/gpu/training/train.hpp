// SPDX-License-Identifier: Apache-2.0
//
// Makes a training of training_runs.hpp and runs it on a device.
#pragma once

#include <variant>

#include <cupola/cupola.hpp>
#include <cupola/layers/on_device.hpp>
#include <cupola/loss/huber.hpp>
#include <cupola/loss/weighted_cross_entropy.hpp>
#include <cupola/metrics/metric.hpp>
#include <cupola/net/frozen.hpp>
#include <cupola/net/named_values.hpp>
#include <cupola/optim/clipped.hpp>
#include <cupola/optimizers.hpp>
#include <cupola/parallel/inspection.hpp>
#include <cupola/parallel/state_transfer.hpp>

#include "../../standard.hpp"
#include "../../step_names.hpp"
#include "training_runs.hpp"

namespace training_runs {

struct Convolutions
    : cupola::Sequential<cupola::Input<12, 12, 3>, cupola::Named<"conv1", cupola::Conv2d<8, 3>>, cupola::ReLU,
                         cupola::MaxPool2d<3, 2>, cupola::LocalResponseNorm<2>,
                         cupola::Named<"conv2", cupola::Conv2d<8, 3>>, cupola::ReLU, cupola::Dropout<0.2>,
                         cupola::Flatten, cupola::Named<"local3", cupola::Linear<24>>, cupola::ReLU,
                         cupola::Named<"softmax_linear", cupola::Linear<10>>> {};
struct Convolutions16 : cupola::InPrecision<cupola::MixedBFloat16, Convolutions> {};
struct ConvolutionsHalf : cupola::InPrecision<cupola::MixedFloat16, Convolutions> {};
#ifdef __CUDACC__  // nvcc cannot compile Host's convolutions
using Conv2OnHost = cupola::Named<"conv2", cupola::Conv2d<8, 3>>;
#else
using Conv2OnHost = cupola::OnDevice<cupola::Host, cupola::Named<"conv2", cupola::Conv2d<8, 3>>>;
#endif
struct Offloaded
    : cupola::Sequential<cupola::Input<12, 12, 3>, cupola::Named<"conv1", cupola::Conv2d<8, 3>>, cupola::ReLU,
                         cupola::MaxPool2d<3, 2>, cupola::OnDevice<cupola::Host, cupola::LocalResponseNorm<2>>,
                         Conv2OnHost, cupola::ReLU, cupola::Flatten, cupola::Named<"local3", cupola::Linear<10>>> {};
struct Normalized
    : cupola::Sequential<cupola::Input<12, 12, 3>, cupola::Named<"conv1", cupola::Conv2d<8, 3>>,
                         cupola::Named<"norm1", cupola::BatchNorm2d<>>, cupola::ReLU, cupola::MaxPool2d<3, 2>,
                         cupola::Named<"conv2", cupola::Conv2d<8, 3>>, cupola::Named<"norm2", cupola::BatchNorm2d<>>,
                         cupola::ReLU, cupola::GlobalAvgPool2d, cupola::Named<"local3", cupola::Linear<10>>> {};
struct FrozenBody : cupola::Frozen<Convolutions, "conv*"> {};
struct FrozenMiddle : cupola::Frozen<Normalized, "norm1.*", "conv2.*", "norm2.*"> {};
struct TwoHeads
    : cupola::Sequential<cupola::Input<12, 12, 3>, cupola::Named<"conv1", cupola::Conv2d<8, 3>>, cupola::ReLU,
                         cupola::MaxPool2d<3, 2>, cupola::Flatten, cupola::Named<"local3", cupola::Linear<24>>,
                         cupola::ReLU, cupola::Keep<"image">, cupola::FromInput<"sizes", 4>,
                         cupola::Named<"local4", cupola::Linear<24>>, cupola::ReLU, cupola::AddFrom<"image">,
                         cupola::Keep<"body">, cupola::Named<"kinds", cupola::Linear<10>>, cupola::Output<"kind">,
                         cupola::From<"body">, cupola::Named<"places", cupola::Linear<3>>, cupola::Output<"place">> {};
using LossOfHeads = cupola::LossCollection<cupola::Losses<cupola::At<"kind", cupola::CrossEntropy<10>, "target">,
                                                          cupola::At<"place", cupola::Weighted<0.5, cupola::Huber<>>>>,
                                           cupola::WeightDecay<0.004, "local3">>;
using TheLoss = cupola::LossCollection<cupola::CrossEntropy<10>, cupola::WeightDecay<0.004, "local3">>;
using Dense = cupola::Linear<24>;
/// Its parameters are 16 tensors, as many as the sums of squares of one kernel, and all of them decay.
struct Deep : cupola::Sequential<cupola::Input<12, 12, 3>, cupola::Flatten, Dense, cupola::ReLU, Dense, cupola::ReLU,
                                 Dense, cupola::ReLU, Dense, cupola::ReLU, Dense, cupola::ReLU, Dense, cupola::ReLU,
                                 Dense, cupola::ReLU, cupola::Linear<10>> {};
using LossWithWeights = cupola::LossCollection<cupola::WeightedCrossEntropy<10>, cupola::WeightDecayAll<0.1>>;

/// Samples that a network can learn, in memory that the device and the host can read. `Memory(bytes)` has data().
template <class Memory>
class Samples {
public:
    static constexpr std::int64_t count = 96, elements = 12 * 12 * 3, sizes = 4, places = 3;

    /// With the columns of Model::two_heads, `sizes` and `place`, if `heads`.
    explicit Samples(bool heads = false)
        : heads_(heads),
          values_(static_cast<std::size_t>(count * elements) * sizeof(float)),
          labels_(static_cast<std::size_t>(count) * sizeof(std::int32_t)),
          sizes_(static_cast<std::size_t>(count * sizes) * sizeof(float)),
          places_(static_cast<std::size_t>(count * places) * sizeof(float)) {
        std::ranges::copy(drawn(), values());
        for (std::int64_t n = 0; n < count; ++n) {
            labels()[n] = static_cast<std::int32_t>(n * n % 10);
            for (std::int64_t i = labels()[n]; i < elements; i += 10) values()[n * elements + i] += 0.7F;
            for (std::int64_t i = 0; i < sizes; ++i)
                sizes_of(n)[i] = static_cast<float>((7 * n + 3 * i) % 11) / 11 - 0.5F;
            for (std::int64_t i = 0; i < places; ++i)
                place_of(n)[i] = sizes_of(n)[i] + 0.1F * static_cast<float>(labels()[n]);
        }
    }
    [[nodiscard]] float* values() { return reinterpret_cast<float*>(values_.data()); }
    [[nodiscard]] std::int32_t* labels() { return reinterpret_cast<std::int32_t*>(labels_.data()); }
    [[nodiscard]] float* sizes_of(std::int64_t n) { return reinterpret_cast<float*>(sizes_.data()) + n * sizes; }
    [[nodiscard]] float* place_of(std::int64_t n) { return reinterpret_cast<float*>(places_.data()) + n * places; }
    [[nodiscard]] cupola::BatchView view(std::int64_t first, std::int64_t size) {
        cupola::BatchView batch{values() + first * elements, labels() + first, size, cupola::Shape{12, 12, 3}};
        if (heads_) {
            batch.push_back({{"sizes", cupola::ElementType::float32, {sizes}}, sizes_of(first)});
            batch.push_back({{"place", cupola::ElementType::float32, {places}}, place_of(first)});
        }
        return batch;
    }

private:
    /// The same for all, and drawn once: a test makes hundreds of them.
    [[nodiscard]] static const Floats& drawn() {
        static const Floats numbers = [] {
            Floats result(static_cast<std::size_t>(count * elements));
            cupola::initialize(result, cupola::normal(1.0), 1, 1, 7, 0);
            return result;
        }();
        return numbers;
    }

    bool heads_;
    Memory values_, labels_, sizes_, places_;
};

template <class Memory>
class Batches {
public:
    explicit Batches(const Run& run)
        : run_(run),
          good_(has_heads(run)),
          poisoned_(has_heads(run)),
          mislabelled_(has_heads(run)),
          unlabelled_(has_heads(run)),
          calls_(static_cast<std::size_t>(run.replicas)) {
        poisoned_.values()[Samples<Memory>::elements + 5] = std::numeric_limits<float>::quiet_NaN();
        mislabelled_.labels()[2] = 10;
        std::fill_n(unlabelled_.labels(), Samples<Memory>::count, 9);  // the label that is ignored
        for (int i = 0; i < run.replicas * run.places; ++i)
            places_.push_back(std::make_unique<Samples<Memory>>(has_heads(run)));
    }

    [[nodiscard]] cupola::BatchView of(std::int64_t place, int replica) {
        const cupola::BatchView batch = batch_of(place, replica);
        if (run_.places == 0) return batch;
        const std::int64_t turn = calls_[static_cast<std::size_t>(replica)]++ % run_.places;
        const cupola::BatchView copy =
            places_[static_cast<std::size_t>(replica * run_.places + turn)]->view(0, batch.size);
        const auto size = static_cast<std::size_t>(batch.size);
        std::memcpy(const_cast<float*>(copy.inputs()), batch.inputs(),
                    size * Samples<Memory>::elements * sizeof(float));
        std::memcpy(const_cast<std::int32_t*>(copy.labels()), batch.labels(), size * sizeof(std::int32_t));
        for (std::size_t c = 2; c < batch.columns().size(); ++c)
            std::memcpy(const_cast<void*>(copy.data(c)), batch.data(c), size * batch.columns()[c].bytes());
        return copy;
    }
    [[nodiscard]] cupola::BatchView of_evaluation(std::int64_t i) {
        return good_.view(i * run_.batch, i == 2 ? run_.batch / 2 : run_.batch);
    }
    /// From now on all batches are valid.
    void heal() { healed_ = true; }

private:
    [[nodiscard]] static bool has_heads(const Run& run) { return run.model == Model::two_heads; }
    [[nodiscard]] cupola::BatchView batch_of(std::int64_t place, int replica) {
        if (run_.left_out_place != nowhere && place >= run_.left_out_place) ++place;
        const std::int64_t size = size_of(place, replica);
        if (place == run_.unlabelled_place) return unlabelled_.view(0, size);
        if (!healed_ && replica == run_.poisoned_replica) {
            if (place == run_.poisoned_place) return poisoned_.view(0, size);
            if (place == run_.failing_place) throw cupola::DataError("no samples today");
            if (place == run_.mislabelled_place) return mislabelled_.view(0, size);
        }
        const std::int64_t first = (place * run_.replicas + replica) * run_.batch;
        return good_.view(first % (Samples<Memory>::count - run_.batch + 1), size);
    }
    [[nodiscard]] std::int64_t size_of(std::int64_t place, int replica) const {
        const auto at = static_cast<std::size_t>(place);
        if (at >= run_.sizes.size() || run_.sizes[at].empty()) return run_.batch;
        return run_.sizes[at][static_cast<std::size_t>(replica)];
    }

    const Run& run_;
    Samples<Memory> good_, poisoned_, mislabelled_, unlabelled_;
    std::vector<std::unique_ptr<Samples<Memory>>> places_;
    std::vector<std::int64_t> calls_;
    bool healed_ = false;
};

inline void keep(const cupola::StepReport& report, Result& result) {
    result.losses.push_back(report.loss);
    result.samples.push_back(report.samples);
    result.scales.push_back(report.loss_scale);
    result.skipped.push_back(report.skipped_steps);
    std::int64_t correct = 0;
    for (const auto& replica : report.replicas) correct += replica.correct;
    result.correct.push_back(correct);
}

/// The numbers of an inspection are in host memory.
template <class D>
Floats gradient_of(const cupola::Inspection<D>& inspection) {
    const auto values = inspection.averaged_gradient();
    return {values.begin(), values.end()};
}

template <class Training, class Optimizer>
typename Training::Options options_of(const Run& run, const Optimizer& optimizer) {
    typename Training::Options options;
    options.replicas = run.replicas;
    options.devices = run.devices;
    options.batch_size = run.batch;
    for (const auto& sizes : run.sizes) {
        for (const std::int64_t size : sizes) {
            if (size != 0 && size != run.batch) options.other_batch_sizes.push_back(size);
        }
    }
    options.gradient_accumulation_steps = run.gradient_accumulation_steps;
    options.seed = 3;
    options.optimizer = optimizer;
    options.moving_average.decay = run.moving_average;
    options.check_every = run.check_every;
    options.skip_steps_without_labels = run.unlabelled_place != nowhere;
    if (run.loss_scale != 0)
        options.loss_scale = cupola::LossScale{.initial = run.loss_scale, .interval = run.growth_interval};
    if (run.groups) {
        options.groups = {{.pattern = "norm1.*", .frozen = true},
                          {.pattern = "*.bias", .rate = 2},
                          {.pattern = "local3.*", .decay = 0}};
        if (run.model != Model::normalized) options.groups.erase(options.groups.begin());
    }
    if constexpr (requires { options.loss.data.class_weights; }) {
        options.loss.data.class_weights = {1, 4, 1, 1, 0.25F, 0, 3, 1, 1, 2};
        options.loss.data.ignored_label = 9;
    }
    if constexpr (requires { options.device.deterministic; }) {
        options.device.deterministic = true;
        options.device.devices_per_gpu = run.devices_per_gpu;
    }
    // Two trainings have the same bits if they have the same plans.
    if constexpr (requires { options.device.plan_seconds; }) options.device.plan_seconds = 0;
    if constexpr (requires { options.device.tf32; }) {
        options.device.tf32 = run.tf32 == Run::Tf32::all;
        options.device.tf32_convolutions = run.tf32 == Run::Tf32::convolutions;
    }
    if constexpr (requires { options.device.threads; }) options.device.threads = 1;
    return options;
}

template <class D, class Training, class Memory, class Optimizer>
Result train(const Run& run, const Optimizer& optimizer) {
    const auto options = options_of<Training>(run, optimizer);
    Batches<Memory> all(run);
    auto training = std::make_unique<Training>(options);
    using Context = typename Training::Context;
    const auto batches = [&](std::int64_t place, int replica, Context&) { return all.of(place, replica); };
    Result result;
    StepNames trace(run.devices);
    training->trace_steps(trace);
    const auto inspect = [&](const cupola::Inspection<D>& inspection) {
        result.inspected.push_back(gradient_of(inspection));
        inspection.for_each_activation([&](std::size_t, std::span<const float> values) {
            double sum = 0;
            for (const float value : values) sum += static_cast<double>(value) * static_cast<double>(value);
            result.activations.push_back(sum);
        });
    };
    for (std::int64_t i = 0; i < run.steps; ++i) {
        if (i == run.moved_after || (run.moved_always && i > 0)) {
            const auto state = training->state();
            training = std::make_unique<Training>(options);
            training->restore(state);
        }
        if (!run.starts.empty()) {
            auto state = training->state();
            state.parameters = run.starts[static_cast<std::size_t>(i)];
            training->restore(state);
        }
        if (run.keeps_gradients) result.starts.push_back(training->parameters());
        try {
            if (result.error.empty()) ++result.asked;
            if (run.inspects) {
                keep(training->step(batches, inspect), result);
            } else if (run.max_in_flight == 0) {
                keep(training->step(batches), result);
            } else if constexpr (requires { training->queue(batches); }) {
                training->queue(batches);
                // The last step waits for all.
                const std::int64_t max_in_flight =
                    i + 1 == run.steps ? 0
                                       : std::min<std::int64_t>(run.max_in_flight, Training::max_steps_in_flight - 1);
                while (const cupola::StepReport* report = training->poll_report(max_in_flight)) keep(*report, result);
            } else {
                keep(training->step(batches), result);
            }
            if (run.keeps_gradients) result.gradients.push_back(training->averaged_gradient());
            continue;
        } catch (const cupola::DivergedError& error) {
            result.error = error.what();
            result.error_step = error.step;
            result.error_replica = error.replica;
        } catch (const cupola::Error& error) {
            result.error = error.what();
        }
        result.healthy = training->healthy();
        if (run.goes_on || (result.error_step != nowhere && result.healthy))
            result.parameters_after_error = training->parameters();
        if (!run.goes_on) return result;
        // The steps before the failed one still have reports.
        if constexpr (requires { training->poll_report(0); }) {
            while (const cupola::StepReport* report = training->poll_report(0)) keep(*report, result);
        }
        const auto state = training->state();
        training->restore(state);
        all.heal();
        i = state.step - 1;
    }
    for (int replica = 0; replica < run.replicas; ++replica)
        result.replica_gradients.push_back(training->gradient(replica));
    if (run.evaluates) {
        const auto weights = run.moving_average == 0 ? cupola::Weights::trained : cupola::Weights::averages;
        const auto see = [&](const cupola::MetricBatch& seen) {
            for (const cupola::MetricOutput& each : seen.all_outputs)
                result.measured.insert(result.measured.end(), each.values.begin(), each.values.end());
            for (const std::int32_t label : seen.target<std::int32_t>()) result.measured_labels.push_back(label);
        };
        const cupola::Evaluation e =
            training->evaluate([&](std::int64_t i, int, Context&) { return all.of_evaluation(i); }, 3, weights, see);
        result.evaluation = {static_cast<double>(e.samples), static_cast<double>(e.correct), e.loss};
        for (const cupola::OutputEvaluation& each : e.losses) result.evaluation.push_back(each.loss);
        Samples<std::vector<std::byte>> samples(run.model == Model::two_heads);
        const cupola::BatchView some = samples.view(3, run.batch - 1);
        if constexpr (Training::NetworkType::outputs.size() > 1) {
            for (const char* const output : {"kind", "place"}) {
                const Floats values = training->predict(some, output, weights);
                result.prediction.insert(result.prediction.end(), values.begin(), values.end());
            }
        } else {
            using View = cupola::TensorView<const float, typename Training::InputExtents>;
            result.prediction = training->predict(View(some.inputs(), some.size), weights);
        }
    }
    for (int device = 0; device < run.devices; ++device) result.traces.push_back(trace.of(device));
    auto state = training->state();
    result.step = state.step;
    if (state.loss_scale)
        result.scale_at_end = {static_cast<double>(state.loss_scale->scale),
                               static_cast<double>(state.loss_scale->good_steps),
                               static_cast<double>(state.loss_scale->skipped_steps)};
    result.parameters = std::move(state.parameters);
    result.averages = std::move(state.averages);
    result.buffers = std::move(state.buffers);
    for (auto& kept : state.optimizer) result.optimizer.push_back(std::move(kept.values));
    for (int device = 0; device < run.devices; ++device)
        result.device_parameters.push_back(training->parameters(device));
    return result;
}

/// A callback with every hook, which records its calls.
template <class D, class Training>
struct Witness {
    const Run& run;
    Training& training;
    Result& result;

    void on_begin(cupola::Run&) {}
    void on_step(const cupola::StepReport& report, cupola::Run& its_run) {
        keep(report, result);
        result.queued.push_back(training.step());
        if (should_inspect(report.step)) result.last_inspected.push_back(last_inspected);
        if (report.step == run.throws_at) throw cupola::DataError("the disk is full");
        if (synchronize_after(report.step)) result.standing.push_back(training.parameters());
        if (report.step == run.stops_at) its_run.stop = true;
    }
    void on_end(cupola::Run&) { ++result.ends; }
    [[nodiscard]] bool synchronize_after(std::int64_t step) const { return (step + 1) % run.synchronize_every == 0; }
    [[nodiscard]] bool should_inspect(std::int64_t step) const { return run.inspects && step % 2 == 1; }
    void inspect(const cupola::Inspection<D>& inspection) {
        result.inspected.push_back(gradient_of(inspection));
        last_inspected = inspection.step();
    }
    std::int64_t last_inspected = nowhere;
};

template <class D, class Training, class Memory, class Optimizer>
Result fitted(const Run& run, const Optimizer& optimizer) {
    Batches<Memory> all(run);
    Training training(options_of<Training>(run, optimizer));
    Result result;
    try {
        result.made =
            cupola::fit(
                training,
                [&](std::int64_t place, int replica, typename Training::Context&) { return all.of(place, replica); },
                {.steps = run.steps}, Witness<D, Training>{run, training, result})
                .steps;
    } catch (const cupola::DivergedError& error) {
        result.error = error.what();
        result.error_step = error.step;
    } catch (const cupola::Error& error) {
        result.error = error.what();
    }
    result.healthy = training.healthy();
    result.parameters = training.parameters();
    result.step = training.step();
    return result;
}

/// Every rule in one type, so that each network is compiled once.
struct AnyRule {
    static constexpr bool uses_segment_factors = true;
    std::variant<cupola::Sgd, cupola::Adam, cupola::RmsProp, cupola::Clipped<cupola::Sgd>, cupola::Lamb, cupola::Lars>
        rule;

    [[nodiscard]] int state_arenas() const {
        return std::visit([](const auto& r) { return r.state_arenas(); }, rule);
    }
    [[nodiscard]] std::string_view state_name(int arena) const {
        return std::visit([&](const auto& r) { return r.state_name(arena); }, rule);
    }
    [[nodiscard]] double state_start(int arena) const {
        return std::visit([&](const auto& r) { return static_cast<double>(cupola::state_start_of(r, arena)); }, rule);
    }
    [[nodiscard]] double learning_rate_at(std::int64_t step) const {
        return std::visit([&](const auto& r) { return r.learning_rate_at(step); }, rule);
    }
    [[nodiscard]] std::string description() const {
        return std::visit([](const auto& r) { return r.description(); }, rule);
    }
    template <class D>
    void update(const cupola::Update<D>& u) const {
        std::visit([&](const auto& r) { cupola::update_parameters(r, u); }, rule);
    }
    template <class D>
    void constants(const cupola::Update<D>& u, cupola::ConstantsWriter& to) const {
        std::visit([&](const auto& r) { cupola::write_constants(r, u, to); }, rule);
    }
};

/// An optimiser with an update of its own, which is not captured.
struct Uncaptured : cupola::Sgd {
    bool faulty = false;
    /// The step whose update sets the bias of class 2 in the last layer to -infinity. No sample has that class.
    std::int64_t ruins = nowhere;

    template <class D>
    void update(const cupola::Update<D>& u) const {
        cupola::update_parameters(static_cast<const Sgd&>(*this), u);
        if (faulty && u.context.ordinal() == 1 && u.step == 4)
            cupola::scale(u.context, std::span(u.parameters + 7, 1), 1.001);
        const auto& row = Convolutions::layers[std::size(Convolutions::layers) - 1];
        if (u.step == ruins) {
            cupola::scale(u.context, std::span(u.parameters + row.offsets[1] + 2, 1),
                          std::numeric_limits<double>::infinity());
        }
    }
};

inline cupola::Sgd sgd_of(const Run& run) {
    cupola::Sgd sgd;
    sgd.learning_rate = cupola::exponential_decay(run.rate, 1, run.rate_decay);
    sgd.momentum = run.momentum;
    return sgd;
}

inline AnyRule rule_of(const Run& run) {
    const auto with = [&](auto rule) {
        rule.learning_rate = cupola::exponential_decay(run.rate, 1, run.rate_decay);
        if constexpr (requires { rule.momentum; }) rule.momentum = run.momentum;
        return AnyRule{rule};
    };
    if (run.rule == Rule::adam) return with(cupola::Adam{});
    if (run.rule == Rule::rms_prop) return with(cupola::RmsProp{.epsilon = 1e-3});
    if (run.rule == Rule::clipped) return {cupola::Clipped<cupola::Sgd>{.optimizer = sgd_of(run), .max_norm = 0.5}};
    if (run.rule == Rule::lamb) return with(cupola::Lamb{.weight_decay = 0.01});
    if (run.rule == Rule::lars) return with(cupola::Lars{.weight_decay = 0.01, .trust_coefficient = 0.02});
    return {sgd_of(run)};
}

/// A training of the run's network, `model`, by an optimiser of AnyRule. `Memory` is the type of the memory of the batches.
template <Model model, class D, class Memory>
Result run_model(const Run& run) {
    using namespace cupola;
    const auto by_any = [&]<class Net, class Policy, class Loss = TheLoss>() {
        return train<D, DataParallel<Net, Loss, AnyRule, ConcatMean, D, Policy>, Memory>(run, rule_of(run));
    };
    if constexpr (model == Model::convolutions_bfloat16) {
        return by_any.template operator()<Convolutions16, FirstReplica>();
    } else if constexpr (model == Model::convolutions_half) {
        return by_any.template operator()<ConvolutionsHalf, FirstReplica>();
    } else if constexpr (model == Model::weighted) {
        return by_any.template operator()<Deep, FirstReplica, LossWithWeights>();
    } else if constexpr (model == Model::two_heads) {
        return by_any.template operator()<TwoHeads, FirstReplica, LossOfHeads>();
    } else if constexpr (model == Model::frozen_body) {
        return by_any.template operator()<FrozenBody, FirstReplica>();
    } else if constexpr (model == Model::frozen_middle) {
        return by_any.template operator()<FrozenMiddle, Pooled>();
    } else if constexpr (model == Model::offloaded) {
        return by_any.template operator()<Offloaded, FirstReplica>();
    } else if constexpr (model == Model::normalized) {
        if (run.statistics == Statistics::pooled) return by_any.template operator()<Normalized, Pooled>();
        return by_any.template operator()<Normalized, FirstReplica>();
    } else {
        return by_any.template operator()<Convolutions, FirstReplica>();
    }
}

/// Whether the optimiser of the run is one that is not captured.
[[nodiscard]] inline bool is_uncaptured(const Run& run) {
    return run.rule == Rule::uncaptured || run.rule == Rule::faulty || run.rule == Rule::ruinous;
}
/// A training of `convolutions` by an optimiser that is not captured.
template <class D, class Memory>
Result run_uncaptured(const Run& run) {
    using namespace cupola;
    const Uncaptured rule{sgd_of(run), run.rule == Rule::faulty, run.rule == Rule::ruinous ? 2 : nowhere};
    return train<D, DataParallel<Convolutions, TheLoss, Uncaptured, ConcatMean, D>, Memory>(run, rule);
}

template <class D, class Memory>
Result fit_on(const Run& run) {
    using Training = cupola::DataParallel<Convolutions, TheLoss, AnyRule, cupola::ConcatMean, D, cupola::FirstReplica>;
    return fitted<D, Training, Memory>(run, rule_of(run));
}

}  // namespace training_runs
