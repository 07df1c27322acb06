// SPDX-License-Identifier: Apache-2.0
#include "../test.hpp"

#include <set>

#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cupola/io/atomic_file.hpp>
#include <throws_with.hpp>

#include "file_support.hpp"

using io_tests::TemporaryFolder;

namespace {

std::span<const std::byte> bytes_of(std::string_view text) { return std::as_bytes(std::span(text)); }

}  // namespace

TEST_CASE("An atomic file gets its name only when it is complete") {
    const TemporaryFolder folder;
    const std::string path = folder.path("file");
    io_tests::write_bytes(path, "before");
    {
        AtomicFile file(path);
        file.write(bytes_of("first "));
        file.write(bytes_of("and second"));
        CHECK(file.size() == 16);
        CHECK(io_tests::read_bytes(path) == "before");
        CHECK(folder.names().size() == 2);
        file.commit();
        CHECK(io_tests::read_bytes(path) == "first and second");
        CHECK(contains(message_of<cupola::InvalidArgument>([&] { file.write(bytes_of("third")); }), "is finished"));
    }
    CHECK(folder.names() == std::set<std::string>{"file"});
}

TEST_CASE("An atomic file that is not committed leaves the previous file") {
    const TemporaryFolder folder;
    io_tests::write_bytes(folder.path("file"), "before");
    {
        AtomicFile file(folder.path("file"));
        file.write(bytes_of("after"));
    }
    CHECK(io_tests::read_bytes(folder.path("file")) == "before");
    CHECK(folder.names() == std::set<std::string>{"file"});
}

TEST_CASE("Bytes of an atomic file can be overwritten, but not beyond its end") {
    const TemporaryFolder folder;
    AtomicFile file(folder.path("file"));
    file.write(bytes_of("checksum 0000!"));
    file.overwrite(9, bytes_of("1234"));
    CHECK(contains(message_of<cupola::InvalidArgument>([&] { file.overwrite(11, bytes_of("1234")); }), "has 14 bytes"));
    file.commit();
    CHECK(io_tests::read_bytes(folder.path("file")) == "checksum 1234!");
}

TEST_CASE("Two writers of one file do not write to each other's temporary file") {
    const TemporaryFolder folder;
    AtomicFile first(folder.path("file")), second(folder.path("file"));
    first.write(bytes_of("first"));
    second.write(bytes_of("second"));
    first.commit();
    second.commit();
    CHECK(io_tests::read_bytes(folder.path("file")) == "second");
}

TEST_CASE("What a killed process has left of a file does not disturb the next one, under the same process number too") {
    const TemporaryFolder folder;
    const std::string left = text("file.partial-", getpid(), "-0");
    io_tests::write_bytes(folder.path(left), "half");
    io_tests::write_bytes(folder.path("file.partial-1-0"), "half");
    AtomicFile file(folder.path("file"));
    file.write(bytes_of("whole"));
    file.commit();
    CHECK(io_tests::read_bytes(folder.path("file")) == "whole");
    // They stay: nothing tells them from those of another process that is writing the file now.
    CHECK(folder.names() == std::set<std::string>{"file", left, "file.partial-1-0"});
    CHECK(io_tests::read_bytes(folder.path(left)) == "half");
}

TEST_CASE("The temporary name of an atomic file is recognised, and no other name") {
    const TemporaryFolder folder;
    const AtomicFile file(folder.path("model-10.safetensors"));
    CHECK(cupola::name_of_temporary_file(*folder.names().begin()) == "model-10.safetensors");
    for (const char* name : {"model-10.safetensors", "notes.partial-results.txt", "notes.partial-7", "notes.partial-7-",
                             "notes.partial-7-x", "notes.partial--1", "partial-1-1"}) {
        CAPTURE(name);
        CHECK(cupola::name_of_temporary_file(name).empty());
    }
}

TEST_CASE("A file that cannot be created is an error with the reason") {
    const TemporaryFolder folder;
    CHECK(message_of<DataError>([&] { AtomicFile file(folder.path("missing/file")); }) ==
          folder.path("missing/file") + " cannot be written: No such file or directory");
    io_tests::write_bytes(folder.path("file"), "");
    CHECK(message_of<DataError>([&] { AtomicFile file(folder.path("file/file")); }) ==
          folder.path("file/file") + " cannot be written: Not a directory");
}

TEST_CASE("A path that exists and is not a regular file is rejected and not replaced") {
    const TemporaryFolder folder;
    std::filesystem::create_directory(folder.path("folder"));
    REQUIRE(mkfifo(folder.path("pipe").c_str(), 0600) == 0);
    std::filesystem::create_symlink("pipe", folder.path("link"));
    for (const char* name : {"folder", "pipe", "link"}) {
        CHECK(message_of<DataError>([&] { AtomicFile file(folder.path(name)); }) ==
              folder.path(name) + " cannot be written: it exists and is not a regular file");
    }
    CHECK(std::filesystem::is_fifo(folder.path("pipe")));
    std::filesystem::create_symlink("nothing", folder.path("dangling"));
    CHECK(message_of<DataError>([&] { AtomicFile file(folder.path("dangling")); }) ==
          folder.path("dangling") + " cannot be written: it is a symbolic link to a file that does not exist");
    CHECK(folder.names() == std::set<std::string>{"dangling", "folder", "link", "pipe"});
}

TEST_CASE("A folder that is created under the name in the meantime is not replaced") {
    const TemporaryFolder folder;
    AtomicFile file(folder.path("file"));
    std::filesystem::create_directory(folder.path("file"));
    CHECK(message_of<DataError>([&] { file.commit(); }) ==
          folder.path("file") + " cannot be written: Is a directory, after 0 bytes");
    CHECK(folder.names() == std::set<std::string>{"file"});
}

TEST_CASE("A symbolic link is followed, and stays a link") {
    const TemporaryFolder folder;
    std::filesystem::create_directory(folder.path("elsewhere"));
    io_tests::write_bytes(folder.path("elsewhere/file"), "before");
    std::filesystem::create_symlink("elsewhere/file", folder.path("link"));
    AtomicFile file(folder.path("link"));
    file.write(bytes_of("after"));
    file.commit();
    CHECK(std::filesystem::is_symlink(folder.path("link")));
    CHECK(io_tests::read_bytes(folder.path("elsewhere/file")) == "after");
    CHECK(folder.names() == std::set<std::string>{"elsewhere", "link"});
}

TEST_CASE(
    "A limit on the size of files, whose signal does not end the process, and a full disk leave the previous file") {
    for (const bool full_disk : {false, true}) {
        CAPTURE(full_disk);
        const TemporaryFolder folder;
        const std::string path = folder.path("file");
        io_tests::write_bytes(path, "before");
        const std::string said = io_tests::in_child([&] {
            std::signal(SIGXFSZ, full_disk ? SIG_IGN : SIG_DFL);
            const rlimit limit{1000, 1000};
            setrlimit(RLIMIT_FSIZE, &limit);
            const std::string piece(full_disk ? 300 : 2000, 'x');
            return message_of<DataError>([&] {
                AtomicFile file(path);
                for (int i = 0; i < 10; ++i) file.write(bytes_of(piece));
                file.commit();
            });
        });
        CHECK(said == path + " cannot be written: File too large, after 1000 bytes");
        CHECK(io_tests::read_bytes(path) == "before");
        CHECK(folder.names() == std::set<std::string>{"file"});
    }
}
