// SPDX-License-Identifier: Apache-2.0
//
// A concatenation of images of other sizes.
//
// expect: layer 4 (up, ConcatWith<fine>) cannot concatenate along channels: its input is 4 x 4 x 4 from layer 3 (MaxPool2d<3, 2>), and fine is 8 x 8 x 4 from layer 1 (Conv2d<4, 3>)
// errors-at-most: 1
#include <cupola/layers/conv2d.hpp>
#include <cupola/layers/max_pool2d.hpp>
#include <cupola/net/sequential.hpp>

using namespace cupola;

#ifdef WITH_ERROR
struct Net : Sequential<Input<8, 8, 3>, Conv2d<4, 3>, Keep<"fine">, MaxPool2d<3, 2>, Named<"up", ConcatWith<"fine">>> {
};
#else
struct Net : Sequential<Input<8, 8, 3>, Conv2d<4, 3>, Keep<"fine">, MaxPool2d<2, 1>, Named<"up", ConcatWith<"fine">>> {
};
#endif
