// SPDX-License-Identifier: Apache-2.0
//
// A gradient check of a network that is computed in bfloat16.
//
// expect: gradients are checked in float32, and Narrow is computed in bfloat16: name the network without InPrecision
// errors-at-most: 1
#include <cupola/cupola.hpp>
#include <cupola/host.hpp>
#include <cupola/net/check_gradients.hpp>

using namespace cupola;

struct Net : Sequential<Input<4>, Linear<8>, ReLU, Linear<3>> {};
struct Narrow : InPrecision<MixedBFloat16, Net> {};

bool run() {
#ifdef WITH_ERROR
    return check_gradients<Narrow, CrossEntropy<3>, Host>().operator bool();
#else
    return check_gradients<Net, CrossEntropy<3>, Host>().operator bool();
#endif
}
