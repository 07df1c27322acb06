// SPDX-License-Identifier: Apache-2.0
//
// StepsTogether: how the processes of a collective make the steps of a run together. All their calls, among them those for a step
// whose loss is not finite, come in the same order on all processes, so these read each report after they have queued the same
// steps. What that depends on, each tells with its steps:
//
//   while (!together.ends()) {
//       together.tell(wants to end, waits for the report of step + max_steps_in_flight before the next step);
//       queue the step; read reports, all of them if together.all_wait_after(step); together.hear() for each
//   }
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include <cupola/processes/run/run_agreement.hpp>

namespace cupola { inline namespace CUPOLA_ABI { namespace impl {

class StepsTogether {
public:
    /// `agreement` must outlive the object.
    StepsTogether(RunAgreement& agreement, std::int64_t first_step, std::int64_t max_steps_in_flight)
        : agreement_(agreement),
          first_step_(first_step),
          in_flight_(max_steps_in_flight),
          waits_(static_cast<std::size_t>(max_steps_in_flight)) {
        agreement_.tell(0);
    }
    StepsTogether(const StepsTogether&) = delete;
    StepsTogether& operator=(const StepsTogether&) = delete;
    ~StepsTogether() { agreement_.tell(0); }

    /// Before a step is queued: what this process wants.
    void tell(bool ends, bool waits_after_later) {
        agreement_.tell((ends ? tells_end : 0) | (waits_after_later ? tells_wait : 0));
    }
    /// Reads what all processes have told with the step whose report was read last.
    void hear(std::int64_t step) {
        if (step < first_step_) return;
        const int told = agreement_.told();
        ends_ = ends_ || (told & tells_end) != 0;
        waits_[slot_of(step)] = (told & tells_wait) != 0;
    }
    /// Whether the report of this step is read before the next one is queued: any process has told so with the step in_flight before.
    [[nodiscard]] bool all_wait_after(std::int64_t step) const {
        return step < first_step_ + in_flight_ || waits_[slot_of(step)];
    }
    /// Whether any process has told that it wants to end: all read this with the same report.
    [[nodiscard]] bool ends() const { return ends_; }

private:
    static constexpr int tells_end = 1, tells_wait = 2;
    [[nodiscard]] std::size_t slot_of(std::int64_t step) const { return static_cast<std::size_t>(step % in_flight_); }

    RunAgreement& agreement_;
    std::int64_t first_step_, in_flight_;
    bool ends_ = false;
    /// By the slot of a step, from the report of the step before in that slot on.
    std::vector<bool> waits_;
};

}}}  // namespace cupola::CUPOLA_ABI::impl
