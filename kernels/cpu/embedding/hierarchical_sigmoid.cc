#include <cmath>

#include "kernels/cpu/embedding/class_tree.h"
#include "kernels/cpu/embedding/remote_rows.h"
#include "kernels/cpu/embedding/row_gradient.h"
#include "kernels/cpu/lane_sum.h"
#include "kernels/cpu/needed.h"
#include "kernels/dispatch.h"
#include "kernels/kernel.h"
#include "kernels/registry.h"

namespace millrace::kernels {
namespace hierarchical_sigmoid {
namespace {

// What defines the tree.
struct TreeArgs {
  explicit TreeArgs(const KernelSetup& op)
      : label(op.input("Label")),
        table(op.input("PathTable")),
        code(op.input("PathCode")),
        classes(op.attr<int64_t>("num_classes")) {}
  ArgIndex label, table, code;
  int64_t classes;
};

struct HierarchicalSigmoidArgs : TreeArgs {
  explicit HierarchicalSigmoidArgs(const KernelSetup& op)
      : TreeArgs(op), x(op.input("X")), w(op, "W"), bias(op.input("Bias")) {}
  ArgIndex x;
  UsedRowsArgs w;
  ArgIndex bias;
};

// The tree over the rows of an input. Errors: labels or tables that do not fit.
StatusOr<ClassTree> tree_of(const KernelContext& ctx, const TreeArgs& args, int64_t rows) {
  const auto is_list = [&](const Tensor& tensor) {
    return tensor.dtype() == DType::kInt64 && tensor.numel() % std::max<int64_t>(rows, 1) == 0;
  };
  MILLRACE_ASSIGN_OR_RETURN(const Tensor* const label, needed(ctx, args.label, "Label"));
  ClassTree tree(2, nullptr);
  if (args.table) {
    MILLRACE_ASSIGN_OR_RETURN(const Tensor* const table, needed(ctx, args.table, "PathTable"));
    MILLRACE_ASSIGN_OR_RETURN(const Tensor* const code, needed(ctx, args.code, "PathCode"));
    if (!is_list(*table) || !is_list(*code) || table->numel() != code->numel() || rows == 0)
      return ctx.error(
          "PathTable {} and PathCode {} must be i64 with a path for each of the {} rows",
          describe(*table), describe(*code), rows);
    tree = ClassTree(table->data<int64_t>(), code->data<int64_t>(), table->numel() / rows);
  } else {
    if (label->dtype() != DType::kInt64 || label->numel() != rows)
      return ctx.error("Label must be i64 with a class for each of the {} rows, found {}", rows,
                       describe(*label));
    for (int64_t i = 0; i < rows; ++i) {
      const int64_t found = label->data<int64_t>()[i];
      if (found < 0 || found >= args.classes)
        return ctx.error("Label has {} at {}, expected one of [0, {})", found, i, args.classes);
    }
    tree = ClassTree(args.classes, label->data<int64_t>());
  }
  return tree;
}

// The tree of a run; every node is a row of w, and of the bias if there is one.
StatusOr<ClassTree> checked_tree(const KernelContext& ctx, const HierarchicalSigmoidArgs& args,
                                 const Tensor& x, const UsedRows& w) {
  MILLRACE_ASSIGN_OR_RETURN(ClassTree tree, tree_of(ctx, args, x.dim(0)));
  const Tensor* const bias = ctx.find_in(args.bias);
  if (bias != nullptr && (bias->numel() < w.dims()[0] || bias->dtype() != x.dtype()))
    return ctx.error("Bias must have an element for each row of W {}, found {}",
                     describe(w.tensor()), describe(*bias));
  int64_t largest = -1;
  for (int64_t i = 0; i < x.dim(0); ++i)
    tree.each_node(i, [&](int64_t, int64_t node, bool) { largest = std::max(largest, node); });
  if (largest >= w.dims()[0])
    return ctx.error("a path leads through node {}, but W is {}", largest, describe(w.tensor()));
  if (w.is_fetched() && w.tensor().dim(1) != tree.width())
    return ctx.error("Rows {} must have {} rows for each row of X, the longest path",
                     describe(w.tensor()), tree.width());
  return tree;
}

// The nodes on each path; a shorter path repeats its first node.
StatusOr<Kernel> tree_nodes(const KernelSetup& op) {
  const TreeArgs args(op);
  const ArgIndex nodes_arg = op.output("Nodes");
  return Kernel([=](const KernelContext& ctx) -> Status {
    MILLRACE_ASSIGN_OR_RETURN(const Tensor* const label, needed(ctx, args.label, "Label"));
    const int64_t rows = label->rank() == 0 ? 0 : label->dim(0);
    MILLRACE_ASSIGN_OR_RETURN(const ClassTree tree, tree_of(ctx, args, rows));
    Tensor& nodes = ctx.out(nodes_arg);
    MILLRACE_RETURN_IF_ERROR(size_output(nodes, DType::kInt64, {rows, tree.width()}));
    for (int64_t i = 0; i < rows; ++i) {
      int64_t* const row = nodes.data<int64_t>() + i * tree.width();
      int64_t first = 0;
      tree.each_node(i, [&](int64_t j, int64_t node, bool) { first = j == 0 ? node : first; });
      std::fill_n(row, tree.width(), first);
      tree.each_node(i, [&](int64_t j, int64_t node, bool) { row[j] = node; });
    }
    return Ok();
  });
}

// Positions past the end of a shorter path count as a score of 0 with neither branch taken, as in
// the original.
template <typename T>
void score_rows(const ClassTree& tree, const Tensor& x, const UsedRows& w, const T* bias, T* out,
                T* scores) {
  const int64_t width = x.dims()[1];
  for (int64_t i = 0; i < x.dims()[0]; ++i) {
    T* const row = scores + i * tree.width();
    std::fill_n(row, tree.width(), T{});
    const T* const from = x.data<T>() + i * width;
    T taken_sum{};
    tree.each_node(i, [&](int64_t j, int64_t node, bool taken) {
      const T* const weight = w.row<T>(i, j, node);
      const T dot = lane_sum<T>(width, [&](int64_t k) { return weight[k] * from[k]; }) +
                    (bias == nullptr ? T{} : bias[node]);
      row[j] = std::min(std::max(dot, T(-40)), T(40));
      if (taken) taken_sum += row[j];
    });
    T sum{};
    for (int64_t j = 0; j < tree.width(); ++j) {
      row[j] = std::log1p(std::exp(row[j]));
      sum += row[j];
    }
    out[i] = sum - taken_sum;
  }
}

StatusOr<Kernel> make_forward(const KernelSetup& op) {
  MILLRACE_RETURN_IF_ERROR(check_rows_are_here(op, "W"));
  const HierarchicalSigmoidArgs args(op);
  const ArgIndex out_arg = op.output("Out");
  const ArgIndex scores_arg = op.output("PreOut");
  const ArgIndex w_out = op.output("W_Out");
  return Kernel([=](const KernelContext& ctx) -> Status {
    const Tensor& x = ctx.in(args.x);
    const Tensor* const bias = ctx.find_in(args.bias);
    MILLRACE_ASSIGN_OR_RETURN(const UsedRows w, args.w.read(ctx, x));
    MILLRACE_ASSIGN_OR_RETURN(const ClassTree tree, checked_tree(ctx, args, x, w));
    Tensor room;
    Tensor* const given = ctx.find_out(scores_arg);
    Tensor& scores = given == nullptr ? room : *given;
    MILLRACE_RETURN_IF_ERROR(size_output(scores, x.dtype(), {x.dims()[0], tree.width()}));
    Tensor* const copy = ctx.find_out(w_out);
    if (copy != nullptr && w.is_fetched())
      return ctx.error("output W_Out is the whole W, of which only rows were fetched");
    if (copy != nullptr)
      copy_bytes(ctx.device(), copy->raw(), w.tensor().raw(), w.tensor().bytes());
    return dispatch<FloatTypes>(x.dtype(), [&](auto tag) -> Status {
      using T = typename decltype(tag)::type;
      score_rows<T>(tree, x, w, bias == nullptr ? nullptr : bias->data<T>(),
                    ctx.out(out_arg).data<T>(), scores.data<T>());
      return Ok();
    });
  });
}

struct HierarchicalSigmoidGradArgs {
  explicit HierarchicalSigmoidGradArgs(const KernelSetup& op)
      : forward(op),
        scores(op.input("PreOut")),
        grad(op.input("Out@GRAD")),
        x_grad(op.output("X@GRAD")),
        w_grad(op.output("W@GRAD")),
        bias_grad(op.output("Bias@GRAD")),
        sparse(op.attr<bool>("is_sparse")) {}
  HierarchicalSigmoidArgs forward;
  ArgIndex scores, grad;
  ArgIndex x_grad, w_grad, bias_grad;
  bool sparse;
};

template <typename T>
Status backward_as(const KernelContext& ctx, const HierarchicalSigmoidGradArgs& args,
                   const ClassTree& tree, const Tensor& x, const UsedRows& w, const T* scores,
                   const T* grad) {
  const int64_t rows = x.dims()[0];
  const int64_t width = x.dims()[1];
  Tensor* const dx = ctx.find_out(args.x_grad);
  Tensor* const db = ctx.find_out(args.bias_grad);
  if (db != nullptr && db->numel() < w.dims()[0])
    return ctx.error("Bias@GRAD is {}, expected an element for each row of W", describe(*db));
  for (Tensor* const tensor : {dx, db}) {
    if (tensor != nullptr) fill_zero(ctx.device(), *tensor);
  }
  Value unused;
  std::vector<int64_t> used;
  if (args.sparse) {
    for (int64_t i = 0; i < rows; ++i)
      tree.each_node(i, [&](int64_t, int64_t node, bool) { used.push_back(node); });
  }
  Value& w_out = args.w_grad ? ctx.out_value(args.w_grad) : unused;
  MILLRACE_ASSIGN_OR_RETURN(
      RowGradient<T> dw, RowGradient<T>::open(ctx, w_out, args.sparse, w.dims(), std::move(used)));
  for (int64_t i = 0; i < rows; ++i) {
    const T* const from = x.data<T>() + i * width;
    tree.each_node(i, [&](int64_t j, int64_t node, bool taken) {
      // the stored value is softplus, whose derivative is 1 - exp(-softplus)
      const T slope = T(1) - std::exp(-scores[i * tree.width() + j]) - (taken ? T(1) : T(0));
      const T g = slope * grad[i];
      add_scaled(dw.row(node), from, g, width);
      if (dx != nullptr) add_scaled(dx->data<T>() + i * width, w.row<T>(i, j, node), g, width);
      if (db != nullptr) db->data<T>()[node] += g;
    });
  }
  return Ok();
}

StatusOr<Kernel> backward(const KernelSetup& op) {
  MILLRACE_RETURN_IF_ERROR(check_rows_are_here(op, "W"));
  const HierarchicalSigmoidGradArgs args(op);
  return Kernel([=](const KernelContext& ctx) -> Status {
    MILLRACE_ASSIGN_OR_RETURN(const Tensor* const x, needed(ctx, args.forward.x, "X"));
    MILLRACE_ASSIGN_OR_RETURN(const UsedRows w, args.forward.w.read(ctx, *x));
    MILLRACE_ASSIGN_OR_RETURN(const Tensor* const scores, needed(ctx, args.scores, "PreOut"));
    MILLRACE_ASSIGN_OR_RETURN(const Tensor* const grad, needed(ctx, args.grad, "Out@GRAD"));
    MILLRACE_ASSIGN_OR_RETURN(const ClassTree tree, checked_tree(ctx, args.forward, *x, w));
    if (scores->numel() != x->dims()[0] * tree.width() || scores->dtype() != x->dtype() ||
        grad->numel() != x->dims()[0] || grad->dtype() != x->dtype())
      return ctx.error("PreOut {} and Out@GRAD {} do not fit X {}", describe(*scores),
                       describe(*grad), describe(*x));
    return dispatch<FloatTypes>(x->dtype(), [&](auto tag) -> Status {
      using T = typename decltype(tag)::type;
      return backward_as<T>(ctx, args, tree, *x, w, scores->data<T>(), grad->data<T>());
    });
  });
}

}  // namespace
}  // namespace hierarchical_sigmoid

void add_embedding_hierarchical_sigmoid(KernelRegistry& registry) {
  using namespace hierarchical_sigmoid;
  registry.add("hierarchical_sigmoid", make_forward);
  registry.add("hierarchical_sigmoid_grad", backward);
  registry.add("tree_nodes", tree_nodes);
}

}  // namespace millrace::kernels
