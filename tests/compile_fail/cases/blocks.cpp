// SPDX-License-Identifier: Apache-2.0

// case: branch_in_a_list
// expect: layer 2 is a Branch or a Projection, which has no meaning outside Concat, Add, Multiply and Residual
/* wrong */ using Module = Branch<Conv2d<4, 3>>;
/* right */ using Module = Concat<Branch<Conv2d<4, 3>>, Identity>;
struct Net : Sequential<Input<8, 8, 3>, Conv2d<4, 3>, Module> {};

// case: branch_without_layers
// expect: the Concat of layers 2 to 4 has no layers in branch 2: use Identity
/* wrong */ using Second = Branch<>;
/* right */ using Second = Identity;
struct Net : Sequential<Input<8, 8, 3>, Conv2d<4, 3>, Concat<Conv2d<4, 3>, Second>> {};

// case: concat_of_one_branch
// A list of layers without the Branch around them is several branches; a Branch alone is one.
// expect: the Concat that begins at layer 2 (mixed) has one branch: it needs two or more
/* wrong */ using Block = Concat<Branch<Conv2d<4, 3>, ReLU>>;
/* right */ using Block = Concat<Branch<Conv2d<4, 3>, ReLU>, Identity>;
struct Net : Sequential<Input<8, 8, 3>, Conv2d<4, 3>, Named<"mixed", Block>> {};

// case: concat_of_other_extents
// Branches of other heights: both are named, and where they come from.
// expect: the Concat of layers 1 to 8 (mixed) cannot concatenate along channels: branch 1 is 8 x 8 x 4 from layer 2 (Conv2d<4, 3>), and branch 3 is 4 x 4 x 3 from layer 6 (MaxPool2d<2
/* wrong */ using Pool = MaxPool2d<2>;
/* right */ using Pool = MaxPool2d<2, 1>;
struct Net : Sequential<Input<8, 8, 3>, Named<"mixed", Concat<Conv2d<4, 3>, Conv2d<8, 1>, Pool>>> {};

// case: concatenation_of_other_extents
// expect: layer 4 (up, ConcatWith<fine>) cannot concatenate along channels: its input is 4 x 4 x 4 from layer 3 (MaxPool2d<3, 2>), and fine is 8 x 8 x 4 from layer 1 (Conv2d<4, 3>)
/* wrong */ struct Net
    : Sequential<Input<8, 8, 3>, Conv2d<4, 3>, Keep<"fine">, MaxPool2d<3, 2>, Named<"up", ConcatWith<"fine">>> {};
/* right */ struct Net
    : Sequential<Input<8, 8, 3>, Conv2d<4, 3>, Keep<"fine">, MaxPool2d<2, 1>, Named<"up", ConcatWith<"fine">>> {};

// case: error_inside_a_residual
// An error in a block's shortcut: the layer has its full name, and its input is the block's.
// expect: layer 4 (b.downsample, Linear<10>) expects one extent, the features: put Flatten before it, or apply it per_position; its input is 4 x 4 x 3 from layer 1 (Conv2d<3, 1>)
/* wrong */ using Inside = Linear<10>;
/* right */ using Inside = Conv2d<3, 1>;
struct Net : Sequential<Input<4, 4, 3>, Conv2d<3, 1>,
                        Named<"b", Residual<Projection<Named<"downsample", Inside>>, Conv2d<3, 3>>>> {};

// case: multiply_of_other_extents
// The gate is repeated for the second branch, which the third does not fit.
// expect: the Multiply of layers 2 to 7 (se) cannot multiply: branch 2 is 8 x 8 x 4 from layer 1 (Conv2d<4, 3>), and branch 3 is 8 x 8 x 3 from layer 5 (Conv2d<3, 1>)
/* wrong */ using Third = Conv2d<3, 1>;
/* right */ using Third = Conv2d<4, 1>;
struct Net : Sequential<Input<8, 8, 3>, Conv2d<4, 3>, Named<"se", Multiply<GlobalAvgPool2d, Identity, Third>>> {};

// case: projection_without_layers
// expect: the Residual of layers 2 to 4 (a) has a Projection without layers: use Identity
/* wrong */ using Shortcut = Projection<>;
/* right */ using Shortcut = Identity;
struct Net : Sequential<Input<4, 4, 3>, Conv2d<3, 1>, Named<"a", Residual<Shortcut, Conv2d<3, 3>>>> {};

// case: residual_of_other_extents
// A block that changes the extents around which the input goes as it is: both extents are named, and where they come from.
// expect: the Residual of layers 3 to 8 (layer2.0) cannot add: the block's output is 16 x 16 x 32 from layer 7 (layer2.0.bn2, BatchNorm2d
// expect: ), and its shortcut's is 32 x 32 x 16 from layer 2 (ReLU)
/* wrong */ using Shortcut = Identity;
/* right */ using Shortcut = OptionAShortcut<32, 2>;
struct Net : Sequential<Input<32, 32, 3>, Conv2d<16, 3>, ReLU,
                        Named<"layer2.0", Residual<Shortcut, Conv2d<32, 3, stride(2), pad(1)>, ReLU, Conv2d<32, 3>,
                                                   Named<"bn2", BatchNorm2d<>>>>,
                        ReLU> {};

// case: residual_without_layers
// expect: the Residual of layers 1 to 2 has no layers besides its shortcut
/* wrong */ struct Net : Sequential<Input<4, 4, 3>, Residual<Identity>> {};
/* right */ struct Net : Sequential<Input<4, 4, 3>, Residual<Identity, Conv2d<3, 3>>> {};

// case: residual_without_shortcut
// A residual block whose first layer stands where the shortcut is: without this error it would be the way around.
// expect: the Residual that begins at layer 2 (block) has Conv2d<3, 3> in place of its shortcut: write Identity before it, or Projection<Conv2d<3, 3>> if it is the shortcut
/* wrong */ using Block = Residual<Named<"conv", Conv2d<3, 3>>, ReLU>;
/* right */ using Block = Residual<Identity, Named<"conv", Conv2d<3, 3>>, ReLU>;
struct Net : Sequential<Input<4, 4, 3>, Conv2d<3, 1>, Named<"block", Block>> {};

// case: resnet_of_45_layers
// expect: ResNet<45> is not possible: the number of layers must be 6 n + 2 (8, 14, 20, 26, 32, 38, 44, ...)
#include <cupola/models/resnet.hpp>

/* wrong */ static_assert(ResNet<45>::parameter_count > 0);
/* right */ static_assert(ResNet<44>::parameter_count == 658'651);

// case: sum_in_a_list
// expect: Both has the kind sum, which only the ends of a Residual have
struct Both {
    /* wrong */ static constexpr LayerKind kind = LayerKind::sum;
    static constexpr ShapeResult output(const Shape& input) { return input; }
};
struct Net : Sequential<Input<4>, Linear<8>, Both, Linear<2>> {};

// case: sum_of_branches_of_other_extents
// expect: the Add of layers 2 to 4 cannot add: branch 1 is 8 x 8 x 4 from layer 1 (Conv2d<4, 3>), and branch 2 is 8 x 8 x 8 from layer 3 (Conv2d<8, 3>)
/* wrong */ struct Net : Sequential<Input<8, 8, 3>, Conv2d<4, 3>, Add<Identity, Conv2d<8, 3>>> {};
/* right */ struct Net : Sequential<Input<8, 8, 3>, Conv2d<4, 3>, Concat<Identity, Conv2d<8, 3>>> {};

// case: tied_alone
// A name that is misspelt: each set has one layer.
// expect: layer 1 (step, Linear<8>) is tied to no other layer: a second one has the same name in its Tied
/* wrong */ struct Net : Sequential<Input<8>, Tied<"step", Linear<8>>, Tied<"stop", Linear<8>>> {};
/* right */ struct Net : Sequential<Input<8>, Tied<"step", Linear<8>>, Tied<"step", Linear<8>>> {};

// case: tied_block
// expect: the Tied at layer 1 (step) takes a single layer without a name: tie the layers inside a block one by one
/* wrong */ struct Net
    : Sequential<Input<8>, Tied<"step", Residual<Identity, Linear<8>>>, Tied<"step", Residual<Identity, Linear<8>>>> {};
/* right */ struct Net
    : Sequential<Input<8>, Residual<Identity, Tied<"step", Linear<8>>>, Residual<Identity, Tied<"step", Linear<8>>>> {};

// case: tied_of_other_extents
// expect: layer 4 (Linear<6>) cannot share the parameters of layer 2 (step, Linear<6>): its weight is 6 x 5, and that one's weight is 6 x 8
/* wrong */ struct Net : Sequential<Input<8>, ReLU, Tied<"step", Linear<6>>, Linear<5>, Tied<"step", Linear<6>>> {};
/* right */ struct Net : Sequential<Input<8>, ReLU, Tied<"step", Linear<6>>, Linear<8>, Tied<"step", Linear<6>>> {};

// case: tied_with_another_name
// expect: the Tied at layer 1 gives its layers their name: Named gives it no other one, first
/* wrong */ struct Net : Sequential<Input<8>, Named<"first", Tied<"step", Linear<8>>>, Tied<"step", Linear<8>>> {};
/* right */ struct Net : Sequential<Input<8>, Tied<"step", Linear<8>>, Tied<"step", Linear<8>>> {};

// case: tied_without_a_bias
// expect: layer 2 (Linear<8>) cannot share the parameters of layer 1 (step, Linear<8>): it has 2 parameters, and that one has 1
/* wrong */ struct Net : Sequential<Input<8>, Tied<"step", Linear<8, no_bias>>, Tied<"step", Linear<8>>> {};
/* right */ struct Net : Sequential<Input<8>, Tied<"step", Linear<8>>, Tied<"step", Linear<8>>> {};

// case: tied_without_parameters
// expect: layer 2 (ReLU) has no parameters to share: Tied is for layers that have some
/* wrong */ struct Net : Sequential<Input<8>, Linear<8>, Tied<"act", ReLU>, Linear<8>, Tied<"act", ReLU>> {};
/* right */ struct Net : Sequential<Input<8>, Tied<"step", Linear<8>>, ReLU, Tied<"step", Linear<8>>, ReLU> {};

// case: unet_of_other_extents
// expect: a U-Net of depth 3 needs a height and a width that are multiples of 8, not 60 x 64
#include <cupola/models/unet.hpp>

/* wrong */ struct Net : UNet<60, 64, 1, 4> {};
/* right */ struct Net : UNet<64, 64, 1, 4> {};
static_assert(Net::outputs.size() == 1);
