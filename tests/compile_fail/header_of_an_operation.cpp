// SPDX-License-Identifier: Apache-2.0
//
// A layer on an operation of Cupola without its header, in a program that is compiled separately.
//
// expect: layer 1 (Doubled) computes with Linear, whose header is not included: cupola/host_operations.hpp has the operations of Host
// errors-at-most: 1
#define CUPOLA_SEPARATE_COMPILATION
#include <cupola/cupola.hpp>
#include <cupola/host.hpp>
#ifndef WITH_ERROR
#include <cupola/ops/host/linear.hpp>
#endif

using namespace cupola;

struct Doubled {
    static constexpr ShapeResult output(const Shape& input) { return Shape{2 * input.size()}; }
    static constexpr Parameters parameters(const Shape& input) {
        return Parameter{.name = "weight", .shape = {2 * input.size(), input.size()}, .initializer = constant(1)};
    }
    template <class Build>
    static ops::Linear<typename Build::DeviceType, typename Build::Element> operation(const Build& build) {
        return {build, LinearShape{build.input.size(), 2 * build.input.size(), false}};
    }
};

struct Net : Sequential<Input<4>, Doubled> {};

void run() { DataParallel<Net, CrossEntropy<8>, Sgd, ConcatMean, Host> training({.batch_size = 8}); }
