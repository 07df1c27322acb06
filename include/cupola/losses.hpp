// SPDX-License-Identifier: Apache-2.0
//
// The only list of all losses: cupola.hpp includes CrossEntropy.
#pragma once

#include <cupola/loss/binary_cross_entropy.hpp>
#include <cupola/loss/cross_entropy.hpp>
#include <cupola/loss/elementwise_loss.hpp>
#include <cupola/loss/huber.hpp>
#include <cupola/loss/loss_collection.hpp>
#include <cupola/loss/mean_absolute_error.hpp>
#include <cupola/loss/mean_squared_error.hpp>
#include <cupola/loss/several_outputs.hpp>
#include <cupola/loss/soft_cross_entropy.hpp>
#include <cupola/loss/weight_decay.hpp>
#include <cupola/loss/weighted_cross_entropy.hpp>
