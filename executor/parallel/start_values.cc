#include "executor/parallel/start_values.h"

#include <map>
#include <string>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "framework/tensor/layout.h"

namespace millrace::executor {
namespace {

constexpr uint64_t kFnvStart = 0xcbf29ce484222325ULL;
constexpr uint64_t kFnvPrime = 0x100000001b3ULL;

std::map<std::string, Tensor*> start_values(const Program& program, const Scope& scope) {
  std::map<std::string, Tensor*> found;
  for (const Block& block : program.blocks()) {
    for (const Var& var : block.vars()) {
      if (!var.persistable() || var.kind() != VarKind::kLodTensor) continue;
      Value* const value = scope.find(var.name());
      auto* const tensor = value == nullptr ? nullptr : value->get_if<Tensor>();
      if (tensor != nullptr && tensor->initialized()) found[var.name().str()] = tensor;
    }
  }
  return found;
}

// A hash of names, types and dims.
uint64_t mark_of(const std::map<std::string, Tensor*>& values) {
  uint64_t mark = kFnvStart;
  for (const auto& [name, tensor] : values) {
    for (const char c : fmt::format("{}:{};", name, describe(*tensor)))
      mark = (mark ^ static_cast<unsigned char>(c)) * kFnvPrime;
  }
  return mark;
}

}  // namespace

Status share_start_values(const Program& program, Scope& scope, TrainerLink& link) {
  const std::map<std::string, Tensor*> values = start_values(program, scope);
  const uint64_t mark = mark_of(values);
  uint64_t first = mark;
  MILLRACE_RETURN_IF_ERROR(link.broadcast(reinterpret_cast<std::byte*>(&first), sizeof first));
  // all processes learn of a difference, so that none waits for one that has returned
  int64_t differing = first == mark ? 0 : 1;
  MILLRACE_RETURN_IF_ERROR(
      link.all_reduce(DType::kInt64, reinterpret_cast<std::byte*>(&differing), 1, 0));
  if (differing > 0) {
    return {StatusCode::kInvalidData,
            fmt::format("{} of {} trainers have other persistable vars, types or dims than trainer "
                        "0; this one is trainer {}",
                        differing, link.trainers(), link.trainer_id())};
  }
  for (const auto& [name, tensor] : values) {
    MILLRACE_RETURN_IF_ERROR(make_plain(*tensor));
    MILLRACE_RETURN_IF_ERROR(link.broadcast(tensor->raw(), tensor->bytes()));
  }
  return Ok();
}

}  // namespace millrace::executor
