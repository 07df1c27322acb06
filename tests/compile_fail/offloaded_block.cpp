// SPDX-License-Identifier: Apache-2.0
//
// A residual block on a device of its own, which places single layers.
//
// expect: OnDevice takes a single layer: put it inside the block, not around it
// errors-at-most: 1
#include <cupola/device/host.hpp>
#include <cupola/layers/on_device.hpp>
#include <cupola/layers/relu.hpp>
#include <cupola/net/sequential.hpp>

using namespace cupola;

#ifdef WITH_ERROR
struct Net : Sequential<Input<4, 4, 3>, OnDevice<Host, Residual<Identity, ReLU>>> {};
#else
struct Net : Sequential<Input<4, 4, 3>, Residual<Identity, OnDevice<Host, ReLU>>> {};
#endif
