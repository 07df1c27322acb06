// SPDX-License-Identifier: Apache-2.0
#include <cupola/net/pass_list.hpp>

#include "../test.hpp"

#include <array>
#include <string>

using namespace cupola;

namespace {

/// A chain of four nodes that read their inputs in backward; the second and the third may be a block.
[[nodiscard]] std::array<NodeInfo, 4> chain_of_nodes(bool block) {
    std::array<NodeInfo, 4> nodes{};
    for (std::size_t i = 0; i < nodes.size(); ++i) {
        nodes[i].has_parameters = true;
        nodes[i].backward_reads_output = false;
        nodes[i].reads = i;
        if (block && (i == 1 || i == 2)) nodes[i].recompute_block = 1;
    }
    return nodes;
}

/// "f0 f1 o b1 b0"
[[nodiscard]] std::string text_of(const FixedArray<NodePass>& passes) {
    std::string result;
    for (const NodePass& pass : passes) {
        result += result.empty() ? "" : " ";
        result += "fo+b"[static_cast<std::size_t>(pass.kind)];
        if (pass.kind != PassKind::outputs) result += std::to_string(pass.node);
    }
    return result;
}

}  // namespace

TEST_CASE("a list of passes runs forward in the order of the nodes, the outputs, and backward in the reverse order") {
    CHECK(text_of(list_passes(chain_of_nodes(false), true)) == "f0 f1 f2 f3 o b3 b2 b1 b0");
    CHECK(text_of(list_passes(chain_of_nodes(false), false)) == "f0 f1 f2 f3 o");
    CHECK(text_of(list_passes(chain_of_nodes(true), false)) == "f0 f1 f2 f3 o");
}

TEST_CASE("a block runs forward again before its backward passes, as far as only they read its values") {
    // The last node reads the output of the block, which is kept.
    CHECK(text_of(list_passes(chain_of_nodes(true), true)) == "f0 f1 f2 f3 o b3 +1 b2 b1 b0");
    auto nodes = chain_of_nodes(true);
    nodes[3].backward_reads_input = false;
    nodes[2].backward_reads_output = true;
    CHECK(text_of(list_passes(nodes, true)) == "f0 f1 f2 f3 o b3 +1 +2 b2 b1 b0");
    // An output of the network, which the caller reads just before.
    nodes[2].is_output = true;
    CHECK(text_of(list_passes(nodes, true)) == "f0 f1 f2 f3 o b3 +1 b2 b1 b0");
    nodes = chain_of_nodes(true);
    nodes[2].backward_reads_input = false;
    CHECK(text_of(list_passes(nodes, true)) == "f0 f1 f2 f3 o b3 b2 b1 b0");
    // As its second input, inside the block and outside.
    nodes[2].also_reads = 2;
    nodes[2].backward_reads_second_input = true;
    CHECK(text_of(list_passes(nodes, true)) == "f0 f1 f2 f3 o b3 +1 b2 b1 b0");
    nodes[3].also_reads = 2;
    nodes[3].backward_reads_second_input = true;
    CHECK(text_of(list_passes(nodes, true)) == "f0 f1 f2 f3 o b3 b2 b1 b0");
    // Nothing is read below the lowest node that is trained.
    nodes = chain_of_nodes(true);
    nodes[0].has_parameters = nodes[1].has_parameters = nodes[2].has_parameters = false;
    CHECK(text_of(list_passes(nodes, true)) == "f0 f1 f2 f3 o b3 b2 b1 b0");
    CHECK(text_of(list_passes(nodes, true, true)) == "f0 f1 f2 f3 o b3 +1 b2 b1 b0");
}
