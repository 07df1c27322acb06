// SPDX-License-Identifier: Apache-2.0
//
// Usage: write_events FOLDER FILE.csv. Trains the tutorial's network on the sample with summaries in FOLDER, is killed
// in the middle of a record, goes on from an earlier step with another learning rate, and writes to FILE.csv what
// TensorBoard then has to show. check.py compares the two.
#include <fstream>
#include <iomanip>

#include <sys/stat.h>
#include <unistd.h>
#include <cupola/cupola.hpp>
#include <cupola/data/open.hpp>
#include <cupola/host.hpp>
#include <cupola/io/event_file.hpp>
#include <cupola/models/cifar10_net.hpp>
#include <cupola/models/tutorial_augmentation.hpp>
#include <cupola/net/summary.hpp>
#include <cupola/parallel/state_transfer.hpp>
#include <cupola/train/summary_writer.hpp>

#include "../standard.hpp"

using namespace cupola;

namespace {

/// What must be true after all starts, besides the contents of the file.
class Recorder final : public SummarySink {
public:
    explicit Recorder(const std::string& folder) : folder_(folder), events_(new EventFile(folder)) {}
    /// As if the process had been killed in the middle of a record, and another had taken over.
    void kill() {
        struct stat state {};
        const bool cut =
            stat(events_->path().c_str(), &state) == 0 && truncate(events_->path().c_str(), state.st_size - 100) == 0;
        require<DataError>(cut, "the file ", events_->path(), " could not be cut");
        events_.reset(new EventFile(folder_));
    }

    void start(std::int64_t step) override {
        events_->start(step);
        std::erase_if(rows_, [&](const auto& row) { return row.first.second >= step; });
    }
    void write(std::int64_t step, const StepSummary& summary) override {
        events_->write(step, summary);
        const auto sum = [](const auto& bytes) {
            return std::accumulate(bytes.begin(), bytes.end(), std::uint64_t{0},
                                   [](std::uint64_t s, auto byte) { return s + static_cast<std::uint8_t>(byte); });
        };
        for (const auto& [tag, value] : summary.scalars) add("scalar", tag, step, {value});
        for (const auto& [tag, value] : summary.histograms) {
            add("histogram", tag, step, {static_cast<double>(value.count), value.minimum, value.maximum, value.sum});
        }
        for (const auto& [tag, value] : summary.images) {
            add("image", tag, step,
                {static_cast<double>(value.height), static_cast<double>(value.width),
                 static_cast<double>(value.channels), static_cast<double>(sum(value.pixels))});
        }
        for (const auto& [tag, value] : summary.texts) {
            add("text", tag, step, {static_cast<double>(value.size()), static_cast<double>(sum(value))});
        }
    }
    void save(const std::string& path) const {
        std::ofstream file(path);
        file << "kind,tag,step,values\n" << std::setprecision(17);
        for (const auto& [key, row] : rows_) {
            file << row.first << ',' << key.first << ',' << key.second;
            for (const double value : row.second) file << ',' << value;
            file << '\n';
        }
        require<DataError>(bool(file.flush()), "the file ", path, " could not be written");
    }

private:
    void add(const char* kind, const std::string& tag, std::int64_t step, std::vector<double> values) {
        rows_[{tag, step}] = {kind, std::move(values)};
    }

    std::string folder_;
    std::unique_ptr<EventFile> events_;
    std::map<std::pair<std::string, std::int64_t>, std::pair<std::string, std::vector<double>>> rows_;
};

/// The same run continues: it does not start again.
struct OnlySteps {
    SummaryWriter* writer;
    bool should_inspect(std::int64_t step) const { return writer->should_inspect(step); }
    void inspect(const auto& inspection) { writer->inspect(inspection); }
    void on_step(const StepReport& report, Run& run) { writer->on_step(report, run); }
};

using Training = DataParallel<Cifar10Net, Cifar10Loss, Sgd, ConcatMean, Host>;

Training make_training(double learning_rate) {
    return Training({.replicas = 2,
                     .devices = 1,
                     .device = {.threads = 1},
                     .batch_size = 32,
                     .seed = 1,
                     .optimizer = {.learning_rate = learning_rate}});
}

void run(const std::string& folder, const std::string& csv) {
    constexpr std::int64_t broken_off = 220, continued_at = 150, end = 300;
    const ImageData images = open_image_data("examples/data/cifar10-sample.tar.xz", 1);
    const auto batches = [&] {
        return Prefetch(
            TrainingBatches(images.train, TutorialAugmentation{}, {.batch_size = 32, .replicas = 2, .seed = 1}),
            {.workers = 0});
    };
    const auto options = [](std::int64_t every, const char* rate) {
        return SummaryOptions{.every = every,
                              .hyper_parameters = {{"learning rate", rate}, {"batch", "2 x 32"}},
                              .network = summary<Cifar10Net>(32)};
    };
    Recorder recorder(folder);
    TrainingState state;
    std::vector<LossPart> losses;
    {
        Training training = make_training(0.1);
        auto source = batches();
        SummaryWriter writer(recorder, Cifar10Net::layers, options(20, "0.1"));
        fit(training, source, {.steps = continued_at}, writer);
        state = training.state();
        losses = writer.losses().state();
        fit(training, source, {.steps = broken_off - continued_at}, OnlySteps{&writer});
    }
    recorder.kill();
    Training training = make_training(0.05);
    training.restore(state);
    auto source = batches();
    SummaryWriter writer(recorder, Cifar10Net::layers, options(30, "0.05"));
    writer.losses().restore(losses);
    fit(training, source, {.steps = end - continued_at}, writer);
    recorder.save(csv);
}

}  // namespace

int main(int argc, char** argv) {
    if (argc != 3) {
        std::fputs("usage: write_events FOLDER FILE.csv\n", stderr);
        return 2;
    }
    try {
        run(argv[1], argv[2]);
        return 0;
    } catch (const std::exception& error) {
        std::fprintf(stderr, "write_events: %s\n", error.what());
        return 1;
    }
}
