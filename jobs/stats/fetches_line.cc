#include "jobs/stats/fetches_line.h"

#include <algorithm>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace millrace::jobs {
namespace {

constexpr size_t kShownElements = 4;

template <typename T>
std::string elements_text(const Tensor& tensor) {
  const auto values = tensor.values<T>();
  const size_t shown = std::min(values.size(), kShownElements);
  return fmt::format("{}{}", fmt::join(values.first(shown), ", "),
                     shown < values.size() ? ", ..." : "");
}

std::string fetch_text(const Value& value) {
  const auto* const tensor = value.get_if<Tensor>();
  if (tensor == nullptr || !tensor->initialized()) return describe(value);
  std::string text;
  if (tensor->dtype() == DType::kFloat32) text = elements_text<float>(*tensor);
  if (tensor->dtype() == DType::kFloat64) text = elements_text<double>(*tensor);
  if (tensor->dtype() == DType::kInt64) text = elements_text<int64_t>(*tensor);
  if (text.empty()) return describe(value);
  return tensor->numel() == 1 ? text : fmt::format("{} ({})", text, describe(value));
}

}  // namespace

std::string fetches_line(int64_t step, const std::vector<std::string>& fetches,
                         const executor::NamedValues& values) {
  std::vector<std::string> parts;
  for (const std::string& name : fetches) {
    const auto found = values.find(name);
    if (found != values.end()) parts.push_back(name + " = " + fetch_text(found->second));
  }
  return fmt::format("step {}: {}", step, fmt::join(parts, ", "));
}

}  // namespace millrace::jobs
