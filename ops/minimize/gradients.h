#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "framework/base/status.h"
#include "ops/backward/append_backward.h"
#include "ops/construct/builder.h"
#include "ops/minimize/options.h"

/// The two steps of minimize() between gradients and updates. Each takes the pairs in order of
/// parameter names and changes the gradients of the pairs to those that the update is to read.
namespace millrace::ops {

/// f16 and bf16.
inline bool is_half(DType dtype) {
  return dtype == DType::kFloat16 || dtype == DType::kBfloat16;
}

using ParameterTable = std::map<std::string, ParameterOptions>;

/// Options of a parameter; the defaults if the table has none.
ParameterOptions options_of(const ParameterTable& table, const std::string& param);

/// Appends the ops of the clip of each parameter: its own, or else the common one; parameters with
/// need_clip = false are left out.
/// Errors: kInvalidArgument for a bound that is not positive or two bounds of one group,
/// kUnimplemented for a global norm of gradients in both half precisions.
/// Source: spec/backward.md section 8, step 1; clips of single parameters: fluid's
/// set_gradient_clip().
Status clip_gradients(Builder& builder, const std::optional<GradientClip>& common,
                      const ParameterTable& parameters, std::vector<ParamGrad>& pairs);

/// Appends the ops of the decay of each parameter: its own, or else the common one. A sparse
/// gradient becomes dense under a new name.
/// \param fuses_l2  leave L2 decay to the update op
/// Source: spec/backward.md section 8, step 2.
Status regularize_gradients(Builder& builder, const std::optional<Regularizer>& common,
                            const ParameterTable& parameters, bool fuses_l2,
                            std::vector<ParamGrad>& pairs);

}  // namespace millrace::ops
