// SPDX-License-Identifier: Apache-2.0
//
// See shared_memory.hpp. All shared memory of a program is some hundred kilobytes, too much to be filled for each block, and no symbol
// says what a kernel uses of it: its first blocks begin with all of it filled, and what they have written is what it uses.
#include "shared_memory.hpp"
#include "../../standard.hpp"

#include <elf.h>
#include <fcntl.h>
#include <link.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

namespace cupola::emulator {

namespace {

constexpr std::byte poison{0xFF};

/// A variable, in the thread_local memory of the program.
struct Variable {
    std::size_t offset, bytes;
};

/// The program's file in memory, of which only the pages that are read take time.
std::span<const std::byte> program() {
    const int file = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
    struct stat about {};
    if (file < 0 || fstat(file, &about) != 0) return {};
    const auto bytes = static_cast<std::size_t>(about.st_size);
    const void* const memory = mmap(nullptr, bytes, PROT_READ, MAP_PRIVATE, file, 0);
    close(file);
    if (memory == MAP_FAILED) return {};
    return {static_cast<const std::byte*>(memory), bytes};
}

template <class V>
std::span<const V> array_at(std::span<const std::byte> file, std::size_t offset, std::size_t bytes) {
    if (offset > file.size() || bytes > file.size() - offset) return {};
    return {reinterpret_cast<const V*>(file.data() + offset), bytes / sizeof(V)};
}

/// The thread_local variables of functions: their names begin with _ZZ. Not those of the library of tests.
std::vector<Variable> variables_of_functions() {
    const std::span<const std::byte> file = program();
    std::vector<Variable> result;
    const auto headers = array_at<ElfW(Ehdr)>(file, 0, sizeof(ElfW(Ehdr)));
    if (headers.empty()) return result;
    const auto sections =
        array_at<ElfW(Shdr)>(file, headers[0].e_shoff, std::size_t{headers[0].e_shnum} * sizeof(ElfW(Shdr)));
    for (const ElfW(Shdr) & section : sections) {
        if (section.sh_type != SHT_SYMTAB || section.sh_link >= sections.size()) continue;
        const auto names = array_at<char>(file, sections[section.sh_link].sh_offset, sections[section.sh_link].sh_size);
        for (const ElfW(Sym) & symbol : array_at<ElfW(Sym)>(file, section.sh_offset, section.sh_size)) {
            if (ELF64_ST_TYPE(symbol.st_info) != STT_TLS || symbol.st_shndx == SHN_UNDEF ||
                symbol.st_name >= names.size())
                continue;
            const std::string_view name = names.data() + symbol.st_name;
            if (name.starts_with("_ZZ") && name.find("7doctest") == std::string_view::npos)
                result.push_back({symbol.st_value, symbol.st_size});
        }
    }
    munmap(const_cast<std::byte*>(file.data()), file.size());
    return result;
}

const std::vector<Variable>& variables() {
    static const std::vector<Variable>& all = *new std::vector<Variable>(variables_of_functions());
    return all;
}

/// The thread_local memory of the program, of the calling thread; null before its first block. And the kernel of its last one.
thread_local std::byte* own_memory = nullptr;
thread_local const void* last_kernel = nullptr;

void fill(const Variable& variable) {
    std::memset(own_memory + variable.offset, std::to_integer<int>(poison), variable.bytes);
}
[[nodiscard]] bool is_filled(const Variable& variable) {
    const std::byte* const begin = own_memory + variable.offset;
    return variable.bytes == 0 || (*begin == poison && std::memcmp(begin, begin + 1, variable.bytes - 1) == 0);
}

/// What the blocks of a kernel have written so far.
struct Use {
    std::vector<std::size_t> variables;
    int blocks = 0;
};

}  // namespace

void poison_shared_memory(const void* kernel) {
    constexpr int looked_at = 8;
    static std::map<const void*, Use>& uses = *new std::map<const void*, Use>;
    const std::vector<Variable>& all = variables();
    if (own_memory == nullptr) {
        // The program is the first object.
        const auto take = [](dl_phdr_info* info, std::size_t, void* to) {
            *static_cast<void**>(to) = info->dlpi_tls_data;
            return 1;
        };
        dl_iterate_phdr(take, &own_memory);
        for (const Variable& each : all) fill(each);
    } else {
        Use& use = uses[last_kernel];
        for (std::size_t i = 0; use.blocks <= looked_at && i < all.size(); ++i) {
            if (!is_filled(all[i]) && std::ranges::find(use.variables, i) == use.variables.end())
                use.variables.push_back(i);
        }
        for (const std::size_t i : use.variables) fill(all[i]);
    }
    last_kernel = kernel;
    ++uses[kernel].blocks;
}

}  // namespace cupola::emulator
