// SPDX-License-Identifier: Apache-2.0
//
// History: the result of fit(). It has one record per epoch, or per `.every` epochs or steps, and one at the end:
//
//   const History history = fit(training, batches, {.epochs = 10, .validation = test});
//   std::printf("%g after %lld steps\n", *history.records.back().validation_loss, (long long)history.steps);
//   history.write_csv("history.csv");    needs #include <cupola/io/atomic_file.hpp>
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <cupola/core/abi.hpp>
#include <cupola/parallel/step_report.hpp>

namespace cupola { inline namespace CUPOLA_ABI {

/// Defined in io/atomic_file.hpp.
class AtomicFile;

/// The results of the steps since the previous record.
struct HistoryRecord {
    /// The number of complete epochs since step 0, if the batches have epochs.
    std::optional<std::int64_t> epoch{};
    /// The number of steps since the beginning of the training: the next step has this number.
    std::int64_t step = 0;
    /// The mean loss of the steps since the previous record, by the steps' weights, including the regularisers' losses.
    /// NaN if all of them were skipped.
    double loss = 0;
    /// The mean loss of the data on the validation batches; empty without them.
    std::optional<double> validation_loss{};
    /// The results of the metrics in the validation. For a network with several outputs, the loss of each output comes
    /// first, without its factor: "kind/loss".
    std::vector<MetricValue> metrics{};
    /// The learning rate of the last step.
    double learning_rate = 0;
    /// The time since the beginning of the run, including validations; and the time of this validation.
    double seconds = 0;
    double validation_seconds = 0;

    /// The result of the metric with that name. Throws InvalidArgument if there is none.
    [[nodiscard]] double metric(std::string_view name) const;
};

struct History {
    History();
    History(const History& other);
    History(History&& other) noexcept;
    History& operator=(const History& other);
    History& operator=(History&& other) noexcept;
    ~History();

    /// The number of steps that this call of fit() made.
    std::int64_t steps = 0;
    std::vector<HistoryRecord> records{};
    /// The quantity by which `best` was chosen: "loss", "validation_loss" or the name of a metric's result.
    std::string quantity{};
    /// The index of the record with the best finite value of `quantity`, the first of equal ones; empty if there is
    /// none.
    std::optional<std::size_t> best{};
    /// Whether the run ended because `.patience` was exhausted.
    bool stopped_early = false;

    /// A header line and one line per record: epoch, step, loss, validation_loss, the metrics, learning_rate and
    /// seconds, with all digits. Values that a record lacks are empty.
    [[nodiscard]] std::string csv() const;
    /// Writes csv() to a file atomically. Throws DataError if it cannot be written. Needs
    /// #include <cupola/io/atomic_file.hpp>.
    template <class File = AtomicFile>
    void write_csv(const std::string& path) const {
        constexpr bool included = requires { sizeof(File); };
        static_assert(included, "write_csv() of a history needs #include <cupola/io/atomic_file.hpp>");
        if constexpr (included) {
            const std::string lines = csv();
            File file(path);
            file.write(std::as_bytes(std::span(lines)));
            file.commit();
        }
    }
};

}}  // namespace cupola::CUPOLA_ABI

#ifdef CUPOLA_DECL
#include <cupola/train/history.ipp>
#endif
