// SPDX-License-Identifier: Apache-2.0
//
// TrainingParts: the parts of a DataParallel. Only DataParallel uses its members.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <string_view>
#include <type_traits>
#include <vector>

#include <cupola/core/error.hpp>
#include <cupola/core/loss_scale.hpp>
#include <cupola/core/span_of.hpp>
#include <cupola/core/type_name.hpp>
#include <cupola/loss/loss_collection.hpp>
#include <cupola/net/pipeline/cut_choice.hpp>
#include <cupola/ops/peak_rates.hpp>
#include <cupola/optim/segments_of.hpp>
#include <cupola/parallel/agreement/agreement_kind.hpp>
#include <cupola/parallel/agreement/rows_agreement.hpp>
#include <cupola/parallel/impl/activity.hpp>
#include <cupola/parallel/impl/checked_options.hpp>
#include <cupola/parallel/impl/functions_of.hpp>
#include <cupola/parallel/impl/training_diagnostic.hpp>
#include <cupola/parallel/replicas/evaluator.hpp>
#include <cupola/parallel/replicas/initial_state.hpp>
#include <cupola/parallel/replicas/replicas.hpp>
#include <cupola/parallel/replicas/state_values.hpp>
#include <cupola/parallel/step/engine.hpp>

namespace cupola { inline namespace CUPOLA_ABI { namespace impl {

/// Defined in parallel/inspection.hpp.
template <class D, class T>
class StepProbe;

/// Defined in parallel/step/synchronized_passes.hpp.
template <class D, class T>
class SynchronizedPasses;

/// Defined in parallel/pipeline/pipeline_passes.hpp.
template <class D, class T>
class PipelinePasses;

/// The class that queues the steps: StepEngine, unless the agreement names another one with the same members.
template <class Agreement, class D, class T>
struct EngineOf {
    using Type = StepEngine<D, T>;
};
template <class Agreement, class D, class T>
    requires requires { typename Agreement::Engine; }
struct EngineOf<Agreement, D, T> {
    using Type = typename Agreement::Engine;
};

template <class Net, class Loss, class Options, class D, bool synchronized>
class TrainingParts {
    using Kernels = typename D::Kernels;
    using T = typename Net::Precision::Activation;
    using Averaging = decltype(Options::averaging);
    using Kind = AgreementKind<Averaging, D>;
    using Agreement = AgreementOf<Averaging, D, T>;
    using Engine = typename EngineOf<Agreement, D, T>::Type;
    struct NoCut {};
    using Cut = std::conditional_t<cut_is_chosen<Net>, ChosenCut, NoCut>;
    template <class, class, class, class, class, class>
    friend struct cupola::DataParallel;

public:
    [[gnu::cold]] explicit TrainingParts(const Options& options)
        : chosen_(chosen_cut(options)),
          policy_(policy_name(options.averaging)),
          joined_(Kind::template join<Net, Loss>(options)),
          regularized_(regularized_in_groups(Loss::regularized(Net::layers), span_of(options.groups), Net::layers)),
          required_(Loss::required_columns(Net::layers)),
          functions_(options, Net::layers),
          replicas_(network_info<Net, Kernels>(cut()),
                    settings_of(options, functions_, regularized_.size(), required_.span(), joined_, cut()),
                    options.device),
          agreement_(Agreement::make(options.averaging, replicas_)),
          engine_(functions_, *agreement_, replicas_, regularized_.span(), policy_),
          evaluator_(replicas_, std::max(options.batch_size, options.evaluation_batch_size),
                     options.moving_average.on()) {
        Kind::template join_policy<Net, Loss>(joined_, *agreement_, options);
        if constexpr (synchronized) {
            constexpr bool included = requires { sizeof(SynchronizedPasses<D, T>); };
            static_assert(included,
                          "a policy that synchronizes the statistics of batch normalisation needs "
                          "#include <cupola/parallel/synchronized.hpp>");
            if constexpr (included) engine_.template run_jointly<SynchronizedPasses<D, T>>();
        }
        if constexpr (may_be_cut<Net>) {
            if (cut() != nullptr) engine_.template run_jointly<PipelinePasses<D, T>>();
        }
        const auto state_start = [&](int arena) {
            return arena < options.optimizer.state_arenas() ? state_start_of(options.optimizer, arena) : 0.0F;
        };
        const std::vector<float> running =
            start_replicas(replicas_, options.seed, span_of(options.initializers), states_of_training(), state_start,
                           [&](int arena) { return state_name(arena); });
        engine_.restart(0, running, {.scale = static_cast<float>(replicas_.settings().loss_scale.initial)});
    }
    TrainingParts(const TrainingParts&) = delete;
    TrainingParts& operator=(const TrainingParts&) = delete;
    [[gnu::cold]] ~TrainingParts() {
        if (replicas_.threads().has_threads()) engine_.drain();
    }

private:
    /// The arenas of the optimiser's state, and of the agreement, that are a part of the training's state.
    [[nodiscard]] int states_of_training() const {
        const ReplicaSettings& settings = replicas_.settings();
        return settings.state_arenas - (settings.replica_arenas - settings.replica_states);
    }
    [[nodiscard, gnu::cold]] std::string_view state_name(int arena) const {
        const int own = functions_.options().optimizer.state_arenas();
        return arena < own ? functions_.options().optimizer.state_name(arena)
                           : agreement_->replica_state_name(arena - own);
    }
    /// See DataParallel. `Transfer` is the StateTransfer of the training; defined in its header,
    /// parallel/state_transfer.hpp.
    template <class Transfer>
    [[nodiscard, gnu::cold]] Transfer transfer();
    template <class Transfer>
    [[nodiscard]] TrainingState state();
    template <class Transfer>
    void restore(const TrainingState& state);

    /// See DataParallel; of a replica of this process.
    [[nodiscard]] std::vector<float> gradient(int replica) {
        const std::int64_t last = engine_.step() - 1;
        require(last < 0 || agreement_->rows_after(last) != RowsAfter::differences, "the replicas have agreed in step ",
                last, ", behind which the rows of the gradients are their differences to the centre");
        require(last < 0 || agreement_->rows_after(last) != RowsAfter::other, policy_, " keeps no gradients");
        const int device = replicas_.placement().device_of(replica);
        const float* const row = replicas_.gradients().row(replica);
        std::vector<float> result = replicas_.copied(Net::trained_elements, device, [&](auto&) { return row; });
        const double factor = engine_.factor_of_row(replica);
        if (factor != 1) {
            for (float& value : result) value = static_cast<float>(static_cast<double>(value) * factor);
        }
        return result;
    }
    /// See DataParallel.
    [[nodiscard, gnu::cold]] PeakRates peak_rates() {
        PeakRates rates;
        replicas_.threads().run([&](int device) {
            const PeakRates measured = ops::MeasurePeakRates<Kernels, T>::run(replicas_.context(device));
            if (device == 0) rates = measured;
        });
        return rates;
    }

    [[nodiscard]] static ReplicaSettings settings_of(const Options& options, const StepFunctions<D>& functions,
                                                     std::size_t regularized, std::span<const RequiredColumn> required,
                                                     JoinedProcesses& joined, const CutInfo* cut) {
        ReplicaSettings settings;
        settings.replicas = options.replicas;
        settings.devices = devices_or_groups(options, cut);
        settings.gradient_accumulation_steps = options.gradient_accumulation_steps;
        settings.batch_size = options.batch_size;
        settings.other_batch_sizes = span_of(options.other_batch_sizes);
        settings.evaluation_batch_size = options.evaluation_batch_size;
        settings.synchronized = synchronized;
        settings.loss_scale = options.loss_scale.value_or(loss_scale_of<typename Net::Precision>());
        require_valid_options(settings, options.check_every, span_of(options.initializers), span_of(options.groups),
                              ignores_factors<decltype(options.optimizer)>(), Net::layers);
        Kind::place(joined, options, settings.devices);
        options.moving_average.check();
        AgreementTraits& traits = settings;
        traits = Agreement::traits(options.averaging, Net::trained_elements);
        check_optimizer(options.optimizer);
        if constexpr (may_be_cut<Net>) {
            require(traits.steps_in_flight == 0 || cut == nullptr, policy_name(options.averaging),
                    " cannot train a network that is cut into parts");
        }
        settings.landed_steps = traits.steps_in_flight;
        traits.steps_in_flight = std::max(std::int64_t{D::max_steps_in_flight}, traits.steps_in_flight);
        if (traits.updates_centre) traits.centre_states = options.optimizer.state_arenas();
        settings.state_arenas = (traits.updates_centre ? 0 : options.optimizer.state_arenas()) + traits.replica_arenas;
        settings.moving_average = options.moving_average.on();
        settings.regularized = regularized;
        settings.weighted = Loss::weighted;
        settings.losses = functions.sums_losses ? functions.losses.size() : 0;
        settings.process = joined.process;
        settings.processes = joined.engine.get();
        settings.share = joined.share;
        settings.required = required;
        settings.skips_without_weight = Loss::weighted && options.skip_steps_without_labels;
        return settings;
    }
    /// The devices, or of a network that is cut the groups of devices, each of which has all parts.
    [[nodiscard, gnu::cold]] static int devices_or_groups(const Options& options, const CutInfoFor<Net>* cut) {
        if constexpr (may_be_cut<Net>) {
            if (cut != nullptr) {
                CutChecks<D>::require_groups(*cut, options.replicas, options.devices);
                return options.devices / static_cast<int>(cut->devices);
            }
        }
        return options.devices;
    }
    /// The cut of a ChosenSplit. Throws InvalidArgument if it cannot be trained, or for another network.
    [[nodiscard, gnu::cold]] static Cut chosen_cut(const Options& options) {
        if constexpr (cut_is_chosen<Net>) {
            Cut chosen = ChosenCutOf<Net>::make(options.cut);
            if (chosen.cut() != nullptr)
                CutChecks<D>::require_trainable(*chosen.cut(),
                                                synchronized ? short_type_name<decltype(Options::statistics)>() : "");
            return chosen;
        } else {
            require(options.cut.parts == 1 && options.cut.timetable == nullptr, "the option `cut` has ",
                    options.cut.parts, options.cut.parts == 1 ? " part" : " parts",
                    ", and the network is no ChosenSplit");
            return {};
        }
    }
    /// Null unless the network is cut.
    [[nodiscard]] const CutInfo* cut() const {
        if constexpr (cut_is_chosen<Net>) {
            return chosen_.cut();
        } else {
            return cut_info_of<Net>();
        }
    }
    template <class Optimizer>
    [[nodiscard]] static constexpr std::string_view ignores_factors() {
        return UsesSegmentFactors<Optimizer> ? std::string_view() : short_type_name<Optimizer>();
    }

    Cut chosen_;
    /// The name of the policy, also of one that is chosen when the program runs.
    std::string_view policy_;
    JoinedProcesses joined_;
    FixedArray<RegularizedParameter> regularized_;
    FixedArray<RequiredColumn> required_;
    Activity activity_;
    StepFunctionsOf<D, Options, T> functions_;
    Replicas<D, T> replicas_;
    std::unique_ptr<StepAgreement<D, T>> agreement_;
    Engine engine_;
    Evaluator<D, T> evaluator_;
};

}  // namespace impl

}}  // namespace cupola::CUPOLA_ABI
