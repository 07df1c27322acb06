// SPDX-License-Identifier: Apache-2.0
//
// Exactly one OpenMP runtime in a process that runs a parallel region of its own and one of oneDNN's: two would be two
// teams of threads that fight for the cores. Reads which libraries the loader has mapped.
#include <cstdio>
#include <set>
#include <string>
#include <vector>

#include <cupola/tensor/algorithms.hpp>

int main() {
    const cupola::HostContext context(0, {.threads = 2});
    const std::vector<float> values(100'000, 0.5F);
    if (cupola::sum_of_squares(context, values) != 25'000) return 1;

    std::set<std::string> runtimes;
    std::FILE* maps = std::fopen("/proc/self/maps", "re");
    if (maps == nullptr) return 1;
    char line[4096];
    while (std::fgets(line, sizeof line, maps) != nullptr) {
        const std::string path(line);
        for (const char* name : {"/libgomp", "/libomp.", "/libomp-", "/libiomp5"}) {
            if (const auto at = path.find(name); at != std::string::npos) {
                runtimes.insert(path.substr(path.find('/'), path.find('\n') - path.find('/')));
            }
        }
    }
    std::fclose(maps);
    for (const std::string& runtime : runtimes) std::printf("%s\n", runtime.c_str());
    std::printf("%zu OpenMP runtimes in this process\n", runtimes.size());
    return runtimes.size() == 1 ? 0 : 1;
}
