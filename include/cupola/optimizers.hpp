// SPDX-License-Identifier: Apache-2.0
//
// The only list of all optimisers: src.hpp compiles the update of each on `Host`. cupola.hpp includes Adam, AdamW
// and Sgd.
#pragma once

#include <cupola/optim/adagrad.hpp>
#include <cupola/optim/adam.hpp>
#include <cupola/optim/adam_w.hpp>
#include <cupola/optim/adamax.hpp>
#include <cupola/optim/lamb.hpp>
#include <cupola/optim/lars.hpp>
#include <cupola/optim/nesterov_velocity.hpp>
#include <cupola/optim/rms_prop.hpp>
#include <cupola/optim/sgd.hpp>

namespace cupola { inline namespace CUPOLA_ABI {

namespace impl {

template <class... T>
struct TypeList {};

}  // namespace impl

using Optimizers = impl::TypeList<Adagrad, Adam, AdamW, Adamax, Lamb, Lars, NesterovVelocity, RmsProp, Sgd>;

}}  // namespace cupola::CUPOLA_ABI
