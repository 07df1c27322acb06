// SPDX-License-Identifier: Apache-2.0
//
// A name that no Keep gives: the message lists those that there are.
//
// expect: layer 7 (AddFrom<smooth>) reads a value that no Keep before it names; the names are rough, sharp
// errors-at-most: 1
#include <cupola/layers/conv2d.hpp>
#include <cupola/net/sequential.hpp>

using namespace cupola;

#ifdef WITH_ERROR
struct Net : Sequential<Input<8, 8, 3>, Conv2d<4, 3>, Keep<"rough">, Conv2d<4, 3>, Keep<"sharp">, Conv2d<4, 3>,
                        AddFrom<"rough">, AddFrom<"smooth">> {};
#else
struct Net : Sequential<Input<8, 8, 3>, Conv2d<4, 3>, Keep<"rough">, Conv2d<4, 3>, Keep<"sharp">, Conv2d<4, 3>,
                        AddFrom<"rough">, AddFrom<"sharp">> {};
#endif
