#include "jobs/stats/fetches_line.h"

#include <algorithm>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace millrace::jobs {
namespace {

constexpr size_t kShownElements = 4;

template <typename T, typename Shown = T>
std::string elements_text(const Tensor& tensor, size_t count) {
  const auto values = tensor.values<T>();
  std::vector<Shown> shown;
  for (const T& value : values.first(std::min(values.size(), count)))
    shown.push_back(static_cast<Shown>(value));
  return fmt::format("{}{}", fmt::join(shown, ", "), shown.size() < values.size() ? ", ..." : "");
}

std::string fetch_text(const Value& value) {
  const auto* const tensor = value.get_if<Tensor>();
  if (tensor == nullptr || !tensor->initialized()) return describe(value);
  const std::string text = first_elements(*tensor, kShownElements);
  if (text.empty()) return describe(value);
  return tensor->numel() == 1 ? text : fmt::format("{} ({})", text, describe(value));
}

}  // namespace

std::string first_elements(const Tensor& tensor, size_t count) {
  switch (tensor.dtype()) {
    case DType::kFloat32:
      return elements_text<float>(tensor, count);
    case DType::kFloat64:
      return elements_text<double>(tensor, count);
    case DType::kFloat16:
      return elements_text<Float16, float>(tensor, count);
    case DType::kBfloat16:
      return elements_text<Bfloat16, float>(tensor, count);
    case DType::kInt64:
      return elements_text<int64_t>(tensor, count);
    case DType::kInt32:
      return elements_text<int32_t>(tensor, count);
    case DType::kInt16:
      return elements_text<int16_t>(tensor, count);
    case DType::kInt8:
      return elements_text<int8_t, int>(tensor, count);
    case DType::kUint8:
      return elements_text<uint8_t, int>(tensor, count);
    case DType::kBool:
      return elements_text<bool, int>(tensor, count);
    default:
      return "";
  }
}

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
