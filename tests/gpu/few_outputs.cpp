// SPDX-License-Identifier: Apache-2.0
//
// Backward of a linear layer with few outputs, on the emulator, against sums in double: with and without each of its results, the
// masks of both ReLUs, and several slabs of rows.
#include "../test.hpp"

#include <cupola/cuda.hpp>
#include <cupola/ops/cuda/impl/few_outputs.cuh>

#include "../reference/compare.hpp"

using reference::at, reference::Floats, reference::values;

namespace {

/// The sum of a result over the slabs, which begins at element `first` of each.
double over_slabs(const Floats& parts, std::int64_t slabs, std::int64_t size, std::int64_t i) {
    double sum = 0;
    for (std::int64_t s = 0; s < slabs; ++s) sum += at(parts, s * size + i);
    return sum;
}

/// Each slab has `chunks` chunks of rows, or as many as a layer chooses if that is 0.
template <class T>
void check(std::int64_t rows, int inputs, int outputs, bool own_mask, bool masks_input, bool gradients,
           std::int64_t chunks = 0) {
    CAPTURES(rows, inputs, outputs, own_mask, masks_input, gradients);
    CudaContext cuda(0, {});
    impl::FewOutputs slabs = impl::FewOutputs::of(rows);
    if (chunks > 0) {
        slabs.rows_per_slab = chunks * impl::FewOutputs::chunk_rows;
        slabs.slabs = (rows + slabs.rows_per_slab - 1) / slabs.rows_per_slab;
    }
    const std::vector<T> x = values<T>(rows * inputs, 1), y = values<T>(rows * outputs, 2),
                         dy = values<T>(rows * outputs, 3), w = values<T>(inputs * outputs, 4);
    std::vector<T> dx(x.size(), T(7.0F));
    Floats of_weight(static_cast<std::size_t>(slabs.slabs * inputs * outputs), 9.0F),
        of_bias(static_cast<std::size_t>(slabs.slabs * outputs), 9.0F),
        of_input(static_cast<std::size_t>(slabs.slabs * inputs), 9.0F);
    impl::queue_few_outputs_backward<T>(cuda, {.slabs = slabs,
                                               .inputs = inputs,
                                               .outputs = outputs,
                                               .input = x.data(),
                                               .output = own_mask ? y.data() : nullptr,
                                               .gradient = dy.data(),
                                               .weight = w.data(),
                                               .input_gradient = dx.data(),
                                               .masks_input = masks_input,
                                               .weight_parts = gradients ? of_weight.data() : nullptr,
                                               .bias_parts = gradients ? of_bias.data() : nullptr,
                                               .input_parts = masks_input ? of_input.data() : nullptr});
    cuda.synchronize();
    const auto gradient = [&](std::int64_t r, std::int64_t o) {
        return own_mask && !(at(y, r * outputs + o) > 0) ? 0.0 : at(dy, r * outputs + o);
    };
    constexpr double rounding = sizeof(T) == 4 ? 1e-6 : std::is_same_v<T, BFloat16> ? 1.0 / 128 : 1.0 / 1024;
    for (std::int64_t i = 0; i < inputs; ++i) {
        double sum_of_input = 0, size_of_sum = 0;
        for (std::int64_t r = 0; r < rows; ++r) {
            double expected = 0, size = 0;
            for (std::int64_t o = 0; o < outputs; ++o) {
                expected += gradient(r, o) * at(w, o * inputs + i);
                size += std::abs(gradient(r, o) * at(w, o * inputs + i));
            }
            if (masks_input && !(at(x, r * inputs + i) > 0)) expected = size = 0;
            REQUIRE(std::abs(at(dx, r * inputs + i) - expected) <= rounding * size);
            // The sums are of what is stored.
            sum_of_input += at(dx, r * inputs + i);
            size_of_sum += std::abs(at(dx, r * inputs + i));
        }
        if (masks_input)
            REQUIRE(std::abs(over_slabs(of_input, slabs.slabs, inputs, i) - sum_of_input) <= 1e-6 * size_of_sum);
        for (std::int64_t o = 0; o < outputs && gradients; ++o) {
            double expected = 0, size = 0;
            for (std::int64_t r = 0; r < rows; ++r) {
                expected += gradient(r, o) * at(x, r * inputs + i);
                size += std::abs(gradient(r, o) * at(x, r * inputs + i));
            }
            REQUIRE(std::abs(over_slabs(of_weight, slabs.slabs, inputs * outputs, o * inputs + i) - expected) <=
                    2e-6 * size);
        }
    }
    for (std::int64_t o = 0; o < outputs && gradients; ++o) {
        double expected = 0, size = 0;
        for (std::int64_t r = 0; r < rows; ++r) {
            expected += gradient(r, o);
            size += std::abs(gradient(r, o));
        }
        REQUIRE(std::abs(over_slabs(of_bias, slabs.slabs, outputs, o) - expected) <= 1e-6 * size);
    }
    if (!gradients) CHECK(of_weight[0] == 9.0F);
    if (!masks_input) CHECK(of_input[0] == 9.0F);
}

}  // namespace

TEST_CASE_TEMPLATE("backward of a layer with few outputs is that of sums in double", T, float, BFloat16, Float16) {
    for (const bool masked : {false, true}) {
        for (const std::int64_t rows : {1, 31, 128, 129, 300}) check<T>(rows, 20, 10, masked, !masked, true);
        // Slabs of several chunks, as more than 1,024 x 128 rows have them.
        for (const std::int64_t chunks : {2, 3}) check<T>(700, 20, 10, masked, !masked, true, chunks);
        for (const int outputs : {1, 7, 16}) {
            check<T>(40, 1, outputs, masked, masked, true);
            check<T>(40, 9, outputs, masked, masked, false);
        }
    }
}

TEST_CASE("the rows of a layer with few outputs are in at most 1,024 slabs, of whole chunks") {
    CHECK(impl::FewOutputs::of(0).slabs == 1);
    CHECK(impl::FewOutputs::of(128).slabs == 1);
    CHECK(impl::FewOutputs::of(129).slabs == 2);
    CHECK(impl::FewOutputs::of(1024 * 128).slabs == 1024);
    const impl::FewOutputs many = impl::FewOutputs::of(1024 * 128 + 1);
    CHECK(many.rows_per_slab == 256);
    CHECK(many.slabs == 513);
}
