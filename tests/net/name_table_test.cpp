// SPDX-License-Identifier: Apache-2.0
//
// Tables of names: what two of them are together, and which have no meaning. tests/io/name_table_test.cpp reads and
// writes by them.
#include <cupola/net/name_table.hpp>

#include "../test.hpp"

#include "throws_with.hpp"

namespace {

std::string refused_table(const NameTable& table) {
    return message_of<InvalidArgument>([&] { impl::require_valid_names(table); });
}

}  // namespace

TEST_CASE("of two tables together the first counts, and an entry that it has itself is left out of the second") {
    const NameTable own{{.file = {"my_head.*"}, .here = "head.*"}, {.file = {"extra"}}};
    const NameTable table{
        {.file = {"fc.*"}, .here = "head.*"}, {.file = {"stem.*"}, .here = "conv1.*"}, {.file = {"more"}}};
    std::string entries;
    for (const NameEntry& entry : (own + table).entries) entries += to_string(entry) + "; ";
    CHECK(entries == "my_head.* -> head.*; extra; stem.* -> conv1.*; more; ");
    impl::require_valid_names(own + table);
    CHECK(to_string(NameEntry{.file = {"q.*", "k.*"}, .here = "qk.*"}) == "q.*, k.* -> qk.*");
}

TEST_CASE("an entry without a meaning is an error that names it") {
    CHECK(refused_table({{.file = {"a.*"}, .here = "head.*"}, {.file = {"b.*"}, .here = "head.*"}}) ==
          "two entries of the table of names give head.*: a.* -> head.* and b.* -> head.*");
    CHECK(refused_table({{.file = {}, .here = "head"}}) ==
          "the entry  -> head of the table of names has no name in the file");
    CHECK(refused_table({{.file = {"a.*"}, .here = "head"}}) ==
          "the entry a.* -> head of the table of names has 1 * in a.* and 0 in head");
    CHECK(refused_table({{.file = {"a?"}, .here = "head?"}}) ==
          "the entry a? -> head? of the table of names has a ?: only * stands for other characters");
    CHECK(refused_table({{.file = {"a"}, .here = "head", .axes = {0, 0}}}) ==
          "the entry a -> head of the table of names has axes that are not 0 to 1, each once, in any order");
    CHECK(refused_table({{.file = {"a"}, .here = "head", .axes = {1, 2}}}) ==
          "the entry a -> head of the table of names has axes that are not 0 to 1, each once, in any order");
    CHECK(refused_table({{.file = {"a"}, .here = "head", .axes = {1, 0}, .extents = {0, -1, 1}}}) ==
          "the entry a -> head of the table of names has 2 axes and 3 extents");
    const std::string extents =
        "the entry a -> head of the table of names has extents other than positive ones, 0 for the same and at most "
        "one -1 for what remains";
    CHECK(refused_table({{.file = {"a"}, .here = "head", .extents = {-1, -1}}}) == extents);
    CHECK(refused_table({{.file = {"a"}, .here = "head", .extents = {-2}}}) == extents);
    CHECK(
        refused_table({{.file = {"a", "b"}, .here = "head", .rows = {1}}}) ==
        "the entry a, b -> head of the table of names has 2 names in the file, and its rows are not a positive number "
        "for each");
    CHECK(refused_table({{.file = {"a"}, .rows = {1}}}) ==
          "the entry a of the table of names has no name in the network, so that its tensors are ignored, and takes no "
          "axes, extents or rows");
    impl::require_valid_names({{.file = {"?.position_ids", "*.mask"}}, {.file = {"*.mask"}}});
}
