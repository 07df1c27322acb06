// SPDX-License-Identifier: Apache-2.0
//
// The work of a training step on `Cuda` besides the network, on the emulator: the batch, sums and means, constants passed by
// value, and updates that read their constants, their state and the step number from the device, compared with updates that
// take them by value.
#include "../test.hpp"

#include <cupola/cuda.hpp>
#include <cupola/device/cuda/step_constants.hpp>
#include <cupola/host.hpp>
#include <cupola/ops/cuda/training_step.hpp>
#include <cupola/optim/clipped.hpp>
#include <cupola/optim/moving_average.hpp>
#include <cupola/optim/update_parameters.hpp>
#include <cupola/optimizers.hpp>

#include "../reference/compare.hpp"
#include "../throws_with.hpp"

using reference::distance, reference::Floats, reference::same_bits;

namespace {

Floats normal(std::int64_t count, std::uint64_t seed) { return reference::Random(seed).normal(count); }

/// Offsets at which an array begins: a multiple of 16 bytes, and one element behind it.
constexpr std::size_t starts[] = {0, 1};

}  // namespace

TEST_CASE("a batch is copied bit for bit, and no batch once the training is not healthy") {
    CudaContext cuda(0, {});
    for (const auto& [size, features] : {std::pair<std::int64_t, std::int64_t>{1, 1}, {3, 7}, {4, 8}, {5, 1001}}) {
        for (const std::size_t start : starts) {
            CAPTURES(size, features, start);
            const auto floats = static_cast<std::size_t>(size * features), labels = static_cast<std::size_t>(size);
            Floats samples = normal(static_cast<std::int64_t>(start + floats), 1);
            samples[start] = std::bit_cast<float>(0x7FC0'1234U);  // a NaN with a payload
            std::vector<std::int32_t> classes(labels);
            for (std::size_t i = 0; i < labels; ++i) classes[i] = static_cast<std::int32_t>(i) - 1;
            const BatchView batch{samples.data() + start, classes.data(), size, Shape{features}};
            Floats to(start + floats + 1, 9.0F);
            std::vector<std::int32_t> to_labels(labels + 1, 99);
            BatchSpan taken(batch.columns());
            taken.set_data(0, reinterpret_cast<std::byte*>(to.data() + start));
            taken.set_data(1, reinterpret_cast<std::byte*>(to_labels.data()));
            std::int32_t healthy = 0;
            impl::queue_take_batch(cuda, batch, taken, &healthy);
            cuda.synchronize();
            CHECK(to == Floats(to.size(), 9.0F));
            CHECK(to_labels == std::vector<std::int32_t>(labels + 1, 99));
            healthy = 1;
            impl::queue_take_batch(cuda, batch, taken, &healthy);
            cuda.synchronize();
            CHECK(to.back() == 9.0F);
            CHECK(to_labels.back() == 99);
            to.pop_back();
            to_labels.pop_back();
            samples.front() = to.front();  // not a part of the batch if the batch begins behind it
            if (start == 0) CHECK(std::bit_cast<std::uint32_t>(to.front()) == 0x7FC0'1234U);
            CHECK(same_bits(to, samples));
            CHECK(to_labels == classes);
        }
    }
}

TEST_CASE("columns of any number of bytes are copied, from any address, first or not, and nothing beside them") {
    CudaContext cuda(0, {});
    for (const std::int64_t pixels : {1, 3, 4, 5, 64, 67}) {
        for (const std::int64_t size : {1, 2, 7}) {
            for (const std::size_t start : {std::size_t{0}, std::size_t{1}, std::size_t{4}}) {
                for (const bool first : {true, false}) {
                    CAPTURES(pixels, size, start, first);
                    const auto bytes = static_cast<std::size_t>(pixels * size),
                               ids = static_cast<std::size_t>(3 * size);
                    alignas(16) std::uint8_t from[7 * 67 + 8], to[7 * 67 + 1];
                    std::int32_t ids_from[21], ids_to[22];
                    for (std::size_t i = 0; i < sizeof from; ++i) from[i] = static_cast<std::uint8_t>(i * 31 + 5);
                    for (std::size_t i = 0; i < 21; ++i) ids_from[i] = static_cast<std::int32_t>(i * 1'000'003);
                    std::fill(std::begin(to), std::end(to), std::uint8_t{9});
                    std::fill(std::begin(ids_to), std::end(ids_to), 9);
                    const Column image{{"image", ElementType::uint8, {pixels}}, from + start},
                        words{{"words", ElementType::int32, {3}}, ids_from};
                    const BatchView batch = first ? BatchView(size, {image, words}) : BatchView(size, {words, image});
                    BatchSpan taken(batch.columns());
                    taken.set_data(first ? 0 : 1, reinterpret_cast<std::byte*>(to));
                    taken.set_data(first ? 1 : 0, reinterpret_cast<std::byte*>(ids_to));
                    const std::int32_t healthy = 1;
                    impl::queue_take_batch(cuda, batch, taken, &healthy);
                    cuda.synchronize();
                    CHECK(std::equal(to, to + bytes, from + start));
                    CHECK(to[bytes] == 9);
                    CHECK(std::equal(ids_to, ids_to + ids, ids_from));
                    CHECK(ids_to[ids] == 9);
                }
            }
        }
    }
}

TEST_CASE("a weighted sum adds the rows in their order, and one of weight 1 keeps its bits") {
    CudaContext cuda(0, {});
    for (const std::size_t rows : {0UL, 1UL, 2UL, 5UL, 64UL}) {
        for (const std::int64_t count : {1, 3, 4, 1003}) {
            for (const std::size_t start : starts) {
                std::vector<Floats> of;
                std::vector<const float*> from;
                Floats weights;
                for (std::size_t r = 0; r < rows; ++r) {
                    of.push_back(normal(count + static_cast<std::int64_t>(start), r));
                    weights.push_back(rows == 1 ? 1.0F : static_cast<float>(r + 100));
                }
                for (const Floats& row : of) from.push_back(row.data() + start);
                Floats to(start + static_cast<std::size_t>(count) + 1, 7.0F), beside(1);
                impl::queue_weighted_sum(cuda, from, weights,
                                         std::span(to).subspan(start, static_cast<std::size_t>(count)),
                                         {.to = beside.data(), .value = static_cast<float>(count)});
                cuda.synchronize();
                CHECK(to.back() == 7.0F);
                CHECK(beside[0] == static_cast<float>(count));
                bool close = true;
                for (std::size_t i = start; i + 1 < to.size(); ++i) {
                    double sum = 0, size = 0;
                    for (std::size_t r = 0; r < rows; ++r) {
                        const double part = static_cast<double>(weights[r]) * static_cast<double>(of[r][i]);
                        sum += part;
                        size += std::abs(part);
                    }
                    close =
                        close && (rows < 2 ? to[i] == static_cast<float>(sum) : std::abs(to[i] - sum) <= 1e-5 * size);
                }
                CHECK(close);
            }
        }
    }
    const std::vector<const float*> many(65);
    const Floats weights(65);
    Floats to(1);
    CHECK(message_of<InvalidArgument>([&] { impl::queue_weighted_sum(cuda, many, weights, to); }) ==
          "a sum on Cuda takes at most 64 rows and one weight per row, not 65 rows and 65 weights");
}

TEST_CASE("a weighted sum in bfloat16 is that in float, rounded once") {
    CudaContext cuda(0, {});
    for (const std::int64_t count : {1, 3, 4, 8, 1003}) {
        for (const std::size_t start : starts) {
            const auto size = start + static_cast<std::size_t>(count);
            std::vector<float> one(size), other(size), sums(size);
            for (std::size_t i = 0; i < size; ++i) {
                one[i] = 0.37F * static_cast<float>(i) - 5.0F;
                other[i] = 1e-3F * static_cast<float>(i * i % 977);
            }
            std::vector<BFloat16> rounded(size + 1, BFloat16(7.0F));
            Floats beside{5.0F, 0.0F};
            const float* const rows[] = {one.data() + start, other.data() + start};
            const float weights[] = {3.0F, 17.0F};
            const auto columns = static_cast<std::size_t>(count);
            impl::queue_weighted_sum(cuda, rows, weights, std::span(sums).subspan(start, columns));
            impl::queue_weighted_sum(cuda, rows, weights, std::span(rounded).subspan(start, columns),
                                     {.to = &beside[1], .from = &beside[0]});
            cuda.synchronize();
            CHECK(beside[1] == 5.0F);
            for (std::size_t i = start; i < size; ++i) REQUIRE(rounded[i].bits == BFloat16(sums[i]).bits);
            CHECK(static_cast<float>(rounded.back()) == 7.0F);
        }
    }
}

TEST_CASE("the mean divides by the samples, keeps the bits for a divisor of one, and detects non-finite values") {
    CudaContext cuda(0, {});
    const float infinity = std::numeric_limits<float>::infinity();
    for (const std::int64_t count : {1, 3, 4, 7, 1003}) {
        for (const std::size_t start : starts) {
            const Floats sums = normal(count + static_cast<std::int64_t>(start), 3);
            const auto mean_of = [&](Floats values, float samples, std::int32_t& healthy, bool in_place) {
                Floats to = in_place ? values : Floats(values.size(), 5.0F);
                const std::span<const float> from = std::span(std::as_const(in_place ? to : values)).subspan(start);
                impl::queue_mean(cuda, from, &samples, std::span(to).subspan(start), &healthy);
                cuda.synchronize();
                return Floats(to.begin() + static_cast<std::ptrdiff_t>(start), to.end());
            };
            for (const bool in_place : {false, true}) {
                for (const std::int32_t before : {0, 1}) {
                    std::int32_t healthy = before;
                    const Floats same = mean_of(sums, 1, healthy, in_place),
                                 third = mean_of(sums, 3, healthy, in_place);
                    CHECK(healthy == before);
                    CHECK(same_bits(same, Floats(sums.begin() + static_cast<std::ptrdiff_t>(start), sums.end())));
                    CHECK(third.back() == sums.back() / 3);
                }
            }
            for (const float bad : {infinity, -infinity, std::nanf("")}) {
                for (const std::size_t place : {start, sums.size() - 1}) {
                    Floats broken = sums;
                    broken[place] = bad;
                    std::int32_t healthy = 1;
                    static_cast<void>(mean_of(broken, 2, healthy, false));
                    CHECK(healthy == 0);
                }
                std::int32_t healthy = 1;
                static_cast<void>(mean_of(sums, bad, healthy, false));
                CHECK(healthy == 0);
            }
            std::int32_t healthy = 1;
            static_cast<void>(mean_of(sums, 0, healthy, false));
            CHECK(healthy == 0);
        }
    }
}

TEST_CASE("a mean that is not finite names the last such element of each row that it comes from") {
    CudaContext cuda(0, {});
    const float infinity = std::numeric_limits<float>::infinity(), one = 1;
    const std::size_t count = 1003;
    for (const std::size_t start : starts) {
        // The mean of three rows, from element 2 on.
        Floats rows(3 * (count + 2), 1.0F), mean(start + count, 1.0F);
        const std::size_t row = count + 2, bad[] = {0, 2, 5, 600, count - 1};
        for (const std::size_t i : bad) mean[start + i] = i == 5 ? std::nanf("") : infinity;
        rows[2 + 2] = rows[2 + 600] = rows[2 + 601] = infinity;  // element 601 of the mean is finite
        rows[row + 1] = infinity;                                // outside the mean
        rows[2 * row + 2 + 5] = std::nanf("");
        unsigned long long ends[] = {0, 0, 9};
        std::int32_t healthy = 1;
        const std::span<float> to = std::span(mean).subspan(start);
        impl::queue_mean(cuda, to, &one, to, &healthy,
                         {.rows = rows.data() + 2,
                          .stride = static_cast<std::int64_t>(row),
                          .count = 3,
                          .first_column = 2,
                          .ends = ends});
        cuda.synchronize();
        CHECK(healthy == 0);
        CHECK(ends[0] == 603);
        CHECK(ends[1] == 0);
        CHECK(ends[2] == 9);
    }
}

TEST_CASE("scalars and constants are passed by value, and a report is copied as a whole") {
    CudaContext cuda(0, {});
    std::uint32_t place = 0;
    for (std::uint32_t value : {5U, 6U}) {
        impl::queue_set(cuda, &place, value);
        value = 0;
        cuda.synchronize();
    }
    CHECK(place == 6);
    struct alignas(16) Place {
        std::byte bytes[12000]{};
    } device;
    struct FourteenFloats {
        float values[14];
    };
    for (const int count : {0, 1, 40, 100, 180}) {
        impl::StepConstants constants(device.bytes, sizeof device.bytes);
        constants.begin();
        for (int i = 0; i < count; ++i) constants.write(FourteenFloats{{static_cast<float>(i)}});
        impl::queue_constants(cuda, constants);
        const std::vector<std::byte> expected(constants.values().begin(), constants.values().end());
        constants.begin();  // the host may change its copy at once
        if (count > 0) constants.write(FourteenFloats{{-1.0F}});
        cuda.synchronize();
        CHECK(std::vector<std::byte>(device.bytes, device.bytes + expected.size()) == expected);
        CHECK(device.bytes[expected.size()] == std::byte{});
    }
    for (const std::size_t bytes :
         {std::size_t{1}, std::size_t{7}, sizeof(LossReport), std::size_t{64}, std::size_t{100}}) {
        alignas(16) std::byte from[101]{}, to[101]{};
        for (std::size_t i = 0; i < bytes; ++i) from[i] = static_cast<std::byte>(i + 1);
        impl::queue_copy_to_pinned(cuda, from, to, bytes);
        cuda.synchronize();
        CHECK(std::vector<std::byte>(from, from + 101) == std::vector<std::byte>(to, to + 101));
    }
}

TEST_CASE("an update of a captured step has the bits of one that is not captured, and does nothing if it must not") {
    CudaContext cuda(0, {});
    const std::vector<Segment> segments{{0, 33, 0.25, 2}, {48, 17, 0.0, 1}, {80, 1, 0.0, 1}};
    const std::int64_t elements = 96;
    const Floats w = normal(elements, 21), gradient = normal(elements, 22);
    struct alignas(16) Place {
        std::byte bytes[4096]{};
    };
    const auto same = [&](const char* name, const auto& optimizer) {
        CAPTURE(name);
        Floats state(static_cast<std::size_t>(elements) * 2, 0.5F);
        const MovingAverage averages{.decay = 0.9};
        const auto update_of = [&](Floats& parameters, Floats& moments, std::int64_t step) {
            return Update<Cuda>{.context = cuda,
                                .parameters = parameters.data(),
                                .gradient = gradient.data(),
                                .state = moments.data(),
                                .elements = elements,
                                .segments = segments,
                                .step = step};
        };
        const auto update = [&](Floats& parameters, Floats& moments, std::int64_t step) {
            update_parameters(optimizer, update_of(parameters, moments, step));
            averages.update<Cuda>(cuda, moments.data() + 50, parameters.data() + 50, 10, step + 1);
        };
        Place device;
        impl::StepConstants constants(device.bytes, sizeof device.bytes);
        std::int32_t healthy = 1;
        Floats plain = w, plain_state = state, captured = w, captured_state = state;
        for (std::int64_t step = 0; step < 3; ++step) {
            cuda.set_step_scalars({});
            update(plain, plain_state, step);
            cuda.set_step_scalars({.healthy = &healthy, .step = nullptr, .constants = &constants});
            const Floats before = captured, state_before = captured_state;
            constants.begin();
            const auto write = [&](std::string_view type, std::span<const std::byte> bytes) {
                constants.write(type, bytes);
            };
            ConstantsWriter writer(write);
            write_constants(optimizer, update_of(captured, captured_state, step), writer);
            constants.write(averages.constants(step + 1));
            cuda.synchronize();
            CHECK(same_bits(captured, before));
            CHECK(same_bits(captured_state, state_before));
            impl::queue_constants(cuda, constants);
            constants.rewind();
            // A captured graph contains the numbers of the first step; those on the device must be used.
            if (step == 2) {
                healthy = 0;
                update(captured, captured_state, 0);
                cuda.synchronize();
                CHECK(same_bits(captured, before));
                CHECK(same_bits(captured_state, state_before));
                healthy = 1;
                constants.rewind();
            }
            update(captured, captured_state, 0);
            cuda.synchronize();
            CHECK(same_bits(captured, plain));
            CHECK(same_bits(captured_state, plain_state));
        }
        cuda.set_step_scalars({});
    };
    const Schedule rate = exponential_decay(0.1, 1, 0.5);
    same("sgd", Sgd{.learning_rate = rate});
    same("momentum", Sgd{.learning_rate = rate, .momentum = 0.9, .nesterov = true, .weight_decay = 0.01});
    same("adam", Adam{.learning_rate = rate});
    same("rms_prop", RmsProp{.learning_rate = rate, .momentum = 0.9});
    same("lamb", Lamb{.learning_rate = rate, .weight_decay = 0.01});
    same("lars", Lars{.learning_rate = rate, .weight_decay = 0.01});
    same("clipped", Clipped<Sgd>{.optimizer = {.learning_rate = rate}, .max_norm = 2, .max_value = 0.3});
    const Clipped<Adam> clipped_adam{.optimizer = {.learning_rate = rate}, .max_norm = 2};
    same("clipped twice", Clipped<Clipped<Adam>>{.optimizer = clipped_adam, .max_norm = 3});
}

TEST_CASE("a norm that stays on the device clips as Host's does") {
    HostContext host(0, {.threads = 1});
    CudaContext cuda(0, {});
    const std::vector<Segment> segments{{0, 1000, 0.25, 2}, {1008, 17, 0.0, 1}};
    const std::int64_t elements = 1040;
    const Floats w = normal(elements, 21), gradient = normal(elements, 22);
    const auto stepped = [&]<class D>(typename D::Context& context, const auto& optimizer, const Floats& by) {
        Floats parameters = w;
        update_parameters(optimizer, Update<D>{.context = context,
                                               .parameters = parameters.data(),
                                               .gradient = by.data(),
                                               .elements = elements,
                                               .segments = segments});
        return parameters;
    };
    const auto agree = [&](const auto& optimizer, const Floats& by) {
        const Floats ours = stepped.template operator()<Cuda>(cuda, optimizer, by);
        cuda.synchronize();
        return distance(ours, stepped.template operator()<Host>(host, optimizer, by));
    };
    for (const double most : {0.001, 1.0, 30.0, 40.0, 1e6}) {
        CHECK(agree(Clipped<Sgd>{.optimizer = {}, .max_norm = most}, gradient) < 1e-6);
        CHECK(agree(Clipped<Clipped<Sgd>>{.optimizer = {.optimizer = {}, .max_norm = 2}, .max_norm = most}, gradient) <
              1e-6);
    }
    CHECK(agree(Clipped<Sgd>{.optimizer = {}, .max_norm = 1}, Floats(gradient.size())) < 1e-6);
    Floats broken = gradient;
    broken[5] = std::nanf("");
    const Floats result = stepped.template operator()<Cuda>(cuda, Clipped<Sgd>{.optimizer = {}, .max_norm = 1}, broken);
    cuda.synchronize();
    CHECK(std::isnan(result[5]));  // a NaN is not hidden
}

TEST_CASE_TEMPLATE("dropout reads the step number on the device in a captured step", T, float, BFloat16) {
    CudaContext cuda(0, {});
    for (const std::int64_t features : {8, 7}) {
        const Shape shape{1, 1, features};
        const std::vector<T> x(static_cast<std::size_t>(features) * 3, T(1.0F));
        const auto dropped = [&](std::uint32_t step) {
            std::vector<T> y(x.size());
            const ops::Dropout<Cuda, T> op(
                BuildContext<Cuda, T>{.context = cuda, .batch = 3, .input = shape, .output = shape, .layer = 2}, 0.5);
            ForwardArgs<Cuda, T> pass{.context = cuda, .input = x.data(), .output = y.data()};
            pass.training = true;
            pass.seed = 11;
            pass.step = step;
            op.forward(pass);
            cuda.synchronize();
            return Floats(y.begin(), y.end());
        };
        const Floats third = dropped(3), fourth = dropped(4);
        CHECK(third != fourth);
        std::uint32_t step = 3;
        cuda.set_step_scalars({.healthy = nullptr, .step = &step, .constants = nullptr});
        CHECK(dropped(4) == third);
        step = 4;
        CHECK(dropped(3) == fourth);
        cuda.set_step_scalars({});
    }
}
