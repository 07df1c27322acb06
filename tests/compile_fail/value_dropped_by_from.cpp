// SPDX-License-Identifier: Apache-2.0
//
// A branch whose end is not kept before the list goes on with another value.
//
// expect: layer 4 (From<in>) goes on with another value, and nothing reads the output of layer 3 (Conv2d<4, 3>): keep that with a Keep before it
// errors-at-most: 1
#include <cupola/layers/conv2d.hpp>
#include <cupola/net/sequential.hpp>

using namespace cupola;

#ifdef WITH_ERROR
struct Net : Sequential<Input<8, 8, 3>, Conv2d<4, 3>, Keep<"in">, Conv2d<4, 3>, From<"in">, Conv2d<4, 1>> {};
#else
struct Net : Sequential<Input<8, 8, 3>, Conv2d<4, 3>, Keep<"in">, Conv2d<4, 3>, Keep<"wide">, From<"in">, Conv2d<4, 1>,
                        AddFrom<"wide">> {};
#endif
