// SPDX-License-Identifier: Apache-2.0
//
// Products of two tensors, and of one and a second with one position per sample, on either side: numbers of channels that fit a
// vector and that do not, positions in one part of the sum and in several, a second gradient that is written or added to.
#include "../test.hpp"

#include <cupola/ops/product.hpp>

#include "../devices.hpp"
#include "../reference/compare.hpp"
#include "operation_run.hpp"

using namespace operation_run;

namespace {

struct Factors {
    Shape first, second;
    std::int64_t batch;
};

/// Where an input of `own` elements per sample has the factor of element `i` of the output, which has `all`.
std::size_t place(std::size_t i, std::int64_t own, std::int64_t all, std::int64_t channels) {
    const auto size = static_cast<std::size_t>(all), c = static_cast<std::size_t>(channels);
    return own == all ? i : i / size * c + i % c;
}

template <class D>
void multiplies(const Factors& f, bool adds, int wanted, int threads) {
    using Device = DeviceOf<D>;
    using T = ElementOf<D>;
    const Shape output = f.first.size() < f.second.size() ? f.second : f.first;
    const std::int64_t all = output.size(), channels = output.channels();
    CAPTURES(f.first.size(), f.second.size(), f.batch, adds, wanted);
    reference::Random random(static_cast<std::uint64_t>(all));
    const Floats a = rounded<D>(random.normal(f.batch * f.first.size())),
                 b = rounded<D>(random.normal(f.batch * f.second.size())),
                 dy = rounded<D>(random.normal(f.batch * all)),
                 before = rounded<D>(random.normal(f.batch * f.second.size()));

    typename Device::Context context(0, device_options<Device>(threads));
    const auto bytes = [](const Floats& values) { return values.size() * sizeof(T); };
    Guarded<Device> first(context, bytes(a)), second(context, bytes(b)), result(context, bytes(dy)),
        output_gradient(context, bytes(dy)), first_gradient(context, bytes(a)), second_gradient(context, bytes(b));
    first.template write<T>(a);
    second.template write<T>(b);
    output_gradient.template write<T>(dy);
    if (adds) second_gradient.template write<T>(before);
    const ops::Product<Device, T> op(BuildContext<Device, T>{.context = context,
                                                             .batch = f.batch,
                                                             .input = f.first,
                                                             .output = output,
                                                             .adds_second_gradient = adds,
                                                             .second_input = f.second});
    Guarded<Device> scratch(context, op.needs().scratch, scratch_alignment<Device>);
    BackwardArgs<Device, T> args{{.context = context,
                                  .input = first.template data<T>(),
                                  .output = result.template data<T>(),
                                  .second_input = second.template data<T>(),
                                  .scratch = scratch.bytes()}};
    op.forward(args);
    args.output_gradient = output_gradient.template data<T>();
    if (wanted != 1) args.input_gradient = first_gradient.template data<T>();
    if (wanted != 0) args.second_input_gradient = second_gradient.template data<T>();
    op.backward(args);

    reference::Doubles y(dy.size()), da(a.size()), db(b.size());
    for (std::size_t i = 0; i < db.size() && adds; ++i) db[i] = static_cast<double>(before[i]);
    for (std::size_t i = 0; i < dy.size(); ++i) {
        const std::size_t at = place(i, f.first.size(), all, channels), bt = place(i, f.second.size(), all, channels);
        y[i] = static_cast<double>(a[at]) * static_cast<double>(b[bt]);
        da[at] += static_cast<double>(dy[i]) * static_cast<double>(b[bt]);
        db[bt] += static_cast<double>(dy[i]) * static_cast<double>(a[at]);
    }
    CHECK(reference::distance(result.template read<T>(), y) < tolerance<D>);
    const Floats of_first = first_gradient.template read<T>(), of_second = second_gradient.template read<T>();
    const auto is_as_before = [](const Floats& values) {
        return std::all_of(values.begin(), values.end(), [](float value) { return std::isnan(value); });
    };
    // A gradient that is not wanted is left as it is.
    if (wanted != 1) CHECK(reference::distance(of_first, da) < tolerance<D>);
    if (wanted == 1) CHECK(is_as_before(of_first));
    if (wanted != 0) CHECK(reference::distance(of_second, db) < tolerance<D>);
    if (wanted == 0 && adds) CHECK(reference::same_bits(of_second, before));
    if (wanted == 0 && !adds) CHECK(is_as_before(of_second));
    CHECK(reference::same_bits(first.template read<T>(), a));
    CHECK(reference::same_bits(second.template read<T>(), b));
    for (auto* tensor : {&first, &second, &result, &output_gradient, &first_gradient, &second_gradient, &scratch})
        CHECK(tensor->guards_intact());
}

}  // namespace

TYPED_TEST_CASE("a product hands each input the gradient times the other one, summed where that has one position", D,
                DevicesAndElements) {
    for (const int threads : thread_counts<D>()) {
        for (const Factors& f :
             {Factors{{5, 3, 16}, {5, 3, 16}, 4}, Factors{{7}, {7}, 1}, Factors{{5, 3, 32}, {32}, 4},
              Factors{{32}, {5, 3, 32}, 3}, Factors{{13, 11, 17}, {1, 1, 17}, 2}, Factors{{1, 1, 19}, {9, 15, 19}, 1},
              Factors{{1, 1, 5}, {5}, 3}, Factors{{8, 8, 40}, {40}, 2}, Factors{{1, 1, 1}, {1}, 1},
              Factors{{40, 33, 1}, {1}, 2}, Factors{{6, 4}, {4}, 3}}) {
            for (const bool adds : {false, true}) {
                for (const int wanted : {0, 1, 2}) multiplies<D>(f, adds, wanted, threads);
            }
        }
    }
}

TYPED_TEST_CASE("a product needs memory for sums in training, where an input has one position", D, DevicesAndElements) {
    using Device = DeviceOf<D>;
    using T = ElementOf<D>;
    typename Device::Context context(0, device_options<Device>(1));
    BuildContext<Device, T> build{
        .context = context, .batch = 3, .input = {9, 8, 4}, .output = {9, 8, 4}, .second_input = {4}};
    CHECK(ops::Product<Device, T>(build).needs().scratch == 3 * 2 * 4 * sizeof(float));
    build.second_input = build.input;
    CHECK(ops::Product<Device, T>(build).needs().scratch == 0);
    build.second_input = {4};
    build.training = false;
    CHECK(ops::Product<Device, T>(build).needs().scratch == 0);
}
