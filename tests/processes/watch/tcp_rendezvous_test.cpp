// SPDX-License-Identifier: Apache-2.0
//
// Processes that meet by TCP, as threads and on the loopback interface.
#include "../../test.hpp"

#include <dlfcn.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cupola/processes/watch/tcp_rendezvous.hpp>

#include "processes/thread_processes.hpp"
#include "throws_with.hpp"

using namespace impl;

namespace {

/// A socket of the loopback interface at a port that no other program uses.
class Listener : NotCopied {
public:
    Listener() : socket_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
        sockaddr_in at{};
        at.sin_family = AF_INET;
        at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        socklen_t size = sizeof at;
        const int on = 1;
        REQUIRE(setsockopt(socket_, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) == 0);
        REQUIRE(bind(socket_, reinterpret_cast<const sockaddr*>(&at), size) == 0);
        REQUIRE(getsockname(socket_, reinterpret_cast<sockaddr*>(&at), &size) == 0);
        port_ = ntohs(at.sin_port);
    }
    ~Listener() { close(socket_); }

    [[nodiscard]] std::string address() const { return text("127.0.0.1:", port_); }
    void listen() const { REQUIRE(::listen(socket_, 8) == 0); }
    [[nodiscard]] int accept() const { return ::accept(socket_, nullptr, nullptr); }

private:
    int socket_;
    int port_ = 0;
};

/// An address that was free a moment ago.
std::string free_address() { return Listener().address(); }

RendezvousOptions place(const std::string& address, int count, int number, double seconds = 20) {
    return {.address = address, .process = {count, number}, .seconds = seconds};
}

/// A connection of another program to an address, which sends `bytes` and keeps it.
class Stranger : NotCopied {
public:
    Stranger(const std::string& address, std::string_view bytes) {
        sockaddr_in at{};
        at.sin_family = AF_INET;
        at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        at.sin_port = htons(static_cast<std::uint16_t>(std::stoi(address.substr(address.rfind(':') + 1))));
        for (int tries = 0; tries < 5000; ++tries) {
            socket_ = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
            if (connect(socket_, reinterpret_cast<const sockaddr*>(&at), sizeof at) == 0) {
                connected_ =
                    send(socket_, bytes.data(), bytes.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(bytes.size());
                return;
            }
            close(socket_);
            usleep(1000);
        }
        socket_ = -1;
    }
    ~Stranger() {
        if (socket_ >= 0) close(socket_);
    }
    [[nodiscard]] bool connected() const { return connected_; }

private:
    int socket_ = -1;
    bool connected_ = false;
};

/// What each of `count` processes takes, or the message of its error.
std::vector<std::string> met(const std::vector<RendezvousOptions>& places, std::string_view bytes) {
    std::vector<std::string> taken(places.size());
    const auto errors = on_threads(static_cast<int>(places.size()), [&](int i) {
        TcpRendezvous rendezvous(places[static_cast<std::size_t>(i)]);
        if (places[static_cast<std::size_t>(i)].process.number == 0)
            rendezvous.broadcast(bytes);
        else
            taken[static_cast<std::size_t>(i)] = rendezvous.receive();
    });
    for (std::size_t i = 0; i < taken.size(); ++i) {
        if (!errors[i].empty()) taken[i] = "error: " + errors[i];
    }
    return taken;
}

/// Whether connections of this thread are made from the port to which they are made.
thread_local bool connects_to_itself = false;

}  // namespace

// In place of the system's: a name that /etc/hosts of a Debian machine gives the address 127.0.1.1, and the connection that the system
// makes by chance.
extern "C" int getaddrinfo(const char* host, const char* port, const addrinfo* hints, addrinfo** list) {
    static const auto find = reinterpret_cast<decltype(&getaddrinfo)>(dlsym(RTLD_NEXT, "getaddrinfo"));
    const bool numeric = hints != nullptr && (hints->ai_flags & AI_NUMERICHOST) != 0;
    const bool own = host != nullptr && std::string_view(host) == "name-of-this-machine.test" && !numeric;
    return find(own ? "127.0.1.1" : host, port, hints, list);
}
extern "C" int connect(int socket, const sockaddr* to, socklen_t size) {
    static const auto system = reinterpret_cast<decltype(&connect)>(dlsym(RTLD_NEXT, "connect"));
    const int on = 1;
    if (connects_to_itself && setsockopt(socket, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) == 0)
        static_cast<void>(bind(socket, to, size));
    return system(socket, to, size);
}

TEST_CASE("process 0 gives its bytes to all others, whoever comes first, and beside connections of other programs") {
    const std::string address = free_address(), bytes("\0id\n", 4);
    std::vector<RendezvousOptions> places;
    for (const int number : {3, 1, 0, 2}) places.push_back(place(address, 4, number));
    CHECK(met(places, bytes) == std::vector<std::string>{bytes, bytes, "", bytes});

    // A process that is late, behind one that says nothing, one that stops in the middle and one that speaks HTTP.
    std::string taken;
    std::thread first([&] { TcpRendezvous(place(address, 2, 0)).broadcast(bytes); });
    {
        const Stranger silent(address, ""), half(address, "cupola-mee"), web(address, "GET / HTTP/1.1\r\n\r\n");
        CHECK((silent.connected() && half.connected() && web.connected()));
        taken = TcpRendezvous(place(address, 2, 1)).receive();
        first.join();
    }
    CHECK(taken == bytes);
}

TEST_CASE("a host by name is found") {
    const std::string address = free_address(), port = address.substr(address.find(':'));
    CHECK(met({place("localhost" + port, 2, 0), place("localhost" + port, 2, 1)}, "id") ==
          std::vector<std::string>{"", "id"});
}

TEST_CASE("where the name of the host means the loopback interface, process 0 is reached by all interfaces") {
    const std::string address = free_address(), port = address.substr(address.find(':'));
    // 127.0.1.1 on this machine; for a process of another one it would be an address of the network.
    CHECK(met({place("name-of-this-machine.test" + port, 2, 0), place("127.0.0.1" + port, 2, 1)}, "id") ==
          std::vector<std::string>{"", "id"});
    CHECK(met({place("name-of-this-machine.test" + port, 2, 0), place("name-of-this-machine.test" + port, 2, 1)},
              "id") == std::vector<std::string>{"", "id"});
    // An address of the interface is the caller's will.
    const std::vector<std::string> apart =
        met({place("127.0.1.1" + port, 2, 0, 0.5), place("127.0.0.1" + port, 2, 1, 0.5)}, "id");
    CHECK(contains(apart[0], "process 1 of 2 has not connected"));
    CHECK(contains(apart[1], "Connection refused"));
}

TEST_CASE("a connection to itself is not one to process 0") {
    const std::string address = free_address();
    connects_to_itself = true;
    std::string taken;
    const std::string error =
        message_of<DeviceError>([&] { taken = TcpRendezvous(place(address, 2, 1, 0.3)).receive(); });
    connects_to_itself = false;
    CHECK(error == text("process 1 could not connect to process 0 at ", address,
                        " within 0.3 s: Connection refused; check that process 0 was started, and the address"));
    CHECK(taken.empty());
}

TEST_CASE("a process that is missing is named by process 0, and by those that have come") {
    const std::string address = free_address();
    const std::string message = text("processes 1, 3 of 4 have not connected to process 0 at ", address, " within 2 s");
    CHECK(met({place(address, 4, 0, 2), place(address, 4, 2, 20)}, "id") ==
          std::vector<std::string>{"error: " + message, "error: " + message});

    std::string said;
    std::thread first(
        [&] { said = message_of<DeviceError>([&] { TcpRendezvous(place(address, 2, 0, 2)).broadcast("id"); }); });
    {
        const Stranger web(address, "GET / HTTP/1.1\r\n\r\n");
        first.join();
    }
    CHECK(said == text("process 1 of 2 has not connected to process 0 at ", address,
                       " within 2 s; of other connections the last was one of another program, which sent \"GET / "
                       "HTTP/1.1....\""));
}

TEST_CASE("without process 0 the others end at their deadline") {
    const std::string address = free_address();
    CHECK(message_of<DeviceError>([&] { static_cast<void>(TcpRendezvous(place(address, 2, 1, 0.3)).receive()); }) ==
          text("process 1 could not connect to process 0 at ", address,
               " within 0.3 s: Connection refused; check that process 0 was started, and the address"));
}

TEST_CASE("a port in use and an unknown host are reported") {
    const Listener taken;
    taken.listen();
    CHECK(message_of<DeviceError>([&] { TcpRendezvous(place(taken.address(), 2, 0)).broadcast("id"); }) ==
          text("process 0 cannot wait for the others at ", taken.address(), ": port ",
               taken.address().substr(taken.address().find(':') + 1),
               " is in use: choose another, by address or MASTER_PORT"));
    const std::string nowhere = "no-such-host.invalid:4711";
    CHECK(
        contains(message_of<DeviceError>([&] { TcpRendezvous(place(nowhere, 2, 0)).broadcast("id"); }),
                 "process 0 cannot wait for the others at no-such-host.invalid:4711: the host no-such-host.invalid is "
                 "not known: "));
    CHECK(contains(
        message_of<DeviceError>([&] { static_cast<void>(TcpRendezvous(place(nowhere, 2, 1, 0.2)).receive()); }),
        "process 1 could not connect to process 0 at no-such-host.invalid:4711 within 0.2 s: the host "
        "no-such-host.invalid is not known: "));
}

TEST_CASE("another program at the address is reported: one that speaks, one that stops, one that says nothing") {
    const Listener other;
    other.listen();
    const auto taken_from = [&](std::string_view bytes, bool ends, double seconds) {
        std::string said;
        std::thread process([&] {
            said = message_of<DeviceError>(
                [&] { static_cast<void>(TcpRendezvous(place(other.address(), 2, 1, seconds)).receive()); });
        });
        const int connection = other.accept();
        char hello[256];
        CHECK(recv(connection, hello, sizeof hello, MSG_WAITALL | MSG_DONTWAIT) >= -1);
        CHECK(send(connection, bytes.data(), bytes.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(bytes.size()));
        if (ends) shutdown(connection, SHUT_WR);
        process.join();
        close(connection);
        return said;
    };
    CHECK(taken_from("HTTP/1.1 400 Bad Request\r\n", false, 20) ==
          text("another program than process 0 of this training answers at ", other.address(),
               ": it sent \"HTTP/1.1 400 Bad Request\""));
    CHECK(taken_from("cupola-meet", true, 20) ==
          text("the connection to process 0 at ", other.address(),
               " ended after 11 bytes of an answer; process 0 has ended, or another "
               "program listens there"));
    CHECK(taken_from("", false, 0.4) ==
          text("process 0 at ", other.address(), " accepts connections, but has not answered within 0.4 s"));
    CHECK(taken_from("cupola-meet", false, 0.4) ==
          text("process 0 at ", other.address(), " accepts connections, but has not answered within 0.4 s"));
}

TEST_CASE("a process of another training is refused, and so are two with one number") {
    const std::string address = free_address();
    const auto refused = [&](RendezvousOptions other) {
        std::string said;
        RendezvousOptions first = place(address, 2, 0);
        first.job = "SLURM_JOB_ID 7";
        std::thread giver([&] { TcpRendezvous(first).broadcast("id"); });
        said = message_of<DeviceError>([&] { static_cast<void>(TcpRendezvous(other).receive()); });
        CHECK(TcpRendezvous(place(address, 2, 1)).receive() == "id");
        giver.join();
        return said;
    };
    CHECK(refused(place(address, 4, 1)) == text("process 1 of 4 belongs to another training than process 0 at ",
                                                address, ", which has 2 processes of job SLURM_JOB_ID 7"));
    RendezvousOptions other_job = place(address, 2, 1);
    other_job.job = "SLURM_JOB_ID 8";
    CHECK(refused(other_job) ==
          text("process 1 of 2 of job SLURM_JOB_ID 8 belongs to another training than process 0 at ", address,
               ", which has 2 processes of job SLURM_JOB_ID 7"));

    const std::vector<std::string> all =
        met({place(address, 3, 0, 2), place(address, 3, 1), place(address, 3, 1)}, "id");
    const std::string twice = text("error: another process 1 has connected to process 0 at ", address,
                                   " before: each process needs a number of its own");
    CHECK(((all[1] == twice) != (all[2] == twice)));
    CHECK(contains(all[0], "process 2 of 3 has not connected"));
}

TEST_CASE("an address is a host and a port") {
    for (const char* wrong : {"", "host", "host:", ":80", "host:0", "host:65536", "host:80a", "host:-1"}) {
        CAPTURE(wrong);
        CHECK(message_of<InvalidArgument>([&] { TcpRendezvous rendezvous(place(wrong, 2, 0)); }) ==
              text("the address of process 0 must be a host, a colon and a port from 1 to 65535, not \"", wrong, '"'));
    }
}
