// SPDX-License-Identifier: Apache-2.0
//
// The header that the documentation's fragments are compiled with: fragments that run register themselves here, and the
// checks beside them, which the reader does not see, call `expect`.
#pragma once

#include <stdexcept>
#include <string>
#include <vector>

namespace docs {

struct Snippet {
    const char* place;
    void (*function)();
};

inline std::vector<Snippet>& snippets() {
    static std::vector<Snippet> all;
    return all;
}

struct Registration {
    Registration(const char* place, void (*function)()) { snippets().push_back({place, function}); }
};

inline void expect(bool condition, const std::string& message) {
    if (!condition) throw std::runtime_error("expected: " + message);
}

}  // namespace docs
