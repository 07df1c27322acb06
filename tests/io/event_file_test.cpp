// SPDX-License-Identifier: Apache-2.0
#include <cupola/io/event_file.hpp>

#include "../test.hpp"

#include <ctime>
#include <regex>

#include <sys/resource.h>

#include "event_reader.hpp"
#include "temporary_folder.hpp"
#include "throws_with.hpp"

using namespace cupola_tests;

namespace {

std::string bytes_of(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

StepSummary one_of_each() {
    StepSummary summary;
    summary.scalars = {{"total_loss", 4.675}, {"learning_rate", 0.1}};
    summary.histograms = {{"conv1/weights", HistogramMaker{}(std::vector<float>{-1, 0.5F, 2})}};
    summary.images = {{"images/image/0", PixelImage{1, 2, 3, {255, 0, 0, 0, 0, 255}}}};
    summary.texts = {{"network", "| a | b |"}};
    return summary;
}

/// No file grows past `bytes` while this lives: what a full disk does, without one. A write that raised the limit's
/// signal would end the test.
class FileSizeLimit : NotCopied {
public:
    explicit FileSizeLimit(rlim_t bytes) : handler_(std::signal(SIGXFSZ, SIG_DFL)) {
        getrlimit(RLIMIT_FSIZE, &before_);
        const rlimit limit{bytes, before_.rlim_max};
        setrlimit(RLIMIT_FSIZE, &limit);
    }
    ~FileSizeLimit() {
        setrlimit(RLIMIT_FSIZE, &before_);
        std::signal(SIGXFSZ, handler_);
    }

private:
    void (*handler_)(int);
    rlimit before_{};
};

}  // namespace

TEST_CASE("an event file begins with its version and has a name that TensorBoard finds") {
    const TemporaryFolder folder;
    const double before = static_cast<double>(std::time(nullptr));
    const EventFile events(folder.path());
    const auto files = folder.names();
    REQUIRE(files.size() == 1);
    CHECK(std::regex_match(*files.begin(), std::regex("events\\.out\\.tfevents\\.[0-9]{10}\\..+\\.[0-9]+\\.cupola")));
    CHECK(events.path() == folder.path(*files.begin()));
    const auto read = read_events(bytes_of(events.path()));
    REQUIRE(read.size() == 1);
    CHECK(read[0].file_version == "brain.Event:2");
    CHECK(read[0].wall_time >= before);
    CHECK(read[0].wall_time <= before + 600);
}

TEST_CASE("the summary of a step is in the file when write returns") {
    const TemporaryFolder folder;
    EventFile events(folder.path());
    events.start(0);
    const StepSummary summary = one_of_each();
    events.write(300, summary);
    const auto read = read_events(bytes_of(events.path()));
    REQUIRE(read.size() == 3);
    CHECK(read[1].session_start);
    CHECK(read[1].step == 0);
    CHECK_FALSE(read[2].session_start);
    CHECK(read[2].step == 300);
    CHECK(read[2].scalars == std::map<std::string, float>{{"total_loss", 4.675F}, {"learning_rate", 0.1F}});
    const Histogram& given = summary.histograms[0].value;
    REQUIRE(read[2].histograms.count("conv1/weights") == 1);
    const Histogram& histogram = read[2].histograms.at("conv1/weights");
    CHECK(histogram.limits == given.limits);
    CHECK(histogram.counts == given.counts);
    CHECK(histogram.count == 3);
    CHECK(histogram.minimum == -1.0);
    CHECK(histogram.maximum == 2.0);
    CHECK(histogram.sum == 1.5);
    CHECK(histogram.sum_of_squares == 5.25);
    REQUIRE(read[2].images.count("images/image/0") == 1);
    const EventImage& image = read[2].images.at("images/image/0");
    CHECK(image.height == 1);
    CHECK(image.width == 2);
    CHECK(image.colorspace == 3);
    CHECK(image.png.substr(1, 3) == "PNG");
    CHECK(read[2].texts == std::map<std::string, std::string>{{"network", "| a | b |"}});
}

TEST_CASE("a name that is not UTF-8 does not make the other values of its step unreadable") {
    const TemporaryFolder folder;
    EventFile events(folder.path());
    events.start(0);
    StepSummary summary;
    summary.scalars = {{"accuracy/caf\xE9", 0.5}, {"loss", 0.25}};
    summary.texts = {{"classes", "na\xC3\xAFve, caf\xE9"}};
    events.write(1, summary);
    const auto read = read_events(bytes_of(events.path()));
    REQUIRE(read.size() == 3);
    CHECK(read[2].scalars == std::map<std::string, float>{{"accuracy/caf\xEF\xBF\xBD", 0.5F}, {"loss", 0.25F}});
    CHECK(read[2].texts == std::map<std::string, std::string>{{"classes", "na\xC3\xAFve, caf\xEF\xBF\xBD"}});
}

TEST_CASE("a resumed run writes a new file, which sorts after the others and records its first step") {
    const TemporaryFolder folder;
    EventFile first(folder.path()), second(folder.path()), third(folder.path());
    CHECK(folder.names().size() == 3);
    CHECK(first.path() < second.path());
    CHECK(second.path() < third.path());
    third.start(1000);
    const auto read = read_events(bytes_of(third.path()));
    REQUIRE(read.size() == 2);
    CHECK(read[1].session_start);
    CHECK(read[1].step == 1000);
    CHECK(message_of<InvalidArgument>([&] { third.start(-1); }) == "a run must begin at step 0 or later, not at -1");
}

TEST_CASE("an empty summary writes nothing") {
    const TemporaryFolder folder;
    EventFile events(folder.path());
    events.write(5, {});
    CHECK(read_events(bytes_of(events.path())).size() == 1);
}

TEST_CASE("the folder is created, and an error names a folder that cannot be created and the reason") {
    const TemporaryFolder folder;
    const std::string below = folder.path("run");
    CHECK_NOTHROW(EventFile(below).path());
    CHECK(std::filesystem::exists(below));
    CHECK_NOTHROW(EventFile(folder.path("and/those/above")).path());
    const std::string file = folder.path("file");
    std::ofstream(file) << "x";
    CHECK(message_of<DataError>([&] { EventFile{file}; }) == file + " is not a folder");
    CHECK(message_of<DataError>([&] { EventFile{file + "/below"}; }) ==
          "the folder " + file + "/below cannot be created: Not a directory");
}

TEST_CASE("a full disk is an error, and the records before stay readable") {
    const TemporaryFolder folder;
    EventFile events(folder.path());
    events.write(1, one_of_each());
    const std::size_t size = bytes_of(events.path()).size();
    std::string message;
    {
        const FileSizeLimit limit(size + 100);
        message = message_of<DataError>([&] { events.write(2, one_of_each()); });
    }
    CHECK(message == "the event file " + events.path() + " could not be written: File too large");
    CHECK(bytes_of(events.path()).size() == size);
    events.write(3, one_of_each());
    const auto read = read_events(bytes_of(events.path()));
    REQUIRE(read.size() == 3);
    CHECK(read[2].step == 3);
}

TEST_CASE("an event file whose first record cannot be written is removed") {
    const TemporaryFolder folder;
    std::string message;
    {
        const FileSizeLimit limit(5);
        message = message_of<DataError>([&] { EventFile{folder.path()}; });
    }
    CHECK(message.starts_with("the event file " + folder.path("events.out.tfevents.")));
    CHECK(message.ends_with(" could not be written: File too large"));
    CHECK(folder.names().empty());
}
