// SPDX-License-Identifier: Apache-2.0
// Covers: cupola/net/segment_passes.hpp
//
// Plans that run in step and share their batches' statistics compute what one plan computes with all samples: forward,
// backward and the statistics, from equal parameters.
#include <cupola/net/plan.hpp>

#include "../test.hpp"

#include <cupola/cupola.hpp>
#include <cupola/host.hpp>
#include <cupola/models/resnet.hpp>
#include <cupola/net/segment_passes.hpp>

#include "tutorial.hpp"

namespace {

using Floats = std::vector<float>;

struct Net
    : Sequential<Input<8, 8, 3>, Named<"stem", Conv2d<8, 3, no_bias>>, BatchNorm2d<>, ReLU, MaxPool2d<3, 1>,
                 Residual<Identity, Conv2d<8, 3, no_bias>, BatchNorm2d<>, ReLU, Conv2d<8, 3, no_bias>, BatchNorm2d<>>,
                 ReLU,
                 Residual<Projection<Conv2d<16, 1, stride(2), no_bias>, BatchNorm2d<>>,
                          Conv2d<16, 3, stride(2), pad(1), no_bias>, BatchNorm2d<>>,
                 ReLU, GlobalAvgPool2d, Named<"fc", Linear<5>>> {};
struct WithoutNorm : Sequential<Input<4>, Linear<5>> {};

Floats random(std::int64_t count, double deviation, std::uint64_t seed) {
    Floats values(static_cast<std::size_t>(count));
    initialize(values, normal(deviation), 1, 1, seed, 0);
    return values;
}

/// Around the layers' own initial values, as a network that has trained a little.
template <class N>
Floats parameters_of_net() {
    Floats values(static_cast<std::size_t>(N::parameter_elements));
    std::uint32_t number = 0;
    for (const LayerInfo& layer : N::layers) {
        for (std::size_t p = 0; p < layer.parameters.count; ++p) {
            const Parameter& parameter = layer.parameters.list[p];
            const auto part = std::span(values).subspan(static_cast<std::size_t>(layer.offsets[p]),
                                                        static_cast<std::size_t>(parameter.shape.size()));
            initialize(part, parameter.initializer, parameter.fan_in, parameter.fan_out, 1, number++);
            const Floats noise = random(parameter.shape.size(), 0.1, 100 + number);
            for (std::size_t i = 0; i < part.size(); ++i) part[i] += noise[i];
        }
    }
    return values;
}

/// One replica: a plan with memory of its own, every byte of it not a number before the run.
struct Replica {
    HostContext context{0, {.threads = 1}};
    Plan<Host> plan;
    HostArena arena;
    const float* samples;
    const std::int32_t* labels;
    std::int64_t size;
    Floats output, gradients, statistics;
    double loss = 0;

    template <class N>
    static std::unique_ptr<Replica> make(const PlanOptions& options, const float* samples, const std::int32_t* labels) {
        return std::unique_ptr<Replica>(
            new Replica(&Plan<Host>::make<N>, options, N::parameter_elements, N::buffer_elements, samples, labels));
    }

private:
    Replica(Plan<Host> (*make_plan)(HostContext&, const PlanOptions&), const PlanOptions& options,
            std::int64_t parameters, std::int64_t buffers, const float* from, const std::int32_t* of)
        : plan(make_plan(context, options)),
          arena(plan.bytes().total(), "test"),
          samples(from),
          labels(of),
          size(options.batch),
          gradients(static_cast<std::size_t>(parameters), 0.5F),
          statistics(static_cast<std::size_t>(buffers), 0.0F) {
        auto* floats = reinterpret_cast<float*>(arena.data());
        std::fill(floats, floats + arena.size() / sizeof(float), std::numeric_limits<float>::quiet_NaN());
        plan.bind(arena.data());
    }
};

/// Runs the replicas in step, as a training does.
template <class N>
void run(std::vector<std::unique_ptr<Replica>>& replicas, const Floats& parameters, bool accumulate = false) {
    const std::size_t all_reduces = replicas[0]->plan.all_reduces();
    std::vector<std::vector<double>> partials(replicas.size());
    std::vector<double> merged;
    const auto merge = [&](Direction direction, std::size_t k) {
        std::vector<const double*> parts;
        for (std::size_t r = 0; r < replicas.size(); ++r) parts.push_back(partials[r].data());
        parts.insert(parts.begin() + 1, nullptr);  // a replica without samples
        merged.assign(partials[0].size(), -1.0);
        replicas[0]->plan.merge(direction, k, parts, merged.data());
    };
    const auto room = [&](Direction direction, std::size_t k) {
        for (std::size_t r = 0; r < replicas.size(); ++r) {
            const std::int64_t size = k < all_reduces ? replicas[r]->plan.statistics_size(direction, k) : 0;
            partials[r].assign(static_cast<std::size_t>(size), 0.0);
        }
    };
    for (auto& r : replicas) r->plan.prepare(r->context, parameters.data());
    for (std::size_t k = 0; k <= all_reduces; ++k) {
        room(Direction::forward, k);
        for (std::size_t i = 0; i < replicas.size(); ++i) {
            Replica& r = *replicas[i];
            const float* output = r.plan.forward_segment(r.context, k, r.samples, parameters.data(), {},
                                                         {.running = nullptr, .batch = r.statistics.data()},
                                                         merged.data(), partials[i].data());
            CHECK((output != nullptr) == (k == all_reduces));
            if (output == nullptr) continue;
            r.output.assign(output, output + r.size * N::output_shape.size());
            r.loss = CrossEntropy<5>{}
                         .operation<Host>()
                         .forward(r.context, output, r.labels, r.size, r.plan.output_gradient())
                         .sum;
        }
        if (k < all_reduces) merge(Direction::forward, k);
    }
    for (std::size_t k = 0; k <= all_reduces; ++k) {
        room(Direction::backward, k);
        for (std::size_t i = 0; i < replicas.size(); ++i) {
            Replica& r = *replicas[i];
            r.plan.backward_segment(r.context, k, r.samples, parameters.data(), r.gradients.data(), {}, accumulate,
                                    merged.data(), partials[i].data());
        }
        if (k < all_reduces) merge(Direction::backward, k);
    }
}

}  // namespace

TEST_CASE("synchronised over 1 to 4 replicas is one replica with all samples, forward, backward and statistics") {
    const Floats parameters = parameters_of_net<Net>();
    for (const std::vector<std::int64_t>& sizes :
         std::vector<std::vector<std::int64_t>>{{12}, {6, 6}, {2, 10}, {4, 4, 4}, {1, 5, 2, 4}, {1, 1, 1, 1}}) {
        const std::int64_t all = std::accumulate(sizes.begin(), sizes.end(), std::int64_t{0});
        CAPTURES(sizes.size(), sizes[0]);
        const Floats images = random(all * Net::input_shape.size(), 1.0, 9);
        std::vector<std::int32_t> labels(static_cast<std::size_t>(all));
        for (std::size_t i = 0; i < labels.size(); ++i) labels[i] = static_cast<std::int32_t>(i % 5);

        const PlanOptions whole_options{.batch = all};
        const auto whole = Replica::make<Net>(whole_options, images.data(), labels.data());
        whole->plan.prepare(whole->context, parameters.data());
        const float* output = whole->plan.forward(whole->context, images.data(), parameters.data(), {},
                                                  {.running = nullptr, .batch = whole->statistics.data()});
        whole->output.assign(output, output + all * 5);
        const auto loss = CrossEntropy<5>{}.operation<Host>();
        whole->loss = loss.forward(whole->context, output, labels.data(), all, whole->plan.output_gradient()).sum;
        whole->plan.backward(whole->context, images.data(), parameters.data(), whole->gradients.data(), {});
        CHECK(whole->plan.all_reduces() == 0);

        std::vector<std::unique_ptr<Replica>> replicas;
        std::int64_t first = 0;
        for (const std::int64_t size : sizes) {
            const PlanOptions options{.batch = size, .synchronized = true};
            replicas.push_back(
                Replica::make<Net>(options, images.data() + first * Net::input_shape.size(), labels.data() + first));
            first += size;
        }
        REQUIRE(replicas[0]->plan.all_reduces() == 5);
        run<Net>(replicas, parameters);

        Floats outputs;
        double total = 0;
        std::vector<double> average(whole->gradients.size());
        for (const auto& r : replicas) {
            outputs.insert(outputs.end(), r->output.begin(), r->output.end());
            total += r->loss;
            for (std::size_t i = 0; i < average.size(); ++i) {
                average[i] +=
                    static_cast<double>(r->size) / static_cast<double>(all) * static_cast<double>(r->gradients[i]);
            }
            CHECK(tutorial::difference(r->statistics, whole->statistics) < 1e-5);
            CHECK(r->statistics == replicas[0]->statistics);
        }
        CHECK(tutorial::difference(outputs, whole->output) < 1e-5);
        CHECK(total == doctest::Approx(whole->loss).epsilon(1e-6));
        for (const LayerInfo& layer : Net::layers) {
            for (std::size_t p = 0; p < layer.parameters.count; ++p) {
                CAPTURE(layer.type);
                const auto begin = static_cast<std::size_t>(layer.offsets[p]),
                           size = static_cast<std::size_t>(layer.parameters.list[p].shape.size());
                // Bits of ReLU and of maxima aside, of which there are none here, the difference is that of rounding.
                CHECK(tutorial::difference(std::span(average).subspan(begin, size),
                                           std::span(whole->gradients).subspan(begin, size)) < 2e-5);
            }
        }
        CHECK(tutorial::difference(average, whole->gradients) < 1e-5);
        if (sizes.size() == 1) {  // alone, to the bit
            CHECK(replicas[0]->gradients == whole->gradients);
            CHECK(replicas[0]->output == whole->output);
        }
    }
}

TEST_CASE("without synchronisation replicas differ from the whole batch, so the previous test is not trivial") {
    const Floats parameters = parameters_of_net<Net>(), images = random(4 * Net::input_shape.size(), 1.0, 9);
    const PlanOptions two{.batch = 2}, four{.batch = 4};
    const auto half = Replica::make<Net>(two, images.data(), nullptr),
               whole = Replica::make<Net>(four, images.data(), nullptr);
    const auto output = [&](Replica& r) {
        r.plan.prepare(r.context, parameters.data());
        const float* y = r.plan.forward(r.context, r.samples, parameters.data(), {});
        return Floats(y, y + 10);
    };
    CHECK(tutorial::difference(output(*half), output(*whole)) > 0.01);
}

TEST_CASE("synchronised gradients add up over several passes") {
    const Floats parameters = parameters_of_net<Net>(), images = random(4 * Net::input_shape.size(), 1.0, 9);
    const std::vector<std::int32_t> labels{0, 1, 2, 3};
    const auto gradients = [&](bool accumulate) {
        std::vector<std::unique_ptr<Replica>> replicas;
        const PlanOptions options{.batch = 2, .synchronized = true};
        for (const std::int64_t r : {0, 1}) {
            replicas.push_back(
                Replica::make<Net>(options, images.data() + 2 * r * Net::input_shape.size(), labels.data() + 2 * r));
        }
        run<Net>(replicas, parameters, accumulate);
        return replicas[1]->gradients;
    };
    const Floats alone = gradients(false), added = gradients(true);
    for (const LayerInfo& layer : Net::layers) {
        for (std::size_t p = 0; p < layer.parameters.count; ++p) {
            for (std::int64_t i = 0; i < layer.parameters.list[p].shape.size(); ++i) {
                const auto at = static_cast<std::size_t>(layer.offsets[p] + i);
                REQUIRE(added[at] == doctest::Approx(0.5F + alone[at]).epsilon(1e-5));
            }
        }
    }
}

TEST_CASE("a network without statistics to share is one segment") {
    HostContext context(0, {});
    const PlanOptions options{.batch = 2, .synchronized = true};
    CHECK(Plan<Host>::make<WithoutNorm>(context, options).all_reduces() == 0);
    CHECK(Plan<Host>::make<ResNet<8>>(context, options).all_reduces() == 7);
}
