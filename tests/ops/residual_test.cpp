// SPDX-License-Identifier: Apache-2.0
//
// The two ends of a residual block: Add masks once and hands its gradient to both inputs, wherever they lie; Fork adds
// the gradients of its readers.
#include "../test.hpp"

#include <cupola/ops/residual.hpp>

#include "../devices.hpp"
#include "../reference/compare.hpp"

namespace {

constexpr Shape shape{3, 5, 7};
constexpr std::int64_t batch = 50, count = batch * 3 * 5 * 7;  // more than a block

template <class T>
const std::vector<T> nothing(static_cast<std::size_t>(count), T(std::numeric_limits<float>::quiet_NaN()));

template <class T>
std::vector<T> normal(std::uint64_t seed) {
    const reference::Floats values = reference::Random(seed).normal(count);
    std::vector<T> result;
    for (const float value : values) result.push_back(static_cast<T>(value));
    return result;
}

template <class Op, class T>
struct Made {
    HostContext context{0, {.threads = 2}};
    Op op;
    explicit Made(Activation activation = Activation::none, bool relu_mask_applied_by_next = false, bool adds = false)
        : op(BuildContext<Host, T>{.context = context,
                                   .batch = batch,
                                   .input = shape,
                                   .output = shape,
                                   .activation = activation,
                                   .relu_mask_applied_by_next = relu_mask_applied_by_next,
                                   .adds_second_gradient = adds}) {}
};

}  // namespace

TEST_CASE_TEMPLATE("a sum is a plain sum, with a fused ReLU cut at zero, and propagates a NaN", T, float, BFloat16) {
    const std::uint64_t seed = reference::fresh_seed();
    CAPTURE(seed);
    const std::vector<T> a = normal<T>(seed);
    std::vector<T> b = normal<T>(seed + 1);
    b[11] = T(std::nanf(""));
    for (const Activation activation : {Activation::none, Activation::relu}) {
        Made<ops::Add<Host, T>, T> add(activation);
        std::vector<T> y = nothing<T>;
        ForwardArgs<Host, T> args{.context = add.context};
        args.input = a.data(), args.second_input = b.data(), args.output = y.data();
        add.op.forward(args);
        for (std::size_t i = 0; i < y.size(); ++i) {
            const float sum = static_cast<T>(static_cast<float>(a[i]) + static_cast<float>(b[i]));
            const float result = y[i];
            if (i == 11) {
                REQUIRE(std::isnan(result));
            } else {
                REQUIRE(result == (activation == Activation::relu ? std::max(sum, 0.0F) : sum));
            }
        }
    }
}

TEST_CASE_TEMPLATE(
    "both inputs of a sum get the gradient, masked once, in place or not, or only one if only one is needed", T, float,
    BFloat16) {
    const std::uint64_t seed = reference::fresh_seed();
    CAPTURE(seed);
    const std::vector<T> dy = normal<T>(seed);
    std::vector<T> y = normal<T>(seed + 1);
    for (T& value : y) value = T(std::max<float>(value, 0.0F));
    const auto equal = [](const std::vector<T>& x, const std::vector<T>& z) {
        return std::memcmp(x.data(), z.data(), x.size() * sizeof(T)) == 0;
    };
    const auto untouched = [](const std::vector<T>& x) { return std::isnan(static_cast<float>(x[0])); };
    for (const bool relu : {false, true}) {
        for (const bool relu_mask_applied_by_next : {false, true}) {
            Made<ops::Add<Host, T>, T> add(relu ? Activation::relu : Activation::none, relu_mask_applied_by_next);
            std::vector<T> expected = dy;
            for (std::size_t i = 0; relu && !relu_mask_applied_by_next && i < expected.size(); ++i) {
                expected[i] = static_cast<float>(y[i]) > 0 ? dy[i] : T{};
            }
            for (const int wanted : {0, 1, 2, 3, 4, 5}) {
                CAPTURE(wanted);
                std::vector<T> gradient = dy, first = nothing<T>, second = nothing<T>;
                BackwardArgs<Host, T> args{{.context = add.context}};
                args.output = y.data(), args.output_gradient = gradient.data();
                if (wanted == 0 || wanted == 1 || wanted == 3) args.input_gradient = first.data();
                if (wanted == 0 || wanted == 2) args.second_input_gradient = second.data();
                if (wanted == 3) args.second_input_gradient = gradient.data();
                if (wanted == 5) args.input_gradient = gradient.data();
                add.op.backward(args);
                CHECK((wanted == 0 || wanted == 1 || wanted == 3 ? equal(first, expected) : untouched(first)));
                CHECK((wanted == 0 || wanted == 2 ? equal(second, expected) : untouched(second)));
                if (wanted == 3 || wanted == 5) CHECK(equal(gradient, expected));
            }
        }
    }
}

TEST_CASE_TEMPLATE("a sum adds its second gradient to what is there, and writes its first", T, float, BFloat16) {
    const std::uint64_t seed = reference::fresh_seed();
    CAPTURE(seed);
    const std::vector<T> dy = normal<T>(seed), before = normal<T>(seed + 1);
    std::vector<T> y = normal<T>(seed + 2);
    for (T& value : y) value = T(std::max<float>(value, 0.0F));
    for (const bool relu : {false, true}) {
        for (const bool relu_mask_applied_by_next : {false, true}) {
            for (const bool first_wanted : {false, true}) {
                Made<ops::Add<Host, T>, T> add(relu ? Activation::relu : Activation::none, relu_mask_applied_by_next,
                                               true);
                std::vector<T> gradient = dy, first = nothing<T>, second = before;
                BackwardArgs<Host, T> args{{.context = add.context}};
                args.output = y.data(), args.output_gradient = gradient.data();
                if (first_wanted) args.input_gradient = first.data();
                args.second_input_gradient = second.data();
                add.op.backward(args);
                for (std::size_t i = 0; i < dy.size(); ++i) {
                    const bool passes = !relu || relu_mask_applied_by_next || static_cast<float>(y[i]) > 0;
                    const float gradient_here = passes ? static_cast<float>(dy[i]) : 0.0F;
                    const float sum = static_cast<T>(static_cast<float>(before[i]) + gradient_here);
                    REQUIRE(static_cast<float>(second[i]) == sum);
                    if (first_wanted) REQUIRE(static_cast<float>(first[i]) == gradient_here);
                }
            }
        }
    }
}

TEST_CASE_TEMPLATE("a fork adds the gradients of its two readers, in the memory of the first", T, float, BFloat16) {
    const std::uint64_t seed = reference::fresh_seed();
    CAPTURE(seed);
    std::vector<T> a = normal<T>(seed);
    const std::vector<T> b = normal<T>(seed + 1), before = a;
    Made<ops::Fork<Host, T>, T> fork;
    BackwardArgs<Host, T> args{{.context = fork.context}};
    args.output_gradient = a.data(), args.second_output_gradient = b.data();
    fork.op.backward(args);  // no gradient of the input is needed
    for (std::size_t i = 0; i < a.size(); ++i) REQUIRE(static_cast<float>(a[i]) == static_cast<float>(before[i]));
    args.input_gradient = a.data();
    fork.op.backward(args);
    for (std::size_t i = 0; i < a.size(); ++i) {
        const float sum = static_cast<T>(static_cast<float>(before[i]) + static_cast<float>(b[i]));
        REQUIRE(static_cast<float>(a[i]) == sum);
    }
}
