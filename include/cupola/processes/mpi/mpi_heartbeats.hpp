// SPDX-License-Identifier: Apache-2.0
//
// MpiHeartbeats: while a process waits in a sum of all, it sends a note to each of the others now and then. A collective
// call of MPI does not say whose part is missing: it is the part of a process from which no note comes, because it is
// not in the sum, is stopped, or cannot be reached.
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
    /// Notes with this tag, one per `period` seconds of a wait.
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

    /// Begins the next sum.
    void begin() {
        ++sum_;
        next_ = monotonic_seconds() + period_;
    }

    /// Called again and again in a wait. `received(process)` is called for each process that waits in this sum, or has
    /// left it. Errors of MPI are silence.
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

    /// Ends the requests that are left, before the communicator is freed.
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
    /// Whether a note has come; the next one is waited for.
    [[nodiscard, gnu::cold]] bool receive(std::size_t process) {
        MPI_Request& request = receives_[process];
        int complete = 0;
        if (request != MPI_REQUEST_NULL) {
            if (MPI_Test(&request, &complete, MPI_STATUS_IGNORE) != MPI_SUCCESS || complete == 0) return false;
            request = MPI_REQUEST_NULL;
            return true;  // the next call waits for another, after this one was read
        }
        if (MPI_Irecv(&incoming_[process], 1, MPI_INT64_T, static_cast<int>(process), tag_, all_, &request) !=
            MPI_SUCCESS)
            return false;
        return receive(process);
    }
    /// Sends nothing while the note before has not left.
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
    /// The number of the sum, which a note has too: one of an earlier sum may come late.
    std::int64_t sum_ = 0;
    FixedArray<std::int64_t> incoming_, outgoing_;
    FixedArray<MPI_Request> receives_, sends_;
};

}}}  // namespace cupola::CUPOLA_ABI::impl
