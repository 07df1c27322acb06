// SPDX-License-Identifier: Apache-2.0
//
// Training of a network that is cut into parts (Split, SplitAt: net/pipeline/split.hpp): a group of devices takes
// the place of one device, and each of them computes its parts of the network, for several batches of a step at a time.
// Programs that train such a network include this header.
#pragma once

#include <cupola/net/pipeline/chosen_split.hpp>
#include <cupola/net/pipeline/pipeline.hpp>
#include <cupola/net/pipeline/split.hpp>
#include <cupola/parallel/pipeline/cut_diagnostic.hpp>
#include <cupola/parallel/pipeline/pipeline_passes.hpp>
