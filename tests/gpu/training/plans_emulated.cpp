// SPDX-License-Identifier: Apache-2.0
//
// Trainings whose plans are chosen by the time of emulated engines: on two devices, resumed, and with an evaluation that has
// less memory than the fastest engine wants.
#include "../../test.hpp"

#include <cupola/cuda.hpp>
#include <cupola/cupola.hpp>
#include <cupola/io/plan_file.hpp>
#include <cupola/layers/initializer.hpp>
#include <cupola/parallel/cuda/concat_mean.hpp>
#include <cupola/train/training_run.hpp>

#include "../../io/file_support.hpp"
#include "../../labelled_samples.hpp"
#include "../../throws_with.hpp"
#include "../emulator/control.hpp"
#include "../emulator/cudnn_engines.hpp"

namespace {

struct PlanNet : Sequential<Input<6, 6, 3>, Named<"conv1", Conv2d<4, 3>>, ReLU, Named<"conv2", Conv2d<4, 3>>, ReLU,
                            Flatten, Named<"out", Linear<3>>> {};
using PlanTraining = DataParallel<PlanNet, CrossEntropy<3>, Sgd, ConcatMean, Cuda>;
constexpr double enough = 60;

/// In host memory, which the emulator's devices read.
struct PlanBatches : LabelledSamples {
    PlanBatches() : LabelledSamples(16, PlanNet::input_shape, 3) {}
    BatchView operator()(std::int64_t step, int replica, CudaContext&) const { return view((step + replica) % 8, 8); }
};

PlanTraining::Options plan_options(int devices = 1) {
    return {.replicas = 2,
            .devices = devices,
            .device = {.deterministic = true, .plan_seconds = enough, .linear_chains = false},
            .batch_size = 8,
            .seed = 3,
            .optimizer = {.learning_rate = 0.1}};
}

/// Sets the time of an engine, and restores it.
class EngineTime : NotCopied {
public:
    EngineTime(std::int64_t engine, double seconds, std::int64_t workspace = 0) : engine_(engine) {
        emulator::set_engine_behavior(engine, emulator::EngineBehavior{seconds, false, workspace});
    }
    ~EngineTime() { emulator::set_engine_behavior(engine_, std::nullopt); }

private:
    std::int64_t engine_;
};

std::int64_t engine_of(const PlanTraining& training, std::string_view operation) {
    for (const PlanRecord& record : training.options.device.plan_choices->records()) {
        if (contains(record.key, std::string(operation))) return record.choice.engine;
    }
    return -1;
}

}  // namespace

TEST_CASE("the devices of a training have the same plans, each timed once, and capture their steps") {
    const PlanBatches batches;
    PlanTraining one(plan_options(1)), two(plan_options(2));
    // Two convolutions in two and three directions, and the product of a layer whose backward uses none.
    CHECK(one.options.device.plan_choices->records().size() == 6);
    CHECK(two.options.device.plan_choices->records().size() == 6);
    for (const PlanRecord& record : two.options.device.plan_choices->records())
        CHECK(record.source == PlanRecord::Source::timed);
    const std::int64_t captured = emulator::captures();
    for (int step = 0; step < 3; ++step) {
        one.step(batches);
        two.step(batches);
    }
    CHECK(one.parameters() == two.parameters());
    CHECK(one.not_captured().empty());
    CHECK(emulator::captures() > captured);
    CHECK(one.options.device.plan_choices->to_text() == two.options.device.plan_choices->to_text());
}

TEST_CASE("a resumed training with the kept plans has the same bits, and one with other plans is refused") {
    const PlanBatches data;
    const io_tests::TemporaryFolder folder;
    const std::unique_ptr<std::FILE, int (*)(std::FILE*)> output(std::tmpfile(), &std::fclose);
    const auto trained = [&](const std::string& name, const std::string& plans, Resume resume, std::int64_t steps) {
        PlanFile file(plans);
        PlanTraining::Options options = plan_options();
        options.device.plan_choices = file.choices();
        PlanTraining training(options);
        TrainingRun run(
            {.folder = folder.path(name), .resume = resume, .max_steps = steps, .log = {.file = output.get()}});
        run.print_header(training);
        const int status = run.train(training, data, NoTest{});
        CHECK(status == 0);
        file.write();
        return training.parameters();
    };
    const std::vector<float> whole = trained("whole", "", Resume::no, 4);
    static_cast<void>(trained("parts", folder.path("plans.txt"), Resume::no, 2));
    {
        // By now another engine is the fastest.
        const EngineTime faster(emulator::plain_engine, 1e-6);
        const std::string message =
            message_of<DataError>([&] { static_cast<void>(trained("parts", "", Resume::yes, 4)); });
        CHECK(contains(message, "continuing from "));
        CHECK(contains(message, "here would not give the same bits: plans was 6, "));
        CHECK(trained("parts", folder.path("plans.txt"), Resume::yes, 4) == whole);
    }
    std::fseek(output.get(), 0, SEEK_SET);
    std::string printed;
    for (int c = 0; (c = std::fgetc(output.get())) != EOF;) printed += static_cast<char>(c);
    CHECK(contains(
        printed,
        "plan of cuDNN 91900, Emulated GPU, deterministic, forward, bias, ReLU of a convolution in float32: "));
    CHECK(contains(printed, " ms, the fastest of 2 (the next: 0.4000 ms)"));
    CHECK(contains(printed, ", as chosen before"));
}

TEST_CASE("an evaluation of another batch size takes a plan whose scratch memory fits") {
    const PlanBatches batches;
    PlanTraining training(plan_options());
    const std::vector<float> expected = training.predict(batches.view(0, 8));
    constexpr std::int64_t much = std::int64_t{8} << 20;
    const EngineTime large(emulator::tiled_engine, 100e-6, much);
    const std::vector<float> five = training.predict(batches.view(0, 5));
    REQUIRE(five.size() == 15);
    for (std::size_t i = 0; i < five.size(); ++i) CHECK(five[i] == doctest::Approx(expected[i]).epsilon(1e-5));
    CHECK(engine_of(training, "float32: 5 x ") == emulator::plain_engine);
    // A training whose memory is planned with that engine has it.
    PlanTraining other(plan_options());
    CHECK(engine_of(other, "float32: 8 x ") == emulator::tiled_engine);
    CHECK(other.memory().plan.scratch >= static_cast<std::size_t>(much));
}
