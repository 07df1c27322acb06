// SPDX-License-Identifier: Apache-2.0
//
// Networks of which blocks are computed again in backward: the bits are those of the network without it, the memory is
// smaller, and the figures are known before.
#include <cupola/net/recompute.hpp>

#include "../test.hpp"

#include <string>
#include <vector>

#include <cupola/layers.hpp>
#include <cupola/models/resnet.hpp>
#include <cupola/models/unet.hpp>
#include <cupola/net/branches.hpp>
#include <cupola/net/check_gradients.hpp>
#include <cupola/net/frozen.hpp>
#include <cupola/net/named_values.hpp>
#include <cupola/net/plan.hpp>
#include <cupola/net/residual.hpp>
#include <cupola/net/tied.hpp>
#include <cupola/parallel/pipeline.hpp>
#include <cupola/parallel/state_transfer.hpp>
#include <cupola/tensor/batch.hpp>
#ifndef CUPOLA_TEST_CUDA
#include <cupola/loss/cross_entropy.hpp>
#include <cupola/net/summary.hpp>
#include <cupola/optim/sgd.hpp>
#include <cupola/parallel/concat_mean.hpp>
#include <cupola/parallel/data_parallel.hpp>

#include "../throws_with.hpp"
#endif

#include "../devices.hpp"
#include "../instructions.hpp"

using namespace cupola;

namespace {

// The figures of the models, of every block.
struct RecomputeResNet : Recompute<ResNet<44>, "layer?.*"> {};
using RecomputePlainUNet = UNet<64, 64, 3, 2>;
struct RecomputeUNet : Recompute<RecomputePlainUNet, "down?", "bottom", "up?"> {};
static_assert(RecomputeResNet::parameter_elements == ResNet<44>::parameter_elements);
static_assert(recomputation<RecomputeResNet>().blocks == 21 && recomputation<ResNet<44>>().blocks == 0);
// Both convolutions and the first normalisation of a block; and of the last block, whose sum no block behind reads, the
// other normalisation and the sum, for the mask of its ReLU.
static_assert(recomputation<RecomputeResNet>().operations == 21 * 3 + 2);
static_assert(recomputation<RecomputeUNet>().blocks == 7);

/// Of most layers one: named values that blocks read from outside, a block of layers without names, operations that
/// save tensors, dropout, a column of the batch, parameters that are shared, an output before the last block.
struct RecomputeTestNet
    : Sequential<Input<6, 6, 3>, Named<"stem", Conv2d<4, 3>>, Named<"norm", BatchNorm2d<>>, ReLU, Keep<"skip">,
                 Named<"a.conv1", Conv2d<4, 3>>, Named<"a.norm", BatchNorm2d<>>, ReLU, Dropout<0.5>,
                 Named<"a.conv2", Conv2d<4, 3>>, ReLU, Named<"a.conv3", Conv2d<4, 3>>, ReLU,
                 Named<"b", Residual<Projection<Conv2d<6, 1>, Sigmoid>, Conv2d<6, 3>, Sigmoid, Dropout<0.3>,
                                     Conv2d<6, 3>, BatchNorm2d<>>>,
                 ReLU, MaxPool2d<2>, LocalResponseNorm<2>, Upsample2d<2>, ConcatWith<"skip">,
                 Named<"c.conv1", Conv2d<5, 3>>, Sigmoid, Named<"c.pool", MaxPool2d<2>>, Named<"c.conv2", Conv2d<5, 3>>,
                 ReLU, Flatten, Output<"flat">, Named<"d.1", Linear<7>>, Sigmoid, Dropout<0.3>, Named<"d.2", Linear<7>>,
                 Keep<"d.end">, FromInput<"extra", 7>, SiLU, AddFrom<"d.end">, Tied<"twice", Linear<7>>, Sigmoid,
                 Tied<"twice", Linear<7>>, Sigmoid, Named<"e", Linear<4>>> {};
struct RecomputeEach : Recompute<RecomputeTestNet, "?"> {};
struct RecomputeSome : Recompute<RecomputeTestNet, "b", "d"> {};
struct RecomputeAll : Recompute<RecomputeTestNet, "*"> {};
/// Blocks with frozen norms and layers, whichever wrapper is the outer one.
struct RecomputeFrozenNet : Frozen<RecomputeTestNet, "stem.*", "norm.*", "a.norm.*", "a.conv2.*", "d.1.weight"> {};
struct RecomputeFrozenInside : Recompute<RecomputeFrozenNet, "?"> {};
struct RecomputeFrozenOutside : Frozen<RecomputeEach, "stem.*", "norm.*", "a.norm.*", "a.conv2.*", "d.1.weight"> {};
/// Only the upper layers of the first block run backward: those below are frozen, or have no parameters.
struct RecomputeFrozenBelow : Frozen<RecomputeTestNet, "stem.*", "norm.*", "a.conv1.*", "a.norm.*"> {};
struct RecomputeFrozenBelowAgain : Recompute<RecomputeFrozenBelow, "?"> {};
struct RecomputePooled : Sequential<Input<6, 6, 3>, AvgPool2d<2>, Dropout<0.3>, Named<"a.conv1", Conv2d<4, 3>>, Sigmoid,
                                    Named<"a.conv2", Conv2d<4, 3>>, Sigmoid, Flatten, Named<"end", Linear<4>>> {};
struct RecomputePooledAgain : Recompute<RecomputePooled, "a"> {};
static_assert(recomputation<RecomputeEach>().blocks == 5 && recomputation<RecomputeSome>().blocks == 2);

constexpr std::int64_t recompute_batch = 3;

/// What a step of two batches writes: outputs, statistics, gradients, and those of the batches.
template <class Net, class D>
[[nodiscard]] impl::Floats recompute_step(bool input_gradient, PlanBytes* bytes = nullptr) {
    using Memory = impl::CheckMemory<D>;
    typename D::Context context(0, device_options<D>(1));
    const auto team = context.team();
    auto plan =
        PlanOf<Net, D>::template make<Net>(context, {.batch = recompute_batch, .input_gradient = input_gradient});
    Memory memory(context, plan.bytes().total());
    plan.bind(memory.bytes());
    if (bytes != nullptr) *bytes = plan.bytes();
    const auto size_of = [](std::int64_t elements) { return static_cast<std::size_t>(elements) * sizeof(float); };
    Memory parameters(context, size_of(Net::parameter_elements)), gradients(context, size_of(Net::trained_elements)),
        running(context, size_of(Net::buffer_elements)), statistics(context, size_of(Net::buffer_elements)),
        samples(context, size_of(recompute_batch * Net::input_shape.size())),
        extra(context, size_of(recompute_batch * 7));
    const auto fill = [](Memory& to, std::uint32_t number, double deviation) {
        impl::Floats values = to.read();
        initialize(values, normal(deviation), 1, 1, 3, number);
        to.write(values);
    };
    fill(parameters, 0, 0.4);
    running.write(initial_buffers(Net::layers));
    plan.prepare(context, parameters.data(), running.data());
    impl::Floats result;
    const auto append = [&](const float* from, std::int64_t elements) {
        impl::Floats values(static_cast<std::size_t>(elements));
        D::copy_to_host(context, reinterpret_cast<std::byte*>(values.data()), reinterpret_cast<const std::byte*>(from),
                        size_of(elements));
        result.insert(result.end(), values.begin(), values.end());
    };
    for (std::uint32_t number = 0; number < 2; ++number) {
        fill(samples, 10 + number, 1.0);
        fill(extra, 20 + number, 1.0);
        const BatchView batch(recompute_batch, {{{"input", ElementType::float32, Net::input_shape}, samples.data()},
                                                {{"extra", ElementType::float32, Shape{7}}, extra.data()}});
        const RngKey key{.seed = 5, .step = 9, .first_sample = recompute_batch * number};
        plan.forward(context, batch, parameters.data(), key, {.running = running.data(), .batch = statistics.data()});
        for (std::size_t k = 0; k < plan.outputs(); ++k) {
            const std::int64_t elements = recompute_batch * Net::outputs[k].shape.size();
            append(plan.output(k), elements);
            impl::Floats seed(static_cast<std::size_t>(elements));
            initialize(seed, normal(1.0), 1, 1, 6, static_cast<std::uint32_t>(2 * k) + number);
            D::copy_from_host(context, reinterpret_cast<std::byte*>(plan.output_gradient(k)),
                              reinterpret_cast<const std::byte*>(seed.data()), size_of(elements));
        }
        const impl::Floats before = statistics.read();
        result.insert(result.end(), before.begin(), before.end());
        const auto backward = [&] {
            plan.backward(context, batch, parameters.data(), gradients.data(), key, number > 0);
        };
        if constexpr (requires { typename D::Context::DeferScope; }) {
            // As in a training: gradients are added at the end, from what the operations have saved.
            const typename D::Context::DeferScope scope(context);
            backward();
            context.launch_deferred();
        } else {
            backward();
        }
        CHECK(impl::same_bits(statistics.read(), before));
        if (input_gradient) append(plan.input_gradient(), recompute_batch * Net::input_shape.size());
    }
    const impl::Floats of_parameters = gradients.read();
    result.insert(result.end(), of_parameters.begin(), of_parameters.end());
    for (Memory* each : {&memory, &parameters, &gradients, &statistics, &samples, &extra}) CHECK(each->intact());
    return result;
}

template <class Net, class Plain, class D>
void check_recomputed_bits(bool input_gradient = false) {
    PlanBytes bytes, plain_bytes;
    const impl::Floats plain = recompute_step<Plain, D>(input_gradient, &plain_bytes);
    CHECK(impl::same_bits(recompute_step<Net, D>(input_gradient, &bytes), plain));
    CHECK(bytes.activations < plain_bytes.activations);
    // What is saved ends where scratch memory may begin.
    CHECK(bytes.saved <= plain_bytes.saved + (scratch_alignment<D> - alignment));
    if (!input_gradient) CHECK(bytes.activations == activation_bytes<Net>(recompute_batch));
}

template <class Net>
struct RecomputeNarrow : InPrecision<MixedBFloat16, Net> {};

}  // namespace

TYPED_TEST_CASE("a network of which blocks are computed again has the bits of the network without it", D, Devices) {
    check_recomputed_bits<RecomputeEach, RecomputeTestNet, D>();
    check_recomputed_bits<RecomputeEach, RecomputeTestNet, D>(true);
    check_recomputed_bits<RecomputeAll, RecomputeTestNet, D>();
    check_recomputed_bits<RecomputeSome, RecomputeTestNet, D>();
    check_recomputed_bits<Unfused<RecomputeEach>, Unfused<RecomputeTestNet>, D>();
    if (!D::host_memory || computes_bfloat16())
        check_recomputed_bits<RecomputeNarrow<RecomputeEach>, RecomputeNarrow<RecomputeTestNet>, D>();
}

TYPED_TEST_CASE("so has a network with frozen layers in the blocks", D, Devices) {
    check_recomputed_bits<RecomputeFrozenInside, RecomputeFrozenNet, D>();
    check_recomputed_bits<RecomputeFrozenOutside, RecomputeFrozenNet, D>(true);
}

TYPED_TEST_CASE("so has a network of whose first block only the upper layers run backward", D, Devices) {
    check_recomputed_bits<RecomputeFrozenBelowAgain, RecomputeFrozenBelow, D>();
    check_recomputed_bits<RecomputePooledAgain, RecomputePooled, D>();
}

#ifndef CUPOLA_TEST_CUDA

namespace {

struct RecomputeDropped
    : Sequential<Input<8, 8, 3>, Named<"conv1", Conv2d<4, 3>>, Named<"bn1", BatchNorm2d<>>, ReLU, Dropout<0.4>,
                 Named<"block", Residual<Identity, Conv2d<4, 3>, BatchNorm2d<>, ReLU, Dropout<0.3>, Conv2d<4, 3>>>,
                 ReLU, Flatten, Named<"fc", Linear<10>>> {};
struct RecomputeDroppedAgain : Recompute<RecomputeDropped, "block", "conv1", "fc"> {};

/// Random samples with the labels 0 and 1; as many labels per sample as the network has outputs of its classes.
template <class Net>
struct RecomputeSamples {
    static constexpr std::int64_t labels_per_sample = Net::output_shape.size() / Net::output_shape.channels();
    std::int64_t batch = 4;
    std::vector<float> values{};
    std::vector<std::int32_t> labels{};

    BatchView operator()(std::int64_t step, int replica, HostContext&) {
        values.resize(static_cast<std::size_t>(batch * Net::input_shape.size()));
        labels.resize(static_cast<std::size_t>(batch * labels_per_sample));
        initialize(values, normal(1.0), 1, 1, static_cast<std::uint64_t>(step), static_cast<std::uint32_t>(replica));
        for (std::size_t i = 0; i < labels.size(); ++i) labels[i] = values[i] > 0 ? 1 : 0;
        const Shape of_label = labels_per_sample == 1 ? Shape{1} : Shape{Net::output_shape[0], Net::output_shape[1]};
        return {batch,
                {{{"input", ElementType::float32, Net::input_shape}, values.data()},
                 {{"target", ElementType::int32, of_label}, labels.data()}}};
    }
};

template <class Net>
using RecomputeTraining = DataParallel<Net, CrossEntropy<Net::output_shape.channels()>, Sgd, ConcatMean, Host>;

struct RecomputeRun {
    TrainingState state;
    MemoryReport memory;
    std::vector<double> losses;
};

template <class Net>
[[nodiscard]] RecomputeRun recompute_run(std::int64_t batch, int replicas, int accumulation, std::int64_t steps,
                                         const TrainingState* from = nullptr) {
    int devices = 1;
    if constexpr (requires { Net::part_begins; }) devices = static_cast<int>(part_count<Net>);
    RecomputeTraining<Net> training({.replicas = replicas,
                                     .devices = devices,
                                     .device = {.threads = 1},
                                     .batch_size = batch,
                                     .gradient_accumulation_steps = accumulation,
                                     .seed = 3,
                                     .optimizer = {.learning_rate = 0.05, .momentum = 0.9},
                                     .moving_average = {.decay = 0.9}});
    if (from != nullptr) training.restore(*from);
    RecomputeSamples<Net> samples{.batch = batch};
    RecomputeRun run;
    for (std::int64_t i = 0; i < steps; ++i) run.losses.push_back(training.step(samples).loss);
    run.state = training.state();
    run.memory = training.memory();
    return run;
}

[[nodiscard]] bool same_training(const RecomputeRun& a, const RecomputeRun& b) {
    return a.losses == b.losses && impl::same_bits(a.state.parameters, b.state.parameters) &&
           impl::same_bits(a.state.averages, b.state.averages) && impl::same_bits(a.state.buffers, b.state.buffers) &&
           a.state.optimizer == b.state.optimizer && a.state.tensors == b.state.tensors && a.state.step == b.state.step;
}

}  // namespace

TEST_CASE("a training has the bits of the network without it, with replicas, accumulation, dropout and statistics") {
    const RecomputeRun plain = recompute_run<RecomputeDropped>(4, 2, 2, 4);
    CHECK(same_training(recompute_run<RecomputeDroppedAgain>(4, 2, 2, 4), plain));
    if (computes_bfloat16()) {
        CHECK(same_training(recompute_run<RecomputeNarrow<RecomputeDroppedAgain>>(4, 2, 2, 4),
                            recompute_run<RecomputeNarrow<RecomputeDropped>>(4, 2, 2, 4)));
    }
    // A training continues that of the other network.
    const RecomputeRun first = recompute_run<RecomputeDroppedAgain>(4, 2, 2, 2);
    RecomputeRun rest = recompute_run<RecomputeDropped>(4, 2, 2, 2, &first.state);
    rest.losses.insert(rest.losses.begin(), first.losses.begin(), first.losses.end());
    CHECK(same_training(rest, plain));
}

TEST_CASE("ResNet-44 with every block computed again has its bits in 0.31 of its activation memory") {
    CHECK(activation_bytes<RecomputeResNet>(128) == 130'023'424);
    CHECK(activation_bytes<ResNet<44>>(128) == 432'013'312);
    const RecomputeRun plain = recompute_run<ResNet<44>>(2, 1, 1, 2),
                       again = recompute_run<RecomputeResNet>(2, 1, 1, 2);
    CHECK(same_training(again, plain));
    CHECK(again.memory.plan.activations == activation_bytes<RecomputeResNet>(2));
    CHECK(plain.memory.plan.activations == activation_bytes<ResNet<44>>(2));
    CHECK(100 * again.memory.plan.activations <= 31 * plain.memory.plan.activations);
    CHECK(again.memory.plan.saved < plain.memory.plan.saved);
    CHECK(again.memory.plan.packed == plain.memory.plan.packed);
    CHECK(again.memory.plan.scratch == plain.memory.plan.scratch);
}

TEST_CASE("the U-Net with every block computed again has its bits in 0.67 of its activation memory") {
    CHECK(activation_bytes<RecomputeUNet>(128) == 356'515'840);
    CHECK(activation_bytes<RecomputePlainUNet>(128) == 534'773'760);
    const RecomputeRun plain = recompute_run<RecomputePlainUNet>(2, 1, 1, 2),
                       again = recompute_run<RecomputeUNet>(2, 1, 1, 2);
    CHECK(same_training(again, plain));
    CHECK(again.memory.plan.activations == activation_bytes<RecomputeUNet>(2));
    CHECK(plain.memory.plan.activations == activation_bytes<RecomputePlainUNet>(2));
    CHECK(100 * again.memory.plan.activations <= 67 * plain.memory.plan.activations);
}

TEST_CASE("outside training nothing is computed again") {
    CHECK(activation_bytes<RecomputeResNet>(2, false) == activation_bytes<ResNet<44>>(2, false));
    HostContext context(0, {.threads = 1});
    const auto plan = Plan<Host>::make<RecomputeResNet>(context, {.batch = 2, .training = false});
    const auto plain = Plan<Host>::make<ResNet<44>>(context, {.batch = 2, .training = false});
    CHECK(plan.bytes().total() == plain.bytes().total());
}

TEST_CASE("the parts of a network that is cut compute blocks again too") {
    struct Cut : SplitAt<RecomputeDroppedAgain, "fc"> {};
    struct Outside : Recompute<SplitAt<RecomputeDropped, "fc">, "block", "conv1", "fc"> {};
    static_assert(part_count<Cut> == 2 && part_count<Outside> == 2);
    CHECK(same_training(recompute_run<Cut>(4, 1, 1, 2), recompute_run<RecomputeDropped>(4, 1, 1, 2)));
    CHECK(same_training(recompute_run<Outside>(4, 1, 1, 2), recompute_run<RecomputeDropped>(4, 1, 1, 2)));
}

TEST_CASE("a summary says what is computed again, and what the memory is without it") {
    const std::string of_unet = summary<RecomputeUNet>(128);
    CHECK(contains(of_unet,
                   "\n16 operations of 7 blocks run forward again in backward: 95,425,728 multiply-adds more per "
                   "sample; without that the activations are 534.8 MB\n"));
    CHECK(contains(of_unet, "356.5 MB shared"));
    CHECK_FALSE(contains(summary<RecomputePlainUNet>(128), "again"));
}

TEST_CASE("synchronized statistics cannot be computed a second time, outside the blocks they can") {
    HostContext context(0, {.threads = 1});
    const PlanOptions options{.batch = 2, .synchronized = true};
    CHECK_THROWS_WITH_AS(static_cast<void>(Plan<Host>::make<RecomputeDroppedAgain>(context, options)),
                         "synchronized statistics cannot be computed again in backward, and layer 7 (BatchNorm2d<>) is "
                         "in a block of Recompute",
                         InvalidArgument);
    // Nor those whose sums are written before the layers below them are computed again.
    struct Last : Recompute<Sequential<Input<8, 8, 3>, Named<"a.conv", Conv2d<4, 3>>, Named<"a.norm", BatchNorm2d<>>,
                                       Named<"conv", Conv2d<4, 3>>>,
                            "a"> {};
    CHECK_THROWS_WITH_AS(static_cast<void>(Plan<Host>::make<Last>(context, options)),
                         "synchronized statistics cannot be computed again in backward, and layer 2 (a.norm, "
                         "BatchNorm2d<>) is in a block of Recompute",
                         InvalidArgument);
    struct Outside : Recompute<RecomputeDropped, "fc"> {};
    CHECK(Plan<Host>::make<Outside>(context, options).all_reduces() == 2);
}

#endif
