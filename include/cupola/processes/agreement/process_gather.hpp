// SPDX-License-Identifier: Apache-2.0
//
// ProcessGather: an all-gather of blocks of one size.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include <cupola/core/fixed_array.hpp>
#include <cupola/processes/processes.hpp>

namespace cupola { inline namespace CUPOLA_ABI { namespace impl {

/// The blocks of an all-gather, one per process. Allocated once; run() allocates nothing.
class ProcessGather {
public:
    ProcessGather() = default;
    [[gnu::cold]] ProcessGather(ProcessGroup& processes, std::size_t bytes)
        : processes_(&processes), bytes_(bytes), blocks_(bytes * static_cast<std::size_t>(processes.count())) {}

    [[nodiscard]] std::byte* mine() { return of(processes_->number()); }
    [[nodiscard]] std::byte* of(int process) { return blocks_.data() + static_cast<std::size_t>(process) * bytes_; }
    [[nodiscard]] const std::byte* of(int process) const {
        return blocks_.data() + static_cast<std::size_t>(process) * bytes_;
    }
    void run(const ExchangeName& name) { processes_->gather(name, blocks_.data(), bytes_); }

private:
    ProcessGroup* processes_ = nullptr;
    std::size_t bytes_ = 0;
    FixedArray<std::byte> blocks_;
};

/// The value of each process, in the order of the processes.
template <class V>
[[nodiscard]] std::vector<V> gathered(ProcessGroup& processes, const ExchangeName& name, const V& value) {
    ProcessGather gather(processes, sizeof(V));
    std::memcpy(gather.mine(), &value, sizeof value);
    gather.run(name);
    std::vector<V> all(static_cast<std::size_t>(processes.count()));
    for (int p = 0; p < processes.count(); ++p)
        std::memcpy(&all[static_cast<std::size_t>(p)], gather.of(p), sizeof value);
    return all;
}

/// The text of each process, in the order of the processes.
[[nodiscard, gnu::cold]] inline std::vector<std::string> gathered_texts(ProcessGroup& processes,
                                                                        const ExchangeName& name,
                                                                        std::string_view text) {
    std::vector<std::string> all;
    const auto sizes = gathered(processes, name, std::uint64_t{text.size()});
    ProcessGather gather(processes, static_cast<std::size_t>(*std::max_element(sizes.begin(), sizes.end())));
    std::copy(text.begin(), text.end(), reinterpret_cast<char*>(gather.mine()));
    gather.run(name);
    for (std::size_t p = 0; p < sizes.size(); ++p)
        all.emplace_back(reinterpret_cast<const char*>(gather.of(static_cast<int>(p))),
                         static_cast<std::size_t>(sizes[p]));
    return all;
}

}}}  // namespace cupola::CUPOLA_ABI::impl
