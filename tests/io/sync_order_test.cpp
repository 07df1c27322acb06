// SPDX-License-Identifier: Apache-2.0
//
// The order of calls that preserves a file after a power failure, which a killed process cannot test: its bytes are synced before it gets its
// name, and the folder after. This program's own fsync, rename and unlink stand before the system's and keep a
// list.
#include <cstddef>
#include <cstdio>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <dlfcn.h>
#include <sys/stat.h>
#include <unistd.h>

#include <doctest/doctest.h>

#include <cupola/io/atomic_file.hpp>
#include <cupola/io/checkpoint_directory.hpp>

#include "checkpoint_support.hpp"
#include "file_support.hpp"

namespace {

std::vector<std::string> calls;
bool listens = false;

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
    static auto* const real = next<int(int)>("fsync");
    return real(handle);
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
          Calls{"sync the folder", "sync the folder"});
}
