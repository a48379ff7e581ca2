#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "framework/base/status.h"
#include "ops/backward/append_backward.h"
#include "ops/construct/builder.h"
#include "ops/minimize/options.h"

/// The two stages of minimize() between gradients and updates: clipping and regularization. Each
/// takes the pairs in order of parameter names and sets the gradient of each pair to the one that
/// the next stage must read.
namespace millrace::ops {

/// True for float16 and bfloat16.
inline bool is_half(DType dtype) {
  return dtype == DType::kFloat16 || dtype == DType::kBfloat16;
}

using ParameterTable = std::map<std::string, ParameterOptions>;

/// Options of a parameter; the defaults if the table has none.
ParameterOptions options_of(const ParameterTable& table, const std::string& param);

/// Appends the ops that clip gradients. A parameter's own clip replaces the common one; parameters
/// with need_clip = false are not clipped.
/// Errors: kInvalidArgument for a bound that is not positive or for different bounds in one group,
/// kUnimplemented for a global norm over gradients in both float16 and bfloat16.
/// Source: spec/backward.md section 8, step 1; clips of single parameters: fluid's
/// set_gradient_clip().
Status clip_gradients(Builder& builder, const std::optional<GradientClip>& common,
                      const ParameterTable& parameters, std::vector<ParamGrad>& pairs);

/// Appends the ops that add the decay to each gradient. A parameter's own regularizer replaces the
/// common one. A sparse gradient becomes a dense one with a new name.
/// \param fuses_l2  the update op applies L2 decay, so no ops are appended for it
/// Source: spec/backward.md section 8, step 2.
Status regularize_gradients(Builder& builder, const std::optional<Regularizer>& common,
                            const ParameterTable& parameters, bool fuses_l2,
                            std::vector<ParamGrad>& pairs);

}  // namespace millrace::ops
