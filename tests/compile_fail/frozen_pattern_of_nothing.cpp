// SPDX-License-Identifier: Apache-2.0
//
// A pattern of Frozen that matches no parameter: the message lists the names.
//
// expect: Frozen's pattern 'body/*' matches none of the parameters body.weight, body.bias, head.weight, head.bias
// errors-at-most: 1
#include <cupola/cupola.hpp>
#include <cupola/net/frozen.hpp>

using namespace cupola;

struct Net : Sequential<Input<4>, Named<"body", Linear<8>>, ReLU, Named<"head", Linear<3>>> {};

#ifdef WITH_ERROR
struct Tuned : Frozen<Net, "body/*"> {};
#else
struct Tuned : Frozen<Net, "body.*"> {};
#endif
