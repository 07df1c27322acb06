// SPDX-License-Identifier: Apache-2.0
//
// Work that is captured and launched again: see ../cuda.hpp in this folder. Its arguments are those of the capture.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

#include <cupola/device/cuda.hpp>

namespace cupola::inline CUPOLA_ABI {

namespace impl {

class CapturedWork {
public:
    static constexpr std::size_t node_types = 16;
    using Nodes = std::array<std::int64_t, node_types>;

    template <class Body>
    void capture(const CudaContext& context, Body&& body) {
        destroy();
        const auto scope = context.team();
        context.stream()->begin_capture(&list_);
        try {
            body();
            if (OnHost::refuse_captures) throw CaptureRefused("the test refuses captures");
        } catch (const DeviceError& error) {
            refused_ = error.what();
        } catch (...) {
            context.stream()->end_capture();
            list_.clear();
            throw;
        }
        context.stream()->end_capture();
        captured_ = refused_.empty();
        if (!captured_) list_.clear();
        if (captured_) ++OnHost::captures;
    }
    [[nodiscard]] bool captured() const { return captured_; }
    [[nodiscard]] const std::string& refused() const { return refused_; }
    void launch(const CudaContext& context) const {
        require(captured(), "there is no captured work to launch", refused_.empty() ? "" : ": ", refused_);
        ++OnHost::launches_of_captures;
        context.stream()->queue_all(list_);
    }
    void destroy() {
        list_.clear();
        captured_ = false;
        refused_.clear();
    }
    /// All are kernels, the first type.
    [[nodiscard]] Nodes nodes() const { return {static_cast<std::int64_t>(list_.size())}; }

private:
    HostStream::List list_;
    std::string refused_;
    bool captured_ = false;
};

}  // namespace impl

}  // namespace cupola::inline CUPOLA_ABI
