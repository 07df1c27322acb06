// SPDX-License-Identifier: Apache-2.0
//
// Ids are not copied to another device.
//
// expect: reads an input of the network, of int32, and OnDevice cannot place it on another device
// errors-at-most: 1
#include <cupola/device/host.hpp>
#include <cupola/layers/embedding.hpp>
#include <cupola/layers/flatten.hpp>
#include <cupola/layers/on_device.hpp>
#include <cupola/layers/relu.hpp>
#include <cupola/net/sequential.hpp>

using namespace cupola;

#ifdef WITH_ERROR
struct Net : Sequential<Input<3>, OnDevice<Host, Embedding<10, 4>>, Flatten, ReLU> {};
#else
struct Net : Sequential<Input<3>, Embedding<10, 4>, Flatten, OnDevice<Host, ReLU>> {};
#endif
