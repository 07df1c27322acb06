// SPDX-License-Identifier: Apache-2.0
//
// The stack of values, the marks on it and the numbered values of a machine that reads pickles (io/impl/pickle.hpp).
// Whatever a pickle asks for, no value is read that is not there, and what is allocated is bounded by the bytes read.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <cupola/core/error.hpp>
#include <cupola/io/impl/file_pieces.hpp>
#include <cupola/io/impl/pickle_values.hpp>

namespace cupola { inline namespace CUPOLA_ABI { namespace impl {

class PickleMachine {
protected:
    using Kind = PickleKind;
    /// Those of some 100,000 tensors; they bound the memory, whatever the size of the file is.
    static constexpr std::size_t max_values = std::size_t{1} << 22, max_lists = std::size_t{1} << 21,
                                 max_bytes = std::size_t{1} << 25, max_classes = 1000, max_name = 200;

    PickleMachine(FileFront& bytes, PickleTables& tables) : bytes_(bytes), tables_(tables) {}

    template <class... Parts>
    [[noreturn, gnu::cold]] void fail(const Parts&... parts) const {
        throw DataError(text(bytes_.path(), " cannot be read: at byte ", bytes_.taken(), " of its pickle, ", parts...));
    }

    [[nodiscard]] const std::byte* take(std::uint64_t count) {
        const std::byte* const at = bytes_.take(count);
        require<DataError>(at != nullptr, bytes_.path(), " is truncated: its pickle ends at byte ", bytes_.taken(),
                           ", before its end");
        if (bytes_.taken() > max_bytes) fail("it has more than ", max_bytes, " bytes");
        return at;
    }
    template <class Number>
    [[nodiscard]] Number number() {
        return little_endian<Number>(take(sizeof(Number)));
    }

    void push(const PickleValue& value) {
        if (stack_.size() == max_values || tables_.lists.size() > max_lists) fail("there are too many values");
        stack_.push_back(value);
    }
    void push(Kind kind, std::int64_t number = 0) { push({.kind = kind, .number = number}); }
    /// The first value of the stack since the last mark.
    [[nodiscard]] std::size_t base() const { return marks_.empty() ? 0 : marks_.back(); }
    [[nodiscard]] PickleValue& top() {
        if (stack_.size() == base()) fail("a value is missing");
        return stack_.back();
    }
    PickleValue pop() {
        const PickleValue value = top();
        stack_.pop_back();
        return value;
    }
    /// The values since the last mark, which is removed; the stack still has them.
    [[nodiscard]] std::size_t pop_mark() {
        if (marks_.empty()) fail("a mark is missing");
        const std::size_t begin = marks_.back();
        marks_.pop_back();
        return begin;
    }
    [[nodiscard]] std::span<const PickleValue> from(std::size_t begin) const {
        return std::span(stack_).subspan(begin);
    }
    [[nodiscard]] std::span<const PickleValue> items(const PickleValue& list) const {
        return tables_.lists[list.index()];
    }
    /// Replaces the values from `begin` on by a list, tuple or dictionary of them.
    [[gnu::cold]] void push_list(Kind kind, std::size_t begin) {
        if (begin > stack_.size() || begin < base()) fail("a value is missing");
        const std::span<const PickleValue> values = from(begin);
        tables_.lists.emplace_back(values.begin(), values.end());
        stack_.resize(begin);
        push(kind, static_cast<std::int64_t>(tables_.lists.size() - 1));
    }
    /// Moves the values from `begin` on to the list or dictionary before them; an object does not keep them.
    void add(Kind kind, std::size_t begin) {
        if (begin > stack_.size() || begin <= base()) fail("a value is missing");
        const PickleValue& to = stack_[begin - 1];
        if (to.kind == Kind::object) return stack_.resize(begin);
        if (to.kind != kind)
            fail("items are set in ", kind_name(to.kind), ", which is no ", kind == Kind::list ? "list" : "dictionary");
        const std::span<const PickleValue> values = from(begin);
        if (kind == Kind::dictionary && values.size() % 2 != 0) fail("a key has no value");
        std::vector<PickleValue>& list = tables_.lists[to.index()];
        list.insert(list.end(), values.begin(), values.end());
        stack_.resize(begin);
    }

    void push_text(std::uint64_t length) {
        if (length > 0xFFFFFFFF) length = ~std::uint64_t{0} >> 1;  // longer than any file
        static_cast<void>(take(length));
        push({.kind = Kind::text,
              .length = static_cast<std::uint32_t>(length),
              .number = static_cast<std::int64_t>(bytes_.taken() - length)});
    }
    /// An integer in two's complement of so many bytes.
    void push_long(std::uint64_t length) {
        const std::byte* const at = take(length);
        if (length > sizeof(std::int64_t)) {
            push({.kind = Kind::other, .length = static_cast<std::uint32_t>(length), .number = 0});
            return;
        }
        std::uint64_t value = length > 0 && (std::to_integer<unsigned>(at[length - 1]) & 0x80) != 0 ? ~0ULL : 0;
        for (std::size_t i = length; i > 0; --i) value = value << 8 | std::to_integer<std::uint64_t>(at[i - 1]);
        push(Kind::integer, static_cast<std::int64_t>(value));
    }

    [[nodiscard]] std::string line() {
        std::string result;
        for (char c; (c = static_cast<char>(*take(1))) != '\n';) {
            if (result.size() == max_name) fail("a name has more than ", max_name, " characters");
            result += c;
        }
        return result;
    }
    void memoize(std::uint64_t index) {
        // A pickle numbers its values in their order, and each has at least one byte.
        if (index >= bytes_.taken() || index >= max_values)
            fail("a value has the number ", index, ", more than there can be");
        if (index >= memo_.size()) memo_.resize(index + 1);
        memo_[index] = top();
    }
    void push_memoized(std::uint64_t index) {
        if (index >= memo_.size() || memo_[index].kind == Kind::unset)
            fail("there is no value with the number ", index);
        push(memo_[index]);
    }

    /// Pushes the class or function of this name, which is not known.
    [[gnu::cold]] void push_unknown(std::string_view name) {
        const auto [place, is_new] = classes_.try_emplace(std::string(name), tables_.classes.size());
        if (is_new) {
            if (classes_.size() > max_classes) fail("it names more than ", max_classes, " classes");
            tables_.classes.emplace_back(name);
        }
        push(Kind::object, static_cast<std::int64_t>(place->second));
    }

    FileFront& bytes_;
    PickleTables& tables_;
    std::map<std::string, std::size_t> classes_;
    std::vector<PickleValue> stack_, memo_;
    std::vector<std::size_t> marks_;
};

}}}  // namespace cupola::CUPOLA_ABI::impl
