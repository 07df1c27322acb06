// SPDX-License-Identifier: Apache-2.0
//
// Catches what a file and a shared library throw that were compiled with other flags.
#include <cstdio>
#include <string>

#include <cupola/core/error.hpp>

void thrown_by_file();
void thrown_by_library();

namespace {

bool caught(void function()) {
    try {
        function();
    } catch (const cupola::DivergedError& error) {
        return error.step == 12 && error.replica == 3 && std::string(error.what()) == "the loss of step 12 is nan";
    }
    return false;
}

}  // namespace

int main() {
    try {
        return caught(thrown_by_file) && caught(thrown_by_library) ? 0 : 1;
    } catch (const std::exception& error) {
        std::printf("not caught as cupola::DivergedError: %s\n", error.what());
        return 1;
    }
}
