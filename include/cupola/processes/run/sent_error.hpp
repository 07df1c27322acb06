// SPDX-License-Identifier: Apache-2.0
//
// SentError: an exception in a form that a process sends to the others, which throw one of the same type.
#pragma once

#include <cstdint>
#include <exception>
#include <string>
#include <string_view>

#include <cupola/core/error.hpp>

namespace cupola { inline namespace CUPOLA_ABI { namespace impl {

struct SentError {
    enum class Kind : std::int32_t { none, argument, data, device, memory, diverged, differ };
    Kind kind = Kind::none;
    /// The members of DivergedError and ReplicasDiffer.
    std::int32_t number = 0;
    std::int64_t step = 0;
    char message[480] = {};

    SentError() = default;
    [[gnu::cold]] explicit SentError(const std::exception_ptr& error) {
        if (error == nullptr) return;
        std::string_view what = "unknown error";
        const auto keep = [&](const std::exception& cause, Kind of) {
            kind = of;
            what = cause.what();
            what.copy(message, sizeof message - 1);
        };
        try {
            std::rethrow_exception(error);
        } catch (const InvalidArgument& cause) {
            keep(cause, Kind::argument);
        } catch (const DataError& cause) {
            keep(cause, Kind::data);
        } catch (const OutOfMemory& cause) {
            keep(cause, Kind::memory);
        } catch (const DivergedError& cause) {
            keep(cause, Kind::diverged);
            number = cause.replica;
            step = cause.step;
        } catch (const ReplicasDiffer& cause) {
            keep(cause, Kind::differ);
            number = cause.device;
            step = cause.step;
        } catch (const std::exception& cause) {
            keep(cause, Kind::device);
        } catch (...) {
            kind = Kind::device;
            what.copy(message, sizeof message - 1);
        }
    }

    /// Throws an exception of the same type. The message names the process that sent it.
    [[noreturn, gnu::cold]] void throw_from(int process) const {
        const std::string what = text("process ", process, ": ", message);
        switch (kind) {
            case Kind::argument: throw InvalidArgument(what);
            case Kind::data: throw DataError(what);
            case Kind::memory: throw OutOfMemory(what);
            case Kind::diverged: throw DivergedError(what, step, number);
            case Kind::differ: throw ReplicasDiffer(what, step, number);
            case Kind::none:
            case Kind::device: break;
        }
        throw DeviceError(what);
    }
};

}}}  // namespace cupola::CUPOLA_ABI::impl
