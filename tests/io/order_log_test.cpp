// SPDX-License-Identifier: Apache-2.0
//
// Files of order logs.
#include <cupola/io/order_log.hpp>

#include "../temporary_folder.hpp"
#include "../test.hpp"

namespace {

OrderLog some_log() {
    return {.replicas = 2,
            .devices = 2,
            .seed = 18446744073709551615U,
            .rule = "Elastic every 2 batches, moving rate \"0.25\"",
            .first_step = 7,
            .claims = {0, 1, 0, 0, 1, 0},
            .turns = {0, 0, 1, 0, 0, 1}};
}

}  // namespace

TEST_CASE("an order log is read as it was written") {
    const TemporaryFolder folder;
    const std::string path = folder.path("order.safetensors");
    write_order_log(path, some_log());
    CHECK(read_order_log(path) == some_log());
    CHECK(read_order_log(path).file == path);
    CHECK(read_order_log(path).end_step() == 10);
    OrderLog empty = some_log();
    empty.claims.clear();
    empty.turns.clear();
    write_order_log(path, empty);
    CHECK(read_order_log(path) == empty);
}

TEST_CASE("a file that is not an order log, or has one that no run can have, is a DataError") {
    const TemporaryFolder folder;
    const std::string path = folder.path("order.safetensors");
    const auto fails = [&](const std::string& message) {
        CHECK_THROWS_WITH_AS(static_cast<void>(read_order_log(path)), (path + message).c_str(), DataError);
    };
    OrderLog log = some_log();
    log.turns[0] = 1;
    log.turns[1] = 1;
    write_order_log(path, log);
    fails(": an order log lets replica 1 complete a batch, in turn 1, that it cannot have begun");
    log = some_log();
    log.turns.pop_back();
    write_order_log(path, log);
    fails(": an order log of 2 replicas has 6 batches and 5 turns, not those of whole steps");
    log = some_log();
    log.first_step = -1;
    write_order_log(path, log);
    fails(": an order log begins at step 0 to 1099511627776, not at step -1");

    const auto write = [&](const SafetensorsWriter::Metadata& metadata, const std::string& type) {
        const TensorHeader lists[] = {{"claims", type, {0}}, {"turns", type, {0}}};
        SafetensorsWriter(path, lists, metadata).commit();
    };
    SafetensorsWriter::Metadata metadata;
    write(metadata, "U16");
    fails(" is not an order log: it has no cupola.order_log");
    metadata = {{"cupola.order_log", "2"}};
    write(metadata, "U16");
    fails(" is an order log of version 2, and this program reads version 1");
    metadata = {{"cupola.order_log", "1"}, {"cupola.replicas", "two"}};
    write(metadata, "U16");
    fails(" is not an order log: its cupola.replicas is two");
    metadata = {{"cupola.order_log", "1"}, {"cupola.replicas", "2"},   {"cupola.devices", "1"},
                {"cupola.seed", "0"},      {"cupola.first_step", "0"}, {"cupola.rule", "Hogwild"}};
    write(metadata, "U8");
    fails(" is not an order log: it has no list claims of type U16");
}
