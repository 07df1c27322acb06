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
#include <string>
#include <type_traits>
#include <utility>

#include <cupola/core/abi.hpp>
#include <cupola/parallel/step_report.hpp>
#include <cupola/train/evaluate.hpp>

namespace cupola { inline namespace CUPOLA_ABI {

namespace impl {

/// The functions of a Validation with the types of training and batches erased; they get their addresses.
struct ValidationCalls {
    ValidationCalls();
    ValidationCalls(const ValidationCalls& other);
    ValidationCalls(ValidationCalls&& other) noexcept;
    ValidationCalls& operator=(const ValidationCalls& other);
    ValidationCalls& operator=(ValidationCalls&& other) noexcept;
    ~ValidationCalls();

    [[nodiscard]] explicit operator bool() const { return evaluate != nullptr; }

    Evaluation (*evaluate)(void* training, void* batches, Weights weights, EvaluationFeed* metrics) = nullptr;
    /// Throws InvalidArgument if evaluate() would throw it before its first batch; returns the number of batches.
    std::int64_t (*require_fitting)(const void* training, const void* batches, Weights weights) = nullptr;
    void* batches = nullptr;
    std::shared_ptr<void> owned{};
};

/// The functions of a RestoreBest with the type of the training erased; they get its address.
struct RestoreCalls {
    [[nodiscard]] explicit operator bool() const { return copy != nullptr; }

    std::shared_ptr<const void> (*copy)(void* training) = nullptr;
    void (*restore)(void* training, const void* state) = nullptr;
};

inline ValidationCalls::ValidationCalls() = default;
inline ValidationCalls::ValidationCalls(const ValidationCalls& other) = default;
inline ValidationCalls::ValidationCalls(ValidationCalls&& other) noexcept = default;
inline ValidationCalls& ValidationCalls::operator=(const ValidationCalls& other) = default;
inline ValidationCalls& ValidationCalls::operator=(ValidationCalls&& other) noexcept = default;
inline ValidationCalls::~ValidationCalls() = default;

}  // namespace impl

/// The batches of a validation, as for evaluate(); default-constructed for no validation. Lvalues are stored by
/// reference, rvalues by value.
template <class Training>
class Validation {
public:
    Validation() = default;
    template <class Batches>
        requires(!std::same_as<std::remove_cvref_t<Batches>, Validation>)
    // NOLINTNEXTLINE(bugprone-forwarding-reference-overload): the constraint leaves copies to the copy constructor
    Validation(Batches&& batches) {  // implicit: `.validation = test`
        using Type = std::remove_reference_t<Batches>;
        calls_.evaluate = [](void* training, void* of, Weights weights, impl::EvaluationFeed* metrics) {
            return impl::evaluate_with(*static_cast<Training*>(training), *static_cast<Type*>(of), weights, metrics);
        };
        if constexpr (requires(const Training& training, const Type& given) {
                          training.require_evaluable(given, given.count(), Weights::trained);
                      }) {
            calls_.require_fitting = [](const void* training, const void* of, Weights weights) -> std::int64_t {
                const Type& given = *static_cast<const Type*>(of);
                static_cast<const Training*>(training)->require_evaluable(given, given.count(), weights);
                static_cast<void>(impl::check_classes(*static_cast<const Training*>(training), given));
                return given.count();
            };
        }
        if constexpr (std::is_lvalue_reference_v<Batches>) {
            calls_.batches = const_cast<void*>(static_cast<const void*>(std::addressof(batches)));
        } else {
            calls_.owned = std::make_shared<Batches>(std::forward<Batches>(batches));
            calls_.batches = calls_.owned.get();
        }
    }

    [[nodiscard]] const impl::ValidationCalls& calls() const { return calls_; }

private:
    impl::ValidationCalls calls_;
};

/// Whether the best state of a run is kept in memory and restored at its end. A class template, so that a program
/// without it does not compile the copying of a state, for which one with it includes
/// <cupola/parallel/state_transfer.hpp>.
template <class Training>
class RestoreBest {
public:
    RestoreBest() = default;
    template <std::same_as<bool> Boolean>
    RestoreBest(Boolean on) {  // implicit: `.restore_best = true`
        if (!on) return;
        calls_.copy = [](void* training) -> std::shared_ptr<const void> {
            using State = decltype(std::declval<Training&>().state());
            return std::make_shared<const State>(static_cast<Training*>(training)->state());
        };
        calls_.restore = [](void* training, const void* state) {
            using State = decltype(std::declval<Training&>().state());
            static_cast<Training*>(training)->restore(*static_cast<const State*>(state));
        };
    }

    [[nodiscard]] const impl::RestoreCalls& calls() const { return calls_; }

private:
    impl::RestoreCalls calls_;
};

template <class Training>
struct FitOptions {
    /// The number of steps to make from the training's current step. Either `steps` or `epochs` is given.
    std::optional<std::int64_t> steps{};
    /// The number of epochs. An epoch ends with the step that takes its last sample, counted from step 0; an epoch that
    /// began before this call counts as the first. Needs batches with `samples_per_epoch()`.
    std::optional<std::int64_t> epochs{};
    /// The number of epochs (or steps) between two records of the history, each with a validation; the last record is
    /// at the end. With 0, a run by epochs makes one per epoch, and a run by steps only the one at the end.
    std::int64_t every = 0;
    /// Batches for evaluate(), which is called for each record.
    Validation<Training> validation{};
    /// The parameters that are validated. Values other than `trained` need `validation`.
    Weights weights = Weights::trained;
    /// Computed in each validation, from its forward pass.
    MetricList<Training> metrics{};
    /// The quantity by which the best record is chosen: "loss", "validation_loss" or the name of a metric's result; the
    /// metric defines whether larger or smaller values are better. If empty, "validation_loss" if there is a
    /// validation. With several processes, whose "loss" values differ, patience and restore_best need another quantity.
    std::string quantity{};
    /// Ends the run after this many consecutive records whose quantity is not better by more than `min_delta`; 0 for
    /// never.
    std::int64_t patience = 0;
    double min_delta = 0;
    /// Keeps a copy of the state of the training at the best record, and restores it at the end of the run, after
    /// on_end. It includes all of TrainingState, so the next step is the one after the record. Not restored if fit()
    /// throws, or if no record has a finite quantity. A run by steps needs `every`.
    RestoreBest<Training> restore_best{};
};

}}  // namespace cupola::CUPOLA_ABI
