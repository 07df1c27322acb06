// SPDX-License-Identifier: Apache-2.0
// Covers: cupola/cuda.hpp, cupola/nccl.hpp, cupola/ops/cuda/algorithms.hpp, cupola/ops/cuda/element_update.hpp
// Covers: cupola/ops/cuda/gradient_norm.hpp, cupola/ops/cuda/training_step.hpp, cupola/parallel/cuda/concat_mean.hpp
// Covers: cupola/parallel/cuda/queue.hpp, cupola/processes/nccl/nccl_collective.hpp
//
// Compares trainings on `Cuda` with the same ones on `Host`: queued and captured steps, short batches, several replicas and
// devices, and errors. Devices share GPUs where there are fewer; only NCCL needs a GPU per device.
#include "../../test.hpp"

#include "training_runs.hpp"

#include <cupola/core/error.hpp>

#include "../../reference/compare.hpp"
#include "../../throws_with.hpp"

using namespace training_runs;

namespace {

/// The norm of the difference over the norm of the reference.
template <class V>
double distance(const std::vector<V>& values, const std::vector<V>& reference) {
    if (values.size() != reference.size()) return INFINITY;
    double above = 0, below = 0;
    for (std::size_t i = 0; i < values.size(); ++i) {
        const double expected = static_cast<double>(reference[i]), d = static_cast<double>(values[i]) - expected;
        above += d * d;
        below += expected * expected;
    }
    return above == 0 ? 0 : std::sqrt(above / below);
}

using reference::same_bits;
bool same_bits(const std::vector<Floats>& a, const std::vector<Floats>& b) {
    return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                      [](const Floats& x, const Floats& y) { return same_bits(x, y); });
}

/// Whether two trainings have the same results.
bool same(const Result& a, const Result& b) {
    return same_bits(a.losses, b.losses) && a.correct == b.correct && a.samples == b.samples && a.step == b.step &&
           same_bits(a.parameters, b.parameters) && same_bits(a.averages, b.averages) &&
           same_bits(a.buffers, b.buffers) && same_bits(a.optimizer, b.optimizer);
}

/// Checks that the run ended without an error and agrees with that on the host; returns it.
Result check_against_host(const Run& run, double losses = 1e-4, double parameters = 1e-3) {
    const Result host = run_on_host(run), ours = run_on_cuda(run);
    CHECK(host.error.empty());
    CHECK(ours.error == "");
    CHECK(ours.losses.size() == static_cast<std::size_t>(run.steps));
    if (run.sizes.empty()) CHECK(host.losses.back() < host.losses.front());
    CHECK(distance(ours.losses, host.losses) < losses);
    CHECK(ours.samples == host.samples);
    CHECK(ours.step == host.step);
    CHECK(distance(ours.parameters, host.parameters) < parameters);
    CHECK(distance(ours.averages, host.averages) < parameters);
    CHECK(distance(ours.buffers, host.buffers) < parameters);
    REQUIRE(ours.optimizer.size() == host.optimizer.size());
    for (std::size_t i = 0; i < host.optimizer.size(); ++i)
        CHECK(distance(ours.optimizer[i], host.optimizer[i]) < 10 * parameters);
    REQUIRE(ours.evaluation.size() == host.evaluation.size());
    // Only in addition to the rounding of bfloat16 and of a whole training.
    REQUIRE(ours.replica_gradients.size() == host.replica_gradients.size());
    for (std::size_t r = 0; r < host.replica_gradients.size(); ++r) {
        CHECK(distance(ours.replica_gradients[r], host.replica_gradients[r]) < 10 * parameters);
    }
    CHECK(distance(ours.prediction, host.prediction) < 10 * parameters);
    if (!host.evaluation.empty()) {
        CHECK(!host.measured.empty());
        CHECK(ours.measured_labels == host.measured_labels);
        CHECK(distance(ours.measured, host.measured) < 10 * parameters);
        CHECK(ours.evaluation[0] == host.evaluation[0]);
        CHECK(std::abs(ours.evaluation[1] - host.evaluation[1]) <= 1);
        for (std::size_t i = 2; i < host.evaluation.size(); ++i)
            CHECK(ours.evaluation[i] == doctest::Approx(host.evaluation[i]).epsilon(losses));
    }
    for (const Floats& device : ours.device_parameters) CHECK(same_bits(device, ours.parameters));
    CHECK(overruns() == 0);
    return ours;
}

/// Restores the settings that a test changed.
struct Restored : NotCopied {
    Restored() = default;
    ~Restored() {
        refuse_captures(false);
        set_pace(3);
        fail_device(-1, 0);
    }
};

}  // namespace

TEST_CASE("ten losses from one seed agree with Host's") {
    for (const std::int64_t max_in_flight : {0, 1, 2}) {
        CAPTURE(max_in_flight);
        check_against_host({.max_in_flight = max_in_flight, .evaluates = true});
    }
}

TEST_CASE("the operations of a step are queued in Host's order") {
    for (const int devices : {1, 2}) {
        CAPTURE(devices);
        Run run{.replicas = 3, .devices = devices, .gradient_accumulation_steps = 2, .steps = 3};
        for (const bool inspects : {false, true}) {
            run.inspects = inspects;
            const Result host = run_on_host(run);
            REQUIRE(host.traces.size() == static_cast<std::size_t>(devices));
            CHECK(host.traces[0].size() > 3U * 2U * 4U);
            CHECK(run_on_cuda(run).traces == host.traces);
        }
    }
}

TEST_CASE("steps that begin with Host's parameters have Host's loss, gradient and outputs") {
    Run run{.steps = 20, .momentum = 0.9, .inspects = true, .keeps_gradients = true};
    const Result host = run_on_host(run);
    REQUIRE(host.gradients.size() == 20);
    run.starts = host.starts;
    const Result ours = run_on_cuda(run);
    REQUIRE(ours.error == "");
    REQUIRE(ours.gradients.size() == 20);
    for (std::size_t i = 0; i < host.gradients.size(); ++i) {
        CHECK(std::abs(ours.losses[i] - host.losses[i]) < 1e-4 * host.losses[i]);
        CHECK(distance(ours.gradients[i], host.gradients[i]) < 1e-4);
        CHECK(same_bits(ours.inspected[i], ours.gradients[i]));
    }
    CHECK(ours.activations.size() == host.activations.size());
    CHECK(distance(ours.activations, host.activations) < 1e-4);
    // An inspection changes nothing.
    run.inspects = false;
    CHECK(same(run_on_cuda(run), ours));
}

TEST_CASE("inspection and the search for non-finite values use a batch that has samples") {
    for (const int devices : {1, 2}) {
        CAPTURE(devices);
        Run run{.replicas = 2,
                .devices = devices,
                .gradient_accumulation_steps = 3,
                .steps = 2,
                .sizes = {{8, 8}, {3, 8}, {0, 0}, {0, 8}, {0, 3}, {0, 0}},
                .inspects = true};
        const Result host = run_on_host(run), ours = run_on_cuda(run);
        REQUIRE(host.error == "");
        REQUIRE(ours.error == "");
        CHECK(ours.activations.size() == host.activations.size());
        CHECK(distance(ours.activations, host.activations) < 1e-4);
        run.poisoned_place = 4;
        run.poisoned_replica = 1;
        run.goes_on = false;
        const Result of_host = run_on_host(run), bad = run_on_cuda(run);
        CAPTURE(bad.error);
        CHECK(bad.error_step == 1);
        CHECK(bad.error_replica == 1);
        CHECK(bad.error.find("sample 1 of its batch is not finite") != std::string::npos);
        CHECK(of_host.error.find("sample 1 of its batch is not finite") != std::string::npos);
    }
}

TEST_CASE("replicas and GPUs: ConcatMean has the same bits on one GPU as on two") {
    for (const int replicas : {2, 3}) {
        CAPTURE(replicas);
        Run run{.replicas = replicas, .steps = 8, .max_in_flight = 2, .places = 2};
        check_against_host(run);
        const Result one = run_on_cuda(run);
        for (const int devices : {2, 3}) {
            if (devices > replicas) continue;
            run.devices = devices;
            const Result several = run_on_cuda(run);
            CHECK(several.error == "");
            CHECK(same(several, one));
            for (const Floats& parameters : several.device_parameters) CHECK(same_bits(parameters, one.parameters));
        }
    }
}

TEST_CASE("devices that share a GPU have the bits of a GPU per device, and of one device") {
    for (const Model model : {Model::convolutions, Model::normalized, Model::weighted, Model::two_heads}) {
        CAPTURE(model);
        Run run{.model = model,
                .statistics = Statistics::pooled,
                .replicas = 3,
                .gradient_accumulation_steps = 2,
                .steps = 7,
                .momentum = 0.9,
                .moving_average = 0.9,
                .sizes = {{}, {}, {8, 3, 8}, {0, 8, 3}},
                .moved_after = 4,
                .max_in_flight = 2,
                .places = 4,
                .evaluates = true};
        const Result one = run_on_cuda(run);
        REQUIRE(one.error == "");
        // An emulated GPU takes seconds for each: all ways for the network that exchanges most, and three devices on two and on three
        // GPUs for the others.
        const bool all = !emulated() || model == Model::normalized;
        for (const auto& [devices, per_gpu] : {std::pair{2, 1}, {3, 1}, {2, 2}, {3, 3}, {3, 2}}) {
            if (!all && (devices == 2 || per_gpu == 3)) continue;
            if ((devices + per_gpu - 1) / per_gpu > gpus()) continue;
            CAPTURES(devices, per_gpu);
            run.devices = devices;
            run.devices_per_gpu = per_gpu;
            const Result several = run_on_cuda(run);
            CHECK(several.error == "");
            CHECK(same(several, one));
            CHECK(several.device_parameters.size() == static_cast<std::size_t>(devices));
            for (const Floats& parameters : several.device_parameters) CHECK(same_bits(parameters, one.parameters));
            CHECK(same_bits(several.evaluation, one.evaluation));
            CHECK(same_bits(several.prediction, one.prediction));
            CHECK(same_bits(several.measured, one.measured));
            CHECK(same_bits(several.replica_gradients, one.replica_gradients));
        }
    }
}

TEST_CASE("NCCL is refused for devices that share a GPU, before anything is summed") {
    if (!has_nccl()) return;
    Run run{.average = Average::nccl, .replicas = 2, .devices = 2, .devices_per_gpu = 2};
    CHECK(message_of<cupola::InvalidArgument>([&] { static_cast<void>(run_on_cuda(run)); }) ==
          "NCCL allows a GPU only one rank of a process, and the devices 0 and 1 share GPU 0 (devices_per_gpu): use "
          "ConcatMean, or as many GPUs as devices");
    // One device has one rank.
    run.devices = 1;
    CHECK(run_on_cuda(run).error == "");
}

TEST_CASE("replicas and GPUs: the sum of NCCL agrees with ConcatMean") {
    for (const int devices : {1, 2, 3}) {
        if (devices > gpus()) continue;
        CAPTURE(devices);
        check_against_host({.average = Average::nccl,
                            .replicas = 3,
                            .devices = devices,
                            .momentum = 0.9,
                            .max_in_flight = 2,
                            .places = 2,
                            .evaluates = true});
    }
}

TEST_CASE("a short batch, and a replica without samples") {
    for (const Average average : {Average::concat_mean, Average::nccl}) {
        for (const int devices : {1, 2}) {
            if (average == Average::nccl && devices > gpus()) continue;
            CAPTURE(devices);
            check_against_host({.average = average,
                                .replicas = 2,
                                .devices = devices,
                                .steps = 9,
                                .sizes = {{}, {8, 3}, {}, {8, 0}, {}, {0, 8}, {3, 0}, {8, 3}},
                                .max_in_flight = 2,
                                .places = 2});
        }
    }
}

TEST_CASE("gradients are accumulated over batches") {
    check_against_host({.gradient_accumulation_steps = 2, .max_in_flight = 2});
    check_against_host({.replicas = 2, .devices = 2, .gradient_accumulation_steps = 3, .steps = 6, .max_in_flight = 2});
    check_against_host({.gradient_accumulation_steps = 2,
                        .steps = 6,
                        .sizes = {{8}, {8}, {8}, {3}, {3}, {0}, {0}, {8}},
                        .max_in_flight = 2});
    // In one step the second batch of a replica is its first; in all other steps it adds to the first, whichever packs the weights.
    check_against_host({.replicas = 2,
                        .gradient_accumulation_steps = 2,
                        .steps = 6,
                        .sizes = {{}, {}, {}, {}, {}, {}, {8, 0}, {8, 8}},
                        .max_in_flight = 2});
}

TEST_CASE("replicas and accumulated batches count by the weights of their labels") {
    check_against_host({.model = Model::weighted, .max_in_flight = 2});
    check_against_host({.model = Model::weighted,
                        .replicas = 2,
                        .devices = 2,
                        .gradient_accumulation_steps = 2,
                        .steps = 6,
                        .sizes = {{}, {}, {}, {}, {}, {}, {8, 3}, {0, 8}},
                        .max_in_flight = 2});
}

TEST_CASE("a clipped gradient and the sums of squares of 16 parameters agree with Host's in every step") {
    check_against_host({.model = Model::weighted, .rule = Rule::clipped, .steps = 4, .max_in_flight = 2}, 1e-5, 1e-3);
}

TEST_CASE("a network with two inputs and two outputs, each with its loss") {
    Run run{.model = Model::two_heads,
            .replicas = 2,
            .batch = 8,
            .steps = 5,
            .momentum = 0.9,
            .moving_average = 0.9,
            .max_in_flight = 2,
            .places = 2,
            .evaluates = true};
    check_against_host(run);
    const Result two = run_on_cuda(run);
    REQUIRE(two.evaluation.size() == 5);  // samples, correct, the sum and the loss of each output
    CHECK(two.evaluation[2] == doctest::Approx(two.evaluation[3] + 0.5 * two.evaluation[4]).epsilon(1e-6));
    CHECK(two.prediction.size() == 7 * (10 + 3));
    run.devices = 2;
    const Result apart = run_on_cuda(run);
    CHECK(same(apart, two));
    run.average = Average::nccl;
    if (gpus() > 1) check_against_host(run);
    run.average = Average::concat_mean;
    // The same samples by one replica.
    run.devices = run.replicas = 1;
    run.batch = 16;
    for (const auto& run_on : {run_on_host, run_on_cuda}) {
        const Result one = run_on(run);
        CHECK(one.error == "");
        CHECK(distance(one.losses, two.losses) < 1e-4);
        CHECK(distance(one.parameters, two.parameters) < 1e-3);
    }
    // Short and empty batches, accumulated.
    check_against_host({.model = Model::two_heads,
                        .replicas = 2,
                        .gradient_accumulation_steps = 2,
                        .steps = 4,
                        .sizes = {{}, {}, {8, 3}, {0, 8}},
                        .max_in_flight = 2});
}

TEST_CASE("batches may be overwritten two steps later") {
    check_against_host({.max_in_flight = 2, .places = 2});
    check_against_host({.gradient_accumulation_steps = 2, .max_in_flight = 2, .places = 4});
}

TEST_CASE("optimisers with a state, and moving averages") {
    check_against_host({.rate_decay = 0.5, .max_in_flight = 2});
    check_against_host(
        {.momentum = 0.9, .moving_average = 0.99, .rate_decay = 0.8, .max_in_flight = 2, .evaluates = true});
    check_against_host({.rule = Rule::adam, .rate = 0.005, .rate_decay = 0.8, .max_in_flight = 2}, 1e-4, 2e-3);
    check_against_host({.rule = Rule::rms_prop, .rate = 0.002, .momentum = 0.5, .max_in_flight = 2}, 1e-4, 2e-3);
    check_against_host({.rule = Rule::clipped, .momentum = 0.5, .rate_decay = 0.8, .max_in_flight = 2});
    check_against_host({.rule = Rule::lamb, .rate = 0.01, .max_in_flight = 2}, 1e-4, 2e-3);
    check_against_host({.rule = Rule::lars, .momentum = 0.9, .rate_decay = 0.8, .max_in_flight = 2}, 1e-4, 2e-3);
    check_against_host(
        {.rule = Rule::uncaptured, .momentum = 0.9, .moving_average = 0.9, .rate_decay = 0.8, .max_in_flight = 2});
    check_against_host(
        {.rule = Rule::adam, .replicas = 2, .devices = 2, .rate = 0.005, .moving_average = 0.9, .max_in_flight = 1},
        1e-4, 2e-3);
}

TEST_CASE("the running statistics of batch normalisation") {
    for (const Statistics statistics : {Statistics::first, Statistics::pooled}) {
        for (const int devices : {1, 2}) {
            Run run{.model = Model::normalized,
                    .statistics = statistics,
                    .replicas = 2,
                    .devices = devices,
                    .steps = 3,
                    .sizes = {{}, {3, 8}},
                    .max_in_flight = 2,
                    .evaluates = true};
            const Result host = run_on_host(run), ours = run_on_cuda(run);
            REQUIRE(ours.error == "");
            CHECK(distance(ours.buffers, host.buffers) < 1e-5);
            CHECK(ours.evaluation[2] == doctest::Approx(host.evaluation[2]).epsilon(1e-4));
            run.steps = 6;
            check_against_host(run);
            run.gradient_accumulation_steps = 2;
            run.sizes.clear();
            check_against_host(run);
        }
    }
}

TEST_CASE("frozen parameters and parameter groups") {
    for (const Average average : {Average::concat_mean, Average::nccl}) {
        check_against_host({.model = Model::frozen_body,
                            .average = average,
                            .replicas = 3,
                            .devices = average == Average::nccl ? std::min(2, gpus()) : 2,
                            .momentum = 0.9,
                            .moving_average = 0.9,
                            .max_in_flight = 2,
                            .evaluates = true});
    }
    check_against_host({.model = Model::frozen_middle,
                        .replicas = 2,
                        .devices = 2,
                        .gradient_accumulation_steps = 2,
                        .momentum = 0.9,
                        .moving_average = 0.9,
                        .max_in_flight = 2,
                        .evaluates = true});
    for (const Rule rule : {Rule::sgd, Rule::clipped, Rule::lars}) {
        check_against_host({.model = Model::normalized,
                            .rule = rule,
                            .replicas = 2,
                            .devices = 2,
                            .rate = 0.02,
                            .momentum = 0.9,
                            .rate_decay = 0.9,
                            .max_in_flight = 2,
                            .groups = true,
                            .evaluates = true},
                           1e-4, 2e-3);
    }
    check_against_host({.rule = Rule::adam, .rate = 0.005, .max_in_flight = 2, .groups = true}, 1e-4, 2e-3);
}

TEST_CASE("a network with layers on the host beside it") {
    check_against_host({.model = Model::offloaded, .momentum = 0.9, .max_in_flight = 2, .evaluates = true});
    check_against_host({.model = Model::offloaded,
                        .replicas = 2,
                        .devices = 2,
                        .gradient_accumulation_steps = 2,
                        .moving_average = 0.9,
                        .sizes = {{}, {}, {8, 3}},
                        .max_in_flight = 2,
                        .evaluates = true});
}

TEST_CASE("a network in bfloat16") {
    if (!host_has_bfloat16()) return;
    Run run{.model = Model::convolutions_bfloat16, .steps = 10, .keeps_gradients = true};
    const Result host = run_on_host(run);
    run.starts = host.starts;
    const Result each = run_on_cuda(run);
    REQUIRE(each.error == "");
    for (std::size_t i = 0; i < host.gradients.size(); ++i) {
        CHECK(std::abs(each.losses[i] - host.losses[i]) < 1e-2 * host.losses[i]);
        CHECK(distance(each.gradients[i], host.gradients[i]) < 2e-2);
    }
    // Queued steps pack the weights again when they must.
    run.starts.clear();
    const Result one = run_on_cuda(run);
    run.max_in_flight = 2;
    run.keeps_gradients = false;
    CHECK(same(run_on_cuda(run), one));
}

TEST_CASE("a network in half, on one GPU and on several") {
    Run run{.replicas = 2, .steps = 8, .keeps_gradients = true};
    const Result host = run_on_host(run);
    run.model = Model::convolutions_half;
    run.starts = host.starts;
    const Result each = run_on_cuda(run);
    REQUIRE(each.error == "");
    CHECK(each.scales[0] == 65536);
    CHECK(each.skipped.back() <= 3);
    std::int64_t skipped = 0;
    for (std::size_t i = 0; i < host.gradients.size(); ++i) {
        CHECK(std::abs(each.losses[i] - host.losses[i]) < 1e-2 * host.losses[i]);
        // A scale that is too large at first makes a gradient infinite in half, and the step is skipped.
        const bool is_skipped = each.skipped[i] > std::exchange(skipped, each.skipped[i]);
        CHECK(std::isinf(distance(each.gradients[i], host.gradients[i])) == is_skipped);
        if (is_skipped) continue;
        // Where rounding makes two numbers equal, the devices may select different maxima.
        CHECK(distance(each.gradients[i], host.gradients[i]) < 1e-1);
    }
    run.starts.clear();
    run.keeps_gradients = false;
    const Result one = run_on_cuda(run);
    run.max_in_flight = 2;
    CHECK(same(run_on_cuda(run), one));
    run.devices = 2;
    const Result two = run_on_cuda(run);
    CHECK(two.error == "");
    CHECK(same(two, one));
}

TEST_CASE("TF32 rounds nothing, the factors of convolutions, or those of products too") {
    Run run{.steps = 2};
    const Result host = run_on_host(run);
    std::vector<Result> ours;
    for (const auto tf32 : {Run::Tf32::none, Run::Tf32::convolutions, Run::Tf32::all}) {
        run.tf32 = tf32;
        ours.push_back(run_on_cuda(run));
        REQUIRE(ours.back().error == "");
        CHECK(distance(ours.back().losses, host.losses) < 1e-2);
    }
    CHECK(distance(ours[0].losses, host.losses) < 1e-5);
    CHECK(distance(ours[1].losses, host.losses) > 1e-5);
    CHECK(!same_bits(ours[1].losses, ours[2].losses));
}

namespace {

void check_same_parameters(const Result& a, const Result& b) {
    REQUIRE(a.error == "");
    REQUIRE(b.error == "");
    CHECK(same_bits(a.parameters, b.parameters));
    CHECK(same_bits(a.averages, b.averages));
    CHECK(same_bits(a.buffers, b.buffers));
    CHECK(same_bits(a.optimizer, b.optimizer));
    for (const Floats& parameters : a.device_parameters) CHECK(same_bits(parameters, a.parameters));
}

/// A run whose step 4 has a gradient that is not finite, against one that never sees that batch.
void check_skips(Run run) {
    CAPTURES(run.replicas, run.devices);
    run.moving_average = 0.9;
    run.rate_decay = 0.9;
    Run without = run;
    without.steps = 9;
    without.left_out_place = 4;
    const Result expected = run_on_cuda(without);
    run.poisoned_place = 4;
    run.poisoned_replica = run.replicas - 1;
    run.loss_scale = 64;
    run.growth_interval = 3;
    // One that is moved to another training before or after the step has others in flight.
    for (const auto& [max_in_flight, moved] :
         {std::pair{std::int64_t{0}, nowhere}, {1, nowhere}, {2, nowhere}, {2, 4}, {2, 5}}) {
        CAPTURES(max_in_flight, moved);
        run.max_in_flight = max_in_flight;
        run.moved_after = moved;
        const Result ours = run_on_cuda(run);
        check_same_parameters(ours, expected);
        CHECK(ours.step == 10);
        CHECK(ours.scale_at_end == std::vector<double>{128, 2, 1});
        if (moved != nowhere) continue;  // the reports of the steps in flight are dropped
        CHECK(ours.scales == std::vector<double>{64, 64, 64, 128, 128, 64, 64, 64, 128, 128});
        CHECK(ours.skipped == std::vector<std::int64_t>{0, 0, 0, 0, 1, 1, 1, 1, 1, 1});
    }
    CHECK(overruns() == 0);
}

}  // namespace

TEST_CASE("under a dynamic loss scale a step is skipped whose gradient is not finite, with as many steps ahead") {
    const Restored restored;
    for (const int devices : {1, 2}) {
        if (devices > gpus()) continue;
        check_skips({.model = Model::normalized,
                     .rule = devices == 1 ? Rule::clipped : Rule::adam,
                     .statistics = Statistics::pooled,
                     .replicas = 2,
                     .devices = devices});
        check_skips({.model = Model::two_heads,
                     .rule = Rule::adam,
                     .average = Average::nccl,
                     .replicas = 2,
                     .devices = devices});
    }
    refuse_captures(true);
    check_skips({.model = Model::normalized, .rule = Rule::lamb, .replicas = 2});
}

TEST_CASE("a step without labels is skipped by the option, with as many steps ahead") {
    const Restored restored;
    for (const int devices : {1, 2}) {
        if (devices > gpus()) continue;
        Result at_once;
        for (const std::int64_t max_in_flight : {0, 2}) {
            CAPTURES(devices, max_in_flight);
            Run run{.model = Model::weighted,
                    .rule = devices == 1 ? Rule::clipped : Rule::adam,
                    .replicas = 2,
                    .devices = devices,
                    .rate = devices == 1 ? 0.05 : 0.02,
                    .moving_average = 0.9,
                    .rate_decay = 0.9,
                    .unlabelled_place = 4,
                    .max_in_flight = max_in_flight};
            const Result ours = max_in_flight == 0 ? check_against_host(run) : run_on_cuda(run);
            CHECK(ours.step == 10);
            CHECK(ours.skipped == std::vector<std::int64_t>{0, 0, 0, 0, 1, 1, 1, 1, 1, 1});
            CHECK(ours.losses[4] == 0);
            if (max_in_flight == 0) {
                at_once = ours;
                continue;
            }
            CHECK(same(ours, at_once));
            run.steps = 4;
            const Result before = run_on_cuda(run);
            run.steps = 5;
            check_same_parameters(run_on_cuda(run), before);
        }
    }
}

TEST_CASE("an optimiser that is queued anew in each step knows how many steps were skipped") {
    Run run{.rule = Rule::uncaptured, .replicas = 2, .momentum = 0.9, .rate_decay = 0.5, .loss_scale = 64};
    run.poisoned_place = 2;
    const Result host = run_on_host(run);
    for (const std::int64_t max_in_flight : {0, 2}) {
        run.max_in_flight = max_in_flight;
        const Result ours = run_on_cuda(run);
        REQUIRE(ours.error == "");
        CHECK(ours.scales == host.scales);
        CHECK(ours.skipped == host.skipped);
        CHECK(ours.skipped.back() == 1);
        CHECK(distance(ours.parameters, host.parameters) < 1e-3);
        CHECK(distance(ours.optimizer[0], host.optimizer[0]) < 1e-2);
    }
}

TEST_CASE("a loss scale that is far too large at first is halved until it fits, as on Host") {
    Run run{.rule = Rule::adam,
            .replicas = 2,
            .devices = std::min(2, gpus()),
            .steps = 14,
            .rate = 0.005,
            .loss_scale = 0x1p127,
            .growth_interval = 4,
            .max_in_flight = 2};
    const Result host = run_on_host(run), ours = run_on_cuda(run);
    REQUIRE(host.error == "");
    REQUIRE(ours.error == "");
    CHECK(host.skipped.back() > 0);
    CHECK(host.skipped.back() < 10);
    CHECK(ours.skipped == host.skipped);
    CHECK(ours.scales == host.scales);
    CHECK(ours.scale_at_end == host.scale_at_end);
    CHECK(distance(ours.parameters, host.parameters) < 1e-3);
}

TEST_CASE("at the smallest loss scale, and for a label that is not a class, a step fails and has changed nothing") {
    for (const Average average : {Average::concat_mean, Average::nccl}) {
        for (const int devices : {1, 2}) {
            if (devices > gpus()) continue;
            const Run good{.average = average, .replicas = 2, .devices = devices, .steps = 7, .loss_scale = 1};
            const Result well = run_on_cuda(good);
            REQUIRE(well.error == "");
            CHECK(well.scale_at_end == std::vector<double>{1, 7, 0});
            for (const int replica : {0, 1}) {
                // Each replica is bad with steps in flight and without, but not under each average and on each number of devices.
                const std::int64_t max_in_flight = (replica == devices - 1) == (average == Average::nccl) ? 0 : 2;
                CAPTURES(devices, max_in_flight, replica);
                Run run = good;
                run.max_in_flight = max_in_flight;
                run.poisoned_replica = replica;
                run.poisoned_place = 3;
                const Result ours = run_on_cuda(run);
                CHECK(ours.error_step == 3);
                CHECK(ours.error_replica == replica);
                CHECK(contains(ours.error, "the loss scale is 1, and its minimum 1"));
                CHECK(contains(ours.error, "sample 1 of its batch is not finite"));
                CHECK(ours.healthy);
                CHECK(same(ours, well));
                CHECK(ours.scale_at_end == well.scale_at_end);
                run.poisoned_place = nowhere;
                run.mislabelled_place = 3;
                run.loss_scale = 64;
                const Result labelled = run_on_cuda(run);
                CHECK(contains(labelled.error, "10"));
                CHECK(labelled.healthy);
                CHECK(same(labelled, well));
                CHECK(labelled.scale_at_end == std::vector<double>{64, 7, 0});
            }
        }
    }
}

TEST_CASE("a training whose state is saved in the middle continues unchanged") {
    Run run{.replicas = 2, .devices = 2, .momentum = 0.9, .moving_average = 0.9, .max_in_flight = 2};
    const Result through = run_on_cuda(run);
    run.moved_after = 5;
    const Result moved = run_on_cuda(run);
    REQUIRE(moved.error == "");
    CHECK(same_bits(moved.parameters, through.parameters));
    CHECK(same_bits(moved.averages, through.averages));
    CHECK(same_bits(moved.optimizer, through.optimizer));
    run = {.model = Model::normalized, .statistics = Statistics::pooled, .replicas = 2, .max_in_flight = 2};
    const Result normalized = run_on_cuda(run);
    run.moved_after = 5;
    CHECK(same_bits(run_on_cuda(run).buffers, normalized.buffers));
}

TEST_CASE(
    "a NaN in a batch is reported with its step, layer and replica, at most two steps later, and has changed nothing") {
    struct Case {
        int replica;
        std::int64_t max_in_flight, step;
    };
    for (const Average average : {Average::concat_mean, Average::nccl}) {
        for (const int devices : {1, 2}) {
            if (average == Average::nccl && devices > gpus()) continue;
            const Run good{.average = average,
                           .replicas = 2,
                           .devices = devices,
                           .steps = 7,
                           .momentum = 0.9,
                           .moving_average = 0.9,
                           .keeps_gradients = true};
            const Result well = run_on_cuda(good);
            REQUIRE(well.error == "");
            // The first of them under each average and on each number of devices.
            const std::vector<Case> cases{{0, 0, 4}, {1, 2, 0}, {0, 2, 6}, {0, 0, 0}, {1, 1, 4}, {0, 2, 1}, {1, 2, 4}};
            const bool all = average == Average::concat_mean && devices == 2;
            for (const Case& c : std::span(cases).first(all ? cases.size() : 3)) {
                CAPTURES(devices, c.replica, c.max_in_flight, c.step);
                Run run = good;
                run.keeps_gradients = false;
                run.max_in_flight = c.max_in_flight;
                run.poisoned_place = c.step;
                run.poisoned_replica = c.replica;
                const Result ours = run_on_cuda(run);
                CHECK(ours.error_step == c.step);
                CHECK(ours.healthy);
                CHECK(ours.error_replica == c.replica);
                CHECK(contains(ours.error, "of replica " + std::to_string(c.replica) + " is"));
                CHECK(contains(ours.error, "at step " + std::to_string(c.step)));
                CHECK(contains(ours.error, "sample 1 of its batch is not finite"));
                CHECK(ours.asked <= c.step + 1 + c.max_in_flight);
                CHECK(same_bits(ours.parameters_after_error, well.starts[static_cast<std::size_t>(c.step)]));
                // The training continues with a valid batch, unaffected.
                CHECK(same(ours, well));
            }
        }
    }
}

TEST_CASE("a NaN in one of several accumulated batches is reported") {
    const Run good{.replicas = 2, .gradient_accumulation_steps = 2, .steps = 6};
    const Result well = run_on_cuda(good);
    for (const std::int64_t max_in_flight : {0, 2}) {
        for (const std::int64_t place : {4, 5}) {
            Run run = good;
            run.max_in_flight = max_in_flight;
            run.poisoned_place = place;
            run.poisoned_replica = 1;
            const Result ours = run_on_cuda(run);
            CAPTURE(ours.error);
            CHECK(ours.error_step == 2);
            // The fused ReLU of a library may turn the NaN into 0: then the gradients show it, and no loss does.
            CHECK(ours.error_replica == 1);
            CHECK(same(ours, well));
        }
    }
}

TEST_CASE("a NaN in a batch does not reach the running statistics") {
    Run run{.model = Model::normalized, .replicas = 2, .steps = 7};
    const Result well = run_on_cuda(run);
    run.max_in_flight = 2;
    run.poisoned_place = 3;
    const Result ours = run_on_cuda(run);
    CHECK(ours.error_step == 3);
    CHECK(same(ours, well));
}

TEST_CASE("a NaN loss is reported, whatever its gradient is, and has changed nothing") {
    for (const std::int64_t max_in_flight : {0, 2}) {
        Run run{.rule = Rule::ruinous,
                .replicas = 2,
                .steps = 6,
                .check_every = 0,
                .goes_on = false,
                .max_in_flight = max_in_flight};
        const Result host = run_on_host(run), ours = run_on_cuda(run);
        CHECK(contains(host.error, "the loss of replica 0 is nan at step 3: the output of layer 11"));
        CHECK(ours.error == host.error);
        run.steps = 3;
        const Result before = run_on_cuda(run);
        REQUIRE(before.error == "");
        CHECK(same_bits(ours.parameters_after_error, before.parameters));
    }
}

TEST_CASE("an update that makes a parameter non-finite is found and reported by the check") {
    for (const int devices : {1, 2}) {
        for (const std::int64_t max_in_flight : {0, 2}) {
            Run run{.rule = Rule::ruinous,
                    .replicas = 2,
                    .devices = devices,
                    .steps = 3,
                    .check_every = 3,
                    .goes_on = false,
                    .max_in_flight = max_in_flight};
            const Result host = run_on_host(run), ours = run_on_cuda(run);
            CHECK(contains(host.error, "after step 2 the parameter softmax_linear.bias is -inf at [2]"));
            CHECK(ours.error == host.error);
            CHECK(ours.error_step == 2);
            CHECK(!host.healthy);
            CHECK(!ours.healthy);
        }
    }
}

TEST_CASE("a label that is not a class is reported, and has changed nothing") {
    for (const std::int64_t max_in_flight : {0, 2}) {
        Run run{.replicas = 2, .steps = 6};
        const Result well = run_on_cuda(run);
        run.max_in_flight = max_in_flight;
        run.mislabelled_place = 3;
        run.poisoned_replica = 1;
        const Result ours = run_on_cuda(run);
        CHECK(ours.error == "sample 2 of the batch has label 10, but the loss has classes 0 to 9");
        CHECK(ours.error_step == nowhere);
        CHECK(same(ours, well));
    }
}

TEST_CASE(
    "an exception of a batch source, and a batch size without a plan, is reported at once, and has changed nothing") {
    for (const int devices : {1, 2}) {
        const Run good{.replicas = 3, .devices = devices, .steps = 6, .momentum = 0.9};
        const Result well = run_on_cuda(good);
        for (const std::int64_t max_in_flight : {0, 2}) {
            Run run = good;
            run.max_in_flight = max_in_flight;
            run.failing_place = 3;
            for (const int replica : {0, 2}) {
                run.poisoned_replica = replica;
                const Result ours = run_on_cuda(run);
                CHECK(ours.error == "no samples today");
                CHECK(ours.asked == 4);
                CHECK(same(ours, well));
            }
        }
    }
    Run run{
        .replicas = 2, .devices = 2, .steps = 6, .sizes = {{}, {}, {}, {0, 0}}, .goes_on = false, .max_in_flight = 2};
    CHECK(run_on_cuda(run).error == "step 3 has no samples on any replica");
    CHECK(run_on_host(run).error == "step 3 has no samples on any replica");
}

TEST_CASE("GPUs whose parameters differ are found, and reported with the step") {
    for (const std::int64_t max_in_flight : {0, 2}) {
        const Result ours = run_on_cuda({.rule = Rule::faulty,
                                         .replicas = 2,
                                         .devices = 2,
                                         .check_every = 5,
                                         .goes_on = false,
                                         .max_in_flight = max_in_flight});
        CHECK(contains(ours.error, "after step 4 the parameters of device 1 differ from those of device 0"));
        CHECK_FALSE(ours.healthy);
    }
}

TEST_CASE("a captured step computes the same bits as one that is not captured") {
    const Restored restored;
    // With one device the passes and the update are one graph, for each of the sizes of a batch.
    const auto all = {std::pair{Model::convolutions, 1}, std::pair{Model::convolutions, 2},
                      std::pair{Model::normalized, 2}, std::pair{Model::frozen_body, 2},
                      std::pair{Model::frozen_middle, 2}};
    for (const auto& [model, devices] : all) {
        CAPTURE(devices);
        Run run{.model = model,
                .replicas = devices,
                .devices = devices,
                .momentum = 0.9,
                .moving_average = 0.9,
                .sizes = devices == 1 ? std::vector<std::vector<std::int64_t>>{{}, {}, {3}, {}, {3}}
                                      : std::vector<std::vector<std::int64_t>>{{}, {}, {8, 3}, {}, {8, 3}},
                .max_in_flight = 2,
                .groups = model == Model::normalized || model == Model::frozen_body};
        const std::int64_t launches = launches_of_captures();
        const Result captured = run_on_cuda(run);
        REQUIRE(captured.error == "");
        if (emulated() && devices == 2) CHECK(launches_of_captures() - launches >= 2 * 8);
        if (emulated() && devices == 1) CHECK(launches_of_captures() - launches < captured.losses.size());
        // The first step of a training is never captured.
        run.moved_always = true;
        run.max_in_flight = 0;
        const std::int64_t before = captures();
        CHECK(same(captured, run_on_cuda(run)));
        CHECK(captures() == before);
        if (!emulated()) continue;
        run.moved_always = false;
        run.max_in_flight = 2;
        refuse_captures(true);
        CHECK(same(captured, run_on_cuda(run)));
        CHECK(captures() == before);
        refuse_captures(false);
    }
}

TEST_CASE("fit() reports every step in order, and a callback can synchronize the training") {
    for (const int devices : {1, 2}) {
        Run run{.replicas = 2, .devices = devices, .momentum = 0.9, .places = 2, .inspects = true};
        const Result host = fit_on_host(run), ours = fit_on_cuda(run);
        REQUIRE(ours.error == "");
        CHECK(ours.made == 10);
        CHECK(ours.ends == 1);
        CHECK(distance(ours.losses, host.losses) < 1e-4);
        CHECK(ours.losses.size() == host.losses.size());
        REQUIRE(ours.inspected.size() == 5);
        REQUIRE(ours.standing.size() == 3);
        for (std::size_t i = 0; i < 5; ++i) CHECK(distance(ours.inspected[i], host.inspected[i]) < 1e-4);
        for (std::size_t i = 0; i < 3; ++i) CHECK(distance(ours.standing[i], host.standing[i]) < 1e-4);
        CHECK(ours.last_inspected == std::vector<std::int64_t>{1, 3, 5, 7, 9});
        CHECK(host.last_inspected == ours.last_inspected);
        CHECK(distance(ours.parameters, host.parameters) < 1e-4);
        CHECK(host.queued == std::vector<std::int64_t>{1, 2, 3, 4, 5, 6, 7, 8, 9, 10});
        CHECK(ours.queued == std::vector<std::int64_t>{2, 2, 3, 4, 6, 6, 8, 8, 9, 10});
        run.inspects = false;
        CHECK(fit_on_cuda(run).queued == std::vector<std::int64_t>{3, 3, 3, 6, 6, 6, 9, 9, 9, 10});
        run.synchronize_every = 100;
        CHECK(fit_on_cuda(run).queued == std::vector<std::int64_t>{3, 4, 5, 6, 7, 8, 9, 10, 10, 10});
    }
}

TEST_CASE("fit() ends early: when a callback stops it, when it throws, and when a step fails") {
    const Run good{.replicas = 2, .momentum = 0.9, .synchronize_every = 100};
    const Result well = fit_on_cuda(good);
    REQUIRE(well.error == "");
    Run run = good;
    run.stops_at = 4;
    const Result stopped = fit_on_cuda(run);
    CHECK(stopped.error == "");
    CHECK(stopped.made == 7);  // the steps that were queued are made
    CHECK(stopped.losses.size() == 7);
    CHECK(stopped.ends == 1);
    Run shorter = good;
    shorter.steps = 7;
    CHECK(same_bits(stopped.parameters, fit_on_cuda(shorter).parameters));

    run = good;
    run.throws_at = 4;
    const Result thrown = fit_on_cuda(run);
    CHECK(thrown.error == "the disk is full");
    CHECK(thrown.losses.size() == 7);  // the steps that were queued are reported
    CHECK(thrown.ends == 1);
    CHECK(thrown.healthy);
    CHECK(same_bits(thrown.parameters, stopped.parameters));

    run = good;
    run.poisoned_place = 5;
    const Result poisoned = fit_on_cuda(run);
    CHECK(poisoned.error_step == 5);
    CHECK(contains(poisoned.error, "at step 5"));
    CHECK(poisoned.losses == std::vector<double>(well.losses.begin(), well.losses.begin() + 5));
    CHECK(poisoned.ends == 1);
    CHECK(poisoned.healthy);
    CHECK(poisoned.step == 5);
    shorter.steps = 5;
    CHECK(same_bits(poisoned.parameters, fit_on_cuda(shorter).parameters));
}

TEST_CASE("the bits are the same however far a GPU is behind") {
    const Restored restored;
    // More than three times as many steps as are in flight.
    Run run{.replicas = 3, .devices = 2, .steps = 7, .momentum = 0.9, .max_in_flight = 2, .places = 2};
    const Result first = run_on_cuda(run);
    REQUIRE(first.error == "");
    for (const int pace : {1, 7, 1000}) {
        set_pace(pace);
        for (const std::int64_t max_in_flight : {0, 1, 2}) {
            run.max_in_flight = max_in_flight;
            CHECK(same(run_on_cuda(run), first));
        }
    }
}

TEST_CASE("a GPU that fails in a step ends the training with its error, and no thread hangs") {
    if (!emulated()) return;
    const Restored restored;
    for (const Average average : {Average::concat_mean, Average::nccl}) {
        for (const int devices : {1, 2}) {
            for (const std::int64_t after : {300, 500, 700}) {
                fail_device(devices - 1, after);
                const Result ours = run_on_cuda({.average = average,
                                                 .replicas = 2,
                                                 .devices = devices,
                                                 .steps = 30,
                                                 .goes_on = false,
                                                 .max_in_flight = 2});
                CAPTURE(ours.error);
                // The error of NCCL names a rank, which may be this one.
                CHECK((contains(ours.error, "cudaErrorIllegalAddress") ||
                       (average == Average::nccl && contains(ours.error, "(rank "))));
                fail_device(-1, 0);
            }
        }
    }
}
