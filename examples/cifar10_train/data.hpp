// SPDX-License-Identifier: Apache-2.0
//
// The images to train on, behind a declaration so that only data.cpp compiles the readers of files.
#pragma once

#include <string>

#include <cupola/data/dataset.hpp>

/// The images at `path`, or the sample that comes with this example where it is empty.
cupola::ImageData load_images(const std::string& path, int threads);
