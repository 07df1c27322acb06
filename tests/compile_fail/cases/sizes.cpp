// SPDX-License-Identifier: Apache-2.0
//
// Sizes below zero, each with its number in the message, and too large ones.

// case: negative_kernel
// expect: layer 1 (Conv2d<8, -3>) has the kernel -3, which must be at least 1; its input is 4 x 4 x 3 from the Input
/* wrong */ struct Net : Sequential<Input<4, 4, 3>, Conv2d<8, -3>> {};
/* right */ struct Net : Sequential<Input<4, 4, 3>, Conv2d<8, 3>> {};

// case: negative_extent_of_a_column
// expect: layer 3 (FromInput<age>) has an extent below 1: -4
/* wrong */ struct Net : Sequential<Input<3>, Linear<5>, Keep<"a">, FromInput<"age", -4>, Linear<5>, AddFrom<"a">> {};
/* right */ struct Net : Sequential<Input<3>, Linear<5>, Keep<"a">, FromInput<"age", 4>, Linear<5>, AddFrom<"a">> {};

// case: negative_extent_of_the_input
// expect: the Input, 4 x -4 x 3, has an extent below 1
/* wrong */ struct Net : Sequential<Input<4, -4, 3>, Conv2d<8, 3>> {};
/* right */ struct Net : Sequential<Input<4, 4, 3>, Conv2d<8, 3>> {};

// case: negative_number_of_groups
// The two compilers print the default argument of GroupNorm differently.
// expect: has the number of groups -2, which must be at least 1; its input is 4 x 4 x 8 from layer 1 (Conv2d<8, 3>)
/* wrong */ struct Net : Sequential<Input<4, 4, 3>, Conv2d<8, 3>, GroupNorm<-2>> {};
/* right */ struct Net : Sequential<Input<4, 4, 3>, Conv2d<8, 3>, GroupNorm<2>> {};

// case: network_of_no_extents
// expect: the Input has no extents
/* wrong */ struct Net : Sequential<Input<>, Linear<2>> {};
/* right */ struct Net : Sequential<Input<1>, Linear<2>> {};

// case: parameters_of_a_network
// expect: layer 2 (Linear<126>) has parameters that together with those of the layers before it are more than 2^40 elements
/* wrong */ struct Net : Sequential<Input<4>, Linear<8589934592>, Linear<126>> {};
/* right */ struct Net : Sequential<Input<4>, Linear<8>, Linear<126>> {};
