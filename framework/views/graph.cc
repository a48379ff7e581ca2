#include "framework/views/graph.h"

#include <algorithm>
#include <map>
#include <numeric>

#include <llvm/ADT/DenseMap.h>

#include "framework/views/summary.h"

namespace millrace {
namespace {

constexpr double kNodeHeight = 26;
constexpr double kLayerGap = 34;
constexpr double kNodeGap = 18;
constexpr double kLetterWidth = 7.3;
constexpr size_t kLongestLabel = 48;
constexpr int kSweeps = 6;
constexpr double kBowRoom = 120;  // room beside the nodes for edges that span several layers

double width_of(const std::string& label) {
  return 18 + kLetterWidth * static_cast<double>(std::min(label.size(), kLongestLabel));
}

// Sum and number of the x positions of a node's neighbours on one side, to compute their mean.
struct Pull {
  double sum = 0;
  int count = 0;
};

using Layers = std::vector<std::vector<size_t>>;

void place_layer(BlockGraph& graph, const std::vector<size_t>& layer) {
  double x = 0;
  for (const size_t n : layer) {
    BlockGraph::Node& node = graph.nodes[n];
    node.x = x + node.width / 2;
    x += node.width + kNodeGap;
  }
  // Centre the layer: all layers have the same vertical axis.
  for (const size_t n : layer) graph.nodes[n].x -= (x - kNodeGap) / 2;
}

void sort_layer(BlockGraph& graph, std::vector<size_t>& layer, const std::vector<Pull>& pulls) {
  const auto wish = [&](size_t n) {
    return pulls[n].count == 0 ? graph.nodes[n].x : pulls[n].sum / pulls[n].count;
  };
  std::stable_sort(layer.begin(), layer.end(),
                   [&](size_t a, size_t b) { return wish(a) < wish(b); });
  place_layer(graph, layer);
}

// One pass over the layers. Orders each by the positions of its neighbours in the layers before it.
void sweep(BlockGraph& graph, Layers& layers, bool downwards) {
  std::vector<std::vector<size_t>> sources(graph.nodes.size());
  for (const BlockGraph::Edge& edge : graph.edges) {
    if (downwards) {
      sources[edge.to].push_back(edge.from);
    } else {
      sources[edge.from].push_back(edge.to);
    }
  }
  std::vector<Pull> pulls(graph.nodes.size());
  const auto visit = [&](std::vector<size_t>& layer) {
    for (const size_t n : layer) {
      for (const size_t source : sources[n]) {
        pulls[n].sum += graph.nodes[source].x;
        ++pulls[n].count;
      }
    }
    sort_layer(graph, layer, pulls);
  };
  if (downwards) {
    std::for_each(layers.begin(), layers.end(), visit);
  } else {
    std::for_each(layers.rbegin(), layers.rend(), visit);
  }
}

// Places nodes without predecessors directly above their first reader: vars from outside, and ops
// such as constants and weight decays. Otherwise the first layer would be far wider than the
// others.
void pull_sources_down(BlockGraph& graph) {
  std::vector<int> first(graph.nodes.size(), -1);
  std::vector<bool> is_source(graph.nodes.size(), true);
  for (const BlockGraph::Edge& edge : graph.edges) {
    const int layer = graph.nodes[edge.to].layer;
    if (first[edge.from] < 0 || layer < first[edge.from]) first[edge.from] = layer;
    is_source[edge.to] = false;
  }
  for (size_t n = 0; n < graph.nodes.size(); ++n)
    if (is_source[n] && first[n] > 0) graph.nodes[n].layer = first[n] - 1;
}

}  // namespace

BlockGraph block_graph(const Block& block, bool with_stored) {
  BlockGraph graph;
  llvm::DenseMap<NameId, size_t> source;  // last writer, or the node of a var from outside
  const auto node = [&](int64_t op, std::string label, bool stored) {
    BlockGraph::Node& added = graph.nodes.emplace_back();
    added.op = op;
    added.label = std::move(label);
    added.stored = stored;
    added.width = width_of(added.label);
    added.height = kNodeHeight;
    return graph.nodes.size() - 1;
  };
  int64_t index = 0;
  for (const Op& op : block.ops()) {
    std::vector<std::pair<size_t, NameId>> reads;
    for (const Slot& slot : op.inputs()) {
      for (const Arg& arg : slot.args) {
        auto it = source.find(arg.name);
        if (it == source.end()) {
          const llvm::StringRef name = op.name_of(arg.name);
          const Var* const var = block.find_var_recursive(name);
          const bool stored = var != nullptr && var->persistable();
          if (stored && !with_stored) continue;
          it = source.try_emplace(arg.name, node(-1, name.str(), stored)).first;
        }
        reads.emplace_back(it->second, arg.name);
      }
    }
    const size_t self = node(index++, op.type().str(), /*stored=*/false);
    for (const auto& [from, name] : reads)
      graph.edges.push_back({from, self, op.name_of(name).str()});
    for (const Slot& slot : op.outputs()) {
      for (const Arg& arg : slot.args) source[arg.name] = self;
    }
  }
  return graph;
}

void lay_out(BlockGraph& graph) {
  // Edges lead from earlier nodes to later ones, so one pass in order finds the longest paths.
  std::vector<size_t> order(graph.edges.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return graph.edges[a].to < graph.edges[b].to; });
  for (const size_t e : order) {
    const BlockGraph::Edge& edge = graph.edges[e];
    BlockGraph::Node& to = graph.nodes[edge.to];
    to.layer = std::max(to.layer, graph.nodes[edge.from].layer + 1);
  }
  pull_sources_down(graph);
  Layers layers;
  for (size_t n = 0; n < graph.nodes.size(); ++n) {
    const auto layer = static_cast<size_t>(graph.nodes[n].layer);
    if (layers.size() <= layer) layers.resize(layer + 1);
    layers[layer].push_back(n);
  }
  for (const std::vector<size_t>& layer : layers) place_layer(graph, layer);
  for (int i = 0; i < kSweeps; ++i) sweep(graph, layers, i % 2 == 0);
  double left = 0;
  double right = 0;
  for (BlockGraph::Node& node : graph.nodes) {
    left = std::min(left, node.x - node.width / 2);
    right = std::max(right, node.x + node.width / 2);
    node.y = node.layer * (kNodeHeight + kLayerGap) + kNodeHeight / 2;
  }
  for (BlockGraph::Node& node : graph.nodes) node.x -= left;
  graph.width = right - left + kBowRoom;
  graph.height = static_cast<double>(layers.size()) * (kNodeHeight + kLayerGap);
}

}  // namespace millrace
