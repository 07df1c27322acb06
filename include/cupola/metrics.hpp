// SPDX-License-Identifier: Apache-2.0
//
// All metrics, for evaluate() and the validations of fit().
#pragma once

#include <cupola/metrics/accuracy.hpp>
#include <cupola/metrics/at.hpp>
#include <cupola/metrics/auc.hpp>
#include <cupola/metrics/binary_accuracy.hpp>
#include <cupola/metrics/confusion_matrix.hpp>
#include <cupola/metrics/mean_absolute_error.hpp>
#include <cupola/metrics/r_squared.hpp>
#include <cupola/metrics/top_k.hpp>
