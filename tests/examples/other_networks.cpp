// SPDX-License-Identifier: Apache-2.0
//
// In the place of the networks that take long to compile, for the cifar10_train of the quick tests.
#include <cupola/core/error.hpp>

#include "../../examples/cifar10_train/options.hpp"

namespace cifar10 {

namespace {

int refuse() { throw InvalidArgument("this cifar10_train of the tests does not have this network"); }

}  // namespace

#ifndef CUPOLA_TEST_MORE_NETWORKS
template <>
int run_network<Model::tutorial, Precision::bfloat16, Place::host>(const TrainOptions&, const ImageData&,
                                                                   const Schedule&, const std::string&) {
    return refuse();
}
template <>
int run_network<Model::resnet, Precision::float32, Place::host>(const TrainOptions&, const ImageData&, const Schedule&,
                                                                const std::string&) {
    return refuse();
}
#endif
template <>
int run_network<Model::resnet, Precision::bfloat16, Place::host>(const TrainOptions&, const ImageData&, const Schedule&,
                                                                 const std::string&) {
    return refuse();
}

}  // namespace cifar10
