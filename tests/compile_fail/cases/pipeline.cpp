// SPDX-License-Identifier: Apache-2.0

// case: pipeline_cut_in_a_block
// The shortcut would cross it too.
// expect: SplitAt names 'block.b', but a part cannot begin at layer 5 (block.b, Conv2d<4, 3>): layer 6 (block, Add) reads the output of layer 1 (Conv2d<4, 3>) across the cut
#include <cupola/net/pipeline/split.hpp>
struct Net : Sequential<Input<8, 8, 3>, Conv2d<4, 3>,
                        Named<"block", Residual<Identity, Named<"a", Conv2d<4, 3>>, Sigmoid, Named<"b", Conv2d<4, 3>>>>,
                        Flatten, Linear<2>> {};
/* wrong */ struct Cut : SplitAt<Net, "block.b"> {};
/* right */ struct Cut : SplitAt<Net, "block"> {};
constexpr std::size_t parts = part_count<Cut>;

// case: pipeline_cut_across_a_named_value
// expect: SplitAt names 'third', but a part cannot begin at layer 5 (third, Conv2d<4, 3>): layer 6 (AddFrom<skip>) reads the output of layer 1 (Conv2d<4, 3>) across the cut
#include <cupola/net/pipeline/split.hpp>
struct Net : Sequential<Input<8, 8, 3>, Conv2d<4, 3>, Keep<"skip">, Conv2d<4, 3>, Sigmoid, Named<"third", Conv2d<4, 3>>,
                        AddFrom<"skip">, Named<"last", Conv2d<2, 3>>> {};
/* wrong */ struct Cut : SplitAt<Net, "third"> {};
/* right */ struct Cut : SplitAt<Net, "last"> {};
constexpr std::size_t parts = part_count<Cut>;

// case: pipeline_cut_across_tied_parameters
// expect: SplitAt names 'between', but a part cannot begin at layer 3 (between, Linear<5>): layer 5 (Linear<5>) shares its parameters with layer 1 (shared, Linear<5>)
#include <cupola/net/pipeline/split.hpp>
struct Net : Sequential<Input<5>, Tied<"shared", Linear<5>>, Sigmoid, Named<"between", Linear<5>>, Sigmoid,
                        Tied<"shared", Linear<5>>, Sigmoid, Named<"last", Linear<4>>> {};
/* wrong */ struct Cut : SplitAt<Net, "between"> {};
/* right */ struct Cut : SplitAt<Net, "last"> {};
constexpr std::size_t parts = part_count<Cut>;

// case: pipeline_cut_at_an_unknown_name
// expect: SplitAt names 'layer2', which is no layer of the network; parts may begin at: second, last
#include <cupola/net/pipeline/split.hpp>
struct Net : Sequential<Input<5>, Linear<5>, Sigmoid, Named<"second", Linear<5>>, Sigmoid, Named<"last", Linear<4>>> {};
/* wrong */ struct Cut : SplitAt<Net, "layer2"> {};
/* right */ struct Cut : SplitAt<Net, "second"> {};
constexpr std::size_t parts = part_count<Cut>;

// case: pipeline_cuts_in_another_order
// expect: SplitAt names 'second' after 'last', which begins with the same layer or a later one
#include <cupola/net/pipeline/split.hpp>
struct Net : Sequential<Input<5>, Linear<5>, Sigmoid, Named<"second", Linear<5>>, Sigmoid, Named<"last", Linear<4>>> {};
/* wrong */ struct Cut : SplitAt<Net, "last", "second"> {};
/* right */ struct Cut : SplitAt<Net, "second", "last"> {};
constexpr std::size_t parts = part_count<Cut>;

// case: pipeline_more_parts_than_cuts
// expect: Split makes 4 parts of a network that can be cut into at most 3
#include <cupola/net/pipeline/split.hpp>
struct Net : Sequential<Input<5>, Linear<5>, Sigmoid, Linear<4>> {};
/* wrong */ struct Cut : Split<Net, 4> {};
/* right */ struct Cut : Split<Net, 3> {};
constexpr std::size_t parts = part_count<Cut>;

// case: pipeline_cut_twice
// expect: Split cuts a network that is cut already, into 2 parts
#include <cupola/net/pipeline/split.hpp>
struct Net : Sequential<Input<5>, Linear<5>, Sigmoid, Linear<4>> {};
struct Halves : Split<Net, 2> {};
/* wrong */ struct Cut : Split<Halves, 2> {};
/* right */ struct Cut : Split<Net, 3> {};
constexpr std::size_t parts = part_count<Cut>;

// case: pipeline_cut_and_chosen
// expect: ChosenSplit cuts a network that is cut already, into 2 parts
#include <cupola/net/pipeline/chosen_split.hpp>
struct Net : Sequential<Input<5>, Linear<5>, Sigmoid, Linear<4>> {};
struct Halves : Split<Net, 2> {};
/* wrong */ struct Cut : ChosenSplit<Halves> {};
/* right */ struct Cut : ChosenSplit<Net> {};
constexpr bool chosen = cut_is_chosen<Cut>;

// case: pipeline_chosen_and_cut
// expect: Split cuts a network of ChosenSplit, whose cut the options of a training choose
#include <cupola/net/pipeline/chosen_split.hpp>
struct Net : Sequential<Input<5>, Linear<5>, Sigmoid, Linear<4>> {};
struct Any : ChosenSplit<Net> {};
/* wrong */ struct Cut : Split<Any, 2> {};
/* right */ struct Cut : Split<Net, 2> {};
constexpr std::size_t parts = part_count<Cut>;

// case: pipeline_timetable_that_deadlocks
// expect: the timetable 1F1B of 2 parts and 8 batches deadlocks: action 1 of device 0, forward of part 0 for batch 1, never begins; the part has 1 slots
#include <cupola/net/pipeline/timetable.hpp>
struct FewSlots : OneForwardOneBackward {
    static constexpr std::int64_t slot_count(std::size_t part, std::size_t, std::int64_t) {
        /* wrong */ return part < 2 ? 1 : 0;
        /* right */ return part < 2 ? 2 : 0;
    }
};
constexpr auto slots = timetable<FewSlots, 2, 8>.slot_count;

// case: pipeline_chosen_on_a_device_that_queues
// expect: a network whose cut is chosen can be trained on Host and on Cuda, and not on Later, where passes are queued
#include <cupola/parallel/pipeline.hpp>
struct Net : Sequential<Input<6>, Linear<5>, Sigmoid, Linear<3>> {};
struct Any : ChosenSplit<Net> {};
struct Later : Host {
    static constexpr std::string_view name = "Later";
    static constexpr int max_steps_in_flight = 3;
};
/* wrong */ using Training = DataParallel<Any, CrossEntropy<3>, Sgd, ConcatMean, Later>;
/* right */ using Training = DataParallel<Any, CrossEntropy<3>, Sgd, ConcatMean, Host>;
static_assert(sizeof(Training) > 0);

// case: pipeline_with_synchronized_statistics
// expect: Synchronized synchronizes the replicas inside a pass, and the parts of a network that is cut run the passes of several batches at a time: use FirstReplica, LastReplica, AllReplicas or Pooled
// case: pipeline_of_asynchronous_replicas
// expect: with Hogwild no replica waits for another, and the parts of a network that is cut run the batches of a step together: train the network without its cuts
// case: pipeline_on_a_device_that_queues
// expect: a network that is cut into parts can be trained on Host and on Cuda, and not on Later, where passes are queued
// case: pipeline_with_a_divided_backward
// expect: the timetable Divided divides backward, which no plan of a network can do yet
#include <cupola/parallel/kinds/hogwild.hpp>
#include <cupola/parallel/pipeline.hpp>
#include <cupola/parallel/synchronized.hpp>
struct Net : Sequential<Input<6, 6, 3>, Conv2d<4, 3>, BatchNorm2d<>, Sigmoid, Named<"second", Conv2d<2, 3>>, Flatten,
                        Linear<3>> {};
struct Later : Host {
    static constexpr std::string_view name = "Later";
    static constexpr int max_steps_in_flight = 3;
};
struct Divided : GPipe {
    static constexpr std::string_view name = "Divided";
    static constexpr bool splits_backward = true;
};
struct Cut : SplitAt<Net, "second"> {
    /* wrong pipeline_with_a_divided_backward */ using PipelineTimetable = Divided;
    /* pipeline_with_a_divided_backward */ using PipelineTimetable = GPipe;
};
/* wrong pipeline_with_synchronized_statistics */ using Statistics = Synchronized;
/* pipeline_with_synchronized_statistics */ using Statistics = Pooled;
/* wrong pipeline_of_asynchronous_replicas */ using Averaging = Hogwild;
/* pipeline_of_asynchronous_replicas */ using Averaging = ConcatMean;
/* wrong pipeline_on_a_device_that_queues */ using Place = Later;
/* pipeline_on_a_device_that_queues */ using Place = Host;
using Training = DataParallel<Cut, CrossEntropy<3>, Sgd, Averaging, Place, Statistics>;
static_assert(sizeof(Training) > 0);
