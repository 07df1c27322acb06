// SPDX-License-Identifier: Apache-2.0
//
// The placement of replicas on devices, and of the copies of the parameters.
#include <cupola/parallel/replicas/replica_placement.hpp>

#include "../test.hpp"

using cupola::impl::ReplicaPlacement;

TEST_CASE("replicas are on the devices in contiguous blocks, of which none is larger than another by more than one") {
    for (const int replicas : {1, 2, 3, 5, 8, 13}) {
        for (int devices = 1; devices <= replicas; ++devices) {
            CAPTURES(replicas, devices);
            const ReplicaPlacement placement(replicas, devices, false);
            int next = 0;
            for (int device = 0; device < devices; ++device) {
                CHECK(placement.first_replica(device) == next);
                const int here = placement.replicas_of(device);
                CHECK(here >= replicas / devices);
                CHECK(here <= placement.max_replicas_per_device());
                std::vector<int> batches(static_cast<std::size_t>(2 * here), 0);  // of two accumulated parts
                for (int local = 0; local < here; ++local, ++next) {
                    CHECK(placement.device_of(next) == device);
                    CHECK(placement.local(next) == local);
                    for (const int part : {0, 1}) ++batches.at(placement.batch_number(next, part));
                }
                CHECK(batches == std::vector<int>(batches.size(), 1));
            }
            CHECK(next == replicas);
            CHECK(placement.first_replica(devices) == replicas);
            CHECK(placement.max_replicas_per_device() == (replicas + devices - 1) / devices);
        }
    }
}

TEST_CASE("the copies of the parameters are one per device, all equal, or one per replica") {
    const ReplicaPlacement shared(5, 2, false), own(5, 2, true);
    CHECK(shared.max_copies_per_device() == 1);
    CHECK(own.max_copies_per_device() == 3);
    for (const int device : {0, 1}) {
        CHECK(shared.copies(device) == 1);
        CHECK(shared.replica_of_copy(device, 0) == 0);
        CHECK(own.copies(device) == own.replicas_of(device));
    }
    for (int replica = 0; replica < 5; ++replica) {
        CHECK(shared.copy_of(replica) == 0);
        CHECK(own.replica_of_copy(own.device_of(replica), own.copy_of(replica)) == replica);
    }
}

TEST_CASE("the devices' columns follow each other, cover all, and meet at whole cache lines only") {
    for (const std::int64_t all : {0, 1, 1023, 1024, 1025, 100000}) {
        for (const int devices : {1, 2, 3, 8}) {
            const ReplicaPlacement placement(8, devices, false);
            std::int64_t next = 0;
            for (int device = 0; device < devices; ++device) {
                const auto [begin, end] = placement.columns_of(device, all);
                CHECK(begin == next);
                CHECK(end >= begin);
                CHECK((end == all || end % 1024 == 0));
                next = end;
            }
            CHECK(next == all);
        }
    }
}

TEST_CASE("replicas are on the processes in contiguous blocks, of which none is larger than another by more than one") {
    for (int replicas = 1; replicas <= 13; ++replicas) {
        for (int processes = 1; processes <= replicas; ++processes) {
            int next = 0;
            for (int process = 0; process < processes; ++process) {
                const ReplicaPlacement placement(replicas, 1, false, processes, process);
                CHECK(placement.replicas_here() >= replicas / processes);
                CHECK(placement.replicas_here() <= placement.max_replicas_per_process());
                CHECK(placement.first_replica(0) == next);
                CHECK(placement.first_replica(1) == placement.first_replica_of_process(process + 1));
                for (int r = 0; r < replicas; ++r) CHECK(placement.is_here(r) == (placement.process_of(r) == process));
                next += placement.replicas_here();
            }
            CHECK(next == replicas);
        }
    }
    const ReplicaPlacement even(8, 2, false, 2, 1), uneven(7, 2, false, 3, 2);
    CHECK(even.max_replicas_per_process() == 4);
    CHECK(uneven.max_replicas_per_process() == 3);
    CHECK(uneven.first_replica(0) == 4);
    CHECK(uneven.first_replica(1) == 5);
}
