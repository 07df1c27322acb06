// SPDX-License-Identifier: Apache-2.0
//
// A height that cannot be halved as often as the network does.
//
// expect: a UNet of depth 3 needs a height and a width that are multiples of 8, not 60 x 64
// errors-at-most: 1
#include <cupola/models/unet.hpp>

using namespace cupola;

#ifdef WITH_ERROR
struct Net : UNet<60, 64, 1, 4> {};
#else
struct Net : UNet<64, 64, 1, 4> {};
#endif
static_assert(Net::outputs.size() == 1);
