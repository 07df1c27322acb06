// SPDX-License-Identifier: Apache-2.0
//
// Tied: layers that compute with one set of parameters. What such networks compute, forward and backward, against an
// oracle in double; that the set is stored, counted and updated once.
#include "../test.hpp"

#include <cupola/optim/adam.hpp>
#include <cupola/parallel/concat_mean.hpp>
#include <cupola/parallel/data_parallel.hpp>
#include <cupola/parallel/state_transfer.hpp>

#include "../devices.hpp"
#include "../labelled_samples.hpp"
#include "graph_run.hpp"

using namespace graph_run;

namespace {

/// Three steps of a recurrence, and a second set that is used in between.
template <class A>
struct Recurrent
    : Sequential<Input<6>, Named<"in", Linear<6>>, A, Tied<"step", Linear<6>>, A, Tied<"other", Linear<6>>,
                 Tied<"step", Linear<6>>, A, Tied<"other", Linear<6>>, A, Tied<"step", Linear<6>>, Linear<3>> {
    static std::size_t compute(Oracle& o, std::size_t x) {
        const auto act = [&](std::size_t v) { return o.template activation<A>(v); };
        const std::size_t first = act(o.dense(act(o.dense(x)))), second = act(o.dense(o.dense(first)));
        return o.dense(o.dense(act(o.dense(second))));
    }
};

/// Convolutions on images of other sizes in different blocks, whose names the set does not have; the first layer of the
/// list is one, so that backward ends with it.
template <class A>
struct Siamese : Sequential<Input<4, 3, 4>, Tied<"embed", Conv2d<4, 1>>, A,
                            Named<"block", Concat<Named<"left", Branch<Tied<"embed", Conv2d<4, 1>>, A>>,
                                                  Branch<Conv2d<4, 1>, Tied<"embed", Conv2d<4, 1>>>>>,
                            Flatten, Linear<3>> {
    static std::size_t compute(Oracle& o, std::size_t x) {
        const auto act = [&](std::size_t v) { return o.template activation<A>(v); };
        const std::size_t y = act(o.dense(x)), left = act(o.dense(y)), right = o.dense(o.dense(y));
        return o.dense(o.flat(o.concatenation(left, right), 4 * 3 * 8));
    }
};

}  // namespace

TYPED_TEST_CASE("networks with tied layers compute what the oracle does, forward and backward", D, DevicesAndElements) {
    all_agree<D, Recurrent, Siamese>();
    unfused_agree<D, Siamese>();
}

#ifndef CUPOLA_TEST_CUDA

namespace {

/// Tied layers that are fused, normalised and placed.
struct Images : Sequential<Input<6, 5, 3>, Conv2d<4, 3>, Tied<"conv", Conv2d<4, 3, no_bias>>,
                           Tied<"norm", BatchNorm2d<>>, ReLU, OnDevice<Host, Tied<"conv", Conv2d<4, 3, no_bias>>>,
                           Tied<"norm", BatchNorm2d<>>, Flatten, Named<"head", Linear<3>>> {};

using Training = DataParallel<Recurrent<Sigmoid>, CrossEntropy<3>, Adam, ConcatMean, Host>;

}  // namespace

TEST_CASE("a tied set is in the arena and in every list of parameters once") {
    using Net = Recurrent<ReLU>;
    static_assert(Net::parameter_count == 3 * 42 + 21);
    static_assert(Net::parameter_elements == arena_elements(Net::layers));
    static_assert(Net::layers[2].name == "step" && Net::layers[5].tied_to == 2 && Net::layers[9].tied_to == 2);
    static_assert(Net::layers[5].name.empty() && Net::layers[7].tied_to == 4);
    static_assert(Siamese<ReLU>::layers[0].name == "embed" && Siamese<ReLU>::layers[3].tied_to == 0);
    std::string names;
    for (const StateTensor& tensor : state_tensors(Images::layers)) names += tensor.name + " ";
    CHECK(names ==
          "0.weight 0.bias conv.weight norm.weight norm.bias head.weight head.bias norm.running_mean norm.running_var "
          "5.running_mean 5.running_var ");
    const std::string table = summary<Net>(2);
    CHECK(table.find("Linear 6, tied to step") != std::string::npos);
    CHECK(table.find("147") != std::string::npos);  // the sum of the parameters
    using Decayed = LossCollection<CrossEntropy<3>, WeightDecay<0.1, "step">, WeightDecayAll<0.1>>;
    CHECK(Decayed::regularized(Net::layers).size() == 1 + 8);
}

TEST_CASE("gradients of networks with tied layers are those of differences") {
    const auto right = [](const GradientCheck& check) {
        INFO(check.report());
        CHECK(static_cast<bool>(check));
    };
    right(check_gradients<Recurrent<Sigmoid>, CrossEntropy<3>, Host>({.batch = 3}));
    right(check_gradients<Siamese<Sigmoid>, CrossEntropy<3>, Host>({.batch = 1}));
    right(check_gradients<Images, CrossEntropy<3>, Host>({.batch = 4, .tolerance = 0.05}));
}

TEST_CASE("tied layers are trained as one set by several replicas, and resumed") {
    const LabelledSamples samples(8, {6}, 3);
    Training one({.replicas = 1, .batch_size = 8, .seed = 3});
    Training two({.replicas = 2, .devices = 2, .batch_size = 4, .seed = 3});
    for (int step = 0; step < 5; ++step) {
        const std::vector<BatchView> whole{samples.view(0, 8)}, halves{samples.view(0, 4), samples.view(4, 4)};
        const double loss = one.step(whole).loss;
        CHECK(two.step(halves).loss == doctest::Approx(loss).epsilon(1e-5));
    }
    for (std::size_t i = 0; i < one.parameters().size(); ++i)
        CHECK(two.parameters()[i] == doctest::Approx(one.parameters()[i]).epsilon(1e-3));
    TrainingState state = one.state();
    REQUIRE(state.optimizer.size() == 2);
    for (const OptimizerState& kept : state.optimizer) CHECK(kept.values.size() == one.parameters().size());
    Training resumed({.replicas = 1, .batch_size = 8, .seed = 4});
    resumed.restore(state);
    const std::vector<BatchView> whole{samples.view(0, 8)};
    CHECK(resumed.step(whole).loss == one.step(whole).loss);
}

#endif
