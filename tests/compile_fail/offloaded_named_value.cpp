// SPDX-License-Identifier: Apache-2.0
//
// A named value inside a list on a device of its own, which places single layers.
//
// expect: OnDevice takes single layers: put Keep and the modules that read a named value outside it
// errors-at-most: 1
#include <cupola/device/host.hpp>
#include <cupola/layers/on_device.hpp>
#include <cupola/layers/relu.hpp>
#include <cupola/net/sequential.hpp>

using namespace cupola;

#ifdef WITH_ERROR
struct Net : Sequential<Input<8, 8, 3>, OnDevice<Host, ReLU, Keep<"skip">, ReLU>, AddFrom<"skip">> {};
#else
struct Net : Sequential<Input<8, 8, 3>, ReLU, Keep<"skip">, OnDevice<Host, ReLU>, AddFrom<"skip">> {};
#endif
