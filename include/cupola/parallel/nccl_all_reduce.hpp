// SPDX-License-Identifier: Apache-2.0
//
// NcclAllReduce: one sum over the replicas' gradient arenas by NCCL, on the devices. It needs devices that NCCL knows; on
// `Host` it is refused at compile time, and `ConcatMean` averages there. The backend with such devices supplies it.
#pragma once

#include <string_view>

#include <cupola/parallel/averaging.hpp>

namespace cupola::inline CUPOLA_ABI {

struct NcclAllReduce {
    static constexpr std::string_view name = "NcclAllReduce";

    template <class Device>
    static consteval Sentence mistake() {
        Sentence sentence;
        if constexpr (!requires { Device::has_nccl; }) {
            sentence << "NcclAllReduce averages on devices that NCCL knows, and " << Device::name
                     << " is none: name ConcatMean instead";
        }
        return sentence;
    }
};

}  // namespace cupola::inline CUPOLA_ABI
