#pragma once

#include <cstdint>
#include <vector>

#include "framework/base/status.h"
#include "framework/block.h"
#include "framework/op.h"

/// op_role is a bit set; these are its bits and the combinations the transpiler asks for.
/// Source: spec/transpiler.md section 1.
namespace millrace::transpiler::role {

inline constexpr int32_t kForward = 0;
inline constexpr int32_t kBackward = 1;
inline constexpr int32_t kOptimize = 2;
inline constexpr int32_t kRpc = 4;
inline constexpr int32_t kDist = 8;
inline constexpr int32_t kLrSched = 16;
inline constexpr int32_t kLoss = 256;
inline constexpr int32_t kUnspecified = 4096;

/// Role of an op; kForward if it has none.
int32_t of(const Op& op);
/// True for scheduler ops and for the scaling of the rate per parameter.
bool is_lr_op(const Op& op);
/// The learning-rate ops of a block, in order.
std::vector<const Op*> lr_ops(const Block& block);
/// True if the role is exactly Optimize.
bool is_optimize_op(const Op& op);
/// True if the op has slots Param and LearningRate, that is, updates a parameter.
bool is_optimizer(const Op& op);
/// The vars of op_role_var: param, grad, param, grad, ...; empty if the op has none.
llvm::ArrayRef<std::string> vars(const Op& op);

/// Refuses programs that update parameters in a sub-block, as gradient merge does in every k-th
/// step. Distributed training finds updates and gradients in block 0 and exchanges gradients in
/// every step, so each trainer or device would train on its own.
/// Errors: kUnimplemented with the op's location.
Status check_updates_in_block_0(const Program& program);

}  // namespace millrace::transpiler::role
