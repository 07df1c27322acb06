// SPDX-License-Identifier: Apache-2.0
//
// The only list of the layers. cupola.hpp includes those that most networks have, predict.hpp all. OnDevice, which
// places layers on another device, is included by its name.
#pragma once

#include <cupola/layers/adaptive_avg_pool2d.hpp>
#include <cupola/layers/avg_pool1d.hpp>
#include <cupola/layers/avg_pool2d.hpp>
#include <cupola/layers/batch_norm1d.hpp>
#include <cupola/layers/batch_norm2d.hpp>
#include <cupola/layers/conv1d.hpp>
#include <cupola/layers/conv2d.hpp>
#include <cupola/layers/conv_transpose2d.hpp>
#include <cupola/layers/crop2d.hpp>
#include <cupola/layers/drop_path.hpp>
#include <cupola/layers/dropout.hpp>
#include <cupola/layers/dropout2d.hpp>
#include <cupola/layers/elu.hpp>
#include <cupola/layers/embedding.hpp>
#include <cupola/layers/flatten.hpp>
#include <cupola/layers/flatten_channels_last.hpp>
#include <cupola/layers/from_bytes.hpp>
#include <cupola/layers/gelu.hpp>
#include <cupola/layers/global_avg_pool1d.hpp>
#include <cupola/layers/global_avg_pool2d.hpp>
#include <cupola/layers/group_norm.hpp>
#include <cupola/layers/hard_swish.hpp>
#include <cupola/layers/instance_norm2d.hpp>
#include <cupola/layers/layer_norm.hpp>
#include <cupola/layers/leaky_relu.hpp>
#include <cupola/layers/linear.hpp>
#include <cupola/layers/local_response_norm.hpp>
#include <cupola/layers/max_pool1d.hpp>
#include <cupola/layers/max_pool2d.hpp>
#include <cupola/layers/mish.hpp>
#include <cupola/layers/option_a_shortcut.hpp>
#include <cupola/layers/pad2d.hpp>
#include <cupola/layers/permute.hpp>
#include <cupola/layers/pointwise.hpp>
#include <cupola/layers/prelu.hpp>
#include <cupola/layers/relu.hpp>
#include <cupola/layers/relu6.hpp>
#include <cupola/layers/reshape.hpp>
#include <cupola/layers/rms_norm.hpp>
#include <cupola/layers/scale_channels.hpp>
#include <cupola/layers/sigmoid.hpp>
#include <cupola/layers/silu.hpp>
#include <cupola/layers/softmax.hpp>
#include <cupola/layers/softplus.hpp>
#include <cupola/layers/tanh.hpp>
#include <cupola/layers/upsample2d.hpp>
#include <cupola/layers/upsample_bilinear2d.hpp>
