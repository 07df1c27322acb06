// SPDX-License-Identifier: Apache-2.0
#include "golden.hpp"

#include <cstddef>
#include <type_traits>

#include <cupola/core/error.hpp>
#include <cupola/io/safetensors.hpp>

namespace golden {
namespace {

using cupola::DataError;
using cupola::require;

/// Read once.
const cupola::SafetensorsFile& file() {
    static const cupola::SafetensorsFile file(CUPOLA_SOURCE_DIR "/tests/golden/golden.safetensors");
    return file;
}

/// Null if there is no text of this name in the metadata.
const std::string_view* find_text(std::string_view name) {
    for (const auto& [key, value] : file().metadata()) {
        if (key == name) return &value;
    }
    return nullptr;
}

std::string_view text_at(const std::string& place) {
    const std::string_view* const found = find_text(place);
    require<DataError>(found != nullptr, file().path(), " has no text ", place);
    return *found;
}

const cupola::SafeTensor& tensor_at(const std::string& place) {
    const cupola::SafeTensor* const found = file().find(place);
    require<DataError>(found != nullptr, file().path(), " has no tensor ", place);
    return *found;
}

std::string below(const std::string& place, std::string_view name) { return cupola::text(place, '/', name); }

/// The murmur3 finaliser of seed and index.
std::vector<float> uniform(std::int64_t seed, std::int64_t size, float scale) {
    std::vector<float> result(static_cast<std::size_t>(size));
    for (std::uint32_t i = 0; i < result.size(); ++i) {
        std::uint32_t bits = i * 0x9E3779B9u + static_cast<std::uint32_t>(seed) * 0x85EBCA6Bu + 0x2545F491u;
        bits = (bits ^ (bits >> 16)) * 0x85EBCA6Bu;
        bits = (bits ^ (bits >> 13)) * 0xC2B2AE35u;
        bits ^= bits >> 16;
        result[i] = scale * (static_cast<float>(static_cast<std::int32_t>(bits >> 8) - (1 << 23)) / 0x1p23F);
    }
    return result;
}

}  // namespace

std::string_view Case::name() const { return text_at(place_); }
std::string_view Case::text(std::string_view name) const { return text_at(below(place_, name)); }
bool Case::has(std::string_view tensor) const { return file().find(below(place_, tensor)) != nullptr; }
std::vector<std::int64_t> Case::extents(std::string_view tensor) const {
    return tensor_at(below(place_, tensor)).shape();
}

template <class T>
std::span<const T> Case::list(std::string_view tensor) const {
    const cupola::SafeTensor& found = tensor_at(below(place_, tensor));
    const std::string type = cupola::text(std::is_integral_v<T> ? 'I' : 'F', 8 * sizeof(T));
    require<DataError>(found.type == type, file().path(), ": the tensor ", found.name, " has the type ", found.type,
                       ", not ", type);
    const std::span<const std::byte> bytes = file().bytes(found);
    return {reinterpret_cast<const T*>(bytes.data()), bytes.size() / sizeof(T)};
}

template <class T>
T Case::number(std::string_view tensor) const {
    const std::span<const T> elements = list<T>(tensor);
    require<DataError>(elements.size() == 1, file().path(), ": the tensor ", below(place_, tensor), " has ",
                       elements.size(), " elements, not 1");
    return elements[0];
}

template std::span<const float> Case::list(std::string_view) const;
template std::span<const double> Case::list(std::string_view) const;
template std::span<const std::int32_t> Case::list(std::string_view) const;
template std::span<const std::int64_t> Case::list(std::string_view) const;
template float Case::number(std::string_view) const;
template double Case::number(std::string_view) const;
template std::int64_t Case::number(std::string_view) const;

std::vector<Case> cases(std::string_view group) {
    std::vector<Case> result;
    const auto next = [&] { return cupola::text(group, '/', result.size()); };
    while (find_text(next()) != nullptr) result.emplace_back(next());
    require<DataError>(!result.empty(), file().path(), " has no case ", next());
    return result;
}

std::vector<float> uniform(const Case& parameter) {
    return uniform(parameter.number<std::int64_t>("seed"), parameter.number<std::int64_t>("size"),
                   parameter.number("scale"));
}
std::vector<float> images(const Case& network, std::int64_t size) {
    return uniform(network.number<std::int64_t>("image_seed"), size, network.number("image_scale"));
}

}  // namespace golden
