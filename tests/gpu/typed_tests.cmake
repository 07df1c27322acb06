# SPDX-License-Identifier: Apache-2.0
#
# The tests that also run on Cuda: their bodies name no device. nvcc (CMakeLists.txt) and the emulator (emulator/) compile each of
# them inside a namespace of its own. A class in a test must not have the name of a class in cupola, which nvcc rejects as ambiguous.

set(typed_tests "")
foreach(name IN ITEMS activation batch_norm concatenation convert convolution dropout elementwise golden group_norm id_check linear local_response_norm math pointwise pool_with_lrn pooling product rows
        softmax_cross_entropy)
    list(APPEND typed_tests ops/${name}_test.cpp)
endforeach()
foreach(name IN ITEMS activations adaptive_avg_pool2d batch_norm2d conv1d conv2d conv_transpose2d dropout embedding from_bytes global_avg_pool2d group_norm layer_norm leaky_relu linear local_response_norm option_a_shortcut pad2d permute pointwise pool2d prelu relu sigmoid silu softmax upsample2d upsample_bilinear2d)
    list(APPEND typed_tests layers/${name}_test.cpp)
endforeach()
list(APPEND typed_tests models/unet_test.cpp parallel/averaging_test.cpp parallel/compressed_test.cpp parallel/input_types_test.cpp parallel/kinds/centre_updates_test.cpp parallel/kinds/rules_on_devices_test.cpp)
list(APPEND typed_tests loss/cross_entropy_test.cpp loss/elementwise_loss_test.cpp loss/golden_test.cpp)
list(APPEND typed_tests net/branches_test.cpp net/frozen_test.cpp net/ids_test.cpp net/inputs_test.cpp net/named_values_test.cpp net/outputs_test.cpp net/prediction/on_devices_test.cpp net/products_test.cpp net/recompute_test.cpp net/tied_test.cpp optim/adagrad_test.cpp optim/adamax_test.cpp optim/elastic_update_test.cpp optim/large_gradients_test.cpp optim/nesterov_velocity_test.cpp)
