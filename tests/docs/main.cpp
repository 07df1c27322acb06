// SPDX-License-Identifier: Apache-2.0
//
// Runs the fragments of the documentation that say `<!-- check: run -->`. One that throws fails, and so does a run
// without any.
#include <cstdio>
#include <exception>

#include "snippets.hpp"

int main() {
    int failures = 0;
    for (const docs::Snippet& snippet : docs::snippets()) {
        try {
            snippet.function();
            std::printf("%s runs\n", snippet.place);
        } catch (const std::exception& error) {
            std::printf("%s: %s\n", snippet.place, error.what());
            ++failures;
        }
    }
    std::printf("%zu fragments, %d failures\n", docs::snippets().size(), failures);
    return failures == 0 && !docs::snippets().empty() ? 0 : 1;
}
