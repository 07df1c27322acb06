// SPDX-License-Identifier: Apache-2.0
//
// More means than channels of bytes can have.
//
// expect: takes 1 to 4 means and deviations, one for all channels or one per channel; its input is 4 x 4 x 5 from the Input
// errors-at-most: 1
#include <cupola/layers/flatten.hpp>
#include <cupola/layers/from_bytes.hpp>
#include <cupola/layers/linear.hpp>
#include <cupola/net/sequential.hpp>

using namespace cupola;

#ifdef WITH_ERROR
struct Net : Sequential<Input<4, 4, 5>, FromBytes<means(1, 2, 3, 4, 5)>, Flatten, Linear<3>> {};
#else
struct Net : Sequential<Input<4, 4, 4>, FromBytes<means(1, 2, 3, 4), deviations(2.5)>, Flatten, Linear<3>> {};
#endif
