#include "executor/check_nan.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include <fmt/format.h>

#include "framework/program.h"
#include "framework/tensor/layout.h"
#include "kernels/dispatch.h"

namespace millrace::executor {
namespace {

struct Counts {
  int64_t nan = 0;
  int64_t infinite = 0;
  double min = std::numeric_limits<double>::infinity();
  double max = -std::numeric_limits<double>::infinity();
};

template <typename T>
Counts count(std::span<const T> values) {
  Counts counts;
  for (const T value : values) {
    const auto v = static_cast<double>(value);
    if (std::isnan(v)) {
      ++counts.nan;
    } else if (std::isinf(v)) {
      ++counts.infinite;
    } else {
      counts.min = std::min(counts.min, v);
      counts.max = std::max(counts.max, v);
    }
  }
  return counts;
}

}  // namespace

std::string describe_non_finite(const Tensor& tensor) {
  std::string text;
  if (!is_floating(tensor.dtype()) || tensor.numel() == 0) return text;
  if (tensor.layout() != nullptr) {
    Tensor plain;
    const Status copied = copy_plain(tensor, plain);
    return copied.ok() ? describe_non_finite(plain) : copied.message();
  }
  const Status status = kernels::dispatch<kernels::AllFloatTypes>(tensor.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    const Counts counts = count<T>(tensor.values<T>());
    if (counts.nan == 0 && counts.infinite == 0) return Ok();
    text = fmt::format("{} NaN and {} infinite values among {}", counts.nan, counts.infinite,
                       tensor.numel());
    if (counts.min <= counts.max)
      text += fmt::format(", the others from {} to {}", counts.min, counts.max);
    return Ok();
  });
  return status.ok() ? text : status.message();
}

Status NanCheck::after(const CompiledOp& compiled, Value* const* table) {
  size_t i = 0;
  for (const Slot& slot : compiled.op->outputs()) {
    for (size_t k = 0; k < slot.args.size(); ++k, ++i) {
      if (compiled.outputs[i] < 0) continue;
      const Value& value = *table[compiled.outputs[i]];
      const auto* tensor = value.get_if<Tensor>();
      if (const auto* const rows = value.get_if<SelectedRows>()) tensor = &rows->value;
      if (tensor == nullptr || !tensor->initialized()) continue;
      const std::string found = describe_non_finite(*tensor);
      if (found.empty()) continue;
      Location place;
      place.slot = compiled.op->name_of(slot.name).str();
      place.slot_index = static_cast<int>(k);
      place.var = compiled.op->name_of(slot.args[k].name).str();
      return Status(StatusCode::kExecution, "the output has " + found).at(std::move(place));
    }
  }
  return Ok();
}

}  // namespace millrace::executor
