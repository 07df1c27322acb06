// SPDX-License-Identifier: Apache-2.0
//
// The concatenation of channels, and the loop over rows of two matrices that it uses: numbers of channels that fit a
// vector and that do not, one channel, one row, and a second gradient that is written or added to.
#include "../test.hpp"

#include <cupola/ops/concatenation.hpp>

#include "../devices.hpp"
#include "../reference/compare.hpp"
#include "operation_run.hpp"

using namespace operation_run;

namespace {

struct Channels {
    Shape rows;
    std::int64_t first, second, batch;
};

Shape with_channels(Shape shape, std::int64_t channels) {
    shape.extents[shape.rank - 1] = channels;
    return shape;
}

template <class D>
void concatenates(const Channels& c, bool adds, int wanted, int threads) {
    using Device = DeviceOf<D>;
    using T = ElementOf<D>;
    CAPTURES(c.first, c.second, adds, wanted);
    const std::int64_t all = c.first + c.second, rows = c.batch * with_channels(c.rows, 1).size();
    reference::Random random(static_cast<std::uint64_t>(all));
    const Floats a = rounded<D>(random.normal(rows * c.first)), b = rounded<D>(random.normal(rows * c.second)),
                 dy = rounded<D>(random.normal(rows * all)), before = rounded<D>(random.normal(rows * c.second));

    typename Device::Context context(0, device_options<Device>(threads));
    const auto bytes = [](const Floats& values) { return values.size() * sizeof(T); };
    Guarded<Device> first(context, bytes(a)), second(context, bytes(b)), output(context, bytes(dy)),
        output_gradient(context, bytes(dy)), first_gradient(context, bytes(a)), second_gradient(context, bytes(b));
    first.template write<T>(a);
    second.template write<T>(b);
    output_gradient.template write<T>(dy);
    if (adds) second_gradient.template write<T>(before);
    const ops::Concatenation<Device, T> op(BuildContext<Device, T>{.context = context,
                                                                   .batch = c.batch,
                                                                   .input = with_channels(c.rows, c.first),
                                                                   .output = with_channels(c.rows, all),
                                                                   .adds_second_gradient = adds});
    BackwardArgs<Device, T> args{{.context = context,
                                  .input = first.template data<T>(),
                                  .output = output.template data<T>(),
                                  .second_input = second.template data<T>()}};
    op.forward(args);
    args.output_gradient = output_gradient.template data<T>();
    if (wanted != 1) args.input_gradient = first_gradient.template data<T>();
    if (wanted != 0) args.second_input_gradient = second_gradient.template data<T>();
    op.backward(args);

    const Floats y = output.template read<T>(), da = first_gradient.template read<T>(),
                 db = second_gradient.template read<T>();
    const auto n = static_cast<std::size_t>(c.first), m = static_cast<std::size_t>(c.second);
    bool right = true, right_first = true, right_second = true;
    for (std::size_t r = 0; r < static_cast<std::size_t>(rows); ++r) {
        for (std::size_t i = 0; i < n; ++i) {
            right = right && y[r * (n + m) + i] == a[r * n + i];
            right_first = right_first && da[r * n + i] == dy[r * (n + m) + i];
        }
        for (std::size_t i = 0; i < m; ++i) {
            right = right && y[r * (n + m) + n + i] == b[r * m + i];
            const float gradient = dy[r * (n + m) + n + i];
            const float expected = adds ? static_cast<float>(static_cast<T>(before[r * m + i] + gradient)) : gradient;
            right_second = right_second && db[r * m + i] == expected;
        }
    }
    CHECK(right);
    // A gradient that is not wanted is left as it is.
    CHECK(right_first == (wanted != 1));
    CHECK(right_second == (wanted != 0));
    for (auto* tensor : {&first, &second, &output, &output_gradient, &first_gradient, &second_gradient})
        CHECK(tensor->guards_intact());
}

}  // namespace

TYPED_TEST_CASE("a concatenation has the channels of both inputs, and hands each its part of the gradient", D,
                DevicesAndElements) {
    for (const int threads : thread_counts<D>()) {
        for (const Channels& c : {Channels{{5, 3, 1}, 16, 32, 4}, Channels{{7, 5, 1}, 3, 8, 3},
                                  Channels{{1, 1, 1}, 1, 1, 1}, Channels{{1}, 5, 7, 2}, Channels{{3, 3, 1}, 8, 1, 1},
                                  Channels{{1}, 5000, 4100, 1}, Channels{{40, 40, 1}, 4, 2, 3}}) {
            for (const bool adds : {false, true}) {
                for (const int wanted : {0, 1, 2}) concatenates<D>(c, adds, wanted, threads);
            }
        }
    }
}
