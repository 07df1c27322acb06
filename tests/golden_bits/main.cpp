// SPDX-License-Identifier: Apache-2.0
//
// golden_bits: whether trainings end with the bits that a table has of them.
//
//   golden_bits check TABLE THREADS   compares with the entries of this machine's key; exit status 77 if it has none
//   golden_bits print THREADS [STEPS] prints the entries, in the table's format; its entries are of 50 steps
//   golden_bits key THREADS           prints the key
//
// A table has sections. A section begins with a line `key ...` and has a line per case: its name, the hash of the
// parameters and the hash of the whole state. A case without a line, whose bits have changed since its machine was at
// hand, is printed and is no failure. The key names all that bits depend on: the instruction set that these
// sources are compiled for, oneDNN's version and the instruction set that it selects (which also decides if Cupola's
// own AMX kernels run), the processor and the sizes of its caches, by which oneDNN divides its loops, the compiler and
// its flags (which products are contracted into fused multiply-adds), the C library's functions, and the number of
// threads per device.
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <fstream>
#include <map>
#include <string>
#include <string_view>

#include <gnu/libc-version.h>
#include <unistd.h>
#if defined(__x86_64__)
#include <cpuid.h>
#endif

#include "training_case.hpp"

namespace golden_bits { namespace {

constexpr int exit_skipped = 77;

/// "AuthenticAMD-26-2": the processor's vendor, family and model.
std::string processor() {
#if defined(__x86_64__)
    unsigned a = 0, b = 0, c = 0, d = 0;
    if (__get_cpuid(0, &a, &b, &c, &d) == 0) return "unknown";
    std::string vendor;
    for (const unsigned word : {b, d, c}) {
        for (unsigned shift = 0; shift < 32; shift += 8) vendor += static_cast<char>(word >> shift & 0xFF);
    }
    __get_cpuid(1, &a, &b, &c, &d);
    const unsigned family = (a >> 8 & 0xF) + (a >> 20 & 0xFF), model = (a >> 4 & 0xF) | (a >> 12 & 0xF0);
    return text(vendor, '-', family, '-', model);
#else
    return "unknown";
#endif
}

std::string compiler() {
#if defined(__clang__)
    return text("clang++-", __clang_major__);
#else
    return text("g++-", __GNUC__);
#endif
}

/// `compiled_isa`, in which headers from before it named BF16 have AVX-512 alone.
std::string instructions() {
    const std::string isa = compiled_isa;
#if defined(__AVX512BF16__)
    if (isa.starts_with("avx512")) return "avx512+bf16";
#endif
    return isa;
}

std::string key_of_machine(int threads) {
    const auto cache = [](int name) { return sysconf(name) / 1024; };
    return text("isa=", instructions(), " onednn=", Host::library_version(), ':', Host::library_isa(),
                " cpu=", processor(), " caches=", cache(_SC_LEVEL1_DCACHE_SIZE), '/', cache(_SC_LEVEL2_CACHE_SIZE), '/',
                cache(_SC_LEVEL3_CACHE_SIZE), "KiB compiler=", compiler(), ',', CUPOLA_GOLDEN_FLAGS,
                " glibc=", gnu_get_libc_version(), " threads=", threads);
}

std::vector<Case> cases_for(int threads) {
    std::vector<Case> cases = tutorial_cases();
    for (Case& c : resnet_cases()) cases.push_back(std::move(c));
    if (threads > 1) std::erase_if(cases, [](const Case& c) { return !c.by_teams; });
    return cases;
}

std::string hexadecimal(std::uint64_t value) {
    char digits[17];
    std::snprintf(digits, sizeof digits, "%016llx", static_cast<unsigned long long>(value));
    return digits;
}

std::string line_of(const std::string& name, const Hashes& hashes) {
    return name + ' ' + hexadecimal(hashes.parameters) + ' ' + hexadecimal(hashes.state);
}

/// The lines of a key's section, by the name of their case.
std::map<std::string, std::string> section(const char* table, const std::string& key) {
    std::ifstream file(table);
    require(file.good(), "there is no table ", table);
    std::map<std::string, std::string> lines;
    bool inside = false;
    for (std::string line; std::getline(file, line);) {
        if (line.starts_with("key ")) {
            inside = line == "key " + key;
        } else if (inside && !line.empty() && line[0] != '#') {
            lines[line.substr(0, line.find(' '))] = line;
        }
    }
    return lines;
}

int check(const char* table, int threads) {
    const std::string key = key_of_machine(threads);
    std::map<std::string, std::string> expected = section(table, key);
    if (expected.empty()) {
        std::printf("skipped: %s has no entry for %s\n", table, key.c_str());
        return exit_skipped;
    }
    int failures = 0;
    for (const Case& c : cases_for(threads)) {
        const std::string line = line_of(c.name, c.run(threads, steps_of_a_case));
        const std::string wanted = expected[c.name];
        expected.erase(c.name);
        if (line == wanted) continue;
        if (wanted.empty()) {
            std::printf("not in the table: %s\n", line.c_str());
            continue;
        }
        ++failures;
        std::printf("other bits: %s\n     table: %s\n", line.c_str(), wanted.c_str());
    }
    for (const auto& [name, line] : expected) {
        ++failures;
        std::printf("no such case: %s\n", line.c_str());
    }
    if (failures == 0) std::printf("all bits that the table has are those of %s\n", key.c_str());
    return failures == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}

int print(int threads, std::int64_t steps) {
    std::printf("key %s\n", key_of_machine(threads).c_str());
    for (const Case& c : cases_for(threads)) {
        std::printf("%s\n", line_of(c.name, c.run(threads, steps)).c_str());
        std::fflush(stdout);
    }
    return EXIT_SUCCESS;
}

}  // namespace

}  // namespace golden_bits

int main(int argc, char** argv) try {
    const std::string_view command = argc > 1 ? argv[1] : "";
    if (command == "check" && argc == 4) return golden_bits::check(argv[2], std::atoi(argv[3]));
    if (command == "print" && (argc == 3 || argc == 4)) {
        return golden_bits::print(std::atoi(argv[2]), argc == 4 ? std::atoll(argv[3]) : golden_bits::steps_of_a_case);
    }
    if (command == "key" && argc == 3) {
        std::printf("%s\n", golden_bits::key_of_machine(std::atoi(argv[2])).c_str());
        return EXIT_SUCCESS;
    }
    std::fprintf(
        stderr,
        "usage: golden_bits check TABLE THREADS | golden_bits print THREADS [STEPS] | golden_bits key THREADS\n");
    return 2;
} catch (const std::exception& error) {
    std::fprintf(stderr, "golden_bits: %s\n", error.what());
    return EXIT_FAILURE;
}
