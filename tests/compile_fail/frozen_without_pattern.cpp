// SPDX-License-Identifier: Apache-2.0
//
// Frozen with an option and no pattern.
//
// expect: Frozen names no parameters; name at least one pattern, as in Frozen<Net, 'body.*'>
// errors-at-most: 1
#include <cupola/cupola.hpp>
#include <cupola/net/frozen.hpp>

using namespace cupola;

struct Net : Sequential<Input<6>, Named<"body", Linear<8>>, ReLU, Named<"head", Linear<3>>> {};

#ifdef WITH_ERROR
struct Tuned : Frozen<Net, FrozenNorms::batch_statistics> {};
#else
struct Tuned : Frozen<Net, FrozenNorms::batch_statistics, "body.*"> {};
#endif
