// SPDX-License-Identifier: Apache-2.0
//
// A name that two values have.
//
// expect: layers 2 and 4 (Keep<skip>) both keep a value named skip
// errors-at-most: 1
#include <cupola/layers/conv2d.hpp>
#include <cupola/layers/relu.hpp>
#include <cupola/net/sequential.hpp>

using namespace cupola;

#ifdef WITH_ERROR
struct Net : Sequential<Input<8, 8, 3>, Conv2d<4, 3>, Keep<"skip">, Conv2d<4, 3>, Keep<"skip">, Conv2d<4, 3>,
                        AddFrom<"skip">> {};
#else
struct Net : Sequential<Input<8, 8, 3>, Conv2d<4, 3>, Keep<"skip">, Conv2d<4, 3>, Conv2d<4, 3>, AddFrom<"skip">> {};
#endif
