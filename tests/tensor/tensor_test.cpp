// SPDX-License-Identifier: Apache-2.0
#include <cupola/tensor/tensor.hpp>

#include "../test.hpp"

#include "devices.hpp"
#include "throws_with.hpp"

using Images = Tensor<Host, float, Extents<2, 3, 4>>;
static_assert(Images::element_type == ElementType::float32);
static_assert(std::convertible_to<TensorView<float, Extents<2>>, TensorView<const float, Extents<2>>>);
static_assert(!std::convertible_to<TensorView<const float, Extents<2>>, TensorView<float, Extents<2>>>);
static_assert(!std::is_invocable_v<TensorView<float, Extents<2>>, int>);  // one index an extent, and the sample's

TYPED_TEST_CASE("a tensor is copied to a device and back unchanged", D, Devices) {
    typename D::Context context(0, device_options<D>(1));
    std::vector<float> numbers(5 * 24);
    for (std::size_t i = 0; i < numbers.size(); ++i) numbers[i] = static_cast<float>(i);
    const TensorView<const float, Extents<2, 3, 4>> from{std::span<const float>(numbers)};
    CHECK(from.batch() == 5);
    Tensor<D, float, Extents<2, 3, 4>> tensor(5);
    CHECK(tensor.size() == 120);
    copy_from_host(context, tensor, from);
    std::vector<float> back(numbers.size());
    const TensorView<float, Extents<2, 3, 4>> to{std::span<float>(back)};
    copy_to_host(context, to, tensor);
    CHECK(back == numbers);
    Tensor<D, float, Extents<2, 3, 4>> other(4);
    CHECK(message_of<InvalidArgument>([&] { copy_from_host(context, other, from); }) ==
          "a tensor of 5 samples cannot be copied to one of 4");
}

TEST_CASE("elements are addressed by sample, row, column and channel, channels last") {
    Images images(2);
    CHECK(images(1, 1, 2, 3) == 0.0F);
    images(1, 1, 2, 3) = 5.0F;
    CHECK(images.data()[47] == 5.0F);
    const Images& reading = images;
    CHECK(reading(1, 1, 2, 3) == 5.0F);
    CHECK(reading.view().sample(1)[23] == 5.0F);
    CHECK(reinterpret_cast<std::uintptr_t>(images.data()) % alignment == 0);
}

TEST_CASE("sizes that fit no tensor are rejected with their numbers") {
    std::vector<float> seven(7);
    CHECK(message_of<InvalidArgument>([&] { TensorView<float, Extents<3>> view{std::span<float>(seven)}; }) ==
          "7 elements are not a whole number of samples of 3");
    CHECK(message_of<InvalidArgument>([] { Images images(-1); }) == "a tensor must have 0 or more samples, not -1");
    CHECK(message_of<OutOfMemory>([] { Tensor<Host, float, Extents<1 << 30>> all_bits(std::int64_t{1} << 32); }) ==
          "a tensor of 4294967296 samples needs 18446744073.7 GB, more than any computer has");
}
