#include "jobs/stats/step_facts.h"

#include <span>

namespace millrace::jobs {
namespace {

template <typename T>
double mean_of(std::span<const T> values) {
  double sum = 0;
  for (const T value : values) sum += static_cast<double>(value);
  return sum / static_cast<double>(values.size());
}

}  // namespace

std::optional<double> loss_of(const Value& value, int devices) {
  const auto* const tensor = value.get_if<Tensor>();
  if (tensor == nullptr || !tensor->initialized()) return std::nullopt;
  if (tensor->numel() != 1 && tensor->numel() != devices) return std::nullopt;
  if (tensor->dtype() == DType::kFloat32) return mean_of(tensor->values<float>());
  if (tensor->dtype() == DType::kFloat64) return mean_of(tensor->values<double>());
  return std::nullopt;
}

int64_t batch_of(const executor::NamedValues& feeds) {
  for (const auto& [name, value] : feeds) {
    const auto* const tensor = value.get_if<Tensor>();
    if (tensor == nullptr || tensor->rank() == 0) continue;
    return tensor->lod().levels().empty() ? tensor->dim(0) : tensor->lod().sequences(0);
  }
  return 1;
}

}  // namespace millrace::jobs
