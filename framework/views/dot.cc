// Graphviz form of a program.

#include <fmt/format.h>
#include <llvm/ADT/DenseMap.h>

#include "framework/base/text.h"
#include "framework/text_form/print.h"
#include "framework/views/graph.h"

namespace millrace {
namespace {

// Quoted string in the Graphviz language: only quotes and backslashes are special.
std::string dot_string(std::string_view name) {
  std::string out = "\"";
  for (const char c : printable(name)) {
    if (c == '"' || c == '\\') out += '\\';
    out += c;
  }
  return out + "\"";
}

void append_cluster(std::string& out, const Block& block) {
  const int index = block.index();
  out += fmt::format("  subgraph cluster_{} {{\n    label=\"block {}\";\n", index, index);
  const BlockGraph graph = block_graph(block, /*with_stored=*/true);
  for (size_t n = 0; n < graph.nodes.size(); ++n) {
    const BlockGraph::Node& node = graph.nodes[n];
    const char* const shape = node.op >= 0  ? "shape=box, style=filled, fillcolor=\"#dbe7fb\""
                              : node.stored ? "shape=ellipse, style=filled, fillcolor=\"#f4e3c1\""
                                            : "shape=ellipse";
    const std::string tip = node.op >= 0 ? fmt::format(", tooltip=\"op {}\"", node.op) : "";
    out +=
        fmt::format("    b{}_{} [label={}, {}{}];\n", index, n, dot_string(node.label), shape, tip);
  }
  for (const BlockGraph::Edge& edge : graph.edges) {
    // A var from outside is a node with a label, so its edges need none.
    const std::string label =
        graph.nodes[edge.from].op < 0 ? "" : fmt::format(" [label={}]", dot_string(edge.var));
    out += fmt::format("    b{}_{} -> b{}_{}{};\n", index, edge.from, index, edge.to, label);
  }
  out += "  }\n";
}

}  // namespace

std::string dot_view(const Program& program) {
  std::string out =
      "digraph program {\n  rankdir=TB;\n  node [fontname=\"sans-serif\", fontsize=10];\n"
      "  edge [fontname=\"sans-serif\", fontsize=8];\n";
  for (const Block& block : program.blocks()) append_cluster(out, block);
  return out + "}\n";
}

}  // namespace millrace
