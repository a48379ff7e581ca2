#include "framework/base/errors.h"
#include "framework/op_attrs.h"
#include "ops/minimize/gradients.h"

namespace millrace::ops {
namespace clip_ops {
namespace {

AttrValue real(double value) {
  return make_attr(static_cast<float>(value));
}

Status check_positive(const char* clip, const char* field, double value) {
  if (value > 0) return Ok();
  return InvalidArgument("clip by {}: '{}' must be positive, found {}", clip, field, value);
}

// The original turns a dense declaration into selected rows but leaves the dense description in it:
// wire field lod_tensor with a tensor without dims. These bytes reproduce it.
std::shared_ptr<const std::string> leftover_tensor(DType dtype) {
  std::string bytes("\x1a\x04\x0a\x02\x08");
  bytes.push_back(static_cast<char>(dtype));
  return std::make_shared<const std::string>(std::move(bytes));
}

// Clips each gradient separately, into a new var.
class ClipEach {
 public:
  ClipEach(Builder& builder, const ParameterTable& parameters)
      : builder_(builder), parameters_(parameters) {}

  Status run(const NewOp& clip, std::vector<ParamGrad>& pairs) {
    for (ParamGrad& pair : pairs) {
      if (!options_of(parameters_, pair.param).need_clip) continue;
      const Var& grad = *builder_.block().find_var(pair.grad);
      const std::string out = builder_.layer_var(clip.type, grad.dtype());
      MarkScope marks(builder_);
      marks.role(kRoleOptimize, {pair.param, out});
      NewOp op = clip;
      op.input("X", {pair.grad}).output("Out", {out});
      MILLRACE_RETURN_IF_ERROR(builder_.append(op).status());
      if (clip.type == "clip") declare_dense(out);
      pair.grad = out;
    }
    return Ok();
  }

 private:
  // The original declares the output of `clip` as dense even if the gradient is sparse.
  void declare_dense(const std::string& name) {
    Var& var = *builder_.block().find_var(name);
    if (var.kind() == VarKind::kLodTensor) return;
    VarSpec spec = var.spec();
    spec.kind = VarKind::kLodTensor;
    spec.form = TensorForm::kLodTensor;
    var.set_spec(std::move(spec));
  }

  Builder& builder_;
  const ParameterTable& parameters_;
};

// Multiplies all gradients by one factor, so that their common norm is at most the bound.
class ClipTogether {
 public:
  ClipTogether(Builder& builder, const ParameterTable& parameters)
      : builder_(builder), parameters_(parameters) {}

  Status run(double clip_norm, std::vector<ParamGrad>& pairs) {
    for (const ParamGrad& pair : pairs) {
      if (!needs_clip(pair)) continue;
      MarkScope marks(builder_);
      marks.role(kRoleOptimize, {pair.param, pair.grad});
      MILLRACE_RETURN_IF_ERROR(add_square(pair.grad));
    }
    if (half_squares_.empty() && squares_.empty() && double_squares_.empty()) return Ok();
    std::string factor;
    {
      // the shared ops carry the vars of the last pair in op_role_var
      MarkScope marks(builder_);
      marks.role(kRoleOptimize, {pairs.back().param, pairs.back().grad});
      MILLRACE_ASSIGN_OR_RETURN(factor, common_factor(clip_norm));
    }
    for (const ParamGrad& pair : pairs) {
      if (!needs_clip(pair)) continue;
      MarkScope marks(builder_);
      marks.role(kRoleOptimize, {pair.param, pair.grad});
      const DType dtype = builder_.block().find_var(pair.grad)->dtype();
      std::string own = factor;
      if (is_half(dtype)) {
        MILLRACE_ASSIGN_OR_RETURN(own, cast(factor, factor_type(), dtype));
      }
      NewOp mul("elementwise_mul");
      mul.input("X", {pair.grad}).input("Y", {own}).output("Out", {pair.grad});
      MILLRACE_RETURN_IF_ERROR(builder_.append(mul).status());
    }
    return Ok();
  }

 private:
  using Name = StatusOr<std::string>;

  [[nodiscard]] bool needs_clip(const ParamGrad& pair) const {
    return options_of(parameters_, pair.param).need_clip;
  }

  Name layer(llvm::StringRef type, std::vector<std::string> inputs, std::string out) {
    NewOp op(type);
    op.input("X", std::move(inputs)).output("Out", {out});
    MILLRACE_RETURN_IF_ERROR(builder_.append(op).status());
    return out;
  }

  Status add_square(const std::string& grad) {
    const Var& var = *builder_.block().find_var(grad);
    const DType dtype = var.dtype();
    if (is_half(dtype) && !half_squares_.empty() && dtype != half_type_) {
      return Unimplemented("clip by global norm: gradient '{}' of type {} mixed with type {}", grad,
                           dtype_name(dtype), dtype_name(half_type_));
    }
    if (is_half(dtype)) half_type_ = dtype;
    std::string dense = grad;
    if (var.kind() == VarKind::kSelectedRows) {
      const std::string merged = builder_.layer_var("merge_selected_rows", dtype);
      VarSpec rows = builder_.block().find_var(merged)->spec();
      rows.kind = VarKind::kSelectedRows;
      rows.form = TensorForm::kSelectedRows;
      rows.type_extra = leftover_tensor(dtype);
      builder_.block().declare(merged, std::move(rows));
      MILLRACE_RETURN_IF_ERROR(layer("merge_selected_rows", {grad}, merged).status());
      MILLRACE_ASSIGN_OR_RETURN(dense,
                                layer("get_tensor_from_selected_rows", {merged},
                                      builder_.layer_var("get_tensor_from_selected_rows", dtype)));
    }
    MILLRACE_ASSIGN_OR_RETURN(
        std::string square,
        layer("squared_l2_norm", {dense}, builder_.layer_var("squared_l2_norm", dtype)));
    std::vector<std::string>& wide = dtype == DType::kFloat64 ? double_squares_ : squares_;
    (is_half(dtype) ? half_squares_ : wide).push_back(std::move(square));
    return Ok();
  }

  Name cast(const std::string& from, DType in, DType out) {
    std::string to = builder_.numbered_var("tmp", VarSpec::tensor(out, {}));
    NewOp op("cast");
    op.input("X", {from})
        .output("Out", {to})
        .attr("in_dtype", make_attr(static_cast<int32_t>(in)))
        .attr("out_dtype", make_attr(static_cast<int32_t>(out)));
    MILLRACE_RETURN_IF_ERROR(builder_.append(op).status());
    return to;
  }

  // Double precision if any gradient is in double precision.
  [[nodiscard]] DType factor_type() const {
    return double_squares_.empty() ? DType::kFloat32 : DType::kFloat64;
  }

  Name sum(const std::vector<std::string>& terms, DType dtype) {
    return layer("sum", terms, builder_.layer_var("add_n", dtype));
  }

  Name total(DType dtype) {
    std::vector<std::string> parts;
    if (!half_squares_.empty()) {
      MILLRACE_ASSIGN_OR_RETURN(const std::string halves, sum(half_squares_, half_type_));
      MILLRACE_ASSIGN_OR_RETURN(std::string wide, cast(halves, half_type_, dtype));
      parts.push_back(std::move(wide));
    }
    if (!squares_.empty()) {
      MILLRACE_ASSIGN_OR_RETURN(std::string singles, sum(squares_, DType::kFloat32));
      if (dtype == DType::kFloat64) {
        MILLRACE_ASSIGN_OR_RETURN(singles, cast(singles, DType::kFloat32, dtype));
      }
      parts.push_back(std::move(singles));
    }
    if (!double_squares_.empty()) {
      MILLRACE_ASSIGN_OR_RETURN(std::string doubles, sum(double_squares_, dtype));
      parts.push_back(std::move(doubles));
    }
    return parts.size() == 1 ? Name(parts.front()) : sum(parts, dtype);
  }

  // bound / max(bound, norm)
  Name common_factor(double clip_norm) {
    const DType dtype = factor_type();
    MILLRACE_ASSIGN_OR_RETURN(const std::string square, total(dtype));
    MILLRACE_ASSIGN_OR_RETURN(const std::string norm,
                              layer("sqrt", {square}, builder_.layer_var("sqrt", dtype)));
    (void)builder_.names().next("fill_constant");  // the layer makes two helpers
    const std::string bound = builder_.layer_var("fill_constant", dtype);
    NewOp fill("fill_constant");
    fill.output("Out", {bound})
        .attr("shape", make_attr(std::vector<int64_t>{1}))
        .attr("dtype", make_attr(static_cast<int32_t>(dtype)))
        .attr("value", real(clip_norm))
        .attr("str_value", make_attr(number_text(clip_norm)));
    MILLRACE_RETURN_IF_ERROR(builder_.append(fill).status());
    MILLRACE_ASSIGN_OR_RETURN(const std::string at_least,
                              binary("elementwise_max", bound, norm, dtype));
    return binary("elementwise_div", bound, at_least, dtype);
  }

  Name binary(llvm::StringRef type, const std::string& x, const std::string& y, DType dtype) {
    std::string out = builder_.numbered_var(type, VarSpec::tensor(dtype, {}));
    NewOp op(type);
    op.input("X", {x}).input("Y", {y}).output("Out", {out});
    MILLRACE_RETURN_IF_ERROR(builder_.append(op).status());
    return out;
  }

  Builder& builder_;
  const ParameterTable& parameters_;
  std::vector<std::string> half_squares_;  ///< of gradients in half precision, all of one type
  DType half_type_ = DType::kFloat16;
  std::vector<std::string> squares_;  ///< of gradients in single precision
  std::vector<std::string> double_squares_;
};

struct Clip {
  Builder& builder;
  const ParameterTable& parameters;
  std::vector<ParamGrad>& pairs;

  Status operator()(const ClipByValue& clip) const {
    if (!clip.min) MILLRACE_RETURN_IF_ERROR(check_positive("value", "max", clip.max));
    if (clip.min && *clip.min > clip.max) {
      return InvalidArgument("clip by value: 'min' must not exceed 'max', found {} and {}",
                             *clip.min, clip.max);
    }
    NewOp op("clip");
    op.attr("min", real(clip.min.value_or(-clip.max))).attr("max", real(clip.max));
    return ClipEach(builder, parameters).run(op, pairs);
  }
  Status operator()(const ClipByNorm& clip) const {
    MILLRACE_RETURN_IF_ERROR(check_positive("norm", "clip_norm", clip.clip_norm));
    NewOp op("clip_by_norm");
    op.attr("max_norm", real(clip.clip_norm));
    return ClipEach(builder, parameters).run(op, pairs);
  }
  Status operator()(const ClipByGlobalNorm& clip) const {
    MILLRACE_RETURN_IF_ERROR(check_positive("global norm", "clip_norm", clip.clip_norm));
    return ClipTogether(builder, parameters).run(clip.clip_norm, pairs);
  }
};

// Updates op_role_var of all ops that clip a parameter, also of earlier calls, to the current
// gradient.
void correct_role_vars(Block& root, const ParameterTable& parameters,
                       const std::vector<ParamGrad>& pairs) {
  std::map<std::string, std::string> grads;
  for (const ParamGrad& pair : pairs) {
    if (options_of(parameters, pair.param).need_clip) grads[pair.param] = pair.grad;
  }
  for (Op& op : root.ops()) {
    if (!llvm::StringRef(get_attr_or<std::string>(op, "op_namescope", ""))
             .contains("gradient_clip"))
      continue;
    const auto vars = get_attr_or<std::vector<std::string>>(op, "op_role_var", {});
    const auto found = vars.empty() ? grads.end() : grads.find(vars.front());
    if (found != grads.end()) op.set_strings("op_role_var", {found->first, found->second});
  }
}

// Parameters that are clipped together.
struct ClipGroup {
  GradientClip clip;
  std::vector<size_t> members;  ///< indices of pairs
};

// Groups parameters with a global norm by group_name; every other clip has a group with one
// parameter.
StatusOr<std::vector<ClipGroup>> group_clips(const std::optional<GradientClip>& common,
                                             const ParameterTable& parameters,
                                             const std::vector<ParamGrad>& pairs) {
  std::vector<ClipGroup> groups;
  for (size_t i = 0; i < pairs.size(); ++i) {
    const ParameterOptions options = options_of(parameters, pairs[i].param);
    const std::optional<GradientClip> clip = options.clip ? options.clip : common;
    if (!clip || !options.need_clip) continue;
    const auto* const norm = std::get_if<ClipByGlobalNorm>(&*clip);
    const auto same = llvm::find_if(groups, [&](const ClipGroup& group) {
      const auto* const other = std::get_if<ClipByGlobalNorm>(&group.clip);
      return norm != nullptr && other != nullptr && norm->group_name == other->group_name;
    });
    if (same == groups.end()) {
      groups.push_back({*clip, {i}});
      continue;
    }
    const double bound = std::get<ClipByGlobalNorm>(same->clip).clip_norm;
    if (bound != norm->clip_norm) {
      return InvalidArgument(
          "clip by global norm: expected one 'clip_norm' in group '{}', found {} and {}",
          norm->group_name, bound, norm->clip_norm);
    }
    same->members.push_back(i);
  }
  return groups;
}

bool has_own_clip(const ParameterTable& parameters, const ParamGrad& pair) {
  return options_of(parameters, pair.param).clip.has_value();
}

}  // namespace
}  // namespace clip_ops

Status clip_gradients(Builder& builder, const std::optional<GradientClip>& common,
                      const ParameterTable& parameters, std::vector<ParamGrad>& pairs) {
  using namespace clip_ops;
  if (pairs.empty()) return Ok();
  MarkScope marks(builder);
  marks.scope("gradient_clip");  // even if nothing is clipped: the original counts the scope
  const bool any_own =
      llvm::any_of(pairs, [&](const ParamGrad& pair) { return has_own_clip(parameters, pair); });
  if (!any_own) {
    if (!common) return Ok();
    MILLRACE_RETURN_IF_ERROR(std::visit(Clip{builder, parameters, pairs}, *common));
    correct_role_vars(builder.main().root(), parameters, pairs);
    return Ok();
  }
  MILLRACE_ASSIGN_OR_RETURN(const std::vector<ClipGroup> groups,
                            group_clips(common, parameters, pairs));
  for (const ClipGroup& group : groups) {
    std::vector<ParamGrad> members;
    for (const size_t i : group.members) members.push_back(pairs[i]);
    MILLRACE_RETURN_IF_ERROR(std::visit(Clip{builder, parameters, members}, group.clip));
    for (size_t k = 0; k < members.size(); ++k) pairs[group.members[k]] = members[k];
  }
  correct_role_vars(builder.main().root(), parameters, pairs);
  return Ok();
}

}  // namespace millrace::ops
