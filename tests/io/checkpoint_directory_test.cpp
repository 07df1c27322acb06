// SPDX-License-Identifier: Apache-2.0
#include "../test.hpp"

#include <set>

#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cupola/io/checkpoint_directory.hpp>
#include <throws_with.hpp>

#include "checkpoint_support.hpp"
#include "file_support.hpp"

using namespace io_tests;

namespace {

std::vector<std::int64_t> steps_in(const CheckpointDirectory& directory) {
    std::vector<std::int64_t> steps;
    for (const CheckpointFile& file : directory.list()) steps.push_back(file.step);
    return steps;
}

void save(CheckpointDirectory& directory, std::int64_t step, double metric) {
    directory.save(Net::layers, small_checkpoint(step));
    directory.save_best(Net::layers, small_checkpoint(step), metric);
}

std::string refusal(const std::string& path, CheckpointDirectoryOptions options = {}) {
    return message_of<DataError>([&] { CheckpointDirectory directory(path, options); });
}

}  // namespace

TEST_CASE("A checkpoint directory is created with its parent folders, and may exist already") {
    const TemporaryFolder folder;
    const std::string path = folder.path("runs/first/now");
    {
        CheckpointDirectory directory(path);
        CHECK(directory.path() == path);
        CHECK(directory.save(Net::layers, small_checkpoint(10)) == path + "/model-10.safetensors");
    }
    const CheckpointDirectory directory(path);
    CHECK(steps_in(directory) == std::vector<std::int64_t>{10});
    CHECK(directory.newest_valid(Net::layers).checkpoint->state.step == 10);
}

TEST_CASE("A checkpoint directory that cannot be created or written is an error") {
    const TemporaryFolder folder;
    write_bytes(folder.path("file"), "");
    CHECK(refusal(folder.path("file")) == folder.path("file") + " is not a folder");
    CHECK(refusal(folder.path("file/below")) ==
          "the folder " + folder.path("file/below") + " cannot be created: Not a directory");
    CHECK(refusal("/proc/cupola") == "the folder /proc/cupola cannot be created: No such file or directory");
    CHECK(contains(message_of<InvalidArgument>([&] { CheckpointDirectory directory(folder.path(), {.keep = 0}); }),
                   "at least 1 checkpoint must be kept, not 0"));
    const std::string said = in_child([&] {
        constexpr uid_t nobody = 65534;
        std::filesystem::permissions(folder.path(), std::filesystem::perms(0555));
        if (geteuid() == 0 && setuid(nobody) != 0) return std::string("(setuid failed)");
        return refusal(folder.path("new")) + "; " + refusal(folder.path());
    });
    CHECK(said == "the folder " + folder.path("new") + " cannot be created: Permission denied; the folder " +
                      folder.path() + " cannot be written: Permission denied");
}

TEST_CASE("A training's folder is made in one that may be written and entered, but not read") {
    const TemporaryFolder folder;
    CHECK(in_child([&] {
              constexpr uid_t nobody = 65534;
              const std::string above = folder.path("above");
              std::filesystem::permissions(folder.path(), std::filesystem::perms(0777));
              mkdir(above.c_str(), 0711);
              if (geteuid() == 0 && (chown(above.c_str(), nobody, nobody) != 0 || setuid(nobody) != 0))
                  return std::string("(setuid failed)");
              chmod(above.c_str(), 0311);
              CheckpointDirectory directory(above + "/run");
              directory.save(Net::layers, small_checkpoint(3));
              return text(directory.warnings().size(), " warnings, ", directory.list().size(), " checkpoint");
          }) == "0 warnings, 1 checkpoint");
}

TEST_CASE("A second training in one directory is rejected with the process of the first") {
    const TemporaryFolder folder;
    const std::string in_use =
        "the folder " + folder.path() + " is in use by another training, process " + std::to_string(getpid());
    {
        const CheckpointDirectory directory(folder.path());
        CHECK(refusal(folder.path()) == in_use);
        CHECK(in_child([&] { return refusal(folder.path()); }) == in_use);
    }
    CHECK(in_child([&] { return refusal(folder.path()); }) == "(no exception)");
}

TEST_CASE("The lock of a killed process is released") {
    const TemporaryFolder folder;
    const std::string path = folder.path();
    const std::string locked = in_child([&] {
        static std::optional<CheckpointDirectory> directory;
        directory.emplace(path);
        kill(getpid(), SIGKILL);
        return std::string("(not killed)");
    });
    CHECK(locked.empty());
    CHECK(folder.names() == std::set<std::string>{"lock"});
    CHECK(refusal(path) == "(no exception)");
}

TEST_CASE("The unfinished file of a killed training is removed, and nothing else") {
    const TemporaryFolder folder;
    write_bytes(folder.path("model-10.safetensors.partial-123-0"), "half");
    write_bytes(folder.path("model-best.safetensors.partial-123-0"), "half");
    const std::set<std::string> others{"events.out.tfevents.1", "model-10.safetensors.partial-results.txt",
                                       "notes.partial-1-1", "predictions.csv.partial-123-0"};
    for (const std::string& name : others) write_bytes(folder.path(name), "a user's");
    const CheckpointDirectory directory(folder.path());
    std::set<std::string> left = others;
    left.insert("lock");
    CHECK(folder.names() == left);
    REQUIRE(directory.warnings().size() == 2);
    CHECK(contains(directory.warnings()[0],
                   ".partial-123-0 was removed: a training ended while it was writing this file"));
}

TEST_CASE("The requested number of the newest checkpoints is kept") {
    const TemporaryFolder folder;
    CheckpointDirectory directory(folder.path(), {.keep = 2});
    for (const std::int64_t step : {1000, 2000, 3000, 11000}) directory.save(Net::layers, small_checkpoint(step));
    CHECK(steps_in(directory) == std::vector<std::int64_t>{11000, 3000});
}

TEST_CASE("Five checkpoints are kept by default") {
    const TemporaryFolder folder;
    CheckpointDirectory directory(folder.path());
    for (std::int64_t step = 1; step <= 7; ++step) save(directory, step, 0.5);
    CHECK(steps_in(directory) == std::vector<std::int64_t>{7, 6, 5, 4, 3});
    CHECK(folder.names().size() == 6);
}

TEST_CASE("A checkpoint of an earlier step than the others is kept, and so are they") {
    const TemporaryFolder folder;
    CheckpointDirectory directory(folder.path(), {.keep = 2});
    for (const std::int64_t step : {50, 60}) directory.save(Net::layers, small_checkpoint(step));
    for (const std::int64_t step : {10, 20, 30}) directory.save(Net::layers, small_checkpoint(step));
    CHECK(steps_in(directory) == std::vector<std::int64_t>{60, 50, 30, 20});
}

TEST_CASE("The best checkpoint is kept beside the newest, also by the next process") {
    const TemporaryFolder folder;
    const std::string best = folder.path("model-best.safetensors");
    const auto step_of_best = [&] { return read_checkpoint(best, Net::layers).state.step; };
    {
        CheckpointDirectory directory(folder.path(), {.keep = 1, .keep_best = true});
        CHECK_FALSE(directory.best().has_value());
        directory.save(Net::layers, small_checkpoint(1));
        CHECK_FALSE(folder.names().contains("model-best.safetensors"));
        save(directory, 2, std::nan(""));
        CHECK_FALSE(directory.best().has_value());
        save(directory, 3, 0.8125);
        save(directory, 4, 0.8);
        save(directory, 5, 0.8125);
        CHECK(step_of_best() == 3);
        CHECK(steps_in(directory) == std::vector<std::int64_t>{5});
    }
    CheckpointDirectory directory(folder.path(), {.keep = 1, .keep_best = true});
    REQUIRE(directory.best().has_value());
    CHECK(*directory.best() == 0.8125);
    save(directory, 6, 0.81);
    CHECK(step_of_best() == 3);
    save(directory, 7, 0.8126);
    CHECK(step_of_best() == 7);
    CHECK(*read_checkpoint(best, Net::layers).info.find("metric") == "0.8126");
}

TEST_CASE("A damaged best checkpoint is replaced by the next one") {
    const TemporaryFolder folder;
    write_bytes(folder.path("model-best.safetensors"), "nonsense");
    CheckpointDirectory directory(folder.path(), {.keep_best = true});
    CHECK_FALSE(directory.best().has_value());
    REQUIRE(directory.warnings().size() == 1);
    CHECK(directory.warnings()[0].ends_with("; the next checkpoint with a metric replaces it"));
    save(directory, 1, -3.0);
    CHECK(read_checkpoint(folder.path("model-best.safetensors"), Net::layers).state.step == 1);
}

TEST_CASE("A best checkpoint of another network is neither compared with nor replaced") {
    const TemporaryFolder folder;
    const std::string best = folder.path("model-best.safetensors");
    {
        CheckpointDirectory directory(folder.path(), {.keep_best = true});
        directory.save_best(WiderNet::layers, small_checkpoint<WiderNet>(10), 0.5);
        CHECK_NOTHROW(directory.require_best_of(WiderNet::layers));
    }
    const std::string before = read_bytes(best);
    for (const double metric : {0.25, 0.75}) {
        CheckpointDirectory directory(folder.path(), {.keep_best = true});
        const std::string message =
            best +
            " is a checkpoint of another network: its conv1.weight is [4,2,1,1], and this network's is 3 x 2 x 1 x 1; rename it, "
            "or train in another folder";
        CHECK(message_of<DataError>([&] { directory.require_best_of(Net::layers); }) == message);
        CHECK(message_of<DataError>([&] { directory.save_best(Net::layers, small_checkpoint(20), metric); }) ==
              message);
        CHECK(read_bytes(best) == before);
    }
    CheckpointDirectory directory(folder.path(), {.keep_best = true});
    directory.save_best(WiderNet::layers, small_checkpoint<WiderNet>(20), 0.75);
    CHECK(read_checkpoint(best, WiderNet::layers).state.step == 20);
}

TEST_CASE("A best checkpoint records the run that it belongs to") {
    const TemporaryFolder folder;
    {
        CheckpointDirectory directory(folder.path(), {.keep_best = true});
        CHECK(directory.best_info().entries().empty());
        directory.save_best(Net::layers, small_checkpoint(10), 0.5);
        CHECK(*directory.best_info().find("seed") == "1");
    }
    const CheckpointDirectory directory(folder.path(), {.keep_best = true});
    CHECK(*directory.best_info().find("seed") == "1");
    CHECK(*directory.best_info().find(CheckpointDirectory::metric_key) == "0.5");
}

TEST_CASE("A foreign file with the best checkpoint's name is rejected, and not replaced") {
    const TemporaryFolder folder;
    const std::string best = folder.path("model-best.safetensors");
    write_checkpoint(best, Net::layers, small_checkpoint(10));
    CHECK(
        refusal(folder.path(), {.keep_best = true}) ==
        best +
            " has no metric to compare with: it was not kept by a training as its best; rename it, or train in another folder");
    CHECK(refusal(folder.path()) == "(no exception)");
    CHECK(read_checkpoint(best, Net::layers).state.step == 10);
}

TEST_CASE("A best checkpoint without read permission is an error, and is not replaced") {
    const TemporaryFolder folder;
    {
        CheckpointDirectory directory(folder.path(), {.keep_best = true});
        directory.save_best(Net::layers, small_checkpoint(10), 0.5);
    }
    const std::string best = folder.path("model-best.safetensors");
    std::filesystem::permissions(folder.path(), std::filesystem::perms(0777));
    std::filesystem::permissions(folder.path("lock"), std::filesystem::perms(0666));
    std::filesystem::permissions(best, std::filesystem::perms(0));
    const std::string said = in_child([&] {
        constexpr uid_t nobody = 65534;
        if (geteuid() == 0 && setuid(nobody) != 0) return std::string("(setuid failed)");
        return message_of<DataError>([&] { CheckpointDirectory directory(folder.path(), {.keep_best = true}); });
    });
    CHECK(said == best + " cannot be read: Permission denied");
}

TEST_CASE("A full disk leaves the earlier checkpoints") {
    const TemporaryFolder folder;
    const std::string said = in_child([&] {
        CheckpointDirectory directory(folder.path(), {.keep = 1});
        directory.save(Net::layers, small_checkpoint(1));
        std::signal(SIGXFSZ, SIG_IGN);
        const rlimit limit{1000, 1000};
        setrlimit(RLIMIT_FSIZE, &limit);
        return message_of<DataError>([&] { directory.save(Net::layers, small_checkpoint(2)); });
    });
    CHECK(said == folder.path("model-2.safetensors") + " cannot be written: File too large, after 1000 bytes");
    CHECK(folder.names() == std::set<std::string>{"lock", "model-1.safetensors"});
    CHECK(newest_valid_checkpoint(folder.path(), Net::layers).checkpoint->state.step == 1);
}

TEST_CASE("A training that is killed at any point of a save leaves a valid directory") {
    const TemporaryFolder folder;
    std::int64_t saved = 0;
    for (int kills = 0; kills < 40; ++kills) {
        // The child says each step that it has saved; it is killed when one is likely to be half done.
        int ends[2];
        REQUIRE(pipe(ends) == 0);
        const pid_t child = fork();
        if (child == 0) {
            CheckpointDirectory directory(folder.path(), {.keep = 2});
            for (std::int64_t step = saved + 1;; ++step) {
                directory.save(Net::layers, small_checkpoint(step));
                if (write(ends[1], &step, sizeof step) != sizeof step) _exit(1);
            }
        }
        close(ends[1]);
        std::int64_t said = 0;
        REQUIRE(read(ends[0], &said, sizeof said) == sizeof said);
        usleep(static_cast<useconds_t>(kills * 97));
        kill(child, SIGKILL);
        waitpid(child, nullptr, 0);
        while (read(ends[0], &said, sizeof said) == sizeof said) {
        }
        close(ends[0]);
        const CheckpointDirectory directory(folder.path(), {.keep = 2});
        const FoundCheckpoint found = directory.newest_valid(Net::layers);
        REQUIRE(found.checkpoint.has_value());
        CHECK(found.damaged.empty());
        CHECK(found.checkpoint->state.step >= said);
        CHECK(found.checkpoint->state.parameters == arena<Net>(1));
        for (const std::string& name : folder.names()) CHECK(name_of_temporary_file(name).empty());
        saved = found.checkpoint->state.step;
    }
}
