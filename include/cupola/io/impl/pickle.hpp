// SPDX-License-Identifier: Apache-2.0
//
// The part of Python's pickle format, of its protocols 2 to 5, that files of tensors are written in: a machine with a
// stack of values. It makes lists, tuples, dictionaries, texts, numbers, storages and tensors
// (io/impl/pickle_values.hpp). An object of another class is a value that has the name of its class and nothing else:
// nothing of Python is run. The machine is not recursive, and what it allocates is bounded by the bytes that it reads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include <cupola/core/error.hpp>
#include <cupola/io/impl/file_pieces.hpp>
#include <cupola/io/impl/json_string.hpp>
#include <cupola/io/impl/pickle_machine.hpp>
#include <cupola/io/impl/pickle_values.hpp>

namespace cupola { inline namespace CUPOLA_ABI { namespace impl {

class Pickle : private PickleMachine {
public:
    /// Reads one pickle from `bytes` on; what it makes is added to `tables`. Throws DataError.
    Pickle(FileFront& bytes, PickleTables& tables) : PickleMachine(bytes, tables) {
        while (step()) {
        }
    }
    [[nodiscard]] PickleValue result() const { return result_; }

private:
    [[gnu::cold]] void push_global(std::string_view module, std::string_view name) {
        if (module.size() > max_name || name.size() > max_name) fail("a name has more than ", max_name, " characters");
        const PickleValue value = pickle_global(module, name);
        if (value.kind != Kind::unset) return push(value);
        push_unknown(text(module, '.', name));
    }

    [[nodiscard]] std::uint64_t natural(const PickleValue& value, const char* what) const {
        if (value.kind != Kind::integer || value.number < 0)
            fail(what, " is ", value.kind == Kind::integer ? text(value.number) : std::string(kind_name(value.kind)));
        return static_cast<std::uint64_t>(value.number);
    }

    /// ('storage', type, key, device, count), with a sixth value in files of the format before torch 1.6: nothing, or
    /// (key, offset, count) of a storage that is a part of this one.
    [[gnu::cold]] void push_storage() {
        const PickleValue id = pop();
        const std::span<const PickleValue> parts =
            id.kind == Kind::tuple || id.kind == Kind::list ? items(id) : std::span<const PickleValue>();
        // Of a class with the text of its source, as the format before torch 1.6 has them.
        if (parts.size() > 1 && parts[0].kind == Kind::text && text_of(bytes_, parts[0]) == "module" &&
            parts[1].kind == Kind::object)
            return push(parts[1]);
        if (parts.size() > 1 && parts[1].kind == Kind::object)
            fail("a storage is a ", shown(tables_.classes[parts[1].index()]), ", whose elements are not read");
        if (parts.size() < 5 || parts[0].kind != Kind::text || text_of(bytes_, parts[0]) != "storage" ||
            parts[1].kind != Kind::global || parts[1].global != PickleGlobal::storage || parts[2].kind != Kind::text)
            fail("something other than a storage is stored outside of the pickle");
        PickleStorage storage{.key = parts[2], .type = parts[1].type, .count = natural(parts[4], "a storage's size")};
        if (parts.size() > 5 && parts[5].kind != Kind::none) {
            const std::span<const PickleValue> view =
                parts[5].kind == Kind::tuple ? items(parts[5]) : std::span<const PickleValue>();
            if (view.size() != 3) fail("a part of a storage is not stated by three values");
            storage.offset = natural(view[1], "the offset of a part of a storage");
            const std::uint64_t count = natural(view[2], "the size of a part of a storage");
            if (storage.offset > storage.count || count > storage.count - storage.offset)
                fail("a part of a storage is larger than the storage");
        }
        tables_.storages.push_back(storage);
        push(Kind::storage, static_cast<std::int64_t>(tables_.storages.size() - 1));
    }

    [[nodiscard, gnu::cold]] PickleTensor tensor_of(std::span<const PickleValue> arguments,
                                                    PickleGlobal function = PickleGlobal::rebuild_tensor) const {
        const auto is_list = [](const PickleValue& value) {
            return value.kind == Kind::tuple || value.kind == Kind::list;
        };
        const bool v3 = function == PickleGlobal::rebuild_tensor_v3;
        if (arguments.size() < (v3 ? 7U : 4U) || arguments[0].kind != Kind::storage || !is_list(arguments[2]) ||
            !is_list(arguments[3]) ||
            (v3 && (arguments[6].kind != Kind::global || arguments[6].global != PickleGlobal::dtype)))
            fail("a tensor is not stated by a storage, an offset, extents and strides");
        PickleTensor tensor{.storage = arguments[0].index(),
                            .extents = arguments[2].index(),
                            .strides = arguments[3].index(),
                            .offset = natural(arguments[1], "a tensor's offset"),
                            .type = v3 ? arguments[6].type : tables_.storages[arguments[0].index()].type};
        const std::size_t attributes = v3 ? 7 : 6;
        if (arguments.size() > attributes && arguments[attributes].kind == Kind::dictionary) {
            const std::span<const PickleValue> all = items(arguments[attributes]);
            for (std::size_t i = 0; i + 1 < all.size(); i += 2) {
                if (all[i].kind == Kind::text && text_of(bytes_, all[i]) == "neg")
                    tensor.negated = all[i + 1].number != 0;
            }
        }
        if (tensor.type == 0) fail("a tensor of an untyped storage has no element type");
        return tensor;
    }
    void push_tensor(const PickleTensor& tensor) {
        tables_.tensors.push_back(tensor);
        push(Kind::tensor, static_cast<std::int64_t>(tables_.tensors.size() - 1));
    }
    /// The attributes of an OrderedDict are those of PyTorch's modules, such as their versions.
    [[gnu::cold]] void set_attributes(const PickleValue& attributes) {
        const PickleValue to = top();
        if (to.kind == Kind::tensor && attributes.kind == Kind::tuple &&
            tables_.tensors[to.index()].storage == PickleTensor::no_storage) {
            tables_.tensors[to.index()] = tensor_of(items(attributes));
        } else if (to.kind != Kind::dictionary && to.kind != Kind::object) {
            fail("attributes are set of ", kind_name(to.kind));
        }
    }

    [[nodiscard]] static bool is_tensor_class(const PickleValue& value) {
        return value.kind == Kind::global && value.global == PickleGlobal::tensor;
    }

    /// Calls one of the known functions.
    [[gnu::cold]] void reduce() {
        const PickleValue arguments = pop(), function = pop();
        if (function.kind == Kind::object) return push(function);
        if (is_tensor_class(function)) return push_tensor({});
        if (function.kind != Kind::global || arguments.kind != Kind::tuple)
            fail("a call of ", kind_name(function.kind), " with ", kind_name(arguments.kind));
        const std::span<const PickleValue> values = items(arguments);
        switch (function.global) {
            case PickleGlobal::ordered_dict: {
                const std::size_t begin = stack_.size();
                // Python 2 passes a list of pairs.
                if (values.size() > 1 || (values.size() == 1 && values[0].kind != Kind::list))
                    fail("an OrderedDict is made of something other than pairs");
                if (values.size() == 1) {
                    for (const PickleValue& pair : items(values[0])) {
                        const bool is_pair =
                            (pair.kind == Kind::list || pair.kind == Kind::tuple) && items(pair).size() == 2;
                        if (!is_pair) fail("an OrderedDict is made of something other than pairs");
                        // Each pair has bytes of its own: a list that many dictionaries are made of would not end.
                        if (++copied_ > bytes_.taken()) fail("OrderedDicts are made of more pairs than there are");
                        for (const PickleValue& value : items(pair)) push(value);
                    }
                }
                return push_list(Kind::dictionary, begin);
            }
            case PickleGlobal::rebuild_tensor:
            case PickleGlobal::rebuild_tensor_v2:
            case PickleGlobal::rebuild_tensor_v3: return push_tensor(tensor_of(values, function.global));
            case PickleGlobal::rebuild_parameter:
                if (values.empty() || (values[0].kind != Kind::tensor && values[0].kind != Kind::object))
                    fail("a parameter is made of no tensor");
                return push(values[0]);
            case PickleGlobal::size:
                if (values.size() != 1 || (values[0].kind != Kind::tuple && values[0].kind != Kind::list))
                    fail("a torch.Size is made of no tuple");
                return push(values[0]);
            case PickleGlobal::device: return push(Kind::other);
            case PickleGlobal::storage:
            case PickleGlobal::dtype:
            case PickleGlobal::tensor: break;
        }
        fail("a call of a type");
    }

    /// Makes an object of a class.
    void make_object(int arguments) {
        for (int i = 0; i < arguments; ++i) static_cast<void>(pop());
        if (is_tensor_class(top())) {
            static_cast<void>(pop());
            return push_tensor({});
        }
        if (top().kind != Kind::object) fail("an object is made of ", kind_name(top().kind));
    }

    /// One instruction; false after the last.
    bool step();

    PickleValue result_;
    /// The values that were copied for an OrderedDict.
    std::uint64_t copied_ = 0;
};

inline bool Pickle::step() {
    const auto code = std::to_integer<unsigned>(*take(1));
    switch (code) {
        case 0x80:  // PROTO
            if (const auto protocol = number<std::uint8_t>(); protocol < 2 || protocol > 5)
                fail("the protocol is ", protocol, "; 2 to 5 are read");
            break;
        case 0x95: static_cast<void>(take(8)); break;  // FRAME
        case '.': result_ = pop(); return false;
        case '(': marks_.push_back(stack_.size()); break;
        case ')': push_list(Kind::tuple, stack_.size()); break;
        case ']':
        case 0x8F: push_list(Kind::list, stack_.size()); break;
        case '}': push_list(Kind::dictionary, stack_.size()); break;
        case 't':
        case 0x91: push_list(Kind::tuple, pop_mark()); break;
        case 0x85:  // TUPLE1, TUPLE2, TUPLE3
        case 0x86:
        case 0x87: push_list(Kind::tuple, stack_.size() - (code - 0x84)); break;
        case 'a': add(Kind::list, stack_.size() - 1); break;
        case 'e':
        case 0x90: add(Kind::list, pop_mark()); break;  // also to a set, which is a list here
        case 's': add(Kind::dictionary, stack_.size() - 2); break;
        case 'u': add(Kind::dictionary, pop_mark()); break;
        case 'c': {
            const std::string module = line(), name = line();
            push_global(module, name);
            break;
        }
        case 0x93: {  // STACK_GLOBAL
            const PickleValue name = pop(), module = pop();
            if (name.kind != Kind::text || module.kind != Kind::text) fail("a name is no text");
            push_global(text_of(bytes_, module), text_of(bytes_, name));
            break;
        }
        case 'q': memoize(number<std::uint8_t>()); break;
        case 'r': memoize(number<std::uint32_t>()); break;
        case 0x94: memoize(memo_.size()); break;  // MEMOIZE
        case 'h': push_memoized(number<std::uint8_t>()); break;
        case 'j': push_memoized(number<std::uint32_t>()); break;
        case 'U':  // texts and bytes with a length of one byte
        case 'C':
        case 0x8C: push_text(number<std::uint8_t>()); break;
        case 'T':  // of four
        case 'B':
        case 'X': push_text(number<std::uint32_t>()); break;
        case 0x8D:  // of eight
        case 0x8E:
        case 0x96: push_text(number<std::uint64_t>()); break;
        case 'J': push(Kind::integer, number<std::int32_t>()); break;
        case 'K': push(Kind::integer, number<std::uint8_t>()); break;
        case 'M': push(Kind::integer, number<std::uint16_t>()); break;
        case 0x8A: push_long(number<std::uint8_t>()); break;
        case 0x8B: push_long(number<std::uint32_t>()); break;
        case 'G':
            static_cast<void>(take(8));
            push(Kind::other);
            break;
        case 'N': push(Kind::none); break;
        case 0x88: push(Kind::boolean, 1); break;
        case 0x89: push(Kind::boolean, 0); break;
        case 'Q': push_storage(); break;
        case 'R': reduce(); break;
        case 'b': set_attributes(pop()); break;  // BUILD
        case 0x81: make_object(1); break;        // NEWOBJ
        case 0x92: make_object(2); break;        // NEWOBJ_EX
        default: fail("the instruction ", code, " does not occur in files of tensors");
    }
    return true;
}

}}}  // namespace cupola::CUPOLA_ABI::impl
