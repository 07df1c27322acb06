// SPDX-License-Identifier: Apache-2.0

// case: axis_given_twice
// expect: layer 1 (Permute<0, 1, 1>) expects each axis of its input once, from 0 on; its input is 8 x 6 x 3 from the Input
/* wrong */ struct Net : Sequential<Input<8, 6, 3>, Permute<0, 1, 1>> {};
/* right */ struct Net : Sequential<Input<8, 6, 3>, Permute<0, 2, 1>> {};

// case: axis_missing
// expect: layer 1 (Permute<1, 0>) permutes 2 axes, and its input has another number of them; its input is 8 x 6 x 3 from the Input
/* wrong */ struct Net : Sequential<Input<8, 6, 3>, Permute<1, 0>> {};
/* right */ struct Net : Sequential<Input<8, 6>, Permute<1, 0>> {};

// case: averages_of_no_columns
// expect: layer 1 (AdaptiveAvgPool2d<2, 0>) has the number of columns 0, which must be at least 1; its input is 8 x 8 x 3 from the Input
/* wrong */ struct Net : Sequential<Input<8, 8, 3>, AdaptiveAvgPool2d<2, 0>> {};
/* right */ struct Net : Sequential<Input<8, 8, 3>, AdaptiveAvgPool2d<2, 1>> {};

// case: beta_of_zero
// expect: layer 2 (Softplus<0>) has a beta that is not between 1e-37 and 1e37; its input is 8 from layer 1 (Linear<8>)
/* wrong */ struct Net : Sequential<Input<4>, Linear<8>, Softplus<0>> {};
/* right */ struct Net : Sequential<Input<4>, Linear<8>, Softplus<0.5>> {};

// case: bilinear_by_zero
// expect: layer 1 (UpsampleBilinear2d<0>) has the factor 0, which must be at least 1; its input is 8 x 8 x 3 from the Input
/* wrong */ struct Net : Sequential<Input<8, 8, 3>, UpsampleBilinear2d<0>> {};
/* right */ struct Net : Sequential<Input<8, 8, 3>, UpsampleBilinear2d<1>> {};

// case: convolution_after_flatten
// expect: layer 2 (Conv2d<8, 3>) expects height x width x channels; its input is 192 from layer 1 (Flatten)
/* wrong */ struct Net : Sequential<Input<8, 8, 3>, Flatten, Conv2d<8, 3>> {};
/* right */ struct Net : Sequential<Input<8, 8, 3>, Conv2d<8, 3>, Flatten> {};

// case: convolution_groups_of_input
// expect: layer 1 (Conv2d<8, 3>) has 4 groups, which do not divide the channels of its input; its input is 8 x 8 x 6 from the Input
/* wrong */ struct Net : Sequential<Input<8, 8, 6>, Conv2d<8, 3, groups(4)>> {};
/* right */ struct Net : Sequential<Input<8, 8, 6>, Conv2d<8, 3, groups(2)>> {};

// case: convolution_groups_of_output
// expect: layer 1 (Conv2d<8, 3>) has 3 groups, which do not divide its own channels; its input is 8 x 8 x 6 from the Input
/* wrong */ struct Net : Sequential<Input<8, 8, 6>, Conv2d<8, 3, groups(3)>> {};
/* right */ struct Net : Sequential<Input<8, 8, 6>, Conv2d<9, 3, groups(3)>> {};

// case: convolution_of_a_sequence
// expect: layer 1 (Conv1d<8, 3>) expects length x channels; its input is 4 x 4 x 3 from the Input
/* wrong */ struct Net : Sequential<Input<4, 4, 3>, Conv1d<8, 3>> {};
/* right */ struct Net : Sequential<Input<16, 3>, Conv1d<8, 3>> {};

// case: depthwise_channels
// expect: layer 1 (Conv2d<8, 3>) is depthwise, and its channels are no multiple of those of its input; its input is 8 x 8 x 3 from the Input
/* wrong */ struct Net : Sequential<Input<8, 8, 3>, Conv2d<8, 3, depthwise>> {};
/* right */ struct Net : Sequential<Input<8, 8, 3>, Conv2d<9, 3, depthwise>> {};

// case: crop_of_the_whole_image
// expect: layer 1 (Crop2d<2>) leaves nothing of its input: it takes away 2 rows above and 2 below, 2 columns on the left and 2 on the right; its input is 4 x 8 x 3 from the Input
/* wrong */ struct Net : Sequential<Input<4, 8, 3>, Crop2d<2>> {};
/* right */ struct Net : Sequential<Input<4, 8, 3>, Crop2d<1>> {};

// case: deviation_below_zero
// expect: layer 1 (Linear<3>) has an initialiser with a deviation or a limit below 0; its input is 4 from the Input
/* wrong */ struct Net : Sequential<Input<4>, Linear<3, weights(normal(-1))>> {};
/* right */ struct Net : Sequential<Input<4>, Linear<3, weights(normal(1))>> {};

// case: dilated_kernel_too_large
// expect: layer 1 (Conv2d<8, 3>) has a kernel larger than its input with the dilation 4 x 4; its input is 8 x 8 x 3 from the Input
/* wrong */ struct Net : Sequential<Input<8, 8, 3>, Conv2d<8, 3, valid, dilation(4)>> {};
/* right */ struct Net : Sequential<Input<8, 8, 3>, Conv2d<8, 3, pad(1), dilation(4)>> {};

// case: drop_path_rate
// expect: layer 2 (DropPath<1.5>) has a rate outside [0, 1); its input is 8 from layer 1 (Linear<8>)
/* wrong */ struct Net : Sequential<Input<4>, Linear<8>, DropPath<1.5>> {};
/* right */ struct Net : Sequential<Input<4>, Linear<8>, DropPath<0.5>> {};

// case: dropout2d_after_flatten
// expect: layer 2 (Dropout2d<0.5>) expects height x width x channels; its input is 192 from layer 1 (Flatten)
/* wrong */ struct Net : Sequential<Input<8, 8, 3>, Flatten, Dropout2d<0.5>> {};
/* right */ struct Net : Sequential<Input<8, 8, 3>, Dropout2d<0.5>, Flatten> {};

// case: dropout_rate
// expect: layer 2 (Dropout<1.5>) has a rate outside [0, 1); its input is 8 from layer 1 (Linear<8>)
/* wrong */ struct Net : Sequential<Input<4>, Linear<8>, Dropout<1.5>> {};
/* right */ struct Net : Sequential<Input<4>, Linear<8>, Dropout<0.5>> {};

// case: embedding_after_a_layer
// expect: layer 2 (Embedding<10, 4>) reads an input of the network, of int32: put it after the Input or a FromInput; its input is 5 from layer 1 (Linear<5>)
/* wrong */ struct Net : Sequential<Input<3>, Linear<5>, Embedding<10, 4>> {};
/* right */ struct Net
    : Sequential<Input<3>, Linear<5>, Keep<"a">, FromInput<"word", 5>, Embedding<10, 1>, Flatten, AddFrom<"a">> {};

// case: embedding_with_another_padding
// expect: layer 1 (Embedding<10, 4>) has a padding that is not one of its ids; its input is 3 from the Input
/* wrong */ struct Net : Sequential<Input<3>, Embedding<10, 4, padding_id(10)>> {};
/* right */ struct Net : Sequential<Input<3>, Embedding<10, 4, padding_id(9)>> {};

// case: empty_list
// expect: a Sequential must have exactly one Input; this one has 0
/* wrong */ struct Net : Sequential<> {};
/* right */ struct Net : Sequential<Input<4>, Linear<2>> {};

// case: epsilon_of_a_layer_norm
// expect: layer 2 (LayerNorm<0>) has an epsilon that is not positive and finite; its input is 7 from layer 1 (Linear<7>)
/* wrong */ struct Net : Sequential<Input<4>, Linear<7>, LayerNorm<0.0>> {};
/* right */ struct Net : Sequential<Input<4>, Linear<7>, LayerNorm<0.5>> {};

// case: epsilon_of_a_root_mean_square
// expect: layer 2 (RMSNorm<-1>) has an epsilon that is not positive and finite; its input is 9 from layer 1 (Linear<9>)
/* wrong */ struct Net : Sequential<Input<4>, Linear<9>, RMSNorm<-1.0>> {};
/* right */ struct Net : Sequential<Input<4>, Linear<9>, RMSNorm<1.0>> {};

// case: groups_behind_flatten
// Behind an activation too. One group, and features that files have in the same order, are accepted.
// expect: would have groups of other features than PyTorch's, whose order behind a Flatten is channel, height, width: put it before the Flatten, or flatten by FlattenChannelsLast; its input is 48 from layer 2 (ReLU)
/* wrong */ struct Net : Sequential<Input<4, 4, 3>, Flatten, ReLU, GroupNorm<4>> {};
/* right */ struct Net : Sequential<Input<4, 4, 3>, FlattenChannelsLast, ReLU, GroupNorm<4>> {};
/* right */ struct OneGroup : Sequential<Input<4, 4, 3>, Flatten, ReLU, GroupNorm<1>> {};
/* right */ struct OfLinear : Sequential<Input<4, 4, 3>, Flatten, Linear<48>, GroupNorm<4>> {};
/* right */ struct OfOneChannel : Sequential<Input<4, 4, 1>, Flatten, GroupNorm<4>> {};

// case: groups_that_do_not_divide_the_channels
// The two compilers print the default argument of GroupNorm differently.
// expect: expects a multiple of its groups as channels; its input is 8 x 8 x 16 from layer 1 (Conv2d<16, 3>)
/* wrong */ struct Net : Sequential<Input<8, 8, 3>, Conv2d<16, 3>, GroupNorm<3>> {};
/* right */ struct Net : Sequential<Input<8, 8, 3>, Conv2d<16, 3>, GroupNorm<4>> {};

// case: initializer_given_twice
// expect: layer 1 (Linear<5>) is given an option twice; its input is 4 from the Input
/* wrong */ struct Net : Sequential<Input<4>, Linear<5, weights(normal(1)), weights(he_normal())>> {};
/* right */ struct Net : Sequential<Input<4>, Linear<5, weights(he_normal()), biases(constant(1))>> {};

// case: input_alone
// expect: a Sequential must have at least one layer after its Input
/* wrong */ struct Net : Sequential<Input<4>> {};
/* right */ struct Net : Sequential<Input<4>, Linear<2>> {};

// case: input_not_first
// expect: the Input must be the first module of a Sequential
/* wrong */ struct Net : Sequential<Linear<8>, Input<4>, Linear<2>> {};
/* right */ struct Net : Sequential<Input<4>, Linear<8>, Linear<2>> {};

// case: input_too_large
// An Input whose number of elements has more than 64 bits.
// expect: the Input, 4294967296 x 4294967296, has more than 2^40 elements
/* wrong */ struct Net : Sequential<Input<std::int64_t{1} << 32, std::int64_t{1} << 32>, Flatten, Linear<2>> {};
/* right */ struct Net : Sequential<Input<1 << 16, 1 << 16>, Flatten, Linear<2>> {};

// case: instance_norm_of_one_pixel
// expect: has one value per channel, whose mean is that value; its input is 1 x 1 x 16 from the Input
/* wrong */ struct Net : Sequential<Input<1, 1, 16>, InstanceNorm2d<>> {};
/* right */ struct Net : Sequential<Input<1, 2, 16>, InstanceNorm2d<>> {};

// case: output_padding_of_the_stride
// expect: layer 1 (ConvTranspose2d<8, 3>) has an output_padding of 2 x 2, which must be at least 0 and below the stride, 2 x 2; its input is 4 x 4 x 3 from the Input
/* wrong */ struct Net : Sequential<Input<4, 4, 3>, ConvTranspose2d<8, 3, stride(2), output_padding(2)>> {};
/* right */ struct Net : Sequential<Input<4, 4, 3>, ConvTranspose2d<8, 3, stride(2), output_padding(1)>> {};

// case: kernel_too_large
// expect: layer 1 (Conv2d<8, 5>) has a kernel larger than its input; its input is 4 x 4 x 3 from the Input
/* wrong */ struct Net : Sequential<Input<4, 4, 3>, Conv2d<8, 5, valid>> {};
/* right */ struct Net : Sequential<Input<4, 4, 3>, Conv2d<8, 5, same>> {};

// case: kind_without_its_members
// A layer of the kind batch normalisation without the members that passes over the network read: everything that is
// missing is named at once.
// expect: layer 2 (norm, Normalise) has the kind batch_norm and lacks `static constexpr BatchNormStatistics statistics`, `static constexpr Parameters buffers(const Shape&)`
struct Normalise {
    static constexpr LayerKind kind = LayerKind::batch_norm;
    static constexpr ShapeResult output(const Shape& input) { return input; }
    static constexpr Parameters two(const char* first, const char* second, const Shape& input) {
        return {Parameter{.name = first, .shape = {input.channels()}},
                Parameter{.name = second, .shape = {input.channels()}}};
    }
    static constexpr Parameters parameters(const Shape& input) { return two("scale", "shift", input); }
    /* right */ static constexpr BatchNormStatistics statistics{.epsilon = 1e-5, .decay = 0.9};
    /* right */ static constexpr Parameters buffers(const Shape& input) { return two("mean", "variance", input); }
};
struct Net : Sequential<Input<8, 8, 3>, Conv2d<8, 3>, Named<"norm", Normalise>> {};

// case: layer_without_backward
// expect: layer 2 (double, Twice) has no backward on Host: its operation lacks `void backward(const BackwardArgs&)`
// case: layer_without_forward
// expect: layer 2 (double, Twice) has no forward on Host: its operation lacks `void forward(const ForwardArgs&)`
// case: layer_without_operation
// expect: layer 2 (double, Twice) has no `static auto operation(const BuildContext&)` for Host
struct Twice {
    static constexpr ShapeResult output(const Shape& input) { return input; }
    struct Operation {
        /* layer_without_forward */ void forward(const ForwardArgs<Host>&) {}
        /* layer_without_backward */ void backward(const BackwardArgs<Host>&) {}
    };
    /* layer_without_operation */ static Operation operation(const BuildContext<Host>&) { return {}; }
};
struct Net : Sequential<Input<4>, Linear<8>, Named<"double", Twice>, Linear<3>> {};

// fit: Net, CrossEntropy<3>, Sgd, ConcatMean

// case: layer_without_bfloat16
// expect: layer 2 (double, Twice) has no `static auto operation(const BuildContext&)` for Host in bfloat16
struct Twice {
    static constexpr ShapeResult output(const Shape& input) { return input; }
    struct Operation {
        void forward(const ForwardArgs<Host>&) {}
        void backward(const BackwardArgs<Host>&) {}
    };
    static Operation operation(const BuildContext<Host>&) { return {}; }
};
struct Net : Sequential<Input<4>, Linear<8>, Named<"double", Twice>, Linear<3>> {};
/* wrong */ struct Computed : InPrecision<MixedBFloat16, Net> {};
/* right */ struct Computed : InPrecision<Float32, Net> {};

// fit: Computed, CrossEntropy<3>, Sgd, ConcatMean

// case: layout_of_other_features
// expect: layer 2 (Scale) has a parameter of the layout input_features whose last extent is not that of its input; its input is 8 from layer 1 (Linear<8>)
struct Scale {
    static constexpr ShapeResult output(const Shape& input) { return input; }
    static constexpr Parameters parameters(const Shape& input) {
        /* wrong */ return Parameter{.name = "scale", .shape = {input[0], 1}, .layout = FileLayout::input_features};
        /* right */ return Parameter{.name = "scale", .shape = {1, input[0]}, .layout = FileLayout::input_features};
    }
};
struct Net : Sequential<Input<4>, Linear<8>, Scale> {};

// case: mismatched_layer
// A Linear layer after images that were not flattened: the first error is reported, with the extents on both sides, and
// nothing after it.
// expect: layer 3 (local3, Linear<384>) expects one extent, the features: put Flatten before it, or apply it per_position; its input is 12 x 12 x 64 from layer 2 (MaxPool2d<3, 2>)
/* wrong */ struct Net
    : Sequential<Input<24, 24, 3>, Conv2d<64, 5>, MaxPool2d<3, 2>, Named<"local3", Linear<384>>, Linear<10>> {};
/* right */ struct Net
    : Sequential<Input<24, 24, 3>, Conv2d<64, 5>, MaxPool2d<3, 2>, Flatten, Named<"local3", Linear<384>>, Linear<10>> {
};

// case: module_that_is_no_layer
// expect: layer 2 (Softshrink) is not a layer: it lacks `static constexpr ShapeResult output(const Shape&)`
struct Softshrink {};

/* wrong */ struct Net : Sequential<Input<4>, Linear<8>, Softshrink, Linear<2>> {};
/* right */ struct Net : Sequential<Input<4>, Linear<8>, ReLU, Linear<2>> {};

// case: output_too_large
// An output whose number of elements has more than 64 bits.
// expect: layer 1 (Upsample2d<1073741824>) has an output of more than 2^40 elements per sample; its input is 4 x 4 x 3 from the Input
/* wrong */ struct Net : Sequential<Input<4, 4, 3>, Upsample2d<std::int64_t{1} << 30>> {};
/* right */ struct Net : Sequential<Input<4, 4, 3>, Upsample2d<std::int64_t{1} << 10>> {};

// case: parameter_of_two_layers
// A parameter without a name has the name of its layer, which another one's may be too.
// expect: layers 1 and 2 both have a parameter block.scale
template <bool named>
struct Scale {
    static constexpr ShapeResult output(const Shape& input) { return input; }
    static constexpr Parameters parameters(const Shape& input) {
        return Parameter{.name = named ? "scale" : "", .shape = input};
    }
};
/* wrong */ struct Net : Sequential<Input<4>, Named<"block", Scale<true>>, Named<"block.scale", Scale<false>>> {};
/* right */ struct Net : Sequential<Input<4>, Named<"block", Scale<false>>, Named<"block.scale", Scale<false>>> {};

// case: parameter_too_large
// A weight whose number of elements has more than 64 bits.
// expect: layer 1 (Linear<1099511627776>) has a parameter of more than 2^40 elements; its input is 1099511627776 from the Input
/* wrong */ struct Net : Sequential<Input<std::int64_t{1} << 40>, Linear<std::int64_t{1} << 40>> {};
/* right */ struct Net : Sequential<Input<std::int64_t{1} << 19>, Linear<std::int64_t{1} << 19>> {};

// case: parameters_of_the_same_name
// expect: layer 1 (Scale) has two parameters or buffers of the same name; its input is 4 from the Input
struct Scale {
    static constexpr ShapeResult output(const Shape& input) { return input; }
    static constexpr Parameters parameters(const Shape& input) { return Parameter{.name = "scale", .shape = input}; }
    /* wrong */ static constexpr Parameters buffers(const Shape& input) { return parameters(input); }
    /* right */ static constexpr Parameters buffers(const Shape&) { return Parameter{.name = "count", .shape = {1}}; }
};
struct Net : Sequential<Input<4>, Scale> {};

// case: parameters_too_large_together
// Weights of a size that each may have, and all together not.
// expect: layer 2 (Linear<1048575>) has parameters that together with those of the layers before it are more than 2^40 elements
/* wrong */ struct Net : Sequential<Input<1 << 20>, Linear<1 << 20, no_bias>, Linear<(1 << 20) - 1>> {};
/* right */ struct Net : Sequential<Input<1 << 20>, Linear<1 << 20, no_bias>> {};

// case: padding_below_zero
// expect: layer 1 (Pad2d<1, -1>) has a negative number of rows or columns: Crop2d removes them; its input is 8 x 8 x 3 from the Input
/* wrong */ struct Net : Sequential<Input<8, 8, 3>, Pad2d<1, -1>> {};
/* right */ struct Net : Sequential<Input<8, 8, 3>, Pad2d<1, 0>> {};

// case: pooling_of_an_image_as_a_sequence
// expect: layer 1 (MaxPool1d<2, 1>) expects length x channels; its input is 8 x 8 x 3 from the Input
/* wrong */ struct Net : Sequential<Input<8, 8, 3>, MaxPool1d<2, 1>> {};
/* right */ struct Net : Sequential<Input<8, 3>, MaxPool1d<2, 1>> {};

// case: pooling_option_as_stride
// expect: layer 1 (MaxPool2d<3>) expects its window, n or window(height, width), and then its stride, n or stride(height, width); its input is 8 x 8 x 3 from the Input
/* wrong */ struct Net : Sequential<Input<8, 8, 3>, MaxPool2d<3, pad(1)>> {};
/* right */ struct Net : Sequential<Input<8, 8, 3>, MaxPool2d<3, 3, pad(1)>> {};

// case: pooling_padding_larger_than_half
// expect: layer 1 (MaxPool2d<3, 2>) has a padding of more than half of its window: MaxPool2d 3 x 3, stride 2, pad 2; its input is 8 x 8 x 3 from the Input
/* wrong */ struct Net : Sequential<Input<8, 8, 3>, MaxPool2d<3, 2, pad(2)>> {};
/* right */ struct Net : Sequential<Input<8, 8, 3>, MaxPool2d<3, 2, pad(1)>> {};

// case: pooling_rounds_up_with_same
// expect: layer 1 (AvgPool2d<3, 2>) accepts ceil_mode only with valid or pad(n): same rounds up already; its input is 8 x 8 x 3 from the Input
/* wrong */ struct Net : Sequential<Input<8, 8, 3>, AvgPool2d<3, 2, ceil_mode>> {};
/* right */ struct Net : Sequential<Input<8, 8, 3>, AvgPool2d<3, 2, valid, ceil_mode>> {};

// case: pooling_window_longer_than_the_sequence
// expect: layer 1 (AvgPool1d<5, 1>) has a window larger than its input: AvgPool1d 5, stride 1, valid; its input is 4 x 3 from the Input
/* wrong */ struct Net : Sequential<Input<4, 3>, AvgPool1d<5, 1, valid>> {};
/* right */ struct Net : Sequential<Input<4, 3>, AvgPool1d<4, 1, valid>> {};

// case: pooling_window_too_large
// expect: layer 2 (MaxPool2d<3, 2>) has a window larger than its input: MaxPool2d 3 x 3, stride 2; its input is 2 x 2 x 3 from layer 1 (MaxPool2d<3, 2>)
/* wrong */ struct Net : Sequential<Input<4, 4, 3>, MaxPool2d<3, 2>, MaxPool2d<3, 2>> {};
/* right */ struct Net : Sequential<Input<4, 4, 3>, MaxPool2d<3, 2>, MaxPool2d<2, 2>> {};

// case: reshape_of_another_size
// expect: layer 1 (Reshape<-1, 7>) expects as many elements as in n x 7; its input is 8 x 8 x 3 from the Input
/* wrong */ struct Net : Sequential<Input<8, 8, 3>, Reshape<-1, 7>> {};
/* right */ struct Net : Sequential<Input<8, 8, 3>, Reshape<-1, 6>> {};

// case: stride_too_large
// A stride whose sum with the image's height has more than 64 bits.
// expect: layer 1 (Conv2d<4, 3>) has an input, a kernel, a stride or a padding of more than 2^29 rows or columns
/* wrong */ struct Net : Sequential<Input<8, 8, 3>, Conv2d<4, 3, stride(INT64_MAX)>> {};
/* right */ struct Net : Sequential<Input<8, 8, 3>, Conv2d<4, 3, stride(1 << 29)>> {};

// case: transposed_groups_of_input
// expect: layer 1 (ConvTranspose2d<8, 3>) has 4 groups, which do not divide the channels of its input; its input is 8 x 8 x 6 from the Input
/* wrong */ struct Net : Sequential<Input<8, 8, 6>, ConvTranspose2d<8, 3, groups(4)>> {};
/* right */ struct Net : Sequential<Input<8, 8, 6>, ConvTranspose2d<8, 3, groups(2)>> {};

// case: two_inputs
// expect: a Sequential must have exactly one Input; this one has 2
/* wrong */ struct Net : Sequential<Input<4>, Linear<8>, Input<8>, Linear<2>> {};
/* right */ struct Net : Sequential<Input<4>, Linear<8>, Linear<2>> {};

// case: unknown_option
// expect: layer 1 (Conv2d<8, 3, 2>) accepts only the options stride(n), same, valid, pad(n), dilation(n), groups(n), depthwise, no_bias, weights(...) and biases(...); its input is 4 x 4 x 3 from the Input
/* wrong */ struct Net : Sequential<Input<4, 4, 3>, Conv2d<8, 3, 2>> {};
/* right */ struct Net : Sequential<Input<4, 4, 3>, Conv2d<8, 3, stride(2)>> {};

// case: unknown_option_of_an_activation
// expect: layer 2 (GELU<2>) accepts only the option tanh_approximation; its input is 8 from layer 1 (Linear<8>)
/* wrong */ struct Net : Sequential<Input<4>, Linear<8>, GELU<2>> {};
/* right */ struct Net : Sequential<Input<4>, Linear<8>, GELU<tanh_approximation>> {};

// case: unknown_option_of_a_slope
// expect: layer 2 (PReLU<2>) accepts only the options weight_per_channel and weights(...); its input is 8 from layer 1 (Linear<8>)
/* wrong */ struct Net : Sequential<Input<4>, Linear<8>, PReLU<2>> {};
/* right */ struct Net : Sequential<Input<4>, Linear<8>, PReLU<weight_per_channel>> {};

// case: zero_dilation
// expect: layer 1 (Conv2d<8, 3>) has the dilation 0, which must be at least 1; its input is 4 x 4 x 3 from the Input
/* wrong */ struct Net : Sequential<Input<4, 4, 3>, Conv2d<8, 3, dilation(0)>> {};
/* right */ struct Net : Sequential<Input<4, 4, 3>, Conv2d<8, 3, dilation(1)>> {};

// case: zero_groups
// expect: layer 1 (Conv2d<8, 3>) has the number of groups 0, which must be at least 1; its input is 4 x 4 x 3 from the Input
/* wrong */ struct Net : Sequential<Input<4, 4, 3>, Conv2d<8, 3, groups(0)>> {};
/* right */ struct Net : Sequential<Input<4, 4, 3>, Conv2d<8, 3, groups(1)>> {};

// case: zero_sized_convolution
// expect: layer 1 (Conv2d<0, 3>) has the number of channels 0, which must be at least 1; its input is 4 x 4 x 3 from the Input
/* wrong */ struct Net : Sequential<Input<4, 4, 3>, Conv2d<0, 3>> {};
/* right */ struct Net : Sequential<Input<4, 4, 3>, Conv2d<1, 3>> {};

// case: zero_sized_input
// expect: the Input, 0, has an extent below 1
/* wrong */ struct Net : Sequential<Input<0>, Linear<2>> {};
/* right */ struct Net : Sequential<Input<1>, Linear<2>> {};

// case: zero_sized_linear
// expect: layer 1 (Linear<0>) has the number of features 0, which must be at least 1; its input is 4 from the Input
/* wrong */ struct Net : Sequential<Input<4>, Linear<0>> {};
/* right */ struct Net : Sequential<Input<4>, Linear<1>> {};

// case: zero_sized_window
// expect: layer 1 (MaxPool2d<0, 1>) has a window or a stride of less than 1: MaxPool2d 0 x 0, stride 1; its input is 4 x 4 x 3 from the Input
/* wrong */ struct Net : Sequential<Input<4, 4, 3>, MaxPool2d<0, 1>> {};
/* right */ struct Net : Sequential<Input<4, 4, 3>, MaxPool2d<1, 1>> {};

// case: zero_stride
// expect: layer 1 (Conv2d<8, 3>) has the stride 0, which must be at least 1; its input is 4 x 4 x 3 from the Input
/* wrong */ struct Net : Sequential<Input<4, 4, 3>, Conv2d<8, 3, stride(0)>> {};
/* right */ struct Net : Sequential<Input<4, 4, 3>, Conv2d<8, 3, stride(1)>> {};

// case: onnx_of_a_layer_without_a_form
// expect: layer 2 (double, Twice) has no form in ONNX: it lacks `static constexpr GraphOperators onnx(const Shape& input)`
#include <cupola/io/onnx.hpp>

struct Twice {
    static constexpr ShapeResult output(const Shape& input) { return input; }
    /* right */ static constexpr GraphOperators onnx(const Shape&) { return GraphOperator("Add").input().input(); }
};
struct Net : Sequential<Input<4>, Linear<8>, Named<"double", Twice>, Dropout<0.5>, Linear<3>> {};

void write(const TrainingState& state) { write_onnx<Net>("x.onnx", state); }
