// SPDX-License-Identifier: Apache-2.0
#include <cupola/net/prediction/host_formulas.hpp>

#include "../../test.hpp"

#include <cupola/layers.hpp>
#include <cupola/net/named_values.hpp>

#include "../../instructions.hpp"
#include "../../reference/compare.hpp"
#include "prediction_run.hpp"

using prediction_run::Floats;
using prediction_run::nodes_of;
using prediction_run::outputs;
using prediction_run::random;

namespace {

// clang-format off
/// Every activation that oneDNN has, after a layer without and with a batch normalisation; all layers read one value.
template <class L, class... Extents>
struct Every : Sequential<Extents..., Keep<"x">,
    L, ReLU6, Output<"relu6">, From<"x">,
    L, BatchNorm2d<>, LeakyReLU<0.2>, Output<"leaky">, From<"x">,
    L, ELU<0.7>, Output<"elu">, From<"x">,
    L, BatchNorm2d<>, SELU, Output<"selu">, From<"x">,
    L, Tanh, Output<"tanh">, From<"x">,
    L, BatchNorm2d<>, Sigmoid, Output<"sigmoid">, From<"x">,
    L, SiLU, Output<"silu">, From<"x">,
    L, BatchNorm2d<>, GELU<>, Output<"gelu">, From<"x">,
    L, GELU<tanh_approximation>, Output<"by_tanh">, From<"x">,
    L, BatchNorm2d<>, Mish, Output<"mish">, From<"x">,
    L, HardSigmoid, Output<"hard_sigmoid">, From<"x">,
    L, BatchNorm2d<>, HardSwish, Output<"hard_swish">> {};
using Image = Input<6, 5, 16>;
struct Dense : Every<Conv2d<16, 3>, Image> {};
struct Grouped : Every<Conv2d<32, 3, groups(4), no_bias>, Image> {};
struct Depthwise : Every<Conv2d<16, 3, depthwise>, Image> {};
struct Strided : Every<Conv2d<24, 3, stride(2)>, Image> {};
struct PerPosition : Every<Linear<24, per_position, no_bias>, Image> {};
struct Vectors : Sequential<Input<33>, Keep<"x">,
    Linear<19>, ReLU6, Output<"relu6">, From<"x">, Linear<19>, LeakyReLU<0.2>, Output<"leaky">, From<"x">,
    Linear<19>, ELU<0.7>, Output<"elu">, From<"x">, Linear<19, no_bias>, SELU, Output<"selu">, From<"x">,
    Linear<19>, Tanh, Output<"tanh">, From<"x">, Linear<19>, Sigmoid, Output<"sigmoid">, From<"x">,
    Linear<19>, SiLU, Output<"silu">, From<"x">, Linear<19>, GELU<>, Output<"gelu">, From<"x">,
    Linear<19>, GELU<tanh_approximation>, Output<"by_tanh">, From<"x">, Linear<19>, Mish, Output<"mish">, From<"x">,
    Linear<19>, HardSigmoid, Output<"hard_sigmoid">, From<"x">, Linear<19>, HardSwish, Output<"hard_swish">, From<"x">,
    Linear<19>, Softplus<1.5>, Output<"softplus">> {};
/// Not joined: oneDNN's Softplus has negative values, and a class derived from an activation has its own operation.
struct OwnOperation : Tanh {
    template <class BuildContext>
        requires std::same_as<typename BuildContext::DeviceType, Host>
    static auto operation(const BuildContext& build) { return SiLU::operation(build); }
};
struct NotJoined : Sequential<Input<1>, Linear<1>, Softplus<>, Output<"softplus">, Linear<1, no_bias>, OwnOperation> {};
// clang-format on

/// Calls check(output, joined values, values apart) for batches of 1 and 3.
template <class N, class Apart, class Check>
void for_each_output(const HostOptions& options, const Check& check) {
    const Floats parameters = random(N::parameter_elements, 1, 0.4);
    for (const std::int64_t samples : {1, 3}) {
        const Floats batch = random(samples * N::input_shape.size(), 4, 1.0);
        const Floats joined = outputs<N>(batch, parameters, true, options),
                     apart = outputs<Apart>(batch, parameters, false, options);
        std::ptrdiff_t from = 0;
        for (const NetworkOutput& output : N::outputs) {
            const std::ptrdiff_t to = from + samples * output.shape.size();
            CAPTURES(samples, output.name);
            check(Floats(joined.begin() + from, joined.begin() + to), Floats(apart.begin() + from, apart.begin() + to));
            from = to;
        }
    }
}

template <class N>
void compare(double tolerance, const HostOptions& options = {.threads = 2}) {
    for_each_output<N, Unfused<N>>(options, [&](const Floats& joined, const Floats& apart) {
        CHECK(reference::distance(joined, apart) < tolerance);
    });
}

/// In bfloat16 with the network in float: the result is rounded once, and the operands of the product.
template <class N>
void compare_types() {
    compare<N>(2e-6);
    struct Rounded : InPrecision<MixedBFloat16, N> {};
    if (!computes_bfloat16()) return;
    for_each_output<Rounded, N>({.threads = 2}, [](const Floats& joined, const Floats& exact) {
        CHECK(reference::distance(joined, exact) < 8e-3);
    });
}

template <class N>
std::size_t joined_formulas() {
    std::size_t count = 0;
    for (const NodeInfo& node : nodes_of<N>(true)) count += node.formula != nullptr ? 1 : 0;
    return count;
}

/// The activations in double.
const std::pair<std::string_view, double (*)(double)> formulas[] = {
    {"relu6", [](double x) { return std::min(std::max(x, 0.0), 6.0); }},
    {"leaky", [](double x) { return x > 0 ? x : 0.2 * x; }},
    {"elu", [](double x) { return x > 0 ? x : 0.7 * std::expm1(x); }},
    {"selu", [](double x) { return 1.0507009873554805 * (x > 0 ? x : 1.6732632423543772 * std::expm1(x)); }},
    {"tanh", [](double x) { return std::tanh(x); }},
    {"sigmoid", [](double x) { return 1 / (1 + std::exp(-x)); }},
    {"silu", [](double x) { return x / (1 + std::exp(-x)); }},
    {"gelu", [](double x) { return 0.5 * x * (1 + std::erf(x / std::sqrt(2.0))); }},
    {"by_tanh",
     [](double x) { return 0.5 * x * (1 + std::tanh(std::sqrt(2 / 3.14159265358979) * (x + 0.044715 * x * x * x))); }},
    {"mish", [](double x) { return x * std::tanh(std::log1p(std::exp(x))); }},
    {"hard_sigmoid", [](double x) { return std::min(std::max((x + 3) / 6, 0.0), 1.0); }},
    {"hard_swish", [](double x) { return x * std::min(std::max((x + 3) / 6, 0.0), 1.0); }},
    {"softplus", [](double x) { return std::log1p(std::exp(1.5 * x)) / 1.5; }}};

}  // namespace

TEST_CASE("joined activations compute their formulas") {
    const Floats parameters = random(Vectors::parameter_elements, 1, 0.4);
    for (const std::int64_t samples : {1, 40}) {  // by rows, and by oneDNN
        const Floats batch = random(samples * 33, 4, 1.0), joined = outputs<Vectors>(batch, parameters, true);
        std::size_t k = 0, place = 0;
        for (const LayerInfo& layer : Vectors::layers) {
            if (layer.parameters.count == 0) continue;
            CAPTURES(formulas[k].first, samples);
            REQUIRE(Vectors::outputs[k].name == formulas[k].first);
            std::vector<double> expected;
            for (std::int64_t n = 0; n < samples; ++n) {
                for (std::int64_t o = 0; o < 19; ++o) {
                    double sum = layer.parameters.count > 1
                                     ? double{parameters[static_cast<std::size_t>(layer.offsets[1] + o)]}
                                     : 0;
                    for (std::int64_t i = 0; i < 33; ++i)
                        sum += double{parameters[static_cast<std::size_t>(layer.offsets[0] + o * 33 + i)]} *
                               double{batch[static_cast<std::size_t>(n * 33 + i)]};
                    expected.push_back(formulas[k].second(sum));
                }
            }
            CHECK(reference::distance(std::span(joined).subspan(place, expected.size()), expected) < 2e-6);
            place += expected.size();
            ++k;
        }
        CHECK(k == std::size(formulas));
    }
}

TEST_CASE("a NaN and an infinity pass through joined activations that have no bounds") {
    const Floats parameters = random(Vectors::parameter_elements, 1, 0.4);
    for (const std::int64_t samples : {3, 40}) {
        Floats batch = random(samples * 33, 4, 1.0);
        batch[5] = std::numeric_limits<float>::quiet_NaN();
        batch[33 + 5] = std::numeric_limits<float>::infinity();
        const Floats joined = outputs<Vectors>(batch, parameters, true),
                     apart = outputs<Unfused<Vectors>>(batch, parameters, false);
        // As in training after a convolution, what oneDNN bounds has a bound where the sum is a NaN.
        for (std::size_t i = 0; i < joined.size(); ++i) {
            const std::string_view name = formulas[i / static_cast<std::size_t>(samples * 19)].first;
            if (name == "relu6" || name == "hard_sigmoid") continue;
            CAPTURES(name, samples, joined[i], apart[i]);
            REQUIRE(std::isfinite(joined[i]) == std::isfinite(apart[i]));
        }
    }
}

TEST_CASE(
    "outside training activations of oneDNN are joined to the layer before them, except one that is already inside") {
    CHECK(joined_formulas<Vectors>() == 12);      // all but Softplus
    CHECK(joined_formulas<PerPosition>() == 11);  // ReLU6 is inside in training too
    CHECK(joined_formulas<Dense>() == 11);
    CHECK(joined_formulas<NotJoined>() == 0);
}

TEST_CASE("a Softplus is positive, and a class derived from an activation computes its own operation") {
    Floats batch;
    for (int i = 0; i < 40; ++i) batch.push_back(-0.5F * static_cast<float>(i));
    Floats parameters(NotJoined::parameter_elements, 0.0F);
    parameters[0] = 1.0F;  // the weight of the first product; that of the second one:
    parameters[static_cast<std::size_t>(NotJoined::layers[3].offsets[0])] = -2.0F;
    const Floats values = outputs<NotJoined>(batch, parameters, true);
    for (std::size_t i = 0; i < 40; ++i) {
        const double softplus = std::log1p(std::exp(double{batch[i]})), x = -2 * softplus;
        CAPTURES(batch[i], values[i], softplus);
        CHECK(std::abs(values[i] / softplus - 1) < 1e-6);
        CHECK(values[40 + i] == doctest::Approx(x / (1 + std::exp(-x))).epsilon(1e-5));
    }
}

TEST_CASE("layers with joined activations compute what they compute apart") {
    SUBCASE("dense") { compare_types<Dense>(); }
    SUBCASE("grouped") { compare<Grouped>(2e-6); }
    SUBCASE("depthwise") { compare_types<Depthwise>(); }
    SUBCASE("strided") { compare<Strided>(2e-6); }
    SUBCASE("of one tap, per position") { compare<PerPosition>(2e-6); }
    SUBCASE("of vectors") { compare_types<Vectors>(); }
    SUBCASE("by Winograd's algorithm") { compare<Dense>(1e-5, {.threads = 2, .convolution = &prediction_run::tiled}); }
}
