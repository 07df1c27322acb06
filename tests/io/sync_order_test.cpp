// SPDX-License-Identifier: Apache-2.0
//
// The order of calls that preserves a file after a power failure, which a killed process cannot test: its bytes are synced before it gets its
// name, and the folder after. This program's own fsync, rename and unlink stand before the system's and keep a
// list. File systems of clusters refuse flock and fsync: so do these functions then.
#include "../test.hpp"

#include <cerrno>
#include <system_error>

#include <dlfcn.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cupola/io/atomic_file.hpp>
#include <cupola/io/checkpoint_directory.hpp>

#include "checkpoint_support.hpp"
#include "file_support.hpp"

namespace {

std::vector<std::string> calls;
bool listens = false;
/// With which errno locks and syncs are refused; 0 if they are not.
int lock_error = 0, folder_error = 0, file_error = 0;

void heard(std::string call) {
    if (listens) calls.push_back(std::move(call));
}

/// The function of this name that would be called without the one below.
template <class Function>
Function* next(const char* name) {
    return reinterpret_cast<Function*>(dlsym(RTLD_NEXT, name));
}

template <class Work>
std::vector<std::string> calls_of(Work&& work) {
    calls.clear();
    listens = true;
    work();
    listens = false;
    return calls;
}

using Calls = std::vector<std::string>;

}  // namespace

extern "C" int fsync(int handle) {
    struct stat status {};
    fstat(handle, &status);
    heard(S_ISDIR(status.st_mode) ? "sync the folder" : "sync " + std::to_string(status.st_size) + " bytes");
    if (const int error = S_ISDIR(status.st_mode) ? folder_error : file_error; error != 0) {
        errno = error;
        return -1;
    }
    static auto* const real = next<int(int)>("fsync");
    return real(handle);
}

extern "C" int flock(int handle, int operation) noexcept {
    if (lock_error != 0) {
        errno = lock_error;
        return -1;
    }
    static auto* const real = next<int(int, int)>("flock");
    return real(handle, operation);
}

extern "C" int rename(const char* from, const char* to) noexcept {
    heard("rename to " + std::string(std::string_view(to).substr(std::string_view(to).rfind('/') + 1)));
    static auto* const real = next<int(const char*, const char*)>("rename");
    return real(from, to);
}

extern "C" int unlink(const char* path) noexcept {
    heard("remove " + std::string(std::string_view(path).substr(std::string_view(path).rfind('/') + 1)));
    static auto* const real = next<int(const char*)>("unlink");
    return real(path);
}

TEST_CASE("A file is synced, gets its name, and its folder is synced") {
    const io_tests::TemporaryFolder folder;
    CHECK(calls_of([&] {
              cupola::AtomicFile file(folder.path("file"));
              file.write(std::as_bytes(std::span(std::string_view("eleven byte"))));
              file.commit();
          }) == Calls{"sync 11 bytes", "rename to file", "sync the folder"});
}

TEST_CASE("An old checkpoint is removed after the new one is synced") {
    using namespace io_tests;
    const TemporaryFolder folder;
    CheckpointDirectory directory(folder.path(), {.keep = 1});
    directory.save(Net::layers, small_checkpoint(1));
    const Calls made = calls_of([&] { directory.save(Net::layers, small_checkpoint(2)); });
    REQUIRE(made.size() == 4);
    CHECK(made[0].starts_with("sync "));
    CHECK(Calls(made.begin() + 1, made.end()) ==
          Calls{"rename to model-2.safetensors", "sync the folder", "remove model-1.safetensors"});
}

TEST_CASE("A folder's name is synced when it is created") {
    const io_tests::TemporaryFolder folder;
    CHECK(calls_of([&] { const cupola::CheckpointDirectory directory(folder.path("a/b")); }) ==
          Calls{"sync the folder", "sync the folder", "sync the folder"});  // two new ones, and its own names
}

TEST_CASE("A file system without locks or syncs of a folder is one warning each, and checkpoints count") {
    using namespace io_tests;
    struct Reset {
        ~Reset() { lock_error = folder_error = file_error = 0; }
    } const reset;
    for (const int error : {ENOSYS, ENOLCK, EOPNOTSUPP, 524, EACCES, EINVAL}) {
        CAPTURE(error);
        const TemporaryFolder folder;
        lock_error = folder_error = file_error = error;
        CheckpointDirectory directory(folder.path("a/run"));
        const std::string reason = std::generic_category().message(error);
        CHECK(directory.warnings() ==
              std::vector<std::string>{folder.path("a/run/lock") + " cannot be locked (" + reason +
                                           "): nothing keeps a second training from writing to the same folder",
                                       "the folder " + folder.path("a/run") + " cannot be synced (" + reason +
                                           "): after a power failure its newest checkpoint may be missing"});
        directory.save(Net::layers, small_checkpoint(7));
        const FoundCheckpoint found = directory.newest_valid(Net::layers);
        CHECK(found.path == folder.path("a/run/model-7.safetensors"));
    }
    // A failing disk is still an error, and a folder in use too.
    const TemporaryFolder folder;
    lock_error = folder_error = file_error = 0;
    CheckpointDirectory directory(folder.path());
    CHECK(directory.warnings().empty());
    file_error = EIO;
    CHECK_THROWS_AS(directory.save(Net::layers, small_checkpoint(1)), DataError);
    file_error = 0;
    folder_error = EIO;
    CHECK_THROWS_AS(directory.save(Net::layers, small_checkpoint(2)), DataError);
    lock_error = EWOULDBLOCK;
    CHECK_THROWS_AS(CheckpointDirectory(folder.path()), DataError);
}
