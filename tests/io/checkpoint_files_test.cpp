// SPDX-License-Identifier: Apache-2.0
#include "../test.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <cupola/io/checkpoint_files.hpp>
#include <throws_with.hpp>

#include "checkpoint_support.hpp"
#include "file_support.hpp"

using namespace io_tests;

namespace {

std::string save(const TemporaryFolder& folder, std::int64_t step) {
    std::string path = folder.path("model-" + std::to_string(step) + ".safetensors");
    write_checkpoint(path, Net::layers, small_checkpoint(step));
    return path;
}

void damage(const std::string& path) {
    std::string bytes = read_bytes(path);
    bytes.back() ^= 1;
    write_bytes(path, bytes);
}

}  // namespace

TEST_CASE("The checkpoints of a folder are listed by their steps, the newest first") {
    const TemporaryFolder folder;
    for (const char* name : {"model-900.safetensors", "model-1000.safetensors", "model-0.safetensors",
                             "model-best.safetensors", "model-.safetensors", "model-01.safetensors",
                             "model--1.safetensors", "model-1", "model-safetensors", "model-7.safetensors.partial-1-0",
                             "amodel-8.safetensors", "events.out", "lock", "model-99999999999999999999.safetensors"}) {
        write_bytes(folder.path(name), "");
    }
    CHECK(list_checkpoints(folder.path()) == std::vector<CheckpointFile>{{1000, folder.path("model-1000.safetensors")},
                                                                         {900, folder.path("model-900.safetensors")},
                                                                         {0, folder.path("model-0.safetensors")}});
}

TEST_CASE("A path that does not exist, or is not a folder, has no list of checkpoints") {
    const TemporaryFolder folder;
    CHECK(message_of<DataError>([&] { (void)list_checkpoints(folder.path("none")); }) ==
          "the folder " + folder.path("none") + " does not exist");
    write_bytes(folder.path("file"), "");
    CHECK(message_of<DataError>([&] { (void)list_checkpoints(folder.path("file")); }) ==
          "the folder " + folder.path("file") + " cannot be read: Not a directory");
}

TEST_CASE("The newest checkpoint is used") {
    const TemporaryFolder folder;
    CHECK_FALSE(newest_valid_checkpoint(folder.path(), Net::layers).checkpoint.has_value());
    save(folder, 900);
    const std::string newest = save(folder, 1000);
    const FoundCheckpoint found = newest_valid_checkpoint(folder.path(), Net::layers);
    REQUIRE(found.checkpoint.has_value());
    CHECK(found.checkpoint->state.step == 1000);
    CHECK(found.path == newest);
    CHECK(found.damaged.empty());
}

TEST_CASE("A damaged newest checkpoint is reported, and the newest valid one is used") {
    const TemporaryFolder folder;
    save(folder, 800);
    const std::string valid = save(folder, 900), flipped = save(folder, 1000), cut = save(folder, 1100);
    damage(flipped);
    write_bytes(cut, read_bytes(cut).substr(0, 300));
    // Without the checksum's name a damaged file would have nothing to be held against.
    const std::string nameless = save(folder, 1200);
    std::string bytes = read_bytes(nameless);
    bytes.replace(bytes.find("crc32c"), 6, "crc32d");
    write_bytes(nameless, bytes);

    const FoundCheckpoint found = newest_valid_checkpoint(folder.path(), Net::layers);
    REQUIRE(found.checkpoint.has_value());
    CHECK(found.checkpoint->state.step == 900);
    CHECK(found.path == valid);
    REQUIRE(found.damaged.size() == 3);
    CHECK(found.damaged[0] == nameless + " is damaged: its checksum is missing");
    CHECK(found.damaged[1].starts_with(cut + " is truncated"));
    CHECK(found.damaged[2].starts_with(flipped + " is damaged: its checksum should be "));
}

TEST_CASE("If all checkpoints are damaged, none is used, and each is reported") {
    const TemporaryFolder folder;
    damage(save(folder, 900));
    damage(save(folder, 1000));
    const FoundCheckpoint found = newest_valid_checkpoint(folder.path(), Net::layers);
    CHECK_FALSE(found.checkpoint.has_value());
    CHECK(found.path.empty());
    CHECK(found.damaged.size() == 2);
}

TEST_CASE("A newest checkpoint of another network is an error, and no older one is used") {
    const TemporaryFolder folder;
    save(folder, 900);
    write_checkpoint(folder.path("model-1000.safetensors"), OtherNet::layers, small_checkpoint<OtherNet>());
    CHECK(contains(message_of<DataError>([&] { (void)newest_valid_checkpoint(folder.path(), Net::layers); }),
                   "model-1000.safetensors is a checkpoint of another network: "));
}

TEST_CASE("A newest checkpoint without read permission is an error, and no older one is used") {
    const TemporaryFolder folder;
    save(folder, 900);
    const std::string newest = save(folder, 1000);
    REQUIRE(chmod(folder.path().c_str(), 0755) == 0);
    REQUIRE(chmod(newest.c_str(), 0) == 0);
    const std::string said = in_child([&] {
        constexpr uid_t nobody = 65534;
        if (geteuid() == 0 && setuid(nobody) != 0) return std::string("(setuid failed)");
        return message_of<DataError>([&] { (void)newest_valid_checkpoint(folder.path(), Net::layers); });
    });
    CHECK(said == newest + " cannot be read: Permission denied");
}

TEST_CASE("A dangling link is skipped and reported") {
    const TemporaryFolder folder;
    const std::string valid = save(folder, 900), nowhere = folder.path("model-1000.safetensors");
    REQUIRE(symlink("nowhere", nowhere.c_str()) == 0);
    const FoundCheckpoint found = newest_valid_checkpoint(folder.path(), Net::layers);
    CHECK(found.path == valid);
    CHECK(found.damaged == std::vector<std::string>{nowhere + " does not exist"});
}

TEST_CASE("A training that removes old checkpoints during the search hides none") {
    const TemporaryFolder folder;
    save(folder, 0);
    std::jthread training([&] {
        for (std::int64_t step = 1; step <= 300; ++step) {
            save(folder, step);
            (void)unlink(folder.path("model-" + std::to_string(step - 1) + ".safetensors").c_str());
        }
    });
    bool all = true;
    for (std::int64_t step = 0; step < 300;) {
        const FoundCheckpoint found = newest_valid_checkpoint(folder.path(), Net::layers);
        all = all && found.checkpoint.has_value() && found.damaged.empty();
        if (!all) break;
        step = found.checkpoint->state.step;
    }
    CHECK(all);
}
