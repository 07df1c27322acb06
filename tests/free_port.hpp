// SPDX-License-Identifier: Apache-2.0
//
// A port for a test that listens.
#pragma once

#include "test.hpp"

#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

/// A port of the loopback interface that was free a moment ago.
inline int free_port() {
    const int handle = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in at{};
    at.sin_family = AF_INET;
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof at;
    REQUIRE(bind(handle, reinterpret_cast<const sockaddr*>(&at), size) == 0);
    REQUIRE(getsockname(handle, reinterpret_cast<sockaddr*>(&at), &size) == 0);
    close(handle);
    return ntohs(at.sin_port);
}
