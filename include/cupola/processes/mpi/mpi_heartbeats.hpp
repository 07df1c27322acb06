// SPDX-License-Identifier: Apache-2.0
//
// MpiHeartbeats: while a process waits in an all-reduce, it periodically sends a heartbeat to each of the others. A
// collective call of MPI does not report which process is missing: it is one from which no heartbeat arrives, because
// it is not in the all-reduce, is stopped, or is unreachable.
//
// Part of <cupola/mpi.hpp>.
#pragma once

#include <cstddef>
#include <cstdint>

#include <cupola/core/fixed_array.hpp>
#include <cupola/core/monotonic_seconds.hpp>
#include <cupola/processes/mpi/mpi_calls.hpp>

namespace cupola { inline namespace CUPOLA_ABI { namespace impl {

class MpiHeartbeats {
public:
    MpiHeartbeats() = default;
    /// Heartbeats are sent with `tag`, one per `period` seconds of a wait.
    [[gnu::cold]] MpiHeartbeats(MPI_Comm all, int tag, int number, int count, double period)
        : all_(all),
          tag_(tag),
          number_(number),
          period_(period),
          incoming_(static_cast<std::size_t>(count)),
          outgoing_(incoming_.size()),
          receives_(incoming_.size()),
          sends_(incoming_.size()) {
        for (auto& each : receives_) each = MPI_REQUEST_NULL;
        for (auto& each : sends_) each = MPI_REQUEST_NULL;
    }

    /// Called when the wait for the next sum begins.
    void begin() {
        ++sum_;
        next_ = monotonic_seconds() + period_;
    }

    /// Called repeatedly during a wait. Calls `received(process)` for each process that waits in this sum or has left
    /// it. MPI errors are ignored: such a process counts as silent.
    template <class Received>
    void exchange(Received&& received) {
        const double now = monotonic_seconds();
        if (now < next_) return;
        next_ = now + period_;
        for (std::size_t p = 0; p < receives_.size(); ++p) {
            if (static_cast<int>(p) == number_) continue;
            while (receive(p)) {
                if (incoming_[p] >= sum_) received(static_cast<int>(p));
            }
            send(p);
        }
    }

    /// Cancels the pending requests, before the communicator is freed.
    [[gnu::cold]] void end() {
        for (auto& each : receives_) {
            if (each == MPI_REQUEST_NULL) continue;
            MPI_Cancel(&each);
            MPI_Request_free(&each);
        }
        for (auto& each : sends_) {
            if (each != MPI_REQUEST_NULL) MPI_Request_free(&each);
        }
    }

private:
    /// Returns whether a heartbeat has arrived. Posts a receive if none is pending.
    [[nodiscard, gnu::cold]] bool receive(std::size_t process) {
        MPI_Request& request = receives_[process];
        int complete = 0;
        if (request != MPI_REQUEST_NULL) {
            if (MPI_Test(&request, &complete, MPI_STATUS_IGNORE) != MPI_SUCCESS || complete == 0) return false;
            request = MPI_REQUEST_NULL;
            return true;  // the next call posts a receive, after this value was read
        }
        if (MPI_Irecv(&incoming_[process], 1, MPI_INT64_T, static_cast<int>(process), tag_, all_, &request) !=
            MPI_SUCCESS)
            return false;
        return receive(process);
    }
    /// Sends nothing while the previous heartbeat is still being sent.
    [[gnu::cold]] void send(std::size_t process) {
        MPI_Request& request = sends_[process];
        int complete = 1;
        if (request != MPI_REQUEST_NULL &&
            (MPI_Test(&request, &complete, MPI_STATUS_IGNORE) != MPI_SUCCESS || complete == 0))
            return;
        outgoing_[process] = sum_;
        MPI_Isend(&outgoing_[process], 1, MPI_INT64_T, static_cast<int>(process), tag_, all_, &request);
    }

    MPI_Comm all_ = MPI_COMM_NULL;
    int tag_ = 0, number_ = 0;
    double period_ = 0, next_ = 0;
    /// The number of the sum, which heartbeats contain because one of an earlier sum may arrive late.
    std::int64_t sum_ = 0;
    FixedArray<std::int64_t> incoming_, outgoing_;
    FixedArray<MPI_Request> receives_, sends_;
};

}}}  // namespace cupola::CUPOLA_ABI::impl
