// SPDX-License-Identifier: Apache-2.0
#include <cupola/net/memory_plan.hpp>

#include "../test.hpp"

#include <cupola/core/philox.hpp>
#include <cupola/layers/upsample2d.hpp>
#include <cupola/net/plan.hpp>

#include "throws_with.hpp"
#include "tutorial.hpp"

namespace {

/// No arena can be smaller than what is alive at one time.
std::size_t lower_bound(const std::vector<Lifetime>& lifetimes, std::size_t times) {
    std::size_t peak = 0;
    for (std::size_t t = 0; t < times; ++t) {
        std::size_t alive = 0;
        for (const Lifetime& l : lifetimes) {
            if (l.bytes > 0 && l.first <= t && t <= l.last) alive += l.bytes;
        }
        peak = std::max(peak, alive);
    }
    return peak;
}

bool any_overlap(const std::vector<Lifetime>& lifetimes) {
    for (std::size_t a = 0; a < lifetimes.size(); ++a) {
        for (std::size_t b = 0; b < a; ++b) {
            const Lifetime &x = lifetimes[a], &y = lifetimes[b];
            if (x.bytes == 0 || y.bytes == 0 || x.last < y.first || y.last < x.first) continue;
            if (x.offset < y.offset + y.bytes && y.offset < x.offset + x.bytes) return true;
        }
    }
    return false;
}

}  // namespace

TEST_CASE("tensors alive at the same time never share bytes, whatever their sizes and lifetimes") {
    for (std::uint64_t round = 0; round < 200; ++round) {
        CAPTURE(round);
        std::vector<Lifetime> lifetimes(30);
        for (std::size_t i = 0; i < lifetimes.size(); ++i) {
            const auto words = RandomStream(1, RngDomain::user, static_cast<std::uint32_t>(round), i).words(0);
            const std::size_t first = words[0] % 20;
            lifetimes[i] = {(words[1] % 5) * 64, first, first + words[2] % 10, 0};
        }
        const std::size_t total = place(lifetimes);
        CHECK_FALSE(any_overlap(lifetimes));
        CHECK(total >= lower_bound(lifetimes, 40));
        for (const Lifetime& l : lifetimes) CHECK(l.offset + l.bytes <= total);
    }
}

TEST_CASE("the tutorial network's arena has the smallest possible size, in training and in evaluation") {
    std::vector<NodeInfo> nodes(tutorial::Net::layer_count);
    nodes.resize(fuse(tutorial::Net::layers, true, nodes));
    for (const bool training : {true, false}) {
        std::vector<Lifetime> lifetimes(lifetimes_of(nodes.size()));
        const std::size_t total = plan_activations(nodes, 128, training, false, lifetimes);
        CHECK_FALSE(any_overlap(lifetimes));
        CHECK(total == lower_bound(lifetimes, lifetimes_of(nodes.size())));
        CHECK(total == activation_bytes<tutorial::Net>(128, training));
    }
}

TEST_CASE("views share memory, and the gradient of the batch is planned only on request") {
    struct Views : Sequential<Input<2, 2, 1>, Flatten, Linear<4>, Flatten, Linear<2>> {};
    std::vector<NodeInfo> nodes(Views::layer_count);
    nodes.resize(fuse(Views::layers, true, nodes));
    CHECK(storage_of(nodes, 1) == 0);  // a view of the batch itself
    CHECK(storage_of(nodes, 3) == 2);
    std::vector<Lifetime> without(lifetimes_of(nodes.size())), with = without;
    plan_activations(nodes, 3, true, false, without);
    plan_activations(nodes, 3, true, true, with);
    CHECK(without[gradient_entry(nodes, 0)].bytes == 0);
    CHECK(with[gradient_entry(nodes, 0)].bytes == aligned(3 * 4 * sizeof(float)));
}

TEST_CASE("a second input that backward reads is kept until then") {
    // A sum of the outputs of the first two nodes, and a node after it; none of the others reads anything in backward.
    std::vector<NodeInfo> nodes(4, {.input = {3},
                                    .output = {3},
                                    .backward_reads_input = false,
                                    .backward_reads_output = false,
                                    .has_parameters = true});
    for (std::size_t i = 0; i < nodes.size(); ++i) nodes[i].reads = i;
    nodes[2].also_reads = 1;
    std::vector<Lifetime> without(lifetimes_of(nodes.size())), with = without;
    plan_activations(nodes, 5, true, false, without);
    CHECK(without[1].last == 2);
    nodes[2].backward_reads_second_input = true;
    plan_activations(nodes, 5, true, false, with);
    CHECK(with[1].last == 6);
    CHECK_FALSE(any_overlap(with));
    CHECK(second_input_of(nodes, 2) == Shape{3});
    CHECK(second_input_of(nodes, 3) == Shape{});
}

TEST_CASE("a batch whose activations would be counted beyond 64 bits is an OutOfMemory with the true number") {
    struct Large : Sequential<Input<1, 1, 1 << 12>, Upsample2d<1 << 12>, Conv2d<2, 1>, GlobalAvgPool2d> {};
    constexpr std::int64_t most = std::int64_t{1} << 36;
    // The upsampled sample is 2^36 floats; that of the convolution is 2^25, as is its gradient, which takes its place; the
    // means and their gradients are 8 bytes each.
    constexpr std::size_t sample = (std::size_t{1} << 38) + (std::size_t{1} << 27) + 16;
    CHECK(activation_bytes<Large>(1 << 12) == sample << 12);
    const std::string expected =
        "the activations of a batch of 68719476736 samples need 18898689304614.9 GB, more than any computer has";
    CHECK(message_of<OutOfMemory>([] { static_cast<void>(activation_bytes<Large>(most)); }) == expected);
    CHECK(message_of<OutOfMemory>(
              [] { DataParallel<Large, CrossEntropy<2>, Sgd, ConcatMean, Host>({.batch_size = most}); }) == expected);
}
