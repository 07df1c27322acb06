// SPDX-License-Identifier: Apache-2.0
//
// Full names of parameters: of one without a name of its own, which has that of its layer, wherever names are used.
#include "../test.hpp"

#include <cupola/layers/linear.hpp>
#include <cupola/layers/sigmoid.hpp>
#include <cupola/net/frozen.hpp>
#include <cupola/net/sequential.hpp>
#include <cupola/net/summary.hpp>
#include <cupola/optim/parameter_group.hpp>
#include <cupola/parallel/training_state.hpp>
#include <cupola/train/impl/summary_names.hpp>

#include "throws_with.hpp"

namespace {

/// One factor per feature, with a name or without.
template <bool named>
struct FactorPerFeature {
    static constexpr ShapeResult output(const Shape& input) { return input; }
    static constexpr Parameters parameters(const Shape& input) {
        return {Parameter{.name = named ? "scale" : "", .shape = input, .initializer = constant(1)},
                Parameter{.name = "shift", .shape = input}};
    }
};
struct UnnamedNet : Sequential<Input<4>, Named<"block.fc", Linear<4>>, Named<"block.scale", FactorPerFeature<false>>,
                               FactorPerFeature<false>> {};

}  // namespace

// Another layer's name may begin with that of the parameter, and the outer layer may have other parameters.
static_assert(Sequential<Input<4>, Named<"block.scale", FactorPerFeature<false>>,
                         Named<"block.scale.inner", FactorPerFeature<true>>, Named<"block", Linear<4>>>::valid);

TEST_CASE("a parameter without a name has its layer's name or number, without a dot behind it") {
    std::vector<std::string> names;
    for (const StateTensor& tensor : state_tensors(UnnamedNet::layers)) names.push_back(tensor.name);
    CHECK(names == std::vector<std::string>{"block.fc.weight", "block.fc.bias", "block.scale", "block.scale.shift", "2",
                                            "2.shift"});
    CHECK(impl::parameter_tag(UnnamedNet::layers, 1, 0) == "block/scale");
    CHECK(impl::parameter_tag(UnnamedNet::layers, 1, 1) == "block/scale/shift");
}

TEST_CASE("patterns match the name of a layer as that of its parameter") {
    struct Exact : Frozen<UnnamedNet, "block.scale"> {};
    struct Number : Frozen<UnnamedNet, "2"> {};
    struct Below : Frozen<UnnamedNet, "block.scale.*"> {};
    CHECK(Exact::layers[1].frozen[0]);
    CHECK_FALSE(Exact::layers[1].frozen[1]);
    CHECK(Exact::trained_count == UnnamedNet::parameter_count - 4);
    CHECK(Number::layers[2].frozen[0]);
    CHECK_FALSE(Below::layers[1].frozen[0]);
    CHECK(Below::layers[1].frozen[1]);
    CHECK(contains(summary<Exact>(1), "parameter frozen"));
    const std::vector<ParameterGroup> groups{{.pattern = "*.scale", .decay = 0}};
    require_valid_groups(groups, UnnamedNet::layers);
    CHECK(group_of(groups, parameter_name(UnnamedNet::layers, 1, 0)) == groups.data());
    CHECK(group_of(groups, parameter_name(UnnamedNet::layers, 1, 1)) == nullptr);
}

TEST_CASE("the number that is the name of a parameter may differ between two networks with the same layers") {
    struct First : Sequential<Input<4>, FactorPerFeature<false>> {};
    struct Second : Sequential<Input<4>, Sigmoid, FactorPerFeature<false>> {};
    impl::require_tensors_of(Second::layers, state_tensors(First::layers));
    struct Other : Sequential<Input<4>, Named<"scale", FactorPerFeature<false>>> {};
    CHECK(contains(
        message_of<InvalidArgument>([] { impl::require_tensors_of(Other::layers, state_tensors(First::layers)); }),
        "its 0 is where this network has scale"));
}
