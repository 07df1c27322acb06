// SPDX-License-Identifier: Apache-2.0
//
// A batch without the extents of its samples.
//
// expect: a BatchView also needs the extents of a sample: BatchView{inputs, labels, size, input_shape}
// errors-at-most: 1
#include <cupola/cupola.hpp>
#include <cupola/host.hpp>

using namespace cupola;

struct Net : Sequential<Input<4>, Linear<8>, ReLU, Linear<3>> {};

BatchView batch(const float* samples, const std::int32_t* labels) {
#ifdef WITH_ERROR
    return {samples, labels, 8};
#else
    return {samples, labels, 8, Net::input_shape};
#endif
}
