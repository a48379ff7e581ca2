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
namespace {

struct HierarchicalSigmoidArgs {
  explicit HierarchicalSigmoidArgs(const KernelSetup& op)
      : x(op.input("X")),
        w(op.input("W")),
        label(op.input("Label")),
        table(op.input("PathTable")),
        code(op.input("PathCode")),
        bias(op.input("Bias")),
        classes(op.attr<int64_t>("num_classes")) {}
  ArgIndex x, w, label, table, code, bias;
  int64_t classes;
};

// The tree; every node is a row of w. Errors: labels, tables or nodes that do not fit.
StatusOr<ClassTree> tree_of(const KernelContext& ctx, const HierarchicalSigmoidArgs& args,
                            const Tensor& x, const Tensor& w) {
  const auto is_list = [&](const Tensor& tensor) {
    return tensor.dtype() == DType::kInt64 &&
           tensor.numel() % std::max<int64_t>(x.dims()[0], 1) == 0;
  };
  const int64_t rows = x.dims()[0];
  MILLRACE_ASSIGN_OR_RETURN(const Tensor* const label, needed(ctx, args.label, "Label"));
  ClassTree tree(2, nullptr);
  if (args.table) {
    MILLRACE_ASSIGN_OR_RETURN(const Tensor* const table, needed(ctx, args.table, "PathTable"));
    MILLRACE_ASSIGN_OR_RETURN(const Tensor* const code, needed(ctx, args.code, "PathCode"));
    if (!is_list(*table) || !is_list(*code) || table->numel() != code->numel() || rows == 0)
      return ctx.error("PathTable {} and PathCode {} must be i64 with a path for each row of X {}",
                       describe(*table), describe(*code), describe(x));
    tree = ClassTree(table->data<int64_t>(), code->data<int64_t>(), table->numel() / rows);
  } else {
    if (label->dtype() != DType::kInt64 || label->numel() != rows)
      return ctx.error("Label must be i64 with a class for each row of X {}, found {}", describe(x),
                       describe(*label));
    for (int64_t i = 0; i < rows; ++i) {
      const int64_t found = label->data<int64_t>()[i];
      if (found < 0 || found >= args.classes)
        return ctx.error("Label has {} at {}, expected one of [0, {})", found, i, args.classes);
    }
    tree = ClassTree(args.classes, label->data<int64_t>());
  }
  int64_t largest = -1;
  for (int64_t i = 0; i < rows; ++i)
    tree.each_node(i, [&](int64_t, int64_t node, bool) { largest = std::max(largest, node); });
  if (largest >= w.dims()[0])
    return ctx.error("a path leads through node {}, but W is {}", largest, describe(w));
  return tree;
}

Status check_matrices_hierarchical_sigmoid(const KernelContext& ctx, const Tensor& x,
                                           const Tensor& w, const Tensor* bias) {
  if (x.rank() != 2 || w.rank() != 2 || x.dims()[1] != w.dims()[1] || x.dtype() != w.dtype())
    return ctx.error("W {} must have rows as long as those of X {}", describe(w), describe(x));
  if (bias != nullptr && (bias->numel() < w.dims()[0] || bias->dtype() != x.dtype()))
    return ctx.error("Bias must have an element for each row of W {}, found {}", describe(w),
                     describe(*bias));
  return Ok();
}

// Positions past the end of a shorter path count as a score of 0 with neither branch taken, as in
// the original.
template <typename T>
void score_rows(const ClassTree& tree, const Tensor& x, const Tensor& w, const T* bias, T* out,
                T* scores) {
  const int64_t width = x.dims()[1];
  for (int64_t i = 0; i < x.dims()[0]; ++i) {
    T* const row = scores + i * tree.width();
    std::fill_n(row, tree.width(), T{});
    const T* const from = x.data<T>() + i * width;
    T taken_sum{};
    tree.each_node(i, [&](int64_t j, int64_t node, bool taken) {
      const T* const weight = w.data<T>() + node * width;
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

StatusOr<Kernel> forward_hierarchical_sigmoid(const KernelSetup& op) {
  MILLRACE_RETURN_IF_ERROR(check_rows_are_here(op, "W"));
  const HierarchicalSigmoidArgs args(op);
  const ArgIndex out_arg = op.output("Out");
  const ArgIndex scores_arg = op.output("PreOut");
  const ArgIndex w_out = op.output("W_Out");
  return Kernel([=](const KernelContext& ctx) -> Status {
    const Tensor& x = ctx.in(args.x);
    const Tensor& w = ctx.in(args.w);
    const Tensor* const bias = ctx.find_in(args.bias);
    MILLRACE_RETURN_IF_ERROR(check_matrices_hierarchical_sigmoid(ctx, x, w, bias));
    MILLRACE_ASSIGN_OR_RETURN(const ClassTree tree, tree_of(ctx, args, x, w));
    Tensor room;
    Tensor* const given = ctx.find_out(scores_arg);
    Tensor& scores = given == nullptr ? room : *given;
    MILLRACE_RETURN_IF_ERROR(size_output(scores, x.dtype(), {x.dims()[0], tree.width()}));
    if (Tensor* const copy = ctx.find_out(w_out))
      copy_bytes(ctx.device(), copy->raw(), w.raw(), w.bytes());
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
Status backward_as_hierarchical_sigmoid(const KernelContext& ctx,
                                        const HierarchicalSigmoidGradArgs& args,
                                        const ClassTree& tree, const Tensor& x, const Tensor& w,
                                        const T* scores, const T* grad) {
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
      if (dx != nullptr)
        add_scaled(dx->data<T>() + i * width, w.data<T>() + node * width, g, width);
      if (db != nullptr) db->data<T>()[node] += g;
    });
  }
  return Ok();
}

StatusOr<Kernel> backward_hierarchical_sigmoid(const KernelSetup& op) {
  MILLRACE_RETURN_IF_ERROR(check_rows_are_here(op, "W"));
  const HierarchicalSigmoidGradArgs args(op);
  return Kernel([=](const KernelContext& ctx) -> Status {
    MILLRACE_ASSIGN_OR_RETURN(const Tensor* const x, needed(ctx, args.forward.x, "X"));
    MILLRACE_ASSIGN_OR_RETURN(const Tensor* const w, needed(ctx, args.forward.w, "W"));
    MILLRACE_ASSIGN_OR_RETURN(const Tensor* const scores, needed(ctx, args.scores, "PreOut"));
    MILLRACE_ASSIGN_OR_RETURN(const Tensor* const grad, needed(ctx, args.grad, "Out@GRAD"));
    MILLRACE_RETURN_IF_ERROR(
        check_matrices_hierarchical_sigmoid(ctx, *x, *w, ctx.find_in(args.forward.bias)));
    MILLRACE_ASSIGN_OR_RETURN(const ClassTree tree, tree_of(ctx, args.forward, *x, *w));
    if (scores->numel() != x->dims()[0] * tree.width() || scores->dtype() != x->dtype() ||
        grad->numel() != x->dims()[0] || grad->dtype() != x->dtype())
      return ctx.error("PreOut {} and Out@GRAD {} do not fit X {}", describe(*scores),
                       describe(*grad), describe(*x));
    return dispatch<FloatTypes>(x->dtype(), [&](auto tag) -> Status {
      using T = typename decltype(tag)::type;
      return backward_as_hierarchical_sigmoid<T>(ctx, args, tree, *x, *w, scores->data<T>(),
                                                 grad->data<T>());
    });
  });
}

}  // namespace

void add_embedding_hierarchical_sigmoid(KernelRegistry& registry) {
  registry.add("hierarchical_sigmoid", forward_hierarchical_sigmoid);
  registry.add("hierarchical_sigmoid_grad", backward_hierarchical_sigmoid);
}

}  // namespace millrace::kernels
