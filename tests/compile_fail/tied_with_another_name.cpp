// SPDX-License-Identifier: Apache-2.0
//
// A tied layer with a name of its own.
//
// expect: the Tied at layer 1 gives its layers their name: Named gives it no other one, first
// errors-at-most: 1
#include <cupola/layers/linear.hpp>
#include <cupola/net/sequential.hpp>

using namespace cupola;

#ifdef WITH_ERROR
struct Net : Sequential<Input<8>, Named<"first", Tied<"step", Linear<8>>>, Tied<"step", Linear<8>>> {};
#else
struct Net : Sequential<Input<8>, Tied<"step", Linear<8>>, Tied<"step", Linear<8>>> {};
#endif
