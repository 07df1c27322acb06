// SPDX-License-Identifier: Apache-2.0

// case: recompute_unknown_name
// expect: Recompute's pattern 'layer9.*' matches no layer and no block of the network; its outermost names are: stem, layer1, last
#include <cupola/net/recompute.hpp>
struct Net : Sequential<Input<8, 8, 3>, Named<"stem", Conv2d<4, 3>>, ReLU,
                        Named<"layer1.0", Residual<Identity, Conv2d<4, 3>>>, Flatten, Named<"last", Linear<2>>> {};
/* wrong */ struct Small : Recompute<Net, "layer9.*"> {};
/* right */ struct Small : Recompute<Net, "layer1.*"> {};
constexpr std::size_t blocks = recomputation<Small>().blocks;

// case: recompute_without_a_pattern
// expect: Recompute names no block; name at least one pattern, as in Recompute<Net, 'layer1.*'>
#include <cupola/net/recompute.hpp>
struct Net : Sequential<Input<5>, Named<"one", Linear<5>>, Sigmoid, Named<"two", Linear<4>>> {};
/* wrong */ struct Small : Recompute<Net> {};
/* right */ struct Small : Recompute<Net, "two"> {};
constexpr std::size_t blocks = recomputation<Small>().blocks;

// case: recompute_across_a_named_value
// A block that ends with the Keep is possible.
// expect: Recompute's block 'body' computes layer 2 (skip, Keep<skip>), which layer 4 (AddFrom<skip>) reads outside the block: only the last value of a block can be read behind it
#include <cupola/net/recompute.hpp>
struct Net : Sequential<Input<8, 8, 3>, Named<"body.a", Conv2d<4, 3>>, Keep<"skip">, Named<"body.b", Conv2d<4, 3>>,
                        AddFrom<"skip">, Named<"last", Conv2d<2, 3>>> {};
/* wrong */ struct Small : Recompute<Net, "body"> {};
/* right */ struct Small : Recompute<Net, "body.?"> {};
constexpr std::size_t blocks = recomputation<Small>().blocks;

// case: recompute_across_an_output
// expect: Recompute's block 'tail' computes layer 3 (found, Output<found>), which is an output of the network: only the last value of a block can be read behind it
#include <cupola/net/recompute.hpp>
struct Net : Sequential<Input<5>, Named<"tail.a", Linear<5>>, Sigmoid, Output<"found">, Named<"tail.b", Linear<4>>> {};
/* wrong */ struct Small : Recompute<Net, "tail"> {};
/* right */ struct Small : Recompute<Net, "tail.?"> {};
constexpr std::size_t blocks = recomputation<Small>().blocks;

// case: recompute_around_another_name
// expect: Recompute's block 'a' contains layer 3 (other, Linear<6>), which has another name
#include <cupola/net/recompute.hpp>
struct Net : Sequential<Input<5>, Named<"a.first", Linear<5>>, Sigmoid, Named<"other", Linear<6>>, Sigmoid,
                        Named<"a.second", Linear<4>>> {};
/* wrong */ struct Small : Recompute<Net, "a"> {};
/* right */ struct Small : Recompute<Net, "a.*"> {};
constexpr std::size_t blocks = recomputation<Small>().blocks;

// case: recompute_twice
// expect: Recompute's block 'deep' contains layer 2 (Sigmoid), which is in another block that is computed again
#include <cupola/net/recompute.hpp>
struct Net : Sequential<Input<5>, Named<"deep.first", Linear<5>>, Sigmoid, Named<"deep.second", Linear<8>>, Sigmoid,
                        Named<"last", Linear<4>>> {};
struct Part : Recompute<Net, "deep.second"> {};
/* wrong */ struct Small : Recompute<Part, "deep"> {};
/* right */ struct Small : Recompute<Part, "last"> {};
constexpr std::size_t blocks = recomputation<Small>().blocks;

// case: recompute_synchronized_statistics
// The two compilers print the default argument of BatchNorm2d differently.
// expect: Synchronized synchronizes the replicas in forward, and layer 2 (norm, BatchNorm2d
#include <cupola/net/recompute.hpp>
#include <cupola/parallel/synchronized.hpp>
struct Net
    : Sequential<Input<8, 8, 3>, Conv2d<4, 3>, Named<"norm", BatchNorm2d<>>, ReLU, Flatten, Named<"last", Linear<2>>> {
};
/* wrong */ struct Small : Recompute<Net, "norm"> {};
/* right */ struct Small : Recompute<Net, "last"> {};
using Training = DataParallel<Small, CrossEntropy<2>, Sgd, ConcatMean, Host, Synchronized>;
constexpr std::size_t size = sizeof(Training);

// case: recompute_of_a_network_with_an_error
// The network's own error is the only one.
// expect: layer 2 (narrow, Linear<8>) expects one extent, the features: put Flatten before it, or apply it per_position; its input is 6 x 6 x 4 from layer 1 (wide, Conv2d<4, 3>)
#include <cupola/net/recompute.hpp>
/* wrong */ struct Net
    : Sequential<Input<6, 6, 3>, Named<"wide", Conv2d<4, 3>>, Named<"narrow", Linear<8>>, Named<"late", Linear<2>>> {};
/* right */ struct Net : Sequential<Input<6, 6, 3>, Named<"wide", Conv2d<4, 3>>, Flatten, Named<"narrow", Linear<8>>,
                                    Named<"late", Linear<2>>> {};
struct Small : Recompute<Net, "late"> {};
constexpr std::size_t parameters = Small::parameter_elements;
