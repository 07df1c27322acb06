// SPDX-License-Identifier: Apache-2.0
//
// What a network predicts on each device, with what the device joins, against an oracle in double.
#include "../../test.hpp"

#include <cupola/layers.hpp>
#include <cupola/net/plan.hpp>
#include <cupola/net/prediction/join.hpp>
#ifndef CUPOLA_TEST_CUDA
#include <cupola/net/prediction/host_formulas.hpp>
#endif

#include "../../devices.hpp"
#include "../../reference/compare.hpp"

namespace {

using Doubles = std::vector<double>;

struct Block
    : Sequential<Input<3, 2, 5>, Conv2d<8, 1>, Residual<Identity, Conv2d<6, 1>, BatchNorm2d<>, GELU<>, Conv2d<8, 1>>,
                 ReLU, Residual<Projection<Conv2d<4, 1, no_bias>>, Conv2d<4, 1>>, ReLU6, Flatten, Linear<7>, SiLU> {};

std::vector<float> random_floats(std::int64_t count, std::uint32_t seed) {
    std::vector<float> values(static_cast<std::size_t>(count), 0.0F);
    initialize(values, normal(0.5), 1, 1, 3, seed);
    return values;
}

/// What layer `i` computes of each of the positions, in which `channels` values are side by side.
Doubles product(const std::vector<float>& parameters, std::size_t i, const Doubles& x) {
    const LayerInfo& layer = Block::layers[i];
    const auto out = static_cast<std::size_t>(layer.parameters.list[0].shape[0]);
    const auto in = static_cast<std::size_t>(layer.parameters.list[0].shape.size()) / out;
    const float* const weight = parameters.data() + layer.offsets[0];
    Doubles y;
    for (std::size_t position = 0; position < x.size() / in; ++position) {
        for (std::size_t o = 0; o < out; ++o) {
            double sum =
                layer.parameters.count > 1 ? double{parameters[static_cast<std::size_t>(layer.offsets[1]) + o]} : 0;
            for (std::size_t c = 0; c < in; ++c) sum += double{weight[o * in + c]} * x[position * in + c];
            y.push_back(sum);
        }
    }
    return y;
}

template <class Formula>
Doubles each(Doubles values, const Formula& formula) {
    for (double& value : values) value = formula(value);
    return values;
}
Doubles sum_of(Doubles a, const Doubles& b) {
    for (std::size_t i = 0; i < a.size(); ++i) a[i] += b[i];
    return a;
}

Doubles expected(const std::vector<float>& parameters, const std::vector<float>& running,
                 const std::vector<float>& batch) {
    // The layers: 0 Conv2d, 1 Fork, 2 Conv2d, 3 BatchNorm2d, 4 GELU, 5 Conv2d, 6 Add, 7 ReLU, 8 Fork, 9 Conv2d,
    // 10 the shortcut, 11 Add, 12 ReLU6, 13 Flatten, 14 Linear, 15 SiLU.
    const auto relu = [](double x) { return std::max(x, 0.0); };
    const Doubles a = product(parameters, 0, {batch.begin(), batch.end()});
    Doubles b = product(parameters, 2, a);
    const LayerInfo& norm = Block::layers[3];
    for (std::size_t i = 0; i < b.size(); ++i) {
        const auto at = [&](const std::vector<float>& from, std::int64_t offset) {
            return double{from[static_cast<std::size_t>(offset) + i % 6]};
        };
        const double deviation = std::sqrt(at(running, norm.buffer_offsets[1]) + norm.kind_parts.batch_norm.epsilon);
        b[i] = (b[i] - at(running, norm.buffer_offsets[0])) / deviation * at(parameters, norm.offsets[0]) +
               at(parameters, norm.offsets[1]);
    }
    b = each(b, [](double x) { return 0.5 * x * (1 + std::erf(x / std::sqrt(2.0))); });
    const Doubles c = each(sum_of(product(parameters, 5, b), a), relu);
    const Doubles d = each(sum_of(product(parameters, 9, c), product(parameters, 10, c)),
                           [&](double x) { return std::min(relu(x), 6.0); });
    return each(product(parameters, 14, d), [](double x) { return x / (1 + std::exp(-x)); });
}

}  // namespace

TYPED_TEST_CASE("a network predicts the same on every device, with what the device joins", D, Devices) {
    const std::vector<float> parameters = random_floats(Block::parameter_elements, 1);
    std::vector<float> running = random_floats(Block::buffer_elements, 2);
    for (float& value : running) value = 0.2F + value * value;
    for (const std::int64_t samples : {1, 3}) {
        const std::vector<float> batch = random_floats(samples * Block::input_shape.size(), 3);
        typename D::Context context(0, device_options<D>(2));
        const auto team = context.team();
        auto plan = Plan<D>::template make<Block>(
            context, {.batch = samples, .training = false, .join = &join_nodes_on<Block, D>});
        const auto copied = [&](const std::vector<float>& values) {
            typename D::Arena arena(values.size() * sizeof(float), "a test");
            D::copy_from_host(context, arena.data(), reinterpret_cast<const std::byte*>(values.data()),
                              values.size() * sizeof(float));
            return arena;
        };
        const auto at = [](const typename D::Arena& arena) { return reinterpret_cast<const float*>(arena.data()); };
        const typename D::Arena p = copied(parameters), r = copied(running), x = copied(batch);
        typename D::Arena arena(plan.bytes().total(), "a test");
        plan.bind(arena.data());
        plan.prepare(context, at(p), at(r));
        const float* const output = plan.forward(context, at(x), at(p), {.training = false}, {.running = at(r)});
        std::vector<float> y(static_cast<std::size_t>(samples * Block::output_shape.size()));
        D::copy_to_host(context, reinterpret_cast<std::byte*>(y.data()), reinterpret_cast<const std::byte*>(output),
                        y.size() * sizeof(float));
        CHECK(reference::distance(y, expected(parameters, running, batch)) < 2e-6);
        CHECK(plan.nodes().size() == (std::string_view(D::name) == "Host" ? 9 : 14));
    }
}
