#include <algorithm>
#include <memory>
#include <vector>

#include "kernels/cpu/gemm.h"
#include "kernels/cpu/needed.h"
#include "kernels/dispatch.h"
#include "kernels/registry.h"

namespace millrace::kernels {
namespace tree_conv_kernels {
namespace {

// A tree: children of each node; nodes are numbered from 1, entry 0 is unused.
using Children = std::vector<std::vector<int32_t>>;

// A node in the neighbourhood of another one, with its weight in each third of the filter.
struct Neighbour {
  int64_t node;  ///< index from 0
  double left;
  double right;
  double top;
};

// The weights of a child depend on its depth, and on its position among the children of its parent.
Neighbour weighted(int32_t node, size_t place, size_t siblings, int32_t depth, int32_t max_depth) {
  const double top = static_cast<double>(max_depth - depth) / max_depth;
  const double share =
      siblings == 1 ? 0.5 : static_cast<double>(place) / (static_cast<double>(siblings) - 1);
  const double left = (1 - top) * share;
  return {node - 1, left, (1 - top) * (1 - left), top};
}

// Pairs of parent and child, up to the first pair with a zero.
StatusOr<Children> read_tree(const int32_t* edges, int64_t pairs, int64_t nodes) {
  const int32_t* const end = edges + 2 * pairs;
  int64_t count = 0;
  while (edges + 2 * count != end && edges[2 * count] != 0 && edges[2 * count + 1] != 0) ++count;
  // a tree has one node more than it has edges
  if (count + 1 > nodes)
    return KernelContext::error("EdgeSet has {} edges, but there are {} nodes", count, nodes);
  Children tree(static_cast<size_t>(count) + 2);
  for (int64_t i = 0; i < count; ++i) {
    const int32_t parent = edges[2 * i];
    const int32_t child = edges[2 * i + 1];
    if (parent < 1 || child < 1 || parent > count + 1 || child > count + 1) {
      return KernelContext::error("EdgeSet: edge {} to {}, expected nodes from 1 to {}", parent,
                                  child, count + 1);
    }
    tree[static_cast<size_t>(parent)].push_back(child);
  }
  return tree;
}

// The nodes below a root at a distance of less than max_depth, including the root.
class TreeConvWalk {
 public:
  TreeConvWalk(const Children& tree, int32_t max_depth)
      : tree_(tree), max_depth_(max_depth), seen_(tree.size(), 0) {}

  const std::vector<Neighbour>& from(int32_t root) {
    found_.assign(1, weighted(root, 0, 1, 0, max_depth_));
    seen_[static_cast<size_t>(root)] = root;
    path_.assign(1, {root, 0});
    while (!path_.empty()) {
      const auto [node, depth] = path_.back();
      if (!add_children(root, node, depth)) path_.pop_back();
    }
    return found_;
  }

 private:
  struct Place {
    int32_t node;
    int32_t depth;
  };
  // Returns false if there are no new nodes.
  bool add_children(int32_t root, int32_t node, int32_t depth) {
    if (depth + 1 >= max_depth_) return false;
    const std::vector<int32_t>& children = tree_[static_cast<size_t>(node)];
    bool any = false;
    for (size_t i = 0; i < children.size(); ++i) {
      int32_t& seen = seen_[static_cast<size_t>(children[i])];
      if (seen == root) continue;
      seen = root;
      path_.push_back({children[i], depth + 1});
      found_.push_back(weighted(children[i], i, children.size(), depth + 1, max_depth_));
      any = true;
    }
    return any;
  }

  const Children& tree_;
  int32_t max_depth_;
  std::vector<int32_t> seen_;  ///< root of the last traversal that reached the node
  std::vector<Place> path_;
  std::vector<Neighbour> found_;
};

// Sizes of one call.
struct TreeConvSizes {
  int64_t batch = 0;
  int64_t nodes = 0;
  int64_t features = 0;
  int64_t pairs = 0;
  int64_t columns = 0;  ///< of the filter as a matrix of 3 * features rows
};

StatusOr<TreeConvSizes> sizes_of(const Tensor& nodes, const Tensor& edges, const Tensor& filter) {
  if (nodes.rank() != 3 || edges.rank() != 3 || filter.rank() != 4 || edges.dim(2) != 2 ||
      edges.dim(0) != nodes.dim(0) || filter.dim(0) != nodes.dim(2) || filter.dim(1) != 3 ||
      edges.dtype() != DType::kInt32 || filter.dtype() != nodes.dtype()) {
    return KernelContext::error("NodesVector {}, EdgeSet {} and Filter {} do not fit together",
                                describe(nodes), describe(edges), describe(filter));
  }
  return TreeConvSizes{nodes.dim(0), nodes.dim(1), nodes.dim(2), edges.dim(1),
                       filter.dim(2) * filter.dim(3)};
}

// Calls body(image, patches) with the neighbourhoods of all nodes, for each tree of a batch.
template <typename Body>
Status for_trees(const Tensor& edges, const TreeConvSizes& sizes, int32_t max_depth, Body&& body) {
  for (int64_t n = 0; n < sizes.batch; ++n) {
    MILLRACE_ASSIGN_OR_RETURN(
        const Children tree,
        read_tree(edges.data<int32_t>() + n * sizes.pairs * 2, sizes.pairs, sizes.nodes));
    std::vector<std::vector<Neighbour>> patches;
    TreeConvWalk walk(tree, max_depth);
    for (size_t root = 1; root < tree.size(); ++root)
      patches.push_back(walk.from(static_cast<int32_t>(root)));
    MILLRACE_RETURN_IF_ERROR(body(n, patches));
  }
  return Ok();
}

// One row per node: for each feature the weighted sums over its neighbourhood.
template <typename T>
void gather(const std::vector<std::vector<Neighbour>>& patches, int64_t features, const T* nodes,
            T* rows) {
  std::fill_n(rows, static_cast<int64_t>(patches.size()) * 3 * features, T{0});
  for (const std::vector<Neighbour>& patch : patches) {
    for (const Neighbour& near : patch) {
      const T* const from = nodes + near.node * features;
      for (int64_t i = 0; i < features; ++i) {
        rows[3 * i] += static_cast<T>(near.left) * from[i];
        rows[3 * i + 1] += static_cast<T>(near.right) * from[i];
        rows[3 * i + 2] += static_cast<T>(near.top) * from[i];
      }
    }
    rows += 3 * features;
  }
}

// The gradient: adds to the gradients of the nodes.
template <typename T>
void scatter(const std::vector<std::vector<Neighbour>>& patches, int64_t features, const T* rows,
             T* nodes) {
  for (const std::vector<Neighbour>& patch : patches) {
    for (const Neighbour& near : patch) {
      T* const to = nodes + near.node * features;
      for (int64_t i = 0; i < features; ++i) {
        to[i] += static_cast<T>(near.left) * rows[3 * i] +
                 static_cast<T>(near.right) * rows[3 * i + 1] +
                 static_cast<T>(near.top) * rows[3 * i + 2];
      }
    }
    rows += 3 * features;
  }
}

StatusOr<Kernel> tree_conv(const KernelSetup& op) {
  const ArgIndex nodes_arg = op.input("NodesVector");
  const ArgIndex edges_arg = op.input("EdgeSet");
  const ArgIndex filter_arg = op.input("Filter");
  const ArgIndex out_arg = op.output("Out");
  const auto max_depth = op.attr<int32_t>("max_depth");
  return Kernel([=, gemm = std::make_shared<Gemm>()](const KernelContext& ctx) -> Status {
    const Tensor& nodes = ctx.in(nodes_arg);
    const Tensor& filter = ctx.in(filter_arg);
    const Tensor& edges = ctx.in(edges_arg);
    MILLRACE_ASSIGN_OR_RETURN(const TreeConvSizes sizes, sizes_of(nodes, edges, filter));
    return dispatch<FloatTypes>(nodes.dtype(), [&](auto tag) -> Status {
      using T = typename decltype(tag)::type;
      T* const out = ctx.out(out_arg).data<T>();
      // nodes without edges have a result of zero
      std::fill_n(out, ctx.out(out_arg).numel(), T{0});
      std::vector<T> rows(static_cast<size_t>(sizes.nodes * 3 * sizes.features));
      return for_trees(edges, sizes, max_depth, [&](int64_t n, const auto& patches) {
        gather(patches, sizes.features, nodes.data<T>() + n * sizes.nodes * sizes.features,
               rows.data());
        const GemmShape shape{static_cast<int64_t>(patches.size()), sizes.columns,
                              3 * sizes.features};
        return (*gemm)(ctx.device(), shape, rows.data(), filter.data<T>(),
                       out + n * sizes.nodes * sizes.columns);
      });
    });
  });
}

StatusOr<Kernel> tree_conv_grad(const KernelSetup& op) {
  const ArgIndex nodes_arg = op.input("NodesVector");
  const ArgIndex edges_arg = op.input("EdgeSet");
  const ArgIndex filter_arg = op.input("Filter");
  const ArgIndex dout_arg = op.input("Out@GRAD");
  const ArgIndex dnodes_arg = op.output("NodesVector@GRAD");
  const ArgIndex dfilter_arg = op.output("Filter@GRAD");
  const auto max_depth = op.attr<int32_t>("max_depth");
  return Kernel([=, for_filter = std::make_shared<Gemm>(),
                 for_nodes = std::make_shared<Gemm>()](const KernelContext& ctx) -> Status {
    MILLRACE_ASSIGN_OR_RETURN(const Tensor* const nodes, needed(ctx, nodes_arg, "NodesVector"));
    MILLRACE_ASSIGN_OR_RETURN(const Tensor* const edges, needed(ctx, edges_arg, "EdgeSet"));
    MILLRACE_ASSIGN_OR_RETURN(const Tensor* const filter, needed(ctx, filter_arg, "Filter"));
    MILLRACE_ASSIGN_OR_RETURN(const Tensor* const dout, needed(ctx, dout_arg, "Out@GRAD"));
    MILLRACE_ASSIGN_OR_RETURN(const TreeConvSizes sizes, sizes_of(*nodes, *edges, *filter));
    if (dout->numel() != sizes.batch * sizes.nodes * sizes.columns ||
        dout->dtype() != nodes->dtype())
      return ctx.error("Out@GRAD {} does not fit NodesVector {}", describe(*dout),
                       describe(*nodes));
    MILLRACE_ASSIGN_OR_RETURN(Tensor* const dnodes, result_like(ctx, dnodes_arg, *nodes));
    MILLRACE_ASSIGN_OR_RETURN(Tensor* const dfilter, result_like(ctx, dfilter_arg, *filter));
    return dispatch<FloatTypes>(nodes->dtype(), [&](auto tag) -> Status {
      using T = typename decltype(tag)::type;
      if (dnodes != nullptr) std::fill_n(dnodes->data<T>(), dnodes->numel(), T{0});
      if (dfilter != nullptr) std::fill_n(dfilter->data<T>(), dfilter->numel(), T{0});
      const int64_t width = 3 * sizes.features;
      std::vector<T> rows(static_cast<size_t>(sizes.nodes * width));
      return for_trees(*edges, sizes, max_depth, [&](int64_t n, const auto& patches) -> Status {
        const T* const from = dout->data<T>() + n * sizes.nodes * sizes.columns;
        const int64_t first = n * sizes.nodes * sizes.features;
        const auto count = static_cast<int64_t>(patches.size());
        if (dfilter != nullptr) {
          gather(patches, sizes.features, nodes->data<T>() + first, rows.data());
          GemmShape shape{width, sizes.columns, count};
          shape.a_transposed = true;
          shape.accumulate = true;
          MILLRACE_RETURN_IF_ERROR(
              (*for_filter)(ctx.device(), shape, rows.data(), from, dfilter->data<T>()));
        }
        if (dnodes == nullptr) return Ok();
        GemmShape shape{count, width, sizes.columns};
        shape.b_transposed = true;
        MILLRACE_RETURN_IF_ERROR(
            (*for_nodes)(ctx.device(), shape, from, filter->data<T>(), rows.data()));
        scatter(patches, sizes.features, rows.data(), dnodes->data<T>() + first);
        return Ok();
      });
    });
  });
}

}  // namespace
}  // namespace tree_conv_kernels

void add_nn_tree_conv(KernelRegistry& registry) {
  using namespace tree_conv_kernels;
  registry.add("tree_conv", tree_conv);
  registry.add("tree_conv_grad", tree_conv_grad);
}

}  // namespace millrace::kernels
