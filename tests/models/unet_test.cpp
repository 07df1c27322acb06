// SPDX-License-Identifier: Apache-2.0
//
// UNet: its layers, and what it computes, forward and backward, against an oracle in double.
#include "../test.hpp"

#include <cupola/models/unet.hpp>
#ifndef CUPOLA_TEST_CUDA
#include <cupola/host.hpp>
#include <cupola/loss/cross_entropy.hpp>
#include <cupola/net/summary.hpp>
#include <cupola/optim/adam.hpp>
#include <cupola/parallel/concat_mean.hpp>
#include <cupola/parallel/data_parallel.hpp>

#include "../benchmarks/shapes.hpp"
#endif

#include "../devices.hpp"
#include "../net/graph_run.hpp"

using namespace graph_run;

namespace {

using Large = UNet<64, 64, 1, 4>;
static_assert(Large::output_shape == Shape{64, 64, 4} && Large::layer_count == 3 * 6 + 4 + 3 * 6 + 1);
static_assert(Large::layers[6].input == Shape{32, 32, 16} && Large::layers[18].input == Shape{8, 8, 64});
static_assert(Large::layers[0].name == "down0.conv1" && Large::layers[14].name == "down2.conv2");
static_assert(Large::layers[20].name == "bottom.conv2" && Large::layers[24].name == "up2.conv1");
static_assert(Large::layers[24].input == Shape{16, 16, 128 + 64} && Large::layers[36].input == Shape{64, 64, 48});

template <std::int64_t height, std::int64_t width, std::int64_t depth>
struct Computed : UNet<height, width, 3, 2, 3, depth> {
    static std::size_t compute(Oracle& o, std::size_t x) {
        std::int64_t h = height, w = width;
        const auto twice = [&](std::size_t v) {
            for (int i = 0; i < 2; ++i) v = o.activation<ReLU>(o.convolution(v, h, w));
            return v;
        };
        std::array<std::size_t, depth> skips{};
        for (std::size_t& skip : skips) {
            skip = twice(x);
            x = o.max_pool(skip, h, w);
            h /= 2;
            w /= 2;
        }
        x = twice(x);
        for (std::size_t level = depth; level-- > 0;) {
            x = o.upsample(x, w);
            h *= 2;
            w *= 2;
            x = twice(o.concatenation(x, skips[level]));
        }
        return o.convolution(x, h, w);
    }
};

}  // namespace

TYPED_TEST_CASE("UNet computes what the oracle does, forward and backward", D, Devices) {
    agrees<Computed<8, 12, 2>, D>(2, 2e-5);
    agrees<Computed<4, 2, 1>, D>(1, 2e-5);
    agrees<Unfused<Computed<4, 2, 1>>, D>(3, 2e-5);
}

#ifndef CUPOLA_TEST_CUDA

TEST_CASE("a small UNet learns the classes of pixels") {
    struct Net : UNet<shapes::side, shapes::side, 1, shapes::classes, 6, 2> {};
    DataParallel<Net, CrossEntropy<shapes::classes>, Adam, ConcatMean, Host> training(
        {.device = {.threads = 2}, .batch_size = 4, .seed = 1, .optimizer = {.learning_rate = 3e-3}});
    double first = 0, last = 0;
    constexpr std::uint32_t steps = 60, counted = 10;
    for (std::uint32_t i = 0; i < steps; ++i) {
        const shapes::Batch drawn(4 * i, 4);
        const std::vector<BatchView> batch{
            {4,
             {{{"input", ElementType::float32, Net::input_shape}, drawn.images.data()},
              {{"target", ElementType::int32, {shapes::side, shapes::side}}, drawn.labels.data()}}}};
        const double loss = training.step(batch).loss;
        if (i < counted) first += loss / counted;
        if (i >= steps - counted) last += loss / counted;
    }
    // The shares of the classes alone give a loss of 0.62.
    CHECK(first > 0.8);
    CHECK(last < 0.3);
}

TEST_CASE("the summary of a UNet shows its skips") {
    const std::string table = summary<Large>(8);
    for (const char* part : {"Keep<down0>", "ConcatWith<down2>", "Upsample2d 2 x 2", "head"}) {
        CAPTURE(part);
        CHECK(table.find(part) != std::string::npos);
    }
}

#endif
