// SPDX-License-Identifier: Apache-2.0
//
// make_run_policy: what the processes of a training agree on between two steps, so that all go on, or all end after
// the same step with the same error. Every such exchange begins with a block of one size, in which a process reports
// its error, so that the others receive it in whichever exchange they are.
//
// The processes of a collective (ProcessGroup::is_collective()) agree at fewer steps. All of their calls, including
// those for a step whose loss is not finite, are made in the same order on all processes, so they read each report
// after they have queued the same steps. Each process sends the flags on which this depends with its steps: whether it
// requests the end of the run, and whether the report of the step max_steps_in_flight later must be read before another
// step is queued.
#pragma once

#include <memory>

#include <cupola/parallel/run_policy.hpp>
#include <cupola/processes/processes.hpp>

namespace cupola { inline namespace CUPOLA_ABI { namespace impl {

/// `processes` must outlive the policy.
[[nodiscard]] std::unique_ptr<RunPolicy> make_run_policy(ProcessGroup& processes);

}}}  // namespace cupola::CUPOLA_ABI::impl

#ifdef CUPOLA_DECL
#include <cupola/processes/run/policy.ipp>
#endif
