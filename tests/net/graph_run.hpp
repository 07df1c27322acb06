// SPDX-License-Identifier: Apache-2.0
//
// A step of a network on a device compared with an oracle in double, which computes the network by hand:
// `Net::compute(oracle, input)` returns the value of its output, or of each of its ends.
#pragma once

#include "../test.hpp"

#include <deque>

#include <cupola/layers.hpp>
#include <cupola/layers/on_device.hpp>
#include <cupola/losses.hpp>
#include <cupola/net/branches.hpp>
#include <cupola/net/check_gradients.hpp>
#include <cupola/net/frozen.hpp>
#include <cupola/net/inputs.hpp>
#include <cupola/net/named_values.hpp>
#include <cupola/net/plan.hpp>
#include <cupola/net/sequential.hpp>
#include <cupola/net/summary.hpp>
#include <cupola/net/tied.hpp>

#include "../devices.hpp"
#include "../ops/operation_run.hpp"
#include "../reference/compare.hpp"
#include "../reference/convolution.hpp"
#include "../reference/pooling.hpp"

namespace graph_run {

using operation_run::Guarded;
using reference::Doubles, reference::Floats;

/// A computation in double that remembers how to go back. A value is a matrix; layers compute its rows.
class Oracle {
public:
    struct Value {
        std::int64_t width = 0;
        Doubles x, gradient;
    };

    Oracle(std::span<const LayerInfo> layers, const Floats& parameters)
        : layers_(layers), parameters_(parameters), gradients_(parameters.size()) {}

    std::size_t input(const Floats& values, std::int64_t width) { return add(width, reference::widen(values)); }
    /// The column of a FromInput.
    void give_column(std::string_view name, const Floats& values, std::int64_t width) {
        columns_[name] = input(values, width);
    }
    std::size_t column(std::string_view name) const { return columns_.at(name); }

    /// The next layer with parameters: Linear, or Conv2d with a kernel of one.
    std::size_t dense(std::size_t from) {
        while (parameters_of_layer(layers_, next_).parameters.count == 0) ++next_;
        const LayerInfo& layer = parameters_of_layer(layers_, next_++);
        const std::int64_t in = at(from).width, out = layer.parameters.list[1].shape.size();
        REQUIRE(layer.parameters.list[0].shape.size() == in * out);
        const auto weight = static_cast<std::size_t>(layer.offsets[0]),
                   bias = static_cast<std::size_t>(layer.offsets[1]);
        const std::size_t rows = at(from).x.size() / static_cast<std::size_t>(in), n = static_cast<std::size_t>(in),
                          m = static_cast<std::size_t>(out);
        Doubles y(rows * m);
        for (std::size_t r = 0; r < rows; ++r) {
            for (std::size_t o = 0; o < m; ++o) {
                double sum = static_cast<double>(parameters_[bias + o]);
                for (std::size_t i = 0; i < n; ++i)
                    sum += static_cast<double>(parameters_[weight + o * n + i]) * at(from).x[r * n + i];
                y[r * m + o] = sum;
            }
        }
        const std::size_t to = add(out, y);
        back_.push_back([=, this] {
            for (std::size_t r = 0; r < rows; ++r) {
                for (std::size_t o = 0; o < m; ++o) {
                    const double dy = at(to).gradient[r * m + o];
                    gradients_[bias + o] += dy;
                    for (std::size_t i = 0; i < n; ++i) {
                        gradients_[weight + o * n + i] += dy * at(from).x[r * n + i];
                        at(from).gradient[r * n + i] += dy * static_cast<double>(parameters_[weight + o * n + i]);
                    }
                }
            }
        });
        return to;
    }

    /// The next layer with parameters: Embedding. Positions of the padding are zeros.
    std::size_t embedding(std::size_t from, std::int64_t padding = -1) {
        while (parameters_of_layer(layers_, next_).parameters.count == 0) ++next_;
        const LayerInfo& layer = parameters_of_layer(layers_, next_++);
        const std::int64_t width = layer.parameters.list[0].shape[1];
        const std::vector<double> ids = at(from).x;
        const auto n = static_cast<std::size_t>(width), table = static_cast<std::size_t>(layer.offsets[0]);
        Doubles y(ids.size() * n);
        const auto for_each_number = [=](auto&& f) {
            for (std::size_t i = 0; i < y.size(); ++i) {
                const auto id = static_cast<std::int64_t>(ids[i / n]);
                if (id != padding) f(i, table + static_cast<std::size_t>(id) * n + i % n);
            }
        };
        for_each_number([&](std::size_t i, std::size_t p) { y[i] = static_cast<double>(parameters_[p]); });
        const std::size_t to = add(width, y);
        back_.push_back(
            [=, this] { for_each_number([&](std::size_t i, std::size_t p) { gradients_[p] += at(to).gradient[i]; }); });
        return to;
    }

    template <class Activation>
    std::size_t activation(std::size_t from) {
        Doubles y = at(from).x;
        constexpr bool relu = std::is_same_v<Activation, ReLU>;
        for (double& v : y) v = relu ? std::max(v, 0.0) : 1 / (1 + std::exp(-v));
        const std::size_t to = add(at(from).width, y);
        back_.push_back([=, this] {
            for (std::size_t i = 0; i < y.size(); ++i)
                at(from).gradient[i] += at(to).gradient[i] * (relu ? (y[i] > 0 ? 1 : 0) : y[i] * (1 - y[i]));
        });
        return to;
    }

    std::size_t sum(std::size_t a, std::size_t b) {
        Doubles y = at(a).x;
        for (std::size_t i = 0; i < y.size(); ++i) y[i] += at(b).x[i];
        const std::size_t to = add(at(a).width, y);
        back_.push_back([=, this] {
            for (std::size_t i = 0; i < at(to).x.size(); ++i) {
                at(a).gradient[i] += at(to).gradient[i];
                at(b).gradient[i] += at(to).gradient[i];
            }
        });
        return to;
    }

    /// One of them may have one position per sample.
    std::size_t product(std::size_t a, std::size_t b) {
        const std::size_t all = std::max(at(a).x.size(), at(b).x.size()),
                          channels = static_cast<std::size_t>(at(a).width);
        REQUIRE(at(a).width == at(b).width);
        // Where a value of fewer elements has the factor of element i of the product.
        const auto place = [=, this](std::size_t of, std::size_t i) {
            const std::size_t positions = all / at(of).x.size();
            return i / channels / positions * channels + i % channels;
        };
        Doubles y(all);
        for (std::size_t i = 0; i < all; ++i) y[i] = at(a).x[place(a, i)] * at(b).x[place(b, i)];
        const std::size_t to = add(at(a).width, y);
        back_.push_back([=, this] {
            for (std::size_t i = 0; i < all; ++i) {
                at(a).gradient[place(a, i)] += at(to).gradient[i] * at(b).x[place(b, i)];
                at(b).gradient[place(b, i)] += at(to).gradient[i] * at(a).x[place(a, i)];
            }
        });
        return to;
    }

    /// The mean of each channel over the positions of a sample.
    std::size_t mean(std::size_t from, std::size_t positions) {
        const auto channels = static_cast<std::size_t>(at(from).width);
        Doubles y(at(from).x.size() / positions);
        const auto place = [=](std::size_t i) { return i / channels / positions * channels + i % channels; };
        const double fraction = 1 / static_cast<double>(positions);
        for (std::size_t i = 0; i < at(from).x.size(); ++i) y[place(i)] += fraction * at(from).x[i];
        const std::size_t to = add(at(from).width, y);
        back_.push_back([=, this] {
            for (std::size_t i = 0; i < at(from).x.size(); ++i)
                at(from).gradient[i] += fraction * at(to).gradient[place(i)];
        });
        return to;
    }

    std::size_t concatenation(std::size_t a, std::size_t b) {
        const auto n = static_cast<std::size_t>(at(a).width), m = static_cast<std::size_t>(at(b).width),
                   rows = at(a).x.size() / n;
        Doubles y;
        for (std::size_t r = 0; r < rows; ++r) {
            for (std::size_t i = 0; i < n; ++i) y.push_back(at(a).x[r * n + i]);
            for (std::size_t i = 0; i < m; ++i) y.push_back(at(b).x[r * m + i]);
        }
        const std::size_t to = add(at(a).width + at(b).width, y);
        back_.push_back([=, this] {
            for (std::size_t r = 0; r < rows; ++r) {
                for (std::size_t i = 0; i < n; ++i) at(a).gradient[r * n + i] += at(to).gradient[r * (n + m) + i];
                for (std::size_t i = 0; i < m; ++i) at(b).gradient[r * m + i] += at(to).gradient[r * (n + m) + n + i];
            }
        });
        return to;
    }

    /// The next layer with parameters: a Conv2d without a stride, of images of this height and width.
    std::size_t convolution(std::size_t from, std::int64_t height, std::int64_t width) {
        while (parameters_of_layer(layers_, next_).parameters.count == 0) ++next_;
        const LayerInfo& layer = parameters_of_layer(layers_, next_++);
        const Shape& weights = layer.parameters.list[0].shape;
        const std::int64_t in = at(from).width, out = weights[0];
        REQUIRE(weights[3] == in);
        const reference::Convolution shape{static_cast<std::int64_t>(at(from).x.size()) / (height * width * in),
                                           reference::same(height, weights[1], 1),
                                           reference::same(width, weights[2], 1), in, out};
        const auto weight = static_cast<std::size_t>(layer.offsets[0]),
                   bias = static_cast<std::size_t>(layer.offsets[1]);
        Doubles y(static_cast<std::size_t>(shape.output_size()));
        for (std::size_t i = 0; i < y.size(); ++i)
            y[i] = static_cast<double>(parameters_[bias + i % static_cast<std::size_t>(out)]);
        shape.for_each_product([&](std::size_t at_x, std::size_t at_w, std::size_t at_y) {
            y[at_y] += at(from).x[at_x] * static_cast<double>(parameters_[weight + at_w]);
        });
        const std::size_t to = add(out, y);
        back_.push_back([=, this] {
            for (std::size_t i = 0; i < at(to).gradient.size(); ++i)
                gradients_[bias + i % static_cast<std::size_t>(out)] += at(to).gradient[i];
            shape.for_each_product([&](std::size_t at_x, std::size_t at_w, std::size_t at_y) {
                const double dy = at(to).gradient[at_y];
                gradients_[weight + at_w] += dy * at(from).x[at_x];
                at(from).gradient[at_x] += dy * static_cast<double>(parameters_[weight + at_w]);
            });
        });
        return to;
    }

    /// The maximum over windows of 2 x 2.
    std::size_t max_pool(std::size_t from, std::int64_t height, std::int64_t width) {
        const std::int64_t channels = at(from).width;
        const reference::Pooling pool{static_cast<std::int64_t>(at(from).x.size()) / (height * width * channels),
                                      reference::same(height, 2, 2), reference::same(width, 2, 2), channels, true};
        std::vector<std::size_t> maxima(static_cast<std::size_t>(pool.output_size()));
        Doubles y(maxima.size());
        pool.for_each_window([&](std::size_t place, const std::vector<std::size_t>& inputs, double) {
            maxima[place] = inputs.front();
            for (const std::size_t i : inputs) {
                if (at(from).x[i] > at(from).x[maxima[place]]) maxima[place] = i;
            }
            y[place] = at(from).x[maxima[place]];
        });
        const std::size_t to = add(channels, y);
        back_.push_back([=, this] {
            for (std::size_t i = 0; i < maxima.size(); ++i) at(from).gradient[maxima[i]] += at(to).gradient[i];
        });
        return to;
    }

    /// Each pixel twice in both directions; `width` is that of the input.
    std::size_t upsample(std::size_t from, std::int64_t width) {
        const auto channels = static_cast<std::size_t>(at(from).width),
                   row = static_cast<std::size_t>(width) * channels;
        std::vector<std::size_t> source(4 * at(from).x.size());
        Doubles y(source.size());
        for (std::size_t i = 0; i < y.size(); ++i) {
            const std::size_t out_row = i / (2 * row), column = i / channels % (2 * static_cast<std::size_t>(width));
            source[i] = out_row / 2 * row + column / 2 * channels + i % channels;
            y[i] = at(from).x[source[i]];
        }
        const std::size_t to = add(at(from).width, y);
        back_.push_back([=, this] {
            for (std::size_t i = 0; i < source.size(); ++i) at(from).gradient[source[i]] += at(to).gradient[i];
        });
        return to;
    }

    /// The same elements in rows of another width.
    std::size_t flat(std::size_t from, std::int64_t width) {
        const std::size_t to = add(width, at(from).x);
        back_.push_back([=, this] {
            for (std::size_t i = 0; i < at(to).x.size(); ++i) at(from).gradient[i] += at(to).gradient[i];
        });
        return to;
    }

    /// Gives an output its gradient; all outputs have theirs before backward.
    void give_gradient(std::size_t to, const Floats& gradient) { at(to).gradient = reference::widen(gradient); }

    void backward() {
        for (auto step = back_.rbegin(); step != back_.rend(); ++step) (*step)();
    }

    Value& at(std::size_t value) { return values_[value]; }
    [[nodiscard]] const Doubles& parameter_gradients() const { return gradients_; }

private:
    std::size_t add(std::int64_t width, const Doubles& x) {
        values_.push_back({width, x, Doubles(x.size())});
        return values_.size() - 1;
    }

    std::span<const LayerInfo> layers_;
    const Floats& parameters_;
    Doubles gradients_;
    std::vector<Value> values_;
    std::vector<std::function<void()>> back_;
    std::map<std::string_view, std::size_t> columns_;
    std::size_t next_ = 0;
};

template <class T>
using PrecisionOf = std::conditional_t<std::is_same_v<T, float>, Float32,
                                       std::conditional_t<std::is_same_v<T, BFloat16>, MixedBFloat16, MixedFloat16>>;

/// Random values of an input: ids in [0, ids), or bytes, as floats of that value.
template <class D>
[[nodiscard]] Floats input_values(ElementType type, std::int64_t ids, std::int64_t count, reference::Random& random) {
    Floats values = random.normal(count);
    if (type == ElementType::float32) return operation_run::rounded<D>(values);
    const auto limit = type == ElementType::int32 ? static_cast<int>(ids) : 256;
    for (float& value : values) value = static_cast<float>(static_cast<int>(std::abs(value) * 1000.0F) % limit);
    return values;
}
template <class Device>
[[nodiscard]] Guarded<Device> input_memory(typename Device::Context& context, ElementType type, const Floats& values) {
    Guarded<Device> memory(context, values.size() * size_of(type));
    if (type == ElementType::float32) memory.template write<float>(values);
    if (type == ElementType::int32) memory.template write<std::int32_t>(values);
    if (type == ElementType::uint8) memory.template write<std::uint8_t>(values);
    return memory;
}

/// A network without its type, so that its comparison is compiled once per device and element type.
template <class D>
struct Network {
    using Plan = cupola::Plan<DeviceOf<D>, ElementOf<D>>;

    std::string_view name;
    std::span<const LayerInfo> layers;
    std::span<const NetworkOutput> outputs;
    Shape input;
    std::int64_t parameter_elements;
    std::vector<std::size_t> (*compute)(Oracle&, std::size_t input);
    Plan (*make)(typename DeviceOf<D>::Context&, const PlanOptions&);
    std::size_t (*activation_bytes)(std::int64_t batch);
};

/// Compares a step of a network on a device with the oracle, with or without the gradient of the input.
template <class D>
void network_agrees(const Network<D>& net, std::int64_t batch, double tolerance, bool input_gradient) {
    using Device = DeviceOf<D>;
    CAPTURES(net.name, batch);
    reference::Random random(static_cast<std::uint64_t>(batch));
    const Floats parameters = random.normal(net.parameter_elements, 0.5),
                 images = input_values<D>(net.layers.front().column_type, net.layers.front().ids,
                                          batch * net.input.size(), random);
    Oracle oracle(net.layers, parameters);
    const std::size_t x = oracle.input(images, net.input.channels());
    reference::Random of_columns(static_cast<std::uint64_t>(batch) + 100);
    std::vector<Floats> columns;
    for (const LayerInfo& layer : net.layers) {
        if (layer.column.empty()) continue;
        columns.push_back(input_values<D>(layer.column_type, layer.ids, batch * layer.output.size(), of_columns));
        oracle.give_column(layer.column, columns.back(), layer.output.channels());
    }
    const std::vector<std::size_t> ends = net.compute(oracle, x);
    REQUIRE(ends.size() == net.outputs.size());
    std::vector<Floats> gradients_of_ends;
    for (std::size_t k = 0; k < ends.size(); ++k) {
        gradients_of_ends.push_back(operation_run::rounded<D>(random.normal(batch * net.outputs[k].shape.size())));
        oracle.give_gradient(ends[k], gradients_of_ends[k]);
    }
    oracle.backward();

    const CaseContext<Device> of_case(2);
    typename Device::Context& context = of_case.get();
    auto plan = net.make(context, {.batch = batch, .input_gradient = input_gradient});
    REQUIRE(plan.outputs() == ends.size());
    CHECK(plan.bytes().activations >= net.activation_bytes(batch));
    const ElementType type = net.layers.front().column_type;
    Guarded<Device> arena(context, plan.bytes().total(), cupola::scratch_alignment<Device>);
    Guarded<Device> weights(context, parameters), samples = input_memory<Device>(context, type, images),
                                                  gradients(context, parameters.size() * sizeof(float));
    plan.bind(arena.bytes());
    plan.prepare(context, weights.data());
    const auto read = [&](const float* from, std::size_t count) {
        Floats values(count);
        Device::copy_to_host(context, reinterpret_cast<std::byte*>(values.data()),
                             reinterpret_cast<const std::byte*>(from), count * sizeof(float));
        return values;
    };
    BatchView view(batch, {{{input_column, type, net.input}, samples.data()}});
    std::deque<Guarded<Device>> column_memory;
    for (const LayerInfo& layer : net.layers) {
        if (layer.column.empty()) continue;
        column_memory.push_back(input_memory<Device>(context, layer.column_type, columns[column_memory.size()]));
        view.push_back({{layer.column, layer.column_type, layer.output}, column_memory.back().data()});
    }
    const bool one = columns.empty() && type == ElementType::float32;
    const PlanInputs inputs = one ? PlanInputs(samples.data()) : PlanInputs(view);
    const float* const output = plan.forward(context, inputs, weights.data(), {});
    CHECK(output == plan.output(ends.size() - 1));
    for (std::size_t k = 0; k < ends.size(); ++k) {
        CAPTURE(k);
        CHECK(reference::distance(read(plan.output(k), gradients_of_ends[k].size()), oracle.at(ends[k]).x) < tolerance);
    }
    for (std::size_t k = 0; k < ends.size(); ++k) {
        Device::copy_from_host(context, reinterpret_cast<std::byte*>(plan.output_gradient(k)),
                               reinterpret_cast<const std::byte*>(gradients_of_ends[k].data()),
                               gradients_of_ends[k].size() * sizeof(float));
    }
    plan.backward(context, inputs, weights.data(), gradients.data(), {});
    if (input_gradient)
        CHECK(reference::distance(read(plan.input_gradient(), images.size()), oracle.at(x).gradient) < tolerance);
    const Floats all = gradients.read();
    for (const LayerInfo& layer : net.layers) {
        for (std::size_t p = 0; p < layer.parameters.count; ++p) {
            const auto begin = static_cast<std::size_t>(layer.offsets[p]),
                       size = static_cast<std::size_t>(layer.parameters.list[p].shape.size());
            CAPTURE(begin);
            CHECK(reference::distance(std::span(all).subspan(begin, size),
                                      std::span(oracle.parameter_gradients()).subspan(begin, size)) < tolerance);
        }
    }
    CHECK(arena.guards_intact());
    CHECK(gradients.guards_intact());
}

template <class Net, class D>
void agrees(std::int64_t batch, double tolerance, bool input_gradient = true) {
    using Computed = InPrecision<PrecisionOf<ElementOf<D>>, Net>;
    network_agrees<D>({.name = short_type_name<Net>(),
                       .layers = Net::layers,
                       .outputs = Net::outputs,
                       .input = Net::input_shape,
                       .parameter_elements = Net::parameter_elements,
                       .compute = [](Oracle& oracle, std::size_t input) -> std::vector<std::size_t> {
                           if constexpr (Net::outputs.size() == 1) {
                               return {Net::compute(oracle, input)};
                           } else {
                               return Net::compute(oracle, input);
                           }
                       },
                       .make =
                           [](typename DeviceOf<D>::Context& context, const PlanOptions& options) {
                               return PlanOf<Computed, DeviceOf<D>>::template make<Computed>(context, options);
                           },
                       .activation_bytes = [](std::int64_t size) { return activation_bytes<Computed>(size); }},
                      batch, tolerance, input_gradient);
}

/// The same for networks with an activation, for several batches: with Sigmoid, and in float with ReLU too, which in less than
/// float has other zeros than the oracle's. `narrow` is the tolerance there.
template <class D, template <class> class... Net>
void all_agree(double narrow = 8e-2, std::initializer_list<bool> input_gradients = {true}) {
    constexpr bool exact = std::is_same_v<ElementOf<D>, float>;
    for (const std::int64_t batch : {1, 3, 8}) {
        for (const bool input_gradient : input_gradients) {
            (agrees<Net<Sigmoid>, D>(batch, exact ? 2e-5 : narrow, input_gradient), ...);
            if constexpr (exact) (agrees<Net<ReLU>, D>(batch, 2e-5, input_gradient), ...);
        }
    }
}
/// The same for layers that are not fused, with ReLU in float.
template <class D, template <class> class... Net>
void unfused_agree(bool input_gradient = true) {
    if constexpr (std::is_same_v<ElementOf<D>, float>) (agrees<Unfused<Net<ReLU>>, D>(3, 2e-5, input_gradient), ...);
}

#ifndef CUPOLA_TEST_CUDA

/// The outputs and gradients of a pass of a network of one input.
template <class Net>
[[nodiscard]] Floats gradients_of(std::int64_t batch) {
    HostContext context(0, {.threads = 2});
    reference::Random random(7);
    const Floats parameters = random.normal(Net::parameter_elements, 0.3),
                 images = random.normal(batch * Net::input_shape.size());
    auto plan = Plan<Host>::make<Net>(context, {.batch = batch, .input_gradient = true});
    Guarded<Host> arena(context, plan.bytes().total());
    plan.bind(arena.bytes());
    plan.prepare(context, parameters.data());
    Floats statistics(static_cast<std::size_t>(Net::buffer_elements));
    const float* const output =
        plan.forward(context, images.data(), parameters.data(), {}, {.batch = statistics.data()});
    Floats result(output, output + batch * Net::output_shape.size());
    for (std::size_t i = 0; i < result.size(); ++i)
        plan.output_gradient()[i] = 0.01F * static_cast<float>(i % 7) - 0.02F;
    Floats gradients(parameters.size());
    plan.backward(context, images.data(), parameters.data(), gradients.data(), {});
    result.insert(result.end(), gradients.begin(), gradients.end());
    result.insert(result.end(), plan.input_gradient(), plan.input_gradient() + images.size());
    return result;
}

/// Tensors of a network never share bytes while both are alive, and live as long as they are read.
inline void check_memory(std::span<const LayerInfo> layers, bool fusion, bool training, bool input_gradient) {
    std::vector<NodeInfo> nodes(layers.size());
    nodes.resize(fuse(layers, fusion, nodes));
    std::vector<Lifetime> lifetimes(lifetimes_of(nodes.size()));
    const std::size_t total = plan_activations(nodes, 3, training, input_gradient, lifetimes);
    for (const Lifetime& x : lifetimes) {
        CHECK(x.offset + x.bytes <= total);
        for (const Lifetime& y : lifetimes) {
            if (&x == &y || x.bytes == 0 || y.bytes == 0 || x.last < y.first || y.last < x.first) continue;
            CHECK((x.offset + x.bytes <= y.offset || y.offset + y.bytes <= x.offset));
        }
    }
    // A value lives until its last reader, in forward and, where that reads it there, in backward.
    for (std::size_t i = 0; i < nodes.size(); ++i) {
        for (const std::size_t value : {nodes[i].reads, nodes[i].also_reads}) {
            if (value == no_value || storage_of(nodes, value) == 0) continue;
            const Lifetime& read = lifetimes[storage_of(nodes, value)];
            CHECK(read.first < i);
            CHECK(read.last >= i);
            const bool in_backward = (value == nodes[i].reads && nodes[i].backward_reads_input) ||
                                     (value == nodes[i].also_reads && nodes[i].backward_reads_second_input);
            if (training && in_backward && has_backward(nodes, i, lowest_node(nodes, input_gradient), input_gradient))
                CHECK(read.last >= 2 * nodes.size() - i);
        }
    }
}

#endif

}  // namespace graph_run
