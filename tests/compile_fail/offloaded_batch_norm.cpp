// SPDX-License-Identifier: Apache-2.0
//
// Batch normalisation on a device of its own: replicas could not exchange its statistics.
//
// expect: keeps statistics of its batch, so OnDevice cannot place it on another device; its input is 4 x 4 x 3 from layer 1 (ReLU)
// errors-at-most: 1
#include <cupola/device/host.hpp>
#include <cupola/layers/batch_norm2d.hpp>
#include <cupola/layers/on_device.hpp>
#include <cupola/layers/relu.hpp>
#include <cupola/net/sequential.hpp>

using namespace cupola;

#ifdef WITH_ERROR
struct Net : Sequential<Input<4, 4, 3>, ReLU, OnDevice<Host, BatchNorm2d<>>> {};
#else
struct Net : Sequential<Input<4, 4, 3>, OnDevice<Host, ReLU>, BatchNorm2d<>> {};
#endif
