// SPDX-License-Identifier: Apache-2.0
#include "transfer.hpp"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <memory>
#include <thread>

#include <curl/curl.h>
#include <unistd.h>

#include <cupola/core/error.hpp>

namespace cifar10 {

namespace {

using namespace cupola;

/// The archive has 170 MB.
constexpr std::uint64_t max_bytes = 1'000'000'000;

struct Transfer {
    int handle;
    const TransferProgress& progress;
    /// The size of the file so far.
    std::uint64_t size = 0;
    int write_error = 0;
    bool too_large = false;
};

/// libcurl's callbacks are C functions: no exception may leave them.
std::size_t write_some(char* bytes, std::size_t, std::size_t count, void* object) {
    auto& transfer = *static_cast<Transfer*>(object);
    transfer.too_large = transfer.size + count > max_bytes;
    if (transfer.too_large) return CURL_WRITEFUNC_ERROR;
    for (std::size_t done = 0; done < count;) {
        const ssize_t written = pwrite(transfer.handle, bytes + done, count - done, static_cast<off_t>(transfer.size));
        if (written < 0 && errno == EINTR) continue;
        if (written <= 0) {
            transfer.write_error = written < 0 ? errno : EIO;
            return CURL_WRITEFUNC_ERROR;
        }
        done += static_cast<std::size_t>(written);
        transfer.size += static_cast<std::uint64_t>(written);
    }
    return count;
}

int tell_progress(void* object, curl_off_t whole, curl_off_t came, curl_off_t, curl_off_t) {
    const auto& transfer = *static_cast<const Transfer*>(object);
    const auto before = transfer.size - static_cast<std::uint64_t>(came);
    transfer.progress(transfer.size, whole > 0 ? before + static_cast<std::uint64_t>(whole) : 0);
    return 0;
}

using Curl = std::unique_ptr<CURL, void (*)(CURL*)>;

template <class Value>
void set(const Curl& curl, CURLoption option, Value value) {
    const CURLcode code = curl_easy_setopt(curl.get(), option, value);
    require<DataError>(code == CURLE_OK, "libcurl ", curl_version(), " rejected an option: ", curl_easy_strerror(code));
}

[[nodiscard]] bool connection_broke(CURLcode code) {
    return code == CURLE_PARTIAL_FILE || code == CURLE_RECV_ERROR || code == CURLE_SEND_ERROR ||
           code == CURLE_GOT_NOTHING || code == CURLE_OPERATION_TIMEDOUT || code == CURLE_HTTP2 ||
           code == CURLE_HTTP2_STREAM;
}

void empty_file(const std::string& path, int handle) {
    require<DataError>(ftruncate(handle, 0) == 0, path, " cannot be written: ", std::strerror(errno));
}

}  // namespace

void transfer(const std::string& url, const std::string& path, int handle, const TransferProgress& progress) {
    static const CURLcode started = curl_global_init(CURL_GLOBAL_DEFAULT);
    const Curl curl(started == CURLE_OK ? curl_easy_init() : nullptr, &curl_easy_cleanup);
    require<DataError>(curl != nullptr, "libcurl ", curl_version(), " cannot be used here");
    Transfer state{.handle = handle, .progress = progress};
    char problem[CURL_ERROR_SIZE] = "";
    set(curl, CURLOPT_URL, url.c_str());
    set(curl, CURLOPT_PROTOCOLS_STR, "http,https,file");
    set(curl, CURLOPT_REDIR_PROTOCOLS_STR, "http,https");
    set(curl, CURLOPT_FOLLOWLOCATION, 1L);
    set(curl, CURLOPT_MAXREDIRS, 10L);
    set(curl, CURLOPT_FAILONERROR, 1L);
    set(curl, CURLOPT_NOSIGNAL, 1L);
    set(curl, CURLOPT_ERRORBUFFER, static_cast<char*>(problem));
    set(curl, CURLOPT_CONNECTTIMEOUT, 30L);
    // Less than one byte per second for a minute is treated as a broken connection.
    set(curl, CURLOPT_LOW_SPEED_LIMIT, 1L);
    set(curl, CURLOPT_LOW_SPEED_TIME, 60L);
    set(curl, CURLOPT_WRITEFUNCTION, &write_some);
    set(curl, CURLOPT_WRITEDATA, &state);
    set(curl, CURLOPT_NOPROGRESS, 0L);
    set(curl, CURLOPT_XFERINFOFUNCTION, &tell_progress);
    set(curl, CURLOPT_XFERINFODATA, &state);

    // The number of tries without a byte beyond the largest size so far: a server without ranges sends the same bytes
    // each time.
    constexpr int max_tries = 5;
    std::uint64_t furthest = 0;
    bool takes_ranges = true;
    for (int tries = 1;;) {
        const off_t end = lseek(handle, 0, SEEK_END);
        require<DataError>(end >= 0, path, " cannot be read: ", std::strerror(errno));
        const auto before = static_cast<std::uint64_t>(end);
        state.size = before;
        set(curl, CURLOPT_RESUME_FROM_LARGE, static_cast<curl_off_t>(end));
        const CURLcode code = curl_easy_perform(curl.get());
        if (code == CURLE_OK) return;
        long status = 0;
        curl_easy_getinfo(curl.get(), CURLINFO_RESPONSE_CODE, &status);
        if (state.write_error != 0 && !takes_ranges) empty_file(path, handle);
        require<DataError>(state.write_error == 0, path, " cannot be written: ", std::strerror(state.write_error),
                           ", after ", state.size, " bytes");
        if (state.too_large) {
            empty_file(path, handle);
            throw DataError(text(url, " is larger than ", max_bytes, " bytes"));
        }
        // The file was complete already; or it was too long, which the checksum detects.
        constexpr long range_not_satisfiable = 416;
        if (before > 0 && status == range_not_satisfiable) return;
        if (before > 0 && (code == CURLE_RANGE_ERROR || code == CURLE_BAD_DOWNLOAD_RESUME)) {
            takes_ranges = false;
            empty_file(path, handle);
            continue;
        }
        constexpr long first_server_error = 500;
        const bool again = connection_broke(code) || status >= first_server_error;
        tries = state.size > furthest ? 1 : tries + 1;
        furthest = std::max(furthest, state.size);
        if (!again || tries > max_tries) {
            const std::string reason = code == CURLE_HTTP_RETURNED_ERROR
                                           ? text("the server answered with status ", status)
                                           : std::string(problem[0] != '\0' ? problem : curl_easy_strerror(code));
            if (!takes_ranges) empty_file(path, handle);
            throw DataError(text(
                url, " cannot be downloaded: ", reason,
                state.size == 0 ? std::string()
                : takes_ranges
                    ? text("; ", state.size, " bytes are kept, and the next attempt continues from them")
                    : std::string(
                          "; this server does not send parts of a file: the next attempt starts from the beginning")));
        }
        std::this_thread::sleep_for(std::chrono::milliseconds(200 << tries));
    }
}

}  // namespace cifar10
