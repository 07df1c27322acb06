// SPDX-License-Identifier: Apache-2.0
//
// Labels of 64 bits or floats, samples and targets of doubles.
//
// expect: class labels in memory are std::int32_t (targets of floats follow their extents), not long
// expect: class labels in memory are std::int32_t (targets of floats follow their extents), not float
// expect: samples in memory are float, std::int32_t (ids) or std::uint8_t (bytes), not double
// expect: targets in memory are float (those of other types have names: {{name, extents, values}}), not double
// expect: the values of a column are float, std::int32_t or std::uint8_t, not double
// expect: the class labels of a BatchView are std::int32_t, not long
// expect: the targets of such a BatchView are float (a list of columns has any types), not double
// expect: the inputs of such a BatchView are float (a list of columns has any types), not double
// errors-at-most: 8
#include <cupola/cupola.hpp>

using namespace cupola;

void run(const std::vector<float>& x, const std::vector<double>& doubles, const std::vector<std::int64_t>& longs,
         const std::vector<std::int32_t>& y) {
#ifdef WITH_ERROR
    const InMemory first({2}, x, longs, 2), second({2}, x, x, 2), third({2}, doubles, y, 2);
    const InMemory fourth({2}, x, {1}, doubles), fifth({2}, x, {{"box", {1}, doubles}, {"kind", {1}, y}});
    const BatchView sixth{x.data(), longs.data(), 10, Shape{2}};
    const BatchView seventh{x.data(), {2}, doubles.data(), {1}, 10};
    const BatchView eighth{doubles.data(), y.data(), 10, Shape{2}};
#else
    const InMemory first({2}, x, y, 2), second({2}, x, {1}, x), third({2}, y, y, 2), fourth({2}, x, {{"box", {1}, x}});
    const BatchView sixth{x.data(), y.data(), 10, Shape{2}}, seventh{x.data(), {2}, x.data(), {1}, 10};
    std::vector<float> variable(2);
    std::vector<std::int32_t> labels(1);
    const BatchView eighth{variable.data(), labels.data(), 1, {2}}, ninth{nullptr, labels.data(), 0, {2}};
#endif
}
