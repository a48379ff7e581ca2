#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "framework/program.h"

namespace millrace {

/// A block as a picture: ops, the vars that come from outside, and which op passes which var to
/// which.
struct BlockGraph {
  struct Node {
    int64_t op = -1;    ///< op index; -1 for a var that no op of the block writes before it is read
    std::string label;  ///< op type or var name, as in the program
    bool stored = false;  ///< a persistable var
    int layer = 0;        ///< set by lay_out(), like the following fields
    double x = 0;         ///< centre, in pixels
    double y = 0;
    double width = 0;  ///< of the box, in pixels
    double height = 0;
  };
  struct Edge {
    size_t from = 0;  ///< index of the node that writes the var
    size_t to = 0;    ///< index of the node that reads it
    std::string var;  ///< name of the var that is passed
  };
  std::vector<Node> nodes;
  std::vector<Edge> edges;
  double width = 0;  ///< of the picture, in pixels
  double height = 0;
};

/// Ops and edges of a block. A var from outside is one node for all its readers. Persistable vars
/// are included only if with_stored is true, because every optimizer op has several.
BlockGraph block_graph(const Block& block, bool with_stored = false);

/// Assigns every node a position: a layer below all its predecessors, and an x position near its
/// neighbours. Deterministic; cost O((nodes + edges) log nodes) per sweep.
void lay_out(BlockGraph& graph);

/// The program in the Graphviz language, one cluster per block. Names are escaped.
std::string dot_view(const Program& program);

/// One block as an SVG picture, created without external programs. Names are escaped.
std::string svg_of_block(const Block& block);
/// All blocks in one SVG document, one below the other.
std::string svg_view(const Program& program);

}  // namespace millrace
