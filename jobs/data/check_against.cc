#include "jobs/data/check_against.h"

#include <cmath>
#include <vector>

#include <fmt/format.h>

namespace millrace::jobs {
namespace {

template <typename T>
std::vector<double> widened(const Tensor& tensor) {
  std::vector<double> out;
  out.reserve(static_cast<size_t>(tensor.numel()));
  for (const T& value : tensor.values<T>()) {
    if constexpr (std::is_arithmetic_v<T>) {
      out.push_back(static_cast<double>(value));
    } else {
      out.push_back(static_cast<double>(static_cast<float>(value)));
    }
  }
  return out;
}

// Elements as doubles; int64 values above 2^53 lose bits.
std::optional<std::vector<double>> numbers(const Tensor& tensor) {
  switch (tensor.dtype()) {
    case DType::kFloat32:
      return widened<float>(tensor);
    case DType::kFloat64:
      return widened<double>(tensor);
    case DType::kFloat16:
      return widened<Float16>(tensor);
    case DType::kBfloat16:
      return widened<Bfloat16>(tensor);
    case DType::kInt64:
      return widened<int64_t>(tensor);
    case DType::kInt32:
      return widened<int32_t>(tensor);
    case DType::kInt16:
      return widened<int16_t>(tensor);
    case DType::kInt8:
      return widened<int8_t>(tensor);
    case DType::kUint8:
      return widened<uint8_t>(tensor);
    case DType::kBool:
      return widened<bool>(tensor);
    default:
      return std::nullopt;
  }
}

// The tensor to compare: a dense tensor, or the values of selected rows; their rows must be equal.
const Tensor* comparable(const Value& value) {
  if (const auto* const rows = value.get_if<SelectedRows>()) return &rows->value;
  return value.get_if<Tensor>();
}

struct Largest {
  double difference = 0;
  double expected = 0;
  size_t element = 0;
  size_t beyond = 0;  ///< elements beyond the tolerance
};

Largest compare_check_against(const std::vector<double>& found, const std::vector<double>& expected,
                              const Tolerance& tolerance) {
  Largest largest;
  for (size_t i = 0; i < found.size(); ++i) {
    const double a = found[i];
    const double b = expected[i];
    if (a == b || (std::isnan(a) && std::isnan(b))) continue;
    const double difference = std::isfinite(a) && std::isfinite(b) ? std::abs(a - b) : INFINITY;
    if (!std::isfinite(difference) || difference > tolerance.atol + tolerance.rtol * std::abs(b))
      ++largest.beyond;
    if (difference > largest.difference) {
      largest.difference = difference;
      largest.expected = b;
      largest.element = i;
    }
  }
  return largest;
}

}  // namespace

CheckResult check_against(const executor::NamedValues& results,
                          const executor::NamedValues& expected, const Tolerance& tolerance) {
  CheckResult check;
  const auto differs = [&](const std::string& line) {
    check.same = false;
    check.text += line;
  };
  for (const auto& [name, wanted] : expected) {
    const auto found = results.find(name);
    if (found == results.end()) {
      differs(fmt::format("{}: missing in the results\n", name));
      continue;
    }
    const Tensor* const a = comparable(found->second);
    const Tensor* const b = comparable(wanted);
    if (a == nullptr || b == nullptr || a->dims() != b->dims() ||
        found->second.kind() != wanted.kind()) {
      differs(fmt::format("{}: expected {}, found {}\n", name, describe(wanted),
                          describe(found->second)));
      continue;
    }
    const auto* const rows = found->second.get_if<SelectedRows>();
    if (rows != nullptr && rows->rows != wanted.get_if<SelectedRows>()->rows) {
      differs(fmt::format("{}: the rows differ\n", name));
      continue;
    }
    const auto x = numbers(*a);
    const auto y = numbers(*b);
    if (!x || !y) {
      differs(
          fmt::format("{}: element types cannot be compared: {}\n", name, describe(found->second)));
      continue;
    }
    const Largest largest = compare_check_against(*x, *y, tolerance);
    const std::string line =
        fmt::format("{}: largest difference {:.3g} at element {} (expected {:.6g})", name,
                    largest.difference, largest.element, largest.expected);
    if (largest.beyond > 0) {
      differs(fmt::format("{}, {} of {} elements beyond rtol {:g}, atol {:g}\n", line,
                          largest.beyond, x->size(), tolerance.rtol, tolerance.atol));
    } else {
      check.text += line + "\n";
    }
  }
  return check;
}

}  // namespace millrace::jobs
