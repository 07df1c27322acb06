// SPDX-License-Identifier: Apache-2.0
//
// Several processes by MPI: the exchange of gradients alone, and training steps of the tutorial's network with synthetic
// samples. It talks to turns.py as peers/protocol.py does, but each line of its input begins with the name of what to do;
// the answer has the times of the slowest process.
//
//   mpirun -n P processes exchange ELEMENTS [NAME]
//       lines: allreduce | in-place | iallreduce | shared | messages | sum | hash, ELEMENTS, COUNT
//   mpirun -n P processes step BATCH THREADS PRECISION [NAME]
//       lines: alone | shared | messages | sums BYTES, and COUNT; BYTES is MpiAllReduce's bucket_bytes, 0, 262144 or 1048576
//
// NAME is only for others, which find the processes by it.
//
// `shared` and `messages` are MpiConcatMean's, with and without memory in common; `sum` and `sums` are MpiAllReduce's. An
// exchange is all that the policy does between two processes in a step: the records of the replicas, the slices and the
// vote; `hash` is that of the parameters, which each process computes before. In a step each process has one replica with a batch
// of BATCH; `alone` does not average.
#include <ctime>
#include <sstream>

#include <cupola/cupola.hpp>
#include <cupola/host.hpp>
#include <cupola/models/cifar10_net.hpp>
#include <cupola/mpi.hpp>
#include <cupola/ops/host/winograd_convolution.hpp>
#include <cupola/parallel/kinds/periodic.hpp>
#include <cupola/train/profile.hpp>

#include "../standard.hpp"
#include "synthetic.hpp"

using namespace cupola;
using benchmarks::Synthetic;

namespace {

/// One repetition: what is not timed, and what is.
struct Work {
    std::function<void()> prepare = [] {}, run;
};

/// Waits without using the processor, as the program does while others are measured.
void wait_asleep(MPI_Request& request) {
    for (int complete = 0;;) {
        MPI_Test(&request, &complete, MPI_STATUS_IGNORE);
        if (complete != 0) return;
        const timespec time{.tv_sec = 0, .tv_nsec = 10'000'000};
        nanosleep(&time, nullptr);
    }
}

/// The next line, which process 0 reads, on every process; empty at the end.
std::string next_line(const MpiEnvironment& mpi) {
    char line[128] = {};
    if (mpi.number() == 0 && std::fgets(line, sizeof line, stdin) == nullptr) line[0] = '\0';
    MPI_Request request = MPI_REQUEST_NULL;
    MPI_Ibcast(line, sizeof line, MPI_CHAR, 0, MPI_COMM_WORLD, &request);
    wait_asleep(request);
    return line;
}

/// `work(words)` is the work that a line asks for; the last word is the number of repetitions.
void serve(const MpiEnvironment& mpi, const std::function<Work&(const std::vector<std::string>&)>& work) {
    while (true) {
        std::istringstream line(next_line(mpi));
        std::vector<std::string> words;
        for (std::string word; line >> word;) words.push_back(word);
        if (words.empty()) return;
        const int count = std::atoi(words.back().c_str());
        words.pop_back();
        Work& chosen = work(words);
        std::vector<double> mine, seconds(static_cast<std::size_t>(count));
        for (int i = 0; i < count; ++i) {
            chosen.prepare();
            MPI_Barrier(MPI_COMM_WORLD);
            const auto start = std::chrono::steady_clock::now();
            chosen.run();
            mine.push_back(std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
        }
        MPI_Reduce(mine.data(), seconds.data(), count, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
        if (mpi.number() != 0) continue;
        std::printf("{\"seconds\": [");
        for (std::size_t i = 0; i < seconds.size(); ++i) std::printf("%s%.7f", i == 0 ? "" : ", ", seconds[i]);
        std::printf("]}\n");
        std::fflush(stdout);
    }
}

void describe(const MpiEnvironment& mpi, const std::string& more) {
    if (mpi.number() != 0) return;
    char version[MPI_MAX_LIBRARY_VERSION_STRING] = {};
    int length = 0;
    MPI_Get_library_version(version, &length);
    std::string library(version);
    library = library.substr(0, library.find(','));
    std::printf("{\"name\": \"Cupola\", \"version\": \"%d.%d.%d\", \"mpi\": \"%s\", \"processes\": %d, %s}\n",
                CUPOLA_VERSION_MAJOR, CUPOLA_VERSION_MINOR, CUPOLA_VERSION_PATCH, library.c_str(), mpi.count(),
                more.c_str());
    std::fflush(stdout);
}

/// What MpiConcatMean does between processes in a step with one replica each, as impl/process_agreement.hpp does it.
class Exchange {
public:
    /// For gradients of at most `most` elements.
    Exchange(const MpiConcatMean& policy, std::size_t most)
        : processes_(policy.join()), context_(0, {.threads = 1}), records_(*processes_, 600), votes_(*processes_, 600) {
        const auto count = static_cast<std::size_t>(processes_->count());
        const bool last = processes_->number() + 1 == processes_->count();
        const auto parts = processes_->share((last ? 2 : 1) * most * sizeof(float));
        shares_ = !parts.empty();
        if (!shares_) own_.resize((count + 2) * most);
        for (std::size_t p = 0; p < count; ++p)
            rows_.push_back(shares_ ? reinterpret_cast<float*>(parts[p]) : own_.data() + p * most);
        mean_ = shares_ ? rows_.back() + most : own_.data() + count * most;
        row_ = shares_ ? rows_[number()] : mean_ + most;
    }
    std::span<float> row(std::size_t elements) { return {row_, elements}; }
    void run(std::size_t elements) {
        ++step_;
        records_.run({"the records of the replicas", step_});
        const std::size_t count = rows_.size();
        const auto begin_of = [&](std::size_t p) { return elements * p / count; };
        const std::size_t begin = begin_of(number()), width = begin_of(number() + 1) - begin;
        const auto bytes = [](float* from, std::size_t floats, std::size_t process) {
            return ProcessMessage{static_cast<int>(process), reinterpret_cast<std::byte*>(from),
                                  floats * sizeof(float)};
        };
        outgoing_.clear(), incoming_.clear(), averages_out_.clear(), averages_in_.clear();
        for (std::size_t p = 0; p < count && !shares_; ++p) {
            if (p == number()) continue;
            const std::size_t its = begin_of(p), its_width = begin_of(p + 1) - its;
            outgoing_.push_back(bytes(row_ + its, its_width, p));
            incoming_.push_back(bytes(rows_[p], width, p));
            averages_out_.push_back(bytes(mean_ + begin, width, p));
            averages_in_.push_back(bytes(mean_ + its, its_width, p));
        }
        if (!shares_) processes_->exchange({"the slices of the gradients", step_}, outgoing_, incoming_);
        slices_.clear();
        for (std::size_t p = 0; p < count; ++p)
            slices_.push_back(p == number() ? row_ + begin : rows_[p] + (shares_ ? begin : 0));
        samples_.assign(count, 1);
        ConcatMean{}.average(context_,
                             {.rows = slices_,
                              .samples = samples_,
                              .total_samples = static_cast<std::int64_t>(count),
                              .columns = static_cast<std::int64_t>(width)},
                             {mean_ + begin, width});
        votes_.run({"the vote on the step", step_});
        if (!shares_) processes_->exchange({"the slices of the average", step_}, averages_out_, averages_in_);
    }
    void sum(std::size_t elements) {
        ++step_;
        records_.run({"the records of the replicas", step_});
        processes_->sum({"the sum of the gradients", step_}, row(elements));
        votes_.run({"the vote on the step", step_});
    }
    std::uint64_t hash(std::size_t elements) {
        std::uint64_t hash = 0;
        ops::TrainingStep<Host::Kernels>::hash(context_, row(elements), &hash);
        return hash;
    }
    void require_mean(float expected) const {
        require(mean_[0] == expected, "the mean is ", mean_[0], ", not ", expected);
    }

private:
    [[nodiscard]] std::size_t number() const { return static_cast<std::size_t>(processes_->number()); }

    std::shared_ptr<Processes> processes_;
    HostContext context_;
    impl::ProcessGather records_, votes_;
    bool shares_ = false;
    std::int64_t step_ = 0;
    std::vector<float> own_;
    std::vector<float*> rows_;
    float *row_ = nullptr, *mean_ = nullptr;
    std::vector<ProcessMessage> outgoing_, incoming_, averages_out_, averages_in_;
    std::vector<const float*> slices_;
    std::vector<std::int64_t> samples_;
};

void serve_exchanges(const MpiEnvironment& mpi, std::size_t most) {
    Exchange shared({}, most), messages({.shares_memory = false}, most);
    std::vector<float> row(most), sums(most);
    std::size_t elements = 0;
    const auto count = [&] { return static_cast<int>(elements); };
    // Each process has written its row before, as the backward pass does.
    const auto fill = [&](std::span<float> values) {
        std::fill(values.begin(), values.end(), static_cast<float>(1 + mpi.number()));
    };
    const auto fill_row = [&] { fill({row.data(), elements}); };
    std::map<std::string, Work> works;
    works["allreduce"] = {fill_row,
                          [&] { MPI_Allreduce(row.data(), sums.data(), count(), MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD); }};
    works["in-place"] = {fill_row,
                         [&] { MPI_Allreduce(MPI_IN_PLACE, row.data(), count(), MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD); }};
    works["iallreduce"] = {fill_row, [&] {
                               MPI_Request request = MPI_REQUEST_NULL;
                               MPI_Iallreduce(MPI_IN_PLACE, row.data(), count(), MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD,
                                              &request);
                               MPI_Wait(&request, MPI_STATUS_IGNORE);
                           }};
    works["shared"] = {[&] { fill(shared.row(elements)); }, [&] { shared.run(elements); }};
    works["messages"] = {[&] { fill(messages.row(elements)); }, [&] { messages.run(elements); }};
    works["hash"] = {[&] { fill(messages.row(elements)); },
                     [&] { require(messages.hash(elements) != 0, "the hash is 0"); }};
    works["sum"] = {[&] { fill(messages.row(elements)); }, [&] { messages.sum(elements); }};
    elements = most;
    for (int i = 0; i < 3; ++i) {
        for (auto& [name, work] : works) {
            work.prepare();
            work.run();
        }
        shared.require_mean(static_cast<float>(mpi.count() + 1) / 2);
        messages.require_mean(static_cast<float>(mpi.count() + 1) / 2);
    }
    describe(mpi, text("\"how\": \"exchanges of at most ", most, " elements\""));
    serve(mpi, [&](const std::vector<std::string>& words) -> Work& {
        require(words.size() == 2 && works.contains(words[0]), "there is no such exchange as ", words[0]);
        elements = std::min(most, static_cast<std::size_t>(std::atoll(words[1].c_str())));
        return works[words[0]];
    });
}

/// The operations with parameters in the order of the backward pass: the elements of each's gradient, and the seconds from the
/// start of the step to the gradient, as JSON; and the seconds of the whole step.
template <class Training, class Batches>
std::string gradient_times(Training& training, const Batches& batches) {
    using Net = typename Training::NetworkType;
    const StepProfile found = profile(training, batches, {.steps = 9, .warm_up = 2});
    double now = 0;
    std::string all;
    for (const ProfiledPart& part : found.parts) {
        now += part.seconds;
        if (part.pass != "backward") continue;
        for (const auto& layer : Net::layers) {
            if (part.name.empty() || layer.name != part.name) continue;
            std::int64_t elements = 0;
            for (std::size_t p = 0; p < layer.parameters.count; ++p)
                elements += arena_extent(layer.parameters.list[p].shape.size());
            all += text(all.empty() ? "" : ", ", '[', elements, ", ", now, ']');
        }
    }
    return text("\"gradients\": [", all, "], \"step\": ", found.seconds);
}

template <class Net>
void serve_steps(const MpiEnvironment& mpi, std::int64_t batch, int threads) {
    const Synthetic batches(batch, mpi.count(), Net::input_shape);
    const HostOptions device{.threads = threads, .convolution = &winograd};
    const auto options_of = [&]<class A>(const A& averaging, int replicas) {
        return typename DataParallel<Net, Cifar10Loss, Sgd, A, Host>::Options{.replicas = replicas,
                                                                              .device = device,
                                                                              .batch_size = batch,
                                                                              .seed = 1,
                                                                              .optimizer = {.learning_rate = 0.01},
                                                                              .averaging = averaging};
    };
    DataParallel<Net, Cifar10Loss, Sgd, ConcatMean, Host> alone(options_of(ConcatMean{}, 1));
    DataParallel<Net, Cifar10Loss, Sgd, MpiConcatMean, Host> shared(options_of(MpiConcatMean{}, mpi.count()));
    DataParallel<Net, Cifar10Loss, Sgd, MpiConcatMean, Host> messages(
        options_of(MpiConcatMean{.shares_memory = false}, mpi.count()));
    using Sums = DataParallel<Net, Cifar10Loss, Sgd, MpiAllReduce, Host>;
    std::map<std::int64_t, std::unique_ptr<Sums>> sums;
    for (const std::int64_t bytes : {0, 1 << 18, 1 << 20})
        sums[bytes] = std::make_unique<Sums>(options_of(MpiAllReduce{.bucket_bytes = bytes}, mpi.count()));
    // Agrees with its 16th step.
    DataParallel<Net, Cifar10Loss, Sgd, Periodic<MpiAllReduce>, Host> periodic(
        options_of(Periodic<MpiAllReduce>{.every = 16}, mpi.count()));
    std::map<std::string, Work> works;
    works["alone"].run = [&] { alone.step(batches); };
    works["shared"].run = [&] { shared.step(batches); };
    works["messages"].run = [&] { messages.step(batches); };
    works["periodic"].run = [&] { periodic.step(batches); };
    for (auto& [bytes, training] : sums)
        works[text("sums ", bytes)].run = [&training = *training, &batches] { training.step(batches); };
    for (int i = 0; i < 3; ++i) {
        for (auto& [name, work] : works) work.run();
    }
    MPI_Barrier(MPI_COMM_WORLD);
    describe(mpi, text("\"how\": \"1 x ", batch, " samples per process, ", threads,
                       threads == 1 ? " thread" : " threads", "\", ", gradient_times(alone, batches)));
    serve(mpi, [&](const std::vector<std::string>& words) -> Work& {
        const std::string name = words.size() == 2 ? words[0] + ' ' + words[1] : words[0];
        require(works.contains(name), "there is no such step as ", name);
        return works[name];
    });
}

}  // namespace

int main(int argc, char** argv) try {
    const MpiEnvironment mpi;
    const std::string_view what = argc > 1 ? argv[1] : "";
    require((what == "exchange" && argc >= 3) || (what == "step" && argc >= 5),
            "usage: processes exchange ELEMENTS [NAME], or processes step BATCH THREADS PRECISION [NAME]");
    if (what == "exchange") {
        serve_exchanges(mpi, static_cast<std::size_t>(std::atoll(argv[2])));
    } else if (std::string_view(argv[4]) == "float") {
        serve_steps<Cifar10Net>(mpi, std::atoll(argv[2]), std::atoi(argv[3]));
    } else {
        require(std::string_view(argv[4]) == "bfloat16", "PRECISION is float or bfloat16, not ", argv[4]);
        serve_steps<InPrecision<MixedBFloat16, Cifar10Net>>(mpi, std::atoll(argv[2]), std::atoi(argv[3]));
    }
    return 0;
} catch (const std::exception& error) {
    std::fprintf(stderr, "processes: %s\n", error.what());
    return 1;
}
