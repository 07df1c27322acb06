// SPDX-License-Identifier: Apache-2.0
// Covers: cupola/layers/flatten_channels_last.hpp
//
// Flatten: one extent, no memory of its own.
#include "../test.hpp"

#include <cupola/device/host.hpp>
#include <cupola/layers/flatten.hpp>
#include <cupola/layers/flatten_channels_last.hpp>

#include "../devices.hpp"

static_assert(Flatten::output(Shape{6, 6, 64}).shape == Shape{2304});
static_assert(Flatten::output(Shape{2304}).shape == Shape{2304});
static_assert(parameters_of<Flatten>(Shape{6, 6, 64}).count == 0);
static_assert(kind_of<Flatten>() == LayerKind::view && !traits_of<Flatten>().backward_reads_input &&
              !traits_of<Flatten>().backward_reads_output);

// The same but for the order in files.
static_assert(FlattenChannelsLast::output(Shape{6, 6, 64}).shape == Shape{2304} &&
              LayerOn<FlattenChannelsLast, AnyDevice>);
static_assert(kind_of<FlattenChannelsLast>() == LayerKind::view &&
              !traits_of<FlattenChannelsLast>().backward_reads_input &&
              !traits_of<FlattenChannelsLast>().backward_reads_output);
static_assert(traits_of<Flatten>().flattens && !traits_of<FlattenChannelsLast>().flattens);
static_assert(description_of<Flatten>() == "Flatten" && description_of<FlattenChannelsLast>() == "FlattenChannelsLast");

TYPED_TEST_CASE("Flatten's operation touches nothing", D, Devices) {
    static_assert(LayerOn<Flatten, D>);
    typename D::Context context(0, device_options<D>(1));
    const BuildContext<D> build{.context = context, .batch = 1, .input = {2, 2, 2}, .output = {8}};
    auto operation = Flatten::operation(build);
    const MemoryNeeds needs = memory_needs(operation);
    CHECK(needs.packed + needs.saved + needs.scratch == 0);
    // All pointers are null: any access would end the process.
    CHECK_NOTHROW(operation.forward(ForwardArgs<D>{.context = context}));
    CHECK_NOTHROW(operation.backward(BackwardArgs<D>{{.context = context}}));
}
