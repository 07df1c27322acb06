// SPDX-License-Identifier: Apache-2.0
//
// cuDNN's umbrella header; see cudnn_backend.h.
#pragma once

#include <cudnn_backend.h>
