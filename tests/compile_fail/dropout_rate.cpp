// SPDX-License-Identifier: Apache-2.0
//
// A rate is a fraction of the elements.
//
// expect: layer 2 (Dropout<1.5>) has a rate outside [0, 1); its input is 8 from layer 1 (Linear<8>)
// errors-at-most: 1
#include <cupola/layers/dropout.hpp>
#include <cupola/layers/linear.hpp>
#include <cupola/net/sequential.hpp>

using namespace cupola;

#ifdef WITH_ERROR
struct Net : Sequential<Input<4>, Linear<8>, Dropout<1.5>> {};
#else
struct Net : Sequential<Input<4>, Linear<8>, Dropout<0.5>> {};
#endif
