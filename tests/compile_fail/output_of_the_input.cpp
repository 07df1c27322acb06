// SPDX-License-Identifier: Apache-2.0
//
// An end of the network at which nothing was computed.
//
// expect: layer 2 (Output<image>) is an end of the network whose value is the Input: it must come from a layer
// errors-at-most: 1
#include <cupola/layers/flatten.hpp>
#include <cupola/layers/linear.hpp>
#include <cupola/net/named_values.hpp>
#include <cupola/net/sequential.hpp>

using namespace cupola;

#ifdef WITH_ERROR
struct Net : Sequential<Input<4, 4, 3>, Flatten, Output<"image">, Linear<3>> {};
#else
struct Net : Sequential<Input<4, 4, 3>, Flatten, Linear<8>, Output<"image">, Linear<3>> {};
#endif
