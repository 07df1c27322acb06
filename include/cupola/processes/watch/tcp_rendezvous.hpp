// SPDX-License-Identifier: Apache-2.0
//
// TcpRendezvous: process 0 of a training sends a few bytes to the others by TCP. It listens; each of the others
// connects and identifies itself; when all are connected, each receives the bytes.
//
//   other -> process 0    Hello
//   process 0 -> other    Answer, immediately; if it accepts, a second one with the bytes, or with the reason why there
//                         are none
//
// Connections of other programs are refused and do not disturb the rendezvous. Every wait has a deadline, and every
// error contains the address. The bytes are not encrypted: the network must be trusted, as for NCCL itself.
#pragma once

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cupola/core/error.hpp>
#include <cupola/core/monotonic_seconds.hpp>
#include <cupola/core/process_number.hpp>
#include <cupola/processes/watch/socket.hpp>

namespace cupola { inline namespace CUPOLA_ABI { namespace impl {

/// The address of a rendezvous, and the process that takes part.
struct RendezvousOptions {
    /// "host:port", or "[host]:port" for a host with colons.
    std::string address{};
    ProcessNumber process{};
    /// The launcher's name of the job; empty if unknown. Processes of jobs with different names refuse each other.
    std::string job{};
    /// The maximum time in seconds that processes wait for each other.
    double seconds = 120;
};

class TcpRendezvous {
public:
    static constexpr std::size_t max_bytes = 4096;

    /// Throws InvalidArgument for an invalid address.
    [[gnu::cold]] explicit TcpRendezvous(const RendezvousOptions& options) : options_(options) {
        const std::size_t colon = options.address.rfind(':');
        const std::string_view digits =
            std::string_view(options.address).substr(colon == std::string::npos ? options.address.size() : colon + 1);
        int port = 0;
        const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), port);
        host_ = options.address.substr(0, std::min(colon, options.address.size()));
        if (host_.size() > 2 && host_.front() == '[' && host_.back() == ']') host_ = host_.substr(1, host_.size() - 2);
        require(!host_.empty() && error == std::errc{} && end == digits.data() + digits.size() && port >= 1 &&
                    port <= 65535,
                "the address of process 0 must be a host, a colon and a port from 1 to 65535, not \"", options.address,
                '"');
        port_ = text(port);
        start_ = monotonic_seconds();
    }

    /// Called on process 0: sends `bytes` to all others once they have connected. Throws DeviceError if the port is in
    /// use, if the host is unknown, and at the deadline, with the numbers of the missing processes.
    [[gnu::cold]] void broadcast(std::string_view bytes) {
        require(bytes.size() <= max_bytes, "a rendezvous exchanges at most ", max_bytes, " bytes, not ", bytes.size());
        const Socket listener = listen_on_address();
        std::vector<Client> clients;
        while (!missing(clients).empty()) {
            if (seconds_left() <= 0) {
                const std::string message = missing_text(clients);
                for (const Client& each : clients) {
                    if (each.number > 0) send_all(each.socket, answer(refused, message));
                }
                throw DeviceError(message);
            }
            std::vector<pollfd> watched{{listener.get(), POLLIN, 0}};
            for (const Client& each : clients) watched.push_back({each.socket.get(), POLLIN, 0});
            poll(watched.data(), watched.size(), poll_ms);
            for (std::size_t i = clients.size(); i-- > 0;) {
                if (watched[i + 1].revents != 0 && !read_client(clients, i))
                    clients.erase(clients.begin() + static_cast<std::ptrdiff_t>(i));
            }
            if (watched[0].revents == 0) continue;
            Socket client(accept4(listener.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
            if (client.get() >= 0) clients.push_back({std::move(client), {}, 0});
        }
        for (const Client& each : clients) {
            if (each.number > 0) send_all(each.socket, answer(accepted, bytes));
        }
    }

    /// Called on the others: returns the bytes of process 0. Throws DeviceError if process 0 cannot be reached before
    /// the deadline, if another program answers at the address, and if process 0 refuses this process or reports its
    /// deadline.
    [[nodiscard, gnu::cold]] std::string receive() {
        const Socket socket = connect_to_first();
        Hello hello{};
        hello.count = options_.process.count;
        hello.number = options_.process.number;
        options_.job.copy(hello.job.data(), hello.job.size() - 1);
        send_all(socket, {reinterpret_cast<const char*>(&hello), sizeof hello});
        std::string received;
        read_answer(socket, received, "accepts connections, but has not answered");
        start_ = monotonic_seconds();  // process 0 may have started later, and waits as long
        options_.seconds += last_answer_seconds;
        return read_answer(socket, received, "waits for other processes, and has not given NCCL's id");
    }

private:
    static constexpr int poll_ms = 20;
    /// The time after its deadline in which process 0 reports the missing processes.
    static constexpr double last_answer_seconds = 1;
    static constexpr std::array<char, 16> magic{'c', 'u', 'p', 'o', 'l', 'a', '-', 'm',
                                                'e', 'e', 't', 'i', 'n', 'g', '-', '1'};
    static constexpr std::int32_t accepted = 1, refused = 2;

    struct Hello {
        std::array<char, 16> begin = magic;
        std::int32_t count = 0, number = 0;
        std::array<char, 128> job{};
    };
    struct Answer {
        std::array<char, 16> begin = magic;
        std::int32_t verdict = 0;
        std::uint32_t bytes = 0;
    };

    /// A connection to process 0; `number` is 0 until the client has sent a valid one.
    struct Client {
        Socket socket;
        std::string received;
        int number = 0;
    };

    [[nodiscard]] double seconds_left() const { return options_.seconds - (monotonic_seconds() - start_); }
    [[nodiscard]] static std::string error_text(int error) { return std::generic_category().message(error); }
    [[nodiscard]] static std::string answer(std::int32_t verdict, std::string_view bytes) {
        Answer head{};
        head.verdict = verdict;
        head.bytes = static_cast<std::uint32_t>(bytes.size());
        return std::string(reinterpret_cast<const char*>(&head), sizeof head).append(bytes);
    }
    /// Messages are far smaller than a socket's buffer. A closed connection is noticed when it is read.
    static void send_all(const Socket& socket, std::string_view bytes) {
        static_cast<void>(send(socket.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL));
    }
    /// Whether the received bytes can be the beginning of a message.
    [[nodiscard]] static bool begins_with_magic(std::string_view bytes) {
        const std::size_t count = std::min(bytes.size(), magic.size());
        return std::equal(magic.begin(), magic.begin() + static_cast<std::ptrdiff_t>(count), bytes.begin());
    }
    /// The first bytes of another program's message, for an error.
    [[nodiscard]] static std::string shown(std::string_view bytes) {
        std::string result;
        for (const char c : bytes.substr(0, 24)) result += c >= ' ' && c <= '~' ? c : '.';
        return result;
    }

    struct Free {
        void operator()(addrinfo* list) const { freeaddrinfo(list); }
    };
    using Addresses = std::unique_ptr<addrinfo, Free>;
    /// Resolves the host. Returns null, with the reason in `why`, if it is unknown.
    [[nodiscard]] Addresses addresses(std::string& why) const {
        addrinfo hints{};
        hints.ai_socktype = SOCK_STREAM;
        addrinfo* list = nullptr;
        const int status = getaddrinfo(host_.c_str(), port_.c_str(), &hints, &list);
        if (status != 0) why = text("the host ", host_, " is not known: ", gai_strerror(status));
        return Addresses(status == 0 ? list : nullptr);
    }

    /// Whether the host is a name, rather than an address or `localhost`.
    [[nodiscard]] bool is_name() const {
        if (host_ == "localhost" || host_.ends_with(".localhost")) return false;
        addrinfo hints{};
        hints.ai_flags = AI_NUMERICHOST;
        addrinfo* list = nullptr;
        const bool is_address = getaddrinfo(host_.c_str(), nullptr, &hints, &list) == 0;
        if (is_address) freeaddrinfo(list);
        return !is_address;
    }
    [[nodiscard]] static bool is_loopback(const sockaddr* at) {
        if (at->sa_family == AF_INET) {
            sockaddr_in address;
            std::memcpy(&address, at, sizeof address);
            return ntohl(address.sin_addr.s_addr) >> 24 == IN_LOOPBACKNET;
        }
        if (at->sa_family != AF_INET6) return false;
        sockaddr_in6 address;
        std::memcpy(&address, at, sizeof address);
        return IN6_IS_ADDR_LOOPBACK(&address.sin6_addr) != 0;
    }

    /// Listens on the host's own address, or on all interfaces if other machines cannot reach this one by that address:
    /// if it is not an address of this machine, or if the name is this machine's own, which Debian maps to 127.0.1.1.
    [[nodiscard]] Socket listen_on_address() {
        std::string why;
        int error = 0;
        if (const Addresses list = addresses(why)) {
            bool on_all = false;
            int family = AF_INET;
            for (const addrinfo* each = list.get(); each != nullptr; each = each->ai_next) {
                if (!is_loopback(each->ai_addr) || !is_name()) continue;
                on_all = true;
                if (each->ai_family == AF_INET6) family = AF_INET6;  // accepts connections of both families
            }
            for (const addrinfo* each = list.get(); each != nullptr && !on_all; each = each->ai_next) {
                Socket socket(::socket(each->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
                if (listens(socket, each->ai_addr, each->ai_addrlen, error)) return socket;
            }
            if (on_all || error == EADDRNOTAVAIL) {
                addrinfo hints{};
                hints.ai_socktype = SOCK_STREAM;
                hints.ai_family = family;
                hints.ai_flags = AI_PASSIVE;
                addrinfo* all = nullptr;
                if (getaddrinfo(nullptr, port_.c_str(), &hints, &all) == 0) {
                    const Addresses any(all);
                    Socket socket(::socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
                    const int off = 0;
                    if (family == AF_INET6) setsockopt(socket.get(), IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
                    if (listens(socket, any->ai_addr, any->ai_addrlen, error)) return socket;
                }
            }
            why = error == EADDRINUSE ? text("port ", port_, " is in use: choose another, by address or MASTER_PORT")
                                      : error_text(error);
        }
        throw DeviceError(text("process 0 cannot wait for the others at ", options_.address, ": ", why));
    }
    [[nodiscard]] static bool listens(const Socket& socket, const sockaddr* at, socklen_t size, int& error) {
        const int on = 1;
        const bool good = socket.get() >= 0 &&
                          setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) == 0 &&
                          bind(socket.get(), at, size) == 0 && listen(socket.get(), SOMAXCONN) == 0;
        if (!good) error = errno;
        return good;
    }

    /// Whether a socket is connected to itself, which can happen if no program listens on a port of this machine: the
    /// system may choose the same port as the local one.
    [[nodiscard]] static bool is_connected_to_itself(const Socket& socket) {
        sockaddr_storage own{}, other{};
        socklen_t own_size = sizeof own, other_size = sizeof other;
        return getsockname(socket.get(), reinterpret_cast<sockaddr*>(&own), &own_size) == 0 &&
               getpeername(socket.get(), reinterpret_cast<sockaddr*>(&other), &other_size) == 0 &&
               own_size == other_size && std::memcmp(&own, &other, own_size) == 0;
    }
    /// Connects to process 0. Retries until the deadline, because process 0 may start later, and so may the name
    /// resolution of its host.
    [[nodiscard]] Socket connect_to_first() {
        std::string why = "there was no time to try";
        while (seconds_left() > 0) {
            if (const Addresses list = addresses(why)) {
                for (const addrinfo* each = list.get(); each != nullptr; each = each->ai_next) {
                    Socket socket(::socket(each->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
                    int error = 0;
                    if (connect(socket.get(), each->ai_addr, each->ai_addrlen) != 0) error = errno;
                    if (error == EINPROGRESS) {
                        pollfd ready{socket.get(), POLLOUT, 0};
                        socklen_t size = sizeof error;
                        error = ETIMEDOUT;
                        if (poll(&ready, 1, static_cast<int>(std::clamp(seconds_left(), 0.0, 5.0) * 1000)) == 1)
                            getsockopt(socket.get(), SOL_SOCKET, SO_ERROR, &error, &size);
                    }
                    if (error == 0 && is_connected_to_itself(socket)) error = ECONNREFUSED;
                    if (error == 0) return socket;
                    why = error_text(error);
                }
            }
            poll(nullptr, 0, poll_ms);
        }
        throw DeviceError(text("process ", options_.process.number, " could not connect to process 0 at ",
                               options_.address, " within ", options_.seconds, " s: ", why,
                               "; check that process 0 was started, and the address"));
    }

    /// The numbers of the processes that have not connected.
    [[nodiscard]] std::vector<int> missing(const std::vector<Client>& clients) const {
        std::vector<int> result;
        for (int number = 1; number < options_.process.count; ++number) {
            if (std::none_of(clients.begin(), clients.end(), [&](const Client& each) { return each.number == number; }))
                result.push_back(number);
        }
        return result;
    }
    [[nodiscard]] std::string missing_text(const std::vector<Client>& clients) const {
        std::string list;
        const std::vector<int> numbers = missing(clients);
        for (const int number : numbers) list += text(list.empty() ? "" : ", ", number);
        std::string strangers = last_refusal_;
        for (const Client& each : clients) {
            if (each.number == 0) strangers = text("one that sent ", each.received.size(), " bytes of ", sizeof(Hello));
        }
        return text(numbers.size() == 1 ? "process " : "processes ", list, " of ", options_.process.count,
                    numbers.size() == 1 ? " has" : " have", " not connected to process 0 at ", options_.address,
                    " within ", options_.seconds, " s", strangers.empty() ? "" : "; of other connections the last was ",
                    strangers);
    }

    /// Reads from a client. Returns false if it has closed the connection or is refused.
    [[nodiscard]] bool read_client(std::vector<Client>& clients, std::size_t index) {
        Client& client = clients[index];
        char buffer[sizeof(Hello)];
        const ssize_t count = recv(client.socket.get(), buffer, sizeof buffer, 0);
        if (count < 0 && (errno == EAGAIN || errno == EINTR)) return true;
        if (count <= 0) {
            last_refusal_ = client.number > 0 ? text("process ", client.number, ", which has ended")
                                              : text("one that ended after ", client.received.size(), " bytes");
            return false;
        }
        client.received.append(buffer, static_cast<std::size_t>(count));
        if (!begins_with_magic(client.received) || client.received.size() > sizeof(Hello)) {
            last_refusal_ = text("one of another program, which sent \"", shown(client.received), '"');
            return false;
        }
        if (client.number > 0 || client.received.size() < sizeof(Hello)) return true;
        Hello hello;
        std::memcpy(&hello, client.received.data(), sizeof hello);
        hello.job.back() = '\0';
        const std::string job = hello.job.data(), own = options_.job.substr(0, hello.job.size() - 1);
        std::string why;
        if (hello.count != options_.process.count || (!job.empty() && !own.empty() && job != own)) {
            why = text("process ", hello.number, " of ", hello.count, job.empty() ? "" : " of job ", job,
                       " belongs to another training than process 0 at ", options_.address, ", which has ",
                       options_.process.count, " processes", own.empty() ? "" : " of job ", own);
        } else if (hello.number < 1 || hello.number >= hello.count) {
            why = text("process ", hello.number, " is none of the processes 1 to ", hello.count - 1,
                       " that process 0 at ", options_.address, " waits for");
        } else {
            for (const Client& each : clients) {
                if (each.number == hello.number)
                    why = text("another process ", hello.number, " has connected to process 0 at ", options_.address,
                               " before: each process needs a number of its own");
            }
        }
        send_all(client.socket, answer(why.empty() ? accepted : refused, why));
        if (why.empty()) client.number = hello.number;
        if (!why.empty()) last_refusal_ = "refused: " + why;
        return why.empty();
    }

    /// Reads from process 0 until `received` has `needed` bytes. `late` describes, for the error at the deadline, what
    /// process 0 has not done; `begun` is the number of bytes of the same answer that were read before.
    void read_bytes(const Socket& socket, std::string& received, std::string_view late, std::size_t needed,
                    std::size_t begun = 0) {
        while (received.size() < needed) {
            require<DeviceError>(seconds_left() > 0, "process 0 at ", options_.address, ' ', late, " within ",
                                 options_.seconds, " s");
            pollfd readable{socket.get(), POLLIN, 0};
            if (poll(&readable, 1, poll_ms) <= 0) continue;
            char buffer[512];
            const ssize_t count = recv(socket.get(), buffer, sizeof buffer, 0);
            if (count < 0 && (errno == EAGAIN || errno == EINTR)) continue;
            require<DeviceError>(count > 0, "the connection to process 0 at ", options_.address, " ended after ",
                                 begun + received.size(), " bytes of an answer",
                                 count < 0 ? ": " + error_text(errno) : std::string(),
                                 "; process 0 has ended, or another program listens there");
            received.append(buffer, static_cast<std::size_t>(count));
            require<DeviceError>(begun > 0 || begins_with_magic(received),
                                 "another program than process 0 of this training answers at ", options_.address,
                                 ": it sent \"", shown(received), '"');
        }
    }
    /// The next answer of process 0, without bytes of the following one.
    std::string read_answer(const Socket& socket, std::string& received, std::string_view late) {
        Answer head;
        read_bytes(socket, received, late, sizeof head);
        std::memcpy(&head, received.data(), sizeof head);
        received.erase(0, sizeof head);
        require<DeviceError>(head.bytes <= max_bytes && (head.verdict == accepted || head.verdict == refused),
                             "the answer at ", options_.address, " is not one of process 0 of this training");
        read_bytes(socket, received, late, head.bytes, sizeof head);
        std::string bytes = received.substr(0, head.bytes);
        received.erase(0, head.bytes);
        require<DeviceError>(head.verdict == accepted, bytes);
        return bytes;
    }

    RendezvousOptions options_;
    std::string host_, port_, last_refusal_;
    double start_ = 0;
};

}}}  // namespace cupola::CUPOLA_ABI::impl
