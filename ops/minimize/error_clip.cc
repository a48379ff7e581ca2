#include "ops/minimize/error_clip.h"

#include "framework/base/errors.h"
#include "framework/names.h"

namespace millrace::ops {
namespace {

constexpr int32_t kRoleNotSpecified = 4096;

}  // namespace

Status check_error_clips(const std::map<std::string, ErrorClip>& clips) {
  for (const auto& [var, clip] : clips) {
    if (clip.min <= clip.max) continue;
    return InvalidArgument("error clip of '{}': 'min' must not exceed 'max', found {} and {}", var,
                           clip.min, clip.max);
  }
  return Ok();
}

std::function<void(Block& block, Op& op)> clip_errors(std::map<std::string, ErrorClip> clips) {
  std::map<std::string, ErrorClip> by_grad;
  for (const auto& [var, clip] : clips) by_grad[names::grad(var)] = clip;
  return [by_grad = std::move(by_grad)](Block& block, Op& op) {
    for (const llvm::StringRef name : op.output_names()) {
      const auto found = by_grad.find(name.str());
      if (found == by_grad.end()) continue;
      block.append_op("clip")
          .set_input("X", name)
          .set_output("Out", name)
          .set_float("min", found->second.min)
          .set_float("max", found->second.max)
          .set_string("mkldnn_data_type", "float32")
          .set_int("op_role", kRoleNotSpecified);
    }
  };
}

}  // namespace millrace::ops
