// SPDX-License-Identifier: Apache-2.0
// Covers: cupola/ops/host/onednn_primitive.hpp
//
// One oneDNN primitive: what is rejected before it can run, and how a layout is changed.
#include "../test.hpp"

#include <cupola/ops/host/onednn_primitive.hpp>

#include "../throws_with.hpp"

namespace {

/// A convolution whose weights stay in the plain layout, which oneDNN 3.2 can do by its reference code only.
impl::DnnlCall plain_convolution(const HostContext& context) {
    const auto source = impl::dnnl_tensor({2, 64, 12, 12}, dnnl_nhwc);
    const auto weight = impl::dnnl_tensor({64, 64, 5, 5}, dnnl_ohwi);
    const auto attributes = impl::dnnl_attributes();
    const dnnl_dims_t ones{1, 1}, zeros{0, 0}, twos{2, 2};
    impl::DnnlPrimitiveDesc description;
    const dnnl_status_t status = dnnl_convolution_forward_primitive_desc_create(
        description.out(), context.engine(), dnnl_forward_training, dnnl_convolution_direct, source.get(), weight.get(),
        nullptr, source.get(), ones, zeros, twos, twos, attributes.get());
    return impl::DnnlCall(context, status, std::move(description), "convolution");
}

}  // namespace

TEST_CASE("an operation that oneDNN has only as reference code is rejected") {
    const HostContext context(0, {});
    const std::string message = message_of<DeviceError>([&] { plain_convolution(context); });
    CHECK(message.substr(0, message.find('(')) ==
          text("oneDNN ", Host::library_version(), " has only its reference code "));
    CHECK(contains(message, "(ref"));
    CHECK(contains(message, ") for convolution of this shape on this processor"));
}

TEST_CASE("an operation that oneDNN does not have is rejected with oneDNN's reason") {
    const HostContext context(0, {});
    const std::string message = message_of<DeviceError>(
        [&] { impl::DnnlCall(context, dnnl_unimplemented, impl::DnnlPrimitiveDesc{}, "input gradient of a pooling"); });
    CHECK(message ==
          text("oneDNN ", Host::library_version(), " has no input gradient of a pooling of this shape: unimplemented"));
}

TEST_CASE("a tensor that oneDNN cannot describe is rejected with the call's name") {
    CHECK(message_of<DeviceError>([] {
              impl::dnnl_tensor({-1, 2}, dnnl_ab);
          }) == "oneDNN's dnnl_memory_desc_create_with_tag failed: invalid_arguments");
    CHECK_THROWS_AS(impl::dnnl_tensor({1, 2, 3}, dnnl_ab), DeviceError);
}

TEST_CASE("a call has no more arguments than it has room for") {
    const HostContext context(0, {});
    const auto plain = impl::dnnl_tensor({4, 4}, dnnl_ab), transposed = impl::dnnl_tensor({4, 4}, dnnl_ba);
    impl::DnnlCall call = impl::dnnl_reorder(context, plain.get(), transposed.get());
    CHECK(message_of<DeviceError>([&] {
              for (int i = 0; i < 10; ++i) call.add(DNNL_ARG_FROM, plain.get());
          }) == "a oneDNN call has more than 6 arguments");
}

TEST_CASE("a reorder changes the layout, and adds if requested") {
    const HostContext context(0, {.threads = 2});
    const auto team = context.team();
    const auto plain = impl::dnnl_tensor({3, 5}, dnnl_ab), transposed = impl::dnnl_tensor({3, 5}, dnnl_ba);
    std::vector<float> from(15), to(15, 100.0F), before = to;
    for (std::size_t i = 0; i < 15; ++i) from[i] = static_cast<float>(i);
    for (const bool sum : {false, true}) {
        CAPTURE(sum);
        to = before;
        impl::DnnlCall call = impl::dnnl_reorder(context, plain.get(), transposed.get(), sum);
        std::vector<std::byte> scratch(call.scratch_bytes() + 1);
        call.run(scratch.data(), {from.data(), to.data()});
        bool right = true;
        for (std::size_t i = 0; i < 3; ++i)
            for (std::size_t j = 0; j < 5; ++j)
                right = right && to[j * 3 + i] == from[i * 5 + j] + (sum ? 100.0F : 0.0F);
        CHECK(right);
    }
}

TEST_CASE("a default-constructed call is empty") { CHECK_FALSE(impl::DnnlCall()); }

TEST_CASE("a call can be moved") {
    const HostContext context(0, {});
    const auto plain = impl::dnnl_tensor({2, 2}, dnnl_ab), transposed = impl::dnnl_tensor({2, 2}, dnnl_ba);
    impl::DnnlCall first = impl::dnnl_reorder(context, plain.get(), transposed.get());
    impl::DnnlCall second;
    second = std::move(first);
    const std::vector<float> from{1, 2, 3, 4};
    std::vector<float> to(4);
    std::vector<std::byte> scratch(second.scratch_bytes() + 1);
    second.run(scratch.data(), {from.data(), to.data()});
    CHECK(to == std::vector<float>{1, 3, 2, 4});
}
