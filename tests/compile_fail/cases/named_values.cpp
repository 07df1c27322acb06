// SPDX-License-Identifier: Apache-2.0

// case: duplicate_name
// Two layers of one name would be one entry in a checkpoint.
// expect: layers 1 and 3 have the same name, hidden
/* wrong */ struct Net : Sequential<Input<4>, Named<"hidden", Linear<8>>, ReLU, Named<"hidden", Linear<2>>> {};
/* right */ struct Net : Sequential<Input<4>, Named<"hidden", Linear<8>>, ReLU, Named<"output", Linear<2>>> {};

// case: input_of_other_extents
// expect: layer 4 (AddFrom<a>) cannot add: its input is 4 from layer 3 (FromInput<age>), and a is 5 from layer 1 (Linear<5>)
/* wrong */ struct Net : Sequential<Input<3>, Linear<5>, Keep<"a">, FromInput<"age", 4>, AddFrom<"a">> {};
/* right */ struct Net : Sequential<Input<3>, Linear<5>, Keep<"a">, FromInput<"age", 4>, Linear<5>, AddFrom<"a">> {};

// case: keep_with_another_name
// A Keep inside Named: the value would have two names.
// expect: Keep<skip> is a name: Named gives it no other one
/* wrong */ struct Net : Sequential<Input<8, 8, 3>, Conv2d<4, 3>, Named<"first", Keep<"skip">>, ReLU, AddFrom<"skip">> {
};
/* right */ struct Net : Sequential<Input<8, 8, 3>, Conv2d<4, 3>, Keep<"skip">, ReLU, Named<"sum", AddFrom<"skip">>> {};

// case: multiply_by_an_unknown_value
// expect: layer 5 (scale, MultiplyBy<gate>) reads a value that no Keep before it names; the names are map
/* wrong */ struct Net : Sequential<Input<8, 8, 3>, Conv2d<4, 3>, Keep<"map">, GlobalAvgPool2d, Linear<4>,
                                    Named<"scale", MultiplyBy<"gate">>> {};
/* right */ struct Net : Sequential<Input<8, 8, 3>, Conv2d<4, 3>, Keep<"map">, GlobalAvgPool2d, Linear<4>,
                                    Named<"scale", MultiplyBy<"map">>> {};

// case: multiply_by_other_extents
// A gate of other channels, and a map of other heights, which is not repeated.
// expect: layer 5 (MultiplyBy<map>) cannot multiply: its input is 3 from layer 4 (Linear<3>), and map is 8 x 8 x 4 from layer 1 (Conv2d<4, 3>)
/* wrong */ struct Net
    : Sequential<Input<8, 8, 3>, Conv2d<4, 3>, Keep<"map">, GlobalAvgPool2d, Linear<3>, MultiplyBy<"map">> {};
/* right */ struct Net
    : Sequential<Input<8, 8, 3>, Conv2d<4, 3>, Keep<"map">, GlobalAvgPool2d, Linear<4>, MultiplyBy<"map">> {};

// case: multiply_by_rows
// expect: layer 4 (MultiplyBy<map>) cannot multiply: its input is 1 x 8 x 4 from layer 3 (MaxPool2d<
// expect: ), and map is 8 x 8 x 4 from layer 1 (Conv2d<4, 3>)
/* wrong */ struct Net
    : Sequential<Input<8, 8, 4>, Conv2d<4, 3>, Keep<"map">, MaxPool2d<window(8, 1)>, MultiplyBy<"map">> {};
/* right */ struct Net : Sequential<Input<8, 8, 4>, Conv2d<4, 3>, Keep<"map">, MaxPool2d<8>, MultiplyBy<"map">> {};

// case: name_with_space
// expect: the name my layer contains a space, but lists of losses separate their names by spaces
/* wrong */ struct Net : Sequential<Input<4>, Named<"my layer", Linear<2>>> {};
/* right */ struct Net : Sequential<Input<4>, Named<"my_layer", Linear<2>>> {};

// case: named_value_before_it_exists
// expect: layer 2 (ConcatWith<skip>) reads a value before it exists: its Keep is further down in the list
/* wrong */ struct Net
    : Sequential<Input<8, 8, 3>, Conv2d<4, 3>, ConcatWith<"skip">, Conv2d<4, 3>, Keep<"skip">, ReLU> {};
/* right */ struct Net
    : Sequential<Input<8, 8, 3>, Conv2d<4, 3>, Keep<"skip">, Conv2d<4, 3>, ConcatWith<"skip">, ReLU> {};

// case: named_value_never_read
// A value with a name that nothing reads: a reader has been forgotten.
// expect: layer 2 (skip, Keep<skip>) keeps a value that nothing reads: AddFrom, MultiplyBy, ConcatWith and From read one
/* wrong */ struct Net : Sequential<Input<8, 8, 3>, Conv2d<4, 3>, Keep<"skip">, Conv2d<4, 3>, ReLU> {};
/* right */ struct Net : Sequential<Input<8, 8, 3>, Conv2d<4, 3>, Keep<"skip">, Conv2d<4, 3>, AddFrom<"skip">, ReLU> {};

// case: named_value_of_other_extents
// A sum of values with other extents: both are named, and where they come from.
// expect: layer 4 (AddFrom<skip>) cannot add: its input is 8 x 8 x 8 from layer 3 (Conv2d<8, 3>), and skip is 8 x 8 x 4 from layer 1 (Conv2d<4, 3>)
/* wrong */ struct Net : Sequential<Input<8, 8, 3>, Conv2d<4, 3>, Keep<"skip">, Conv2d<8, 3>, AddFrom<"skip">, ReLU> {};
/* right */ struct Net
    : Sequential<Input<8, 8, 3>, Conv2d<4, 3>, Keep<"skip">, Conv2d<8, 3>, ConcatWith<"skip">, ReLU> {};

// case: named_value_twice
// expect: layers 2 and 4 (Keep<skip>) both keep a value named skip
/* wrong */ struct Net : Sequential<Input<8, 8, 3>, Conv2d<4, 3>, Keep<"skip">, Conv2d<4, 3>, Keep<"skip">,
                                    Conv2d<4, 3>, AddFrom<"skip">> {};
/* right */ struct Net
    : Sequential<Input<8, 8, 3>, Conv2d<4, 3>, Keep<"skip">, Conv2d<4, 3>, Conv2d<4, 3>, AddFrom<"skip">> {};

// case: named_value_unknown
// A name that no Keep gives: the message lists those that there are.
// expect: layer 7 (AddFrom<smooth>) reads a value that no Keep before it names; the names are rough, sharp
/* wrong */ struct Net : Sequential<Input<8, 8, 3>, Conv2d<4, 3>, Keep<"rough">, Conv2d<4, 3>, Keep<"sharp">,
                                    Conv2d<4, 3>, AddFrom<"rough">, AddFrom<"smooth">> {};
/* right */ struct Net : Sequential<Input<8, 8, 3>, Conv2d<4, 3>, Keep<"rough">, Conv2d<4, 3>, Keep<"sharp">,
                                    Conv2d<4, 3>, AddFrom<"rough">, AddFrom<"sharp">> {};

// case: output_of_ids
// expect: layer 3 (copy, Output<copy>) reads FromInput<word> as float32, and layer 4 (Embedding<10, 4>) as int32
/* wrong */ struct Net : Sequential<Input<3>, Keep<"x">, FromInput<"word", 1>, Output<"copy">, Embedding<10, 4>,
                                    Output<"words">, From<"x">, Linear<4>> {};
/* right */ struct Net
    : Sequential<Input<3>, Keep<"x">, FromInput<"word", 1>, Embedding<10, 4>, Output<"words">, From<"x">, Linear<4>> {};

// case: output_of_the_input
// expect: layer 2 (Output<image>) is an end of the network whose value is the Input: it must come from a layer
/* wrong */ struct Net : Sequential<Input<4, 4, 3>, Flatten, Output<"image">, Linear<3>> {};
/* right */ struct Net : Sequential<Input<4, 4, 3>, Flatten, Linear<8>, Output<"image">, Linear<3>> {};

// case: value_dropped_by_from
// A branch whose end is not kept before the list goes on with another value.
// expect: layer 4 (From<in>) goes on with another value, and nothing reads the output of layer 3 (Conv2d<4, 3>): keep that with a Keep before it
/* wrong */ struct Net : Sequential<Input<8, 8, 3>, Conv2d<4, 3>, Keep<"in">, Conv2d<4, 3>, From<"in">, Conv2d<4, 1>> {
};
/* right */ struct Net : Sequential<Input<8, 8, 3>, Conv2d<4, 3>, Keep<"in">, Conv2d<4, 3>, Keep<"wide">, From<"in">,
                                    Conv2d<4, 1>, AddFrom<"wide">> {};

// case: value_dropped_by_from_input
// A branch whose end is not kept before the list goes on with another input.
// expect: layer 2 (FromInput<age>) goes on with another value, and nothing reads the output of layer 1 (Linear<5>): keep that with a Keep before it
/* wrong */ struct Net : Sequential<Input<3>, Linear<5>, FromInput<"age", 4>, Linear<5>> {};
/* right */ struct Net : Sequential<Input<3>, Linear<5>, Keep<"a">, FromInput<"age", 4>, Linear<5>, AddFrom<"a">> {};
