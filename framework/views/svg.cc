// SVG pictures of blocks. The layout is computed here so that no external program is needed.

#include <algorithm>

#include <fmt/format.h>

#include "framework/base/html.h"
#include "framework/views/graph.h"

namespace millrace {
namespace {

constexpr double kMargin = 24;
constexpr double kTitleHeight = 30;
constexpr size_t kLongestShown = 48;
constexpr const char* kSvgStyle =
    "text{font:12px ui-monospace,monospace;fill:#1c2330;text-anchor:middle}"
    ".title{font:600 14px system-ui,sans-serif;text-anchor:start}"
    ".op rect{fill:#dbe7fb;stroke:#5b7fbd}.var rect{fill:#fff;stroke:#8a93a3}"
    ".stored rect{fill:#f4e3c1;stroke:#b08d3e}path{fill:none;stroke:#9aa5b5}"
    "g:hover>rect{stroke-width:2.5}";

std::string shortened(const std::string& label) {
  if (label.size() <= kLongestShown) return label;
  return label.substr(0, kLongestShown - 3) + "...";
}

void append_edge(std::string& out, const BlockGraph& graph, const BlockGraph::Edge& edge) {
  const BlockGraph::Node& from = graph.nodes[edge.from];
  const BlockGraph::Node& to = graph.nodes[edge.to];
  const double y1 = from.y + from.height / 2;
  const double y2 = to.y - to.height / 2;
  const double bend = (y2 - y1) / 2;
  // An edge that spans several layers is curved; otherwise the nodes in between would hide it.
  const int span = to.layer - from.layer;
  const double bow = span > 1 ? 40.0 + 8.0 * std::min(span, 20) : 0.0;
  out += fmt::format(
      "<path d=\"M{:.0f} {:.0f}C{:.0f} {:.0f} {:.0f} {:.0f} {:.0f} {:.0f}\"><title>{}</title>"
      "</path>\n",
      from.x, y1, from.x + bow, y1 + bend, to.x + bow, y2 - bend, to.x, y2, html_escaped(edge.var));
}

void append_node(std::string& out, const BlockGraph::Node& node, int block) {
  const char* const kind = node.op >= 0 ? "op" : node.stored ? "stored" : "var";
  const std::string tip = node.op >= 0 ? fmt::format("op {} {}", node.op, node.label) : node.label;
  const std::string data =
      node.op >= 0 ? fmt::format(" data-op=\"{}.{}\"", block, node.op) : std::string();
  out += fmt::format(
      "<g class=\"{}\"{}><title>{}</title><rect x=\"{:.0f}\" y=\"{:.0f}\" width=\"{:.0f}\" "
      "height=\"{:.0f}\" rx=\"4\"/><text x=\"{:.0f}\" y=\"{:.0f}\">{}</text></g>\n",
      kind, data, html_escaped(tip), node.x - node.width / 2, node.y - node.height / 2, node.width,
      node.height, node.x, node.y + 4, html_escaped(shortened(node.label)));
}

struct Picture {
  std::string content;
  double width = 0;
  double height = 0;
};

Picture draw(const Block& block) {
  BlockGraph graph = block_graph(block);
  lay_out(graph);
  Picture picture{"", graph.width, graph.height};
  for (const BlockGraph::Edge& edge : graph.edges) append_edge(picture.content, graph, edge);
  for (const BlockGraph::Node& node : graph.nodes)
    append_node(picture.content, node, block.index());
  return picture;
}

std::string document(double width, double height, const std::string& content) {
  return fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0:.0f}\" height=\"{1:.0f}\" "
      "viewBox=\"0 0 {0:.0f} {1:.0f}\">\n<style>{2}</style>\n{3}</svg>\n",
      width, height, kSvgStyle, content);
}

}  // namespace

std::string svg_of_block(const Block& block) {
  const Picture picture = draw(block);
  return document(picture.width + 2 * kMargin, picture.height + 2 * kMargin,
                  fmt::format("<g transform=\"translate({},{})\">\n{}</g>\n", kMargin, kMargin,
                              picture.content));
}

std::string svg_view(const Program& program) {
  std::string content;
  double width = 0;
  double y = kMargin;
  for (const Block& block : program.blocks()) {
    const Picture picture = draw(block);
    content += fmt::format(
        "<text class=\"title\" x=\"{}\" y=\"{:.0f}\">block {}</text>\n"
        "<g transform=\"translate({},{:.0f})\">\n{}</g>\n",
        kMargin, y + 12, block.index(), kMargin, y + kTitleHeight, picture.content);
    width = std::max(width, picture.width);
    y += kTitleHeight + picture.height + kMargin;
  }
  return document(width + 2 * kMargin, y, content);
}

}  // namespace millrace
