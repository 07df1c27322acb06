// SPDX-License-Identifier: Apache-2.0
//
// Every member of the exceptions, as a compiler generates it for the flags of a file.
#include <cupola/core/error.hpp>

template <class Exception, class... More>
[[gnu::used]] void use(const std::string& text, More... more) {
    Exception first(text, more...), second = first;
    second = first;
    throw second;
}

using namespace cupola;

template void use<Error>(const std::string&);
template void use<InvalidArgument>(const std::string&);
template void use<DataError>(const std::string&);
template void use<UnreadableFile>(const std::string&, int);
template void use<DeviceError>(const std::string&);
template void use<DeviceLost>(const std::string&);
template void use<OutOfMemory>(const std::string&);
template void use<DivergedError>(const std::string&, std::int64_t, int);
template void use<ReplicasDiffer>(const std::string&, std::int64_t, int);
template void use<ProcessLost>(const std::string&, double);
