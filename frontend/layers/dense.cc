// Layers with weights: fc, embedding, layer_norm, batch_norm.
#include <algorithm>

#include "framework/base/errors.h"
#include "frontend/layer.h"
#include "frontend/layers.h"

namespace millrace::layers {
namespace {

using frontend::Layer;
using ops::NewOp;

int64_t product(llvm::ArrayRef<int64_t> dims) {
  return element_count(dims).value_or(-1);
}

Status check_features(const Var& x, int num_flatten_dims, int64_t features) {
  if (num_flatten_dims < 1 || static_cast<size_t>(num_flatten_dims) >= x.dims().size()) {
    return InvalidArgument("num_flatten_dims: expected 1 to {} for '{}', found {}",
                           static_cast<int64_t>(x.dims().size()) - 1, x.name().str(),
                           num_flatten_dims);
  }
  if (features > 0) return Ok();
  return InvalidArgument("'{}': expected known dims after the first {}, found {}", x.name().str(),
                         num_flatten_dims, fmt::join(x.dims().vec(), ", "));
}

// The type of parameters and statistics of a normalization: f32 for 16-bit elements.
DType statistics_type(const Var& x) {
  const bool is_half = x.dtype() == DType::kFloat16 || x.dtype() == DType::kBfloat16;
  return is_half ? DType::kFloat32 : x.dtype();
}

VarRef look_up(Layer& layer, const VarRef& ids, const VarRef& table,
               const EmbeddingOptions& options, DType dtype) {
  NewOp op("lookup_table");
  op.input("Ids", {ids.name()})
      .input("W", {table.name()})
      .attr("is_sparse", make_attr(options.is_sparse))
      .attr("padding_idx", make_attr(options.padding_idx));
  return layer.result(std::move(op), dtype);
}

}  // namespace

VarRef fc(const VarRef& x, int64_t size, const FcOptions& options, Where where) {
  return fc(Vars{x}, size, options, where);
}

VarRef fc(const Vars& xs, int64_t size, const FcOptions& options, Where where) {
  Layer layer(xs, "fc", where, options.name);
  if (!layer.ok()) return {};
  Vars products;
  for (const VarRef& x : xs) {
    const Var& var = layer.var(x);
    const size_t keep = static_cast<size_t>(std::max(options.num_flatten_dims, 0));
    const int64_t features = product(var.dims().drop_front(std::min(keep, var.dims().size())));
    if (Status status = check_features(var, options.num_flatten_dims, features); !status.ok())
      return layer.fail(std::move(status));
    const VarRef w = layer.param(options.param, "w", {features, size}, var.dtype(), init::Xavier{});
    NewOp mul("mul");
    mul.input("X", {x.name()})
        .input("Y", {w.name()})
        .attr("x_num_col_dims", make_attr(int32_t{options.num_flatten_dims}))
        .attr("y_num_col_dims", make_attr(int32_t{1}));
    products.push_back(layer.result(std::move(mul), var.dtype()));
  }
  VarRef sum = products.front();
  if (products.size() > 1) {
    NewOp add("sum");
    add.input("X", frontend::names_of(products));
    sum = layer.result(std::move(add), sum.dtype());
  }
  if (options.has_bias)
    sum = layer.add_bias(sum, options.bias, size, int32_t{options.num_flatten_dims});
  return layer.activate(sum, options.act);
}

VarRef embedding(const VarRef& ids, int64_t rows, int64_t width, const EmbeddingOptions& options,
                 Where where) {
  Layer layer({ids}, "embedding", where, options.name);
  if (!layer.ok()) return {};
  const VarRef table =
      layer.param(options.param, "w", {rows, width}, DType::kFloat32, init::Xavier{});
  return look_up(layer, ids, table, options, DType::kFloat32);
}

VarRef lookup_table(const VarRef& ids, const VarRef& table, const EmbeddingOptions& options,
                    Where where) {
  Layer layer({ids, table}, "lookup_table", where, options.name);
  if (!layer.ok()) return {};
  const ParamAttr& own = options.param;
  if (!own.name.empty() || own.initializer || own.regularizer || own.clip || !own.trainable ||
      !own.need_clip || own.learning_rate != 1)
    return layer.fail(
        InvalidArgument("options.param has no effect: the table '{}' is given", table.name()));
  return look_up(layer, ids, table, options, table.dtype());
}

VarRef layer_norm(const VarRef& x, const LayerNormOptions& options, Where where) {
  Layer layer({x}, "layer_norm", where, options.name);
  if (!layer.ok()) return {};
  const Var& var = layer.var(x);
  const int64_t features = product(var.dims().drop_front(std::min<size_t>(
      static_cast<size_t>(std::max(options.begin_norm_axis, 0)), var.dims().size())));
  if (Status status = check_features(var, options.begin_norm_axis, features); !status.ok())
    return layer.fail(std::move(status));
  const DType wide = statistics_type(var);
  NewOp op("layer_norm");
  op.input("X", {x.name()});
  if (options.scale) {
    op.input("Scale",
             {layer.param(options.param, "w", {features}, wide, init::Constant{1}).name()});
  }
  if (options.shift) {
    op.input("Bias", {layer.param(options.bias, "b", {features}, wide, init::Constant{0}).name()});
  }
  const VarRef mean = layer.out(wide);
  const VarRef variance = layer.out(wide);
  if (!layer.ok()) return {};
  mean.stop_gradient();
  variance.stop_gradient();
  op.output("Mean", {mean.name()})
      .output("Variance", {variance.name()})
      .attr("begin_norm_axis", make_attr(options.begin_norm_axis))
      .attr("epsilon", make_attr(static_cast<float>(options.epsilon)));
  const VarRef y = layer.result(std::move(op), var.dtype(), "Y");
  return layer.activate(y, options.act);
}

VarRef batch_norm(const VarRef& x, const BatchNormOptions& options, Where where) {
  Layer layer({x}, "batch_norm", where, options.name);
  if (!layer.ok()) return {};
  const Var& var = layer.var(x);
  if (var.dims().size() < 2 || var.dims()[1] <= 0) {
    return layer.fail(
        InvalidArgument("'{}': expected a known number of channels in dim 1", x.name()));
  }
  const std::vector<int64_t> dims{var.dims()[1]};
  const DType wide = statistics_type(var);
  const auto statistic = [&](const std::string& name, double value) {
    return layer.param({.name = name, .trainable = false}, "w", dims, wide, init::Constant{value});
  };
  const VarRef scale = layer.param(options.param, "w", dims, wide, init::Constant{1});
  const VarRef bias = layer.param(options.bias, "b", dims, wide, init::Constant{0});
  const VarRef mean = statistic(options.moving_mean_name, 0);
  const VarRef variance = statistic(options.moving_variance_name, 1);
  Vars saved;
  for (int i = 0; i < 3; ++i) {
    saved.push_back(layer.out(wide));
    saved.back().stop_gradient();
  }
  if (!layer.ok()) return {};
  NewOp op("batch_norm");
  op.input("X", {x.name()})
      .input("Scale", {scale.name()})
      .input("Bias", {bias.name()})
      .input("Mean", {mean.name()})
      .input("Variance", {variance.name()})
      .output("MeanOut", {mean.name()})
      .output("VarianceOut", {variance.name()})
      .output("SavedMean", {saved[0].name()})
      .output("SavedVariance", {saved[1].name()})
      .output("ReserveSpace", {saved[2].name()})
      .attr("momentum", make_attr(static_cast<float>(options.momentum)))
      .attr("epsilon", make_attr(static_cast<float>(options.epsilon)))
      .attr("is_test", make_attr(options.is_test))
      .attr("use_global_stats", make_attr(options.use_global_stats));
  const VarRef y = layer.result(std::move(op), var.dtype(), "Y");
  return layer.activate(y, options.act);
}

}  // namespace millrace::layers
