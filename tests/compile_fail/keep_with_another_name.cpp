// SPDX-License-Identifier: Apache-2.0
//
// A Keep inside Named: the value would have two names.
//
// expect: Keep<skip> is a name: Named gives it no other one
// errors-at-most: 1
#include <cupola/layers/conv2d.hpp>
#include <cupola/layers/relu.hpp>
#include <cupola/net/sequential.hpp>

using namespace cupola;

#ifdef WITH_ERROR
struct Net : Sequential<Input<8, 8, 3>, Conv2d<4, 3>, Named<"first", Keep<"skip">>, ReLU, AddFrom<"skip">> {};
#else
struct Net : Sequential<Input<8, 8, 3>, Conv2d<4, 3>, Keep<"skip">, ReLU, Named<"sum", AddFrom<"skip">>> {};
#endif
