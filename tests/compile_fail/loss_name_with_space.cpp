// SPDX-License-Identifier: Apache-2.0
//
// Lists of losses by name, in checkpoints and logs, separate the names by spaces.
//
// expect: the name cross entropy contains a space, but lists of losses separate their names by spaces
// errors-at-most: 1
#include <cupola/cupola.hpp>
#include <cupola/host.hpp>

using namespace cupola;

struct Net : Sequential<Input<4>, Linear<3>> {};

struct Entropy : CrossEntropy<3> {
#ifdef WITH_ERROR
    static constexpr std::string_view name = "cross entropy";
#else
    static constexpr std::string_view name = "entropy";
#endif
};

DataParallel<Net, Entropy, Sgd, ConcatMean, Host> training({.batch_size = 8});
