// SPDX-License-Identifier: Apache-2.0
//
// The options of fit():
//
//   fit(training, batches, {.steps = 1000});
//   fit(training, batches, {.epochs = 100, .validation = test, .metrics = {metrics::Accuracy{}}, .patience = 5});
#pragma once

#include <concepts>
#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>
#include <type_traits>
#include <utility>

#include <cupola/core/abi.hpp>
#include <cupola/parallel/step_report.hpp>
#include <cupola/train/evaluate.hpp>

namespace cupola::inline CUPOLA_ABI {

/// The batches of a validation, as evaluate() takes them; none if it is default-constructed. A variable is referred to, a
/// temporary is owned.
template <class Training>
class Validation {
public:
    Validation() = default;
    template <class Batches>
        requires(!std::same_as<std::remove_cvref_t<Batches>, Validation>)
    // NOLINTNEXTLINE(bugprone-forwarding-reference-overload): the constraint leaves copies to the copy constructor
    Validation(Batches&& batches)  // implicit: `.validation = test`
        : evaluate_([](Training& training, void* of, Weights weights, const MetricList<Training>& metrics) {
              return evaluate(training, *static_cast<std::remove_reference_t<Batches>*>(of), weights, metrics);
          }),
          require_([](const Training& training, const void* of, Weights weights) {
              const auto& given = *static_cast<const std::remove_reference_t<Batches>*>(of);
              if constexpr (requires { training.require_evaluable(given, given.count(), weights); })
                  training.require_evaluable(given, given.count(), weights);
          }) {
        if constexpr (std::is_lvalue_reference_v<Batches>) {
            batches_ = const_cast<void*>(static_cast<const void*>(std::addressof(batches)));
        } else {
            owned_ = std::make_shared<Batches>(std::forward<Batches>(batches));
            batches_ = owned_.get();
        }
    }

    [[nodiscard]] explicit operator bool() const { return evaluate_ != nullptr; }
    /// Throws InvalidArgument if evaluate() would before its first batch.
    void require_fitting(const Training& training, Weights weights) const {
        if (require_ != nullptr) require_(training, batches_, weights);
    }
    [[nodiscard]] Evaluation operator()(Training& training, Weights weights,
                                        const MetricList<Training>& metrics) const {
        return evaluate_(training, batches_, weights, metrics);
    }

private:
    Evaluation (*evaluate_)(Training&, void* batches, Weights, const MetricList<Training>&) = nullptr;
    void (*require_)(const Training&, const void* batches, Weights) = nullptr;
    void* batches_ = nullptr;
    std::shared_ptr<void> owned_;
};

/// Whether the best state of a run is kept in memory and restored at its end. A type of its own, so that a program
/// without it does not compile the copy of a state.
template <class Training>
class RestoreBest {
public:
    RestoreBest() = default;
    template <std::same_as<bool> Bool>
    RestoreBest(Bool on) {  // implicit: `.restore_best = true`
        if (!on) return;
        copy_ = [](Training& training) -> std::shared_ptr<const void> {
            using State = decltype(training.state());
            return std::make_shared<const State>(training.state());
        };
        restore_ = [](Training& training, const void* state) {
            training.restore(*static_cast<const decltype(training.state())*>(state));
        };
    }

    [[nodiscard]] explicit operator bool() const { return copy_ != nullptr; }
    [[nodiscard]] std::shared_ptr<const void> copy(Training& training) const { return copy_(training); }
    void restore(Training& training, const void* state) const { restore_(training, state); }

private:
    std::shared_ptr<const void> (*copy_)(Training&) = nullptr;
    void (*restore_)(Training&, const void* state) = nullptr;
};

template <class Training>
struct FitOptions {
    /// The number of steps to make from the training's current step. Either `steps` or `epochs` is given.
    std::optional<std::int64_t> steps{};
    /// The number of epochs. An epoch is over with the step that takes its last sample, counted from step 0; one that was
    /// begun before this call is the first. Needs batches with `samples_per_epoch()`.
    std::optional<std::int64_t> epochs{};
    /// Epochs, or steps, between two records of the history, each with a validation; the last record is at the end. With
    /// 0, a run by epochs makes one per epoch, and a run by steps only that at the end.
    std::int64_t every = 0;
    /// Batches for evaluate(), which is called for each record.
    Validation<Training> validation{};
    /// The parameters that are validated.
    Weights weights = Weights::trained;
    /// Computed in each validation, from its forward pass.
    MetricList<Training> metrics{};
    /// By what the best record is chosen: "loss", "validation_loss" or the name of a metric's result, which says whether
    /// larger or smaller values are better. Where it is empty, "validation_loss" if there is a validation. With several
    /// processes, which have different "loss", patience and restore_best need another.
    std::string_view quantity{};
    /// Ends the run after this many records in a row whose quantity is not better by more than `min_delta`; 0 for never.
    std::int64_t patience = 0;
    double min_delta = 0;
    /// Keeps a copy of the state of the training at the best record, and restores it at the end of the run, after
    /// on_end: all of TrainingState, so the next step is that after the record. Not restored if fit() throws, or if no
    /// record has a finite quantity. A run by steps needs `every`.
    RestoreBest<Training> restore_best{};
};

}  // namespace cupola::inline CUPOLA_ABI
