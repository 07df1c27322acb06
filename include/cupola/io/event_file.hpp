// SPDX-License-Identifier: Apache-2.0
//
// EventFile: summaries as a file of events that TensorBoard shows: `EventFile events("train"); ... tensorboard --logdir
// train`. Every write is in the file when it returns. A run that continues in the same folder writes a new file that
// states at which step it begins, so that TensorBoard drops later steps of an interrupted run.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include <cupola/io/impl/event_message.hpp>
#include <cupola/io/impl/event_output.hpp>
#include <cupola/io/summary_sink.hpp>

namespace cupola { inline namespace CUPOLA_ABI {

class EventFile final : public SummarySink {
public:
    /// A new file in `folder`, which is created if it is missing. Throws DataError if that fails.
    explicit EventFile(const std::string& folder) : output_(folder) { output_.write(impl::file_version_event(now())); }

    void start(std::int64_t step) override {
        require(step >= 0, "a run must begin at step 0 or later, not at ", step);
        output_.write(impl::session_start_event(now(), step));
    }

    void write(std::int64_t step, const StepSummary& summary) override {
        if (!summary.empty()) output_.write(impl::summary_event(now(), step, summary));
    }

    [[nodiscard]] const std::string& path() const { return output_.path(); }

private:
    /// Seconds since 1970.
    static double now() {
        std::timespec time{};
        std::timespec_get(&time, TIME_UTC);
        return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
    }

    impl::EventOutput output_;
};

/// An EventFile in `folder` as the sink of a run: `TrainingRunOptions::events`.
[[nodiscard]] inline std::unique_ptr<SummarySink> event_file_in(const std::string& folder) {
    return std::make_unique<EventFile>(folder);
}

}}  // namespace cupola::CUPOLA_ABI
