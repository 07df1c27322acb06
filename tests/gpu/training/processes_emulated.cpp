// SPDX-License-Identifier: Apache-2.0
//
// Trainings of several processes by NcclAllReduce on emulated GPUs: the same replicas, reports and parameters however many
// processes there are, and the files of processes of which another one is killed or stopped.
#include "../../test.hpp"

#include <unistd.h>

#include <cupola/cuda.hpp>
#include <cupola/cupola.hpp>
#include <cupola/io/checkpoint.hpp>
#include <cupola/io/event_file.hpp>
#include <cupola/nccl.hpp>
#include <cupola/parallel/kinds/periodic.hpp>
#include <cupola/parallel/state_transfer.hpp>
#include <cupola/train/training_run.hpp>

#include "../../child_process.hpp"
#include "../../free_port.hpp"
#include "../../parallel/largest_difference.hpp"
#include "../../temporary_folder.hpp"
#include "../emulator/control.hpp"
#include "../emulator/nccl_behavior.hpp"

namespace {

struct Net : Sequential<Input<6, 6, 3>, Conv2d<8, 3, no_bias>, BatchNorm2d<>, ReLU, Flatten, Dropout<0.3>, Linear<10>> {
};
using Training = DataParallel<Net, CrossEntropy<10>, Sgd, NcclAllReduce, Cuda, AllReplicas>;

constexpr int replicas = 4, steps = 5;
constexpr std::int64_t batch = 5, features = 6 * 6 * 3, samples = 97;

class Batches {
public:
    Batches() : values_(samples * features * sizeof(float)), labels_(samples * sizeof(std::int32_t)) {
        initialize({values(), samples * features}, normal(1.0), 1, 1, 11, 0);
        for (std::int64_t n = 0; n < samples; ++n) labels()[n] = static_cast<std::int32_t>(n * n % 10);
    }
    BatchView operator()(std::int64_t place, int replica, CudaContext&) {
        // Replica 2 has no samples in step 1, and replica 3 fewer in each.
        if (place == 1 && replica == 2) return {};
        const std::int64_t first = (place * 7 + replica * 11) % (samples - batch);
        return {values() + first * features, labels() + first, replica == 3 ? 2 : batch, Net::input_shape};
    }

    /// Makes an input of a replica's batch not finite.
    void poison(std::int64_t place, int replica) {
        values()[(place * 7 + replica * 11) % (samples - batch) * features + 3] = INFINITY;
    }

private:
    float* values() { return reinterpret_cast<float*>(values_.data()); }
    std::int32_t* labels() { return reinterpret_cast<std::int32_t*>(labels_.data()); }
    impl::CudaPinned values_, labels_;
};

std::string variable(const char* name) {
    const char* const value = std::getenv(name);
    return value == nullptr ? "" : value;
}

template <class V>
void write(std::ofstream& file, const std::vector<V>& values) {
    file.write(reinterpret_cast<const char*>(values.data()), static_cast<std::streamsize>(values.size() * sizeof(V)));
}
template <class V>
std::vector<V> read(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    const std::string bytes{std::istreambuf_iterator<char>(file), {}};
    std::vector<V> values(bytes.size() / sizeof(V));
    std::copy(bytes.begin(), bytes.end(), reinterpret_cast<char*>(values.data()));
    return values;
}

/// The results of `count` processes, in `folder`; process 0 receives `signal` before step `die_at`. If that stops it, it is killed once
/// the others have ended.
std::vector<ChildResult> run_processes(int count, int devices, const std::string& folder, int die_at = -1,
                                       int signal = SIGKILL, const char* child = "child: a process of a training") {
    const std::string port = text(free_port());
    std::vector<ChildResult> results(static_cast<std::size_t>(count));
    std::vector<std::thread> threads;
    for (int process = 0; process < count; ++process) {
        threads.emplace_back([&, process] {
            results[static_cast<std::size_t>(process)] =
                run_in_child(child, {{"RANK", text(process)},
                                     {"WORLD_SIZE", text(count)},
                                     {"MASTER_ADDR", "127.0.0.1"},
                                     {"MASTER_PORT", port},
                                     {"CUPOLA_TEST_FOLDER", folder},
                                     {"CUPOLA_TEST_DEVICES", text(devices)},
                                     {"CUPOLA_TEST_SIGNAL", text(signal)},
                                     {"CUPOLA_TEST_DIE_AT", text(process == 0 ? die_at : -1)}});
        });
    }
    for (std::size_t process = threads.size(); process-- > 0;) {
        pid_t stopped = 0;
        if (process == 0 && signal == SIGSTOP && std::ifstream(folder + "/stopped") >> stopped) kill(stopped, SIGKILL);
        threads[process].join();
    }
    return results;
}

Training::Options options_of(const std::string& folder, int of_replicas, int devices) {
    Training::Options options;
    options.replicas = of_replicas;
    options.devices = devices;
    options.batch_size = batch;
    options.other_batch_sizes = {2};
    options.seed = 5;
    options.optimizer = {.learning_rate = 0.05, .momentum = 0.9};
    options.averaging.folder = folder;
    options.averaging.start_seconds = 120;
    options.averaging.step_seconds = 5;
    options.averaging.heartbeat_seconds = 1;
    return options;
}

}  // namespace

TEST_CASE("child: a process of a training" * doctest::skip()) {
    const std::string folder = variable("CUPOLA_TEST_FOLDER");
    const int die_at = std::atoi(variable("CUPOLA_TEST_DIE_AT").c_str());
    Batches batches;
    Training::Options options = options_of(folder, replicas, std::atoi(variable("CUPOLA_TEST_DEVICES").c_str()));
    Training training(options);
    const ProcessNumber process = training.process();
    std::vector<double> first, all;
    for (int step = 0; step < steps; ++step) {
        if (step == die_at) {
            std::ofstream(folder + "/stopped") << getpid() << std::flush;
            std::raise(std::atoi(variable("CUPOLA_TEST_SIGNAL").c_str()));
        }
        if (step == steps - 1) emulator::record_work();
        const int groups = emulator::nccl_call_counts().groups;
        const StepReport& report = training.step(batches);
        REQUIRE(report.replicas.size() == replicas);
        // The gradient is one bucket, and the reports are exchanged in its group.
        CHECK(emulator::nccl_call_counts().groups - groups == options.devices);
        std::vector<double>& to = step == 0 ? first : all;
        to.insert(to.end(), {static_cast<double>(report.samples), report.weight, report.loss});
        for (const ReplicaReport& each : report.replicas) {
            to.insert(to.end(), {static_cast<double>(each.samples), each.total, static_cast<double>(each.correct)});
        }
    }
    const std::vector<std::string> work = emulator::recorded_work();
    CHECK(!work.empty());
    CHECK(std::count(work.begin(), work.end(), "a copy") == 0);
    const TrainingState state = training.state();
    std::vector<float> values = state.parameters;
    values.insert(values.end(), state.buffers.begin(), state.buffers.end());
    const auto file = [&](const char* name) {
        return std::ofstream(text(folder, '/', name, '-', process.count, '-', process.number), std::ios::binary);
    };
    std::ofstream first_file = file("first"), all_file = file("all"), values_file = file("values");
    write(first_file, first);
    write(all_file, all);
    write(values_file, values);
}

TEST_CASE("1, 2 and 4 processes report all replicas alike, and train the same parameters and statistics") {
    const TemporaryFolder folder;
    const auto path = [&](const char* name, int count, int process) {
        return text(folder.path(), '/', name, '-', count, '-', process);
    };
    for (const int count : {1, 2, 4}) {
        CAPTURE(count);
        for (const ChildResult& each : run_processes(count, count == 1 ? 2 : 1, folder.path())) {
            INFO(each.output);
            REQUIRE(each.passed);
        }
        const std::vector<double> first = read<double>(path("first", 1, 0)), all = read<double>(path("all", count, 0));
        const std::vector<float> values = read<float>(path("values", count, 0));
        REQUIRE(first.size() == 3 + 3 * replicas);
        REQUIRE(values.size() == Net::parameter_elements + Net::buffer_elements);
        CHECK(largest_difference(values, read<float>(path("values", 1, 0))) < 1e-5);
        for (int process = 0; process < count; ++process) {
            CAPTURE(process);
            CHECK(read<double>(path("first", count, process)) == first);
            CHECK(read<double>(path("all", count, process)) == all);
            CHECK(read<float>(path("values", count, process)) == values);
        }
    }
}

TEST_CASE("child: a process of replicas that agree on a centre" * doctest::skip()) {
    using Kind = Periodic<NcclAllReduce, Sgd>;
    const std::string folder = variable("CUPOLA_TEST_FOLDER"), from = folder + "/from";
    const Training::Options plain = options_of(folder, replicas, std::atoi(variable("CUPOLA_TEST_DEVICES").c_str()));
    DataParallel<Net, CrossEntropy<10>, Sgd, Kind, Cuda, AllReplicas> training(
        {.replicas = plain.replicas,
         .devices = plain.devices,
         .batch_size = batch,
         .other_batch_sizes = {2},
         .seed = 5,
         .optimizer = plain.optimizer,
         .averaging = {.every = 3, .averaging = plain.averaging, .outer = {.learning_rate = 0.7, .momentum = 0.5}}});
    if (std::filesystem::exists(from)) training.restore(read_checkpoint(from, Net::layers).state);
    Batches batches;
    const ProcessNumber process = training.process();
    while (training.step() < 8) {
        const int groups = emulator::nccl_call_counts().groups;
        const StepReport& report = training.step([&](std::int64_t place, int replica, CudaContext& context) {
            return batches(place == 1 ? 0 : place, replica, context);  // each replica has samples
        });
        // A group of one number and the reports in each step; the rows are another one.
        const int agrees = report.step % 3 == 2 ? 1 : 0;
        CHECK(emulator::nccl_call_counts().groups - groups == (1 + agrees) * plain.devices);
        REQUIRE(report.replicas.size() == replicas);
        CHECK(report.samples == 3 * batch + 2);
        if (training.step() == 5)
            write_checkpoint(text(folder, "/at-5-", process.count, '-', process.number), Net::layers,
                             {.state = training.state()});
    }
    write_checkpoint(text(folder, "/end-", process.count, '-', process.number), Net::layers,
                     {.state = training.state()});
}

TEST_CASE(
    "1, 2 and 4 processes whose replicas agree on a centre sum rows at agreements alone, and continue from any state") {
    const TemporaryFolder folder;
    const auto state = [&](const char* name, int count, int process) {
        return read_checkpoint(text(folder.path(), '/', name, '-', count, '-', process), Net::layers).state;
    };
    const auto check = [&](int count) {
        for (const ChildResult& each : run_processes(count, count == 1 ? 2 : 1, folder.path(), -1, SIGKILL,
                                                     "child: a process of replicas that agree on a centre")) {
            INFO(each.output);
            REQUIRE(each.passed);
        }
        const TrainingState expected = state("end", 1, 0), first = state("end", count, 0);
        for (int process = 0; process < count; ++process) {
            const TrainingState found = state("end", count, process);
            CHECK(found.parameters == first.parameters);
            CHECK(found.replicas == first.replicas);
            CHECK(found.samples_since == expected.samples_since);
            CHECK(largest_difference(found.parameters, expected.parameters) < 1e-5);
            for (std::size_t r = 0; r < replicas; ++r)
                CHECK(largest_difference(found.replicas[r].parameters, expected.replicas[r].parameters) < 1e-5);
        }
        return first;
    };
    check(1);
    const TrainingState two = check(2);
    check(4);
    // Between two agreements.
    CHECK(state("at-5", 2, 1).samples_since == std::vector<std::int64_t>{2 * batch, 2 * batch, 2 * batch, 4});
    std::filesystem::copy_file(folder.path() + "/at-5-2-1", folder.path() + "/from");
    CHECK(check(2).replicas == two.replicas);
}

// torchrun's own store listens at MASTER_PORT. The variable CUPOLA_TORCHRUN names a torchrun that is not in PATH.
TEST_CASE("torchrun starts two processes, which meet beside its store and train the same parameters") {
    const std::string named = variable("CUPOLA_TORCHRUN"), torchrun = named.empty() ? "torchrun" : named;
    if (std::system(text("command -v '", torchrun, "' > /dev/null").c_str()) != 0) {
        REQUIRE_MESSAGE(named.empty(), "CUPOLA_TORCHRUN names no program: ", named);
        MESSAGE("skipped: no torchrun in PATH, and CUPOLA_TORCHRUN is not set");
        return;
    }
    const TemporaryFolder folder;
    const std::string program = std::filesystem::read_symlink("/proc/self/exe").string();
    const int status = std::system(
        text("CUPOLA_TEST_FOLDER='", folder.path(), "' CUPOLA_TEST_DEVICES=1 CUPOLA_TEST_DIE_AT=-1 '", torchrun,
             "' --nproc-per-node 2 --no-python '", program, "' --no-skip '--test-case=child: a process of a training'")
            .c_str());
    CHECK(status == 0);
    const std::vector<float> values = read<float>(folder.path("values-2-0"));
    CHECK(values.size() == Net::parameter_elements + Net::buffer_elements);
    CHECK(read<float>(folder.path("values-2-1")) == values);
}

TEST_CASE("child: a process of a training that goes on" * doctest::skip()) {
    const std::string folder = variable("CUPOLA_TEST_FOLDER"), name = variable("CUPOLA_TEST_NAME"),
                      from = variable("CUPOLA_TEST_FROM");
    const int die_at = std::atoi(variable("CUPOLA_TEST_DIE_AT").c_str()),
              end = std::atoi(variable("CUPOLA_TEST_END").c_str());
    Batches batches;
    NcclEnvironment nccl({.name = text(name, '-', variable("MASTER_PORT"))});
    TrainingState last;
    nccl.survive([&] {
        Training::Options options = options_of(folder, nccl.count(), 1);
        options.averaging.environment = &nccl;
        options.device = {.deterministic = true, .plan_seconds = 0};  // no plan depends on a time
        Training training(options);
        if (nccl.kept() != nullptr)
            training.restore(*nccl.kept());
        else if (!from.empty())
            training.restore(read_checkpoint(from, Net::layers).state);
        else
            nccl.keep(training.state());
        struct Keeps {
            NcclEnvironment& nccl;
            Training& training;
            int die_at;
            void on_step(const StepReport& report, Run&) const {
                CHECK(static_cast<int>(report.replicas.size()) == nccl.count());
                nccl.keep(training.state());
                if (training.state().step == die_at && nccl.started() == nccl.count()) std::raise(SIGKILL);
            }
            [[nodiscard]] bool synchronize_after(std::int64_t) const { return true; }
        };
        const Keeps keeps{nccl, training, die_at};
        if (variable("CUPOLA_TEST_FIT") == "1") {
            fit(training, batches, {.steps = end - training.step()}, keeps);
        } else {
            Run run;
            while (training.step() < end) keeps.on_step(training.step(batches), run);
        }
        last = training.state();
        return 0;
    });
    write_checkpoint(text(folder, '/', name, '-', nccl.number()), Net::layers, {.state = last});
}

TEST_CASE(
    "one of three processes is killed: the others go on from the failed step, with the bits of a training of two from there") {
    const TemporaryFolder folder;
    const auto run = [&](const char* name, int count, int end, int dying, const std::string& from,
                         bool by_fit = false) {
        const std::string port = text(free_port());
        std::vector<ChildResult> results(static_cast<std::size_t>(count));
        std::vector<std::jthread> threads;
        for (int process = 0; process < count; ++process) {
            threads.emplace_back([&, process] {
                results[static_cast<std::size_t>(process)] =
                    run_in_child("child: a process of a training that goes on",
                                 {{"RANK", text(process)},
                                  {"WORLD_SIZE", text(count)},
                                  {"MASTER_ADDR", "127.0.0.1"},
                                  {"MASTER_PORT", port},
                                  {"CUPOLA_TEST_FOLDER", folder.path()},
                                  {"CUPOLA_TEST_NAME", name},
                                  {"CUPOLA_TEST_FROM", from},
                                  {"CUPOLA_TEST_FIT", by_fit ? "1" : "0"},
                                  {"CUPOLA_TEST_END", text(end)},
                                  {"CUPOLA_TEST_DIE_AT", text(process == dying ? 3 : -1)}});
            });
        }
        threads.clear();
        for (int process = 0; process < count; ++process) {
            const ChildResult& each = results[static_cast<std::size_t>(process)];
            INFO(name, ' ', process, ": ", each.output);
            CHECK(each.passed == (process != dying));
        }
        return results;
    };
    const auto state = [&](const char* name, int process) {
        return read_checkpoint(text(folder.path(), '/', name, '-', process), Net::layers).state;
    };
    run("before", 3, 3, -1, "");
    run("two", 2, 6, -1, folder.path("before-0"));
    for (const int dying : {0, 1}) {
        const char* const name = dying == 0 ? "without-0" : "without-1";
        const auto results = run(name, 3, 6, dying, "", dying == 1);
        CHECK(results[dying == 0 ? 1 : 0].output.find(text(
                  "lost of 3 processes: ", dying, "; 2 go on with their replicas from step 3\n")) != std::string::npos);
        for (const int process : {0, 1}) {
            CHECK(state(name, process).step == 6);
            CHECK(state(name, process).parameters == state(name, 1 - process).parameters);
            CHECK(largest_difference(state(name, process).parameters, state("two", 0).parameters) < 1e-5);
            CHECK(state(name, process).parameters == state("two", 0).parameters);
            CHECK(state(name, process).buffers == state("two", 0).buffers);
            CHECK(state(name, process).optimizer == state("two", 0).optimizer);
        }
    }
    CHECK(state("two", 0).parameters != state("before", 0).parameters);
}

TEST_CASE("child: a process of a run" * doctest::skip()) {
    const std::string folder = variable("CUPOLA_TEST_FOLDER"), what = variable("CUPOLA_TEST_WHAT");
    const int number = std::atoi(variable("RANK").c_str());
    struct RaisesIn {
        std::int64_t step;
        bool fails;
        void on_step(const StepReport& report, Run&) const {
            if (report.step != step) return;
            if (fails) throw DataError("the disk is full");
            std::raise(SIGTERM);
        }
    };
    emulator::set_gpu_name(text("the GPU of process ", number));  // they may differ
    Batches batches;
    Training::Options options = options_of(folder, replicas, std::atoi(variable("CUPOLA_TEST_DEVICES").c_str()));
    options.check_every = 4;
    if (what == "settings" && number == 1) options.averaging.max_groups = 3;
    std::string said;
    int status = -1;
    std::int64_t step = -1;
    try {
        Training training(options);
        if (what == "parameters" && number == 1) {
            TrainingState state = training.state();
            state.parameters[3] += 1;
            training.restore(state);
        }
        if (what == "input") batches.poison(6, 3);
        const auto train = [&](Training& of, Resume resume, std::int64_t steps) {
            TrainingRun run({.folder = folder + "/run",
                             .resume = resume,
                             .writes = number == 0,
                             .max_steps = steps,
                             .log = {.every = 0},
                             .checkpoint_every = what == "checkpoint" && number == 1 ? 8 : 10,
                             .events = event_file_in,
                             .summary_every = 3});
            const bool raises = number == 1 && (what == "signal" || what == "callback");
            return run.train(of, batches, NoTest{}, RaisesIn{raises ? 7 : -1, what == "callback"});
        };
        if (what == "resume") {
            // The second run is over before its first step.
            for (const Resume resume : {Resume::no, Resume::yes}) {
                Training part(options);
                CHECK(train(part, resume, 25) == 0);
                CHECK(part.step() == 25);
            }
        }
        status = train(training, what == "resume" ? Resume::yes : Resume::no, 30);
        step = training.step();
    } catch (const Error& error) {
        said = error.what();
    }
    std::ofstream(text(folder, "/outcome-", number)) << step << ' ' << status << ' ' << said;
}

namespace {

struct EndOfRun {
    std::int64_t step = -2;
    int status = -2;
    std::string error;
    bool operator==(const EndOfRun&) const = default;
};

/// How a run ends on each of two processes, and the steps of its checkpoints.
std::vector<EndOfRun> ends_of_run(const std::string& what, int devices, std::vector<std::int64_t>& checkpoints) {
    const TemporaryFolder folder;
    const std::string port = text(free_port());
    std::vector<EndOfRun> ends(2);
    std::vector<std::jthread> threads;
    for (int process = 0; process < 2; ++process) {
        threads.emplace_back([&, process] {
            const ChildResult result =
                run_in_child("child: a process of a run", {{"RANK", text(process)},
                                                           {"WORLD_SIZE", "2"},
                                                           {"MASTER_ADDR", "127.0.0.1"},
                                                           {"MASTER_PORT", port},
                                                           {"CUPOLA_TEST_FOLDER", folder.path()},
                                                           {"CUPOLA_TEST_WHAT", what},
                                                           {"CUPOLA_TEST_DEVICES", text(devices)}});
            EndOfRun& end = ends[static_cast<std::size_t>(process)];
            if (!result.passed) end.error = result.output;
            std::ifstream file(text(folder.path(), "/outcome-", process));
            if (!(file >> end.step >> end.status)) return;
            file.get();
            std::getline(file, end.error, '\0');
        });
    }
    threads.clear();
    checkpoints.clear();
    if (std::filesystem::exists(folder.path("run"))) {
        for (const auto& each : list_checkpoints(folder.path("run"))) checkpoints.push_back(each.step);
    }
    std::sort(checkpoints.begin(), checkpoints.end());
    return ends;
}

}  // namespace

TEST_CASE("processes of NCCL end a run after the same step, and tell each other what is not the same") {
    std::vector<std::int64_t> checkpoints;
    const auto ends = [&](const std::string& what, int devices = 1) {
        const std::vector<EndOfRun> found = ends_of_run(what, devices, checkpoints);
        CAPTURES(what, found[0].error, found[1].error);
        CHECK(found[0].step == found[1].step);
        CHECK(found[0].status == found[1].status);
        return found;
    };
    for (const int devices : {1, 2}) {
        CHECK(ends("nothing", devices) == std::vector<EndOfRun>(2, {.step = 30, .status = 0, .error = ""}));
        CHECK(checkpoints == std::vector<std::int64_t>{10, 20, 30});
    }
    CHECK(ends("resume") == std::vector<EndOfRun>(2, {.step = 30, .status = 0, .error = ""}));
    CHECK(checkpoints == std::vector<std::int64_t>{10, 20, 25, 30});
    // Process 1 receives a signal in the callback of step 7: both end, with a checkpoint of the step.
    const std::vector<EndOfRun> signalled = ends("signal");
    CHECK(signalled[0].status == 128 + SIGTERM);
    CHECK(signalled[0].error == "");
    CHECK(signalled[0].step > 7);
    CHECK(signalled[0].step <= 8 + 2 * Training::max_steps_in_flight);
    CHECK(checkpoints.back() == signalled[0].step);
    const std::vector<EndOfRun> failed = ends("callback");
    CHECK(failed[1].error == "the disk is full");
    CHECK(failed[0].error == "process 1: the disk is full");
    CHECK(checkpoints.size() == 1);
    // Both say what one has found.
    const auto error_of = [&](const std::string& what) {
        const std::vector<EndOfRun> found = ends(what);
        CHECK(found[0].error == found[1].error);
        return found[0].error;
    };
    CHECK(error_of("settings") == "process 1 has another max_groups than process 0: 3, not 2");
    CHECK(error_of("checkpoint") == "process 1 has another .checkpoint_every than process 0: 8, not 10");
    CHECK(
        error_of("parameters") ==
        "after step 3 the parameters of process 1 differ from those of process 0: a process computed a different result");
    CHECK(checkpoints.empty());
    const std::string not_finite = error_of("input");
    CHECK(not_finite.find("the loss of replica 3 is") != std::string::npos);
    CHECK(not_finite.find("of its batch is not finite") != std::string::npos);
    CHECK(checkpoints == std::vector<std::int64_t>{6});
}

TEST_CASE("a process of a training is killed: the other's file names step, operation and process") {
    const TemporaryFolder folder;
    const std::vector<ChildResult> results = run_processes(2, 1, folder.path(), 3);
    std::ifstream file(folder.path("process-1.fault"));
    const std::string written{std::istreambuf_iterator<char>(file), {}};
    CHECK(
        written ==
        "process 1: replica 2 (rank 1 of 2) in the sum of the gradients of step 3: it is not done after 5 s; the heartbeat "
        "of rank 0 has stopped; missing: process 0\n");
    INFO(results[1].output);
    CHECK_FALSE(results[1].passed);
}

TEST_CASE(
    "a process of a training is stopped: each of the others names step, operation and process within a second of the deadline") {
    const TemporaryFolder folder;
    const std::vector<ChildResult> results = run_processes(4, 1, folder.path(), 3, SIGSTOP);
    const auto stopped = std::filesystem::last_write_time(folder.path("stopped"));
    for (const int process : {1, 2, 3}) {
        const ChildResult& result = results[static_cast<std::size_t>(process)];
        INFO(result.output);
        CHECK(result.status == 75);
        const std::string path = text(folder.path(), "/process-", process, ".fault");
        std::ifstream file(path);
        const std::string written{std::istreambuf_iterator<char>(file), {}};
        CHECK(written ==
              text("process ", process, ": replica ", process, " (rank ", process,
                   " of 4) in the sum of the gradients of step 3: it is not done after 5 s; the heartbeat of rank 0 "
                   "has stopped; missing: process 0\n"));
        // Each may have begun its wait a step after the stop.
        CHECK(std::filesystem::last_write_time(path) - stopped < std::chrono::seconds(7));
    }
}
