// SPDX-License-Identifier: Apache-2.0
//
// The records of a run in a folder. Checkpoints contain them and the incomplete mean of the losses since the last one:
// a resumed run has the records of its checkpoint, from which its patience and its best value follow. `history.csv` is
// written from them and never read, so it cannot contradict the checkpoint: if the process is killed at any moment, the
// resumed run rewrites it.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <cupola/core/error.hpp>
#include <cupola/core/function_ref.hpp>
#include <cupola/core/number_from_chars.hpp>
#include <cupola/io/checkpoint.hpp>
#include <cupola/io/checkpoint_directory.hpp>
#include <cupola/io/checkpoint_files.hpp>
#include <cupola/io/checkpoint_info.hpp>
#include <cupola/net/table.hpp>
#include <cupola/train/history.hpp>
#include <cupola/train/impl/fit_recorder.hpp>
#include <cupola/train/impl/run_lines.hpp>
#include <cupola/train/loss_text.hpp>
#include <cupola/train/run.hpp>

namespace cupola { inline namespace CUPOLA_ABI {

/// The entries of a checkpoint's info with the records of the run, as the text of history.csv, and with the sums over
/// the steps since the last record.
inline constexpr std::string_view history_key = "history", since_record_key = "since_record";

namespace impl {

/// Adds the records of a run to a checkpoint.
[[gnu::cold]] inline void write_progress(const FitRecorder& recorder, CheckpointInfo& info) {
    const RecordProgress progress = recorder.progress();
    info.set(history_key, recorder.history().csv());
    info.set(since_record_key,
             text(progress.has_steps ? 1 : 0, ' ', exact_text(progress.weight), ' ', exact_text(progress.sum), ' ',
                  exact_text(progress.learning_rate), ' ', exact_text(progress.seconds)));
}

/// Reads the fields of a text that History::csv wrote, one after another.
class HistoryFields {
public:
    explicit HistoryFields(std::string_view text) : rest_(text) {}

    [[nodiscard]] bool at_end() const { return rest_.empty(); }
    /// The next field; `ends_line` says whether it is the last of its line.
    [[nodiscard]] std::string next(bool& ends_line) {
        std::string field;
        bool quoted = false;
        std::size_t i = 0;
        for (; i < rest_.size() && (quoted || (rest_[i] != ',' && rest_[i] != '\n')); ++i) {
            if (rest_[i] != '"') {
                field += rest_[i];
            } else {
                if (!quoted && i > 0 && rest_[i - 1] == '"') field += '"';  // the second of two quotes
                quoted = !quoted;
            }
        }
        ends_line = i == rest_.size() || rest_[i] == '\n';
        rest_.remove_prefix(i == rest_.size() ? i : i + 1);
        return field;
    }

private:
    std::string_view rest_;
};

template <class T>
[[gnu::cold]] bool read_number(std::string_view digits, T& value) {
    const char* const end = digits.data() + digits.size();
    return number_from_chars(digits.data(), end, value).ptr == end && !digits.empty();
}

/// The records in a text that History::csv wrote.
[[nodiscard, gnu::cold]] inline std::vector<HistoryRecord> records_of_csv(std::string_view csv) {
    const auto require_valid = [](bool valid) {
        require<DataError>(valid, "the checkpoint's ", history_key, " is not the history of a run");
    };
    HistoryFields fields(csv);
    std::vector<std::string> names;
    for (bool ends_line = false; !ends_line;) names.push_back(fields.next(ends_line));
    constexpr std::size_t before = 4, after = 2;  // the metrics
    require_valid(names.size() >= before + after && names[0] == "epoch" && names[before - 1] == "validation_loss");
    std::vector<HistoryRecord> records;
    while (!fields.at_end()) {
        HistoryRecord record;
        bool ends_line = false;
        for (std::size_t i = 0; i < names.size(); ++i) {
            require_valid(!ends_line);
            const std::string field = fields.next(ends_line);
            double value = 0;
            if (i == 0) {
                if (!field.empty()) require_valid(read_number(field, record.epoch.emplace()));
                continue;
            }
            if (i == 1) {
                require_valid(read_number(field, record.step));
                continue;
            }
            const bool metric = i >= before && i < names.size() - after;
            if (field.empty() && (metric || i == before - 1)) continue;
            require_valid(read_number(field, value));
            if (metric)
                record.metrics.push_back({.name = names[i], .value = value});
            else if (i == 2)
                record.loss = value;
            else if (i == before - 1)
                record.validation_loss = value;
            else
                (i == names.size() - 1 ? record.seconds : record.learning_rate) = value;
        }
        require_valid(ends_line && (records.empty() || record.step > records.back().step));
        records.push_back(std::move(record));
    }
    return records;
}

/// The records that a checkpoint contains; empty if it was written by a run without records. Throws DataError for a
/// text that write_progress did not write.
[[nodiscard, gnu::cold]] inline std::optional<RecordProgress> read_progress(const CheckpointInfo& info) {
    const std::string *const history = info.find(history_key), *const since = info.find(since_record_key);
    if (history == nullptr || since == nullptr) return {};
    RecordProgress progress{.records = records_of_csv(*history)};
    std::string_view rest = *since;
    const auto number = [&](double& value) {
        const std::string_view digits = rest.substr(0, rest.find(' '));
        rest.remove_prefix(std::min(rest.size(), digits.size() + 1));
        require<DataError>(read_number(digits, value), "the checkpoint's ", since_record_key, " has no number at '",
                           digits.substr(0, 64), "'");
    };
    double has_steps = 0;
    for (double* const value :
         {&has_steps, &progress.weight, &progress.sum, &progress.learning_rate, &progress.seconds})
        number(*value);
    progress.has_steps = has_steps != 0;
    return progress;
}

/// "validation_loss = 0.123 after 340 steps".
[[nodiscard, gnu::cold]] inline std::string best_text(const History& history) {
    const HistoryRecord& best = history.records[*history.best];
    const std::string& quantity = history.quantity;
    const double value = quantity == "loss"              ? best.loss
                         : quantity == "validation_loss" ? *best.validation_loss
                                                         : best.metric(quantity);
    return text(quantity, " = ", loss_text(value, 3), ' ', after_steps(best.step));
}

/// The state of the best record, which an earlier process has saved in the folder. Throws DataError if it does not
/// exist. Its network was compared before, with the other settings of the run.
template <class State>
[[nodiscard, gnu::cold]] std::shared_ptr<const void> state_of_best(const std::string& folder,
                                                                   std::span<const LayerInfo> layers,
                                                                   const FitRecorder& recorder) {
    const std::string path = checkpoint_path(folder, "best");
    Checkpoint found = read_checkpoint(path, layers, ReadOptions{.network = NetworkInFile::of_same_parameters});
    const std::string* const metric = found.info.find(CheckpointDirectory::metric_key);
    const std::int64_t step = recorder.best()->step;
    require<DataError>(metric != nullptr && *metric == exact_text(recorder.best_value()) && found.state.step == step,
                       path, " is of step ", found.state.step, ", and the best record of the run is that of step ",
                       step, ": .restore_best needs its state");
    return std::make_shared<const State>(std::move(found.state));
}

/// The callback that writes the best state and then the history of a run. All processes take part in writing the state.
class RunRecords {
public:
    /// `folder` is empty for a run without files. save_best() saves the current state of the training as the best one;
    /// null if that is not stored. `best_is_unsaved` means that the resumed state of the training is the best one and
    /// not yet saved.
    [[gnu::cold]] RunRecords(const FitRecorder& recorder, const std::string& folder, FunctionRef<void()> save_best,
                             bool best_is_unsaved)
        : recorder_(&recorder), save_best_(save_best), best_is_unsaved_(best_is_unsaved) {
        if (!folder.empty()) path_ = text(folder, '/', history_file_name);
    }

    [[gnu::cold]] void on_begin(Run&) {
        if (best_is_unsaved_ && save_best_) save_best_();
        write();
    }
    [[gnu::cold]] void on_record(const HistoryRecord& record, Run&) {
        if (save_best_ && recorder_->best() != nullptr && recorder_->best()->step == record.step) save_best_();
        write();
    }

private:
    void write() const {
        if (!path_.empty()) recorder_->history().write_csv(path_);
    }

    const FitRecorder* recorder_;
    std::string path_;
    FunctionRef<void()> save_best_;
    bool best_is_unsaved_;
};

}  // namespace impl

}}  // namespace cupola::CUPOLA_ABI
