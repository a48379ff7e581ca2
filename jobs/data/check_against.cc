#include "jobs/data/check_against.h"

#include <algorithm>
#include <cmath>
#include <type_traits>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <llvm/ADT/StringRef.h>

#include "io/npy.h"
#include "io/npz.h"

namespace millrace::jobs {
namespace check_against_parts {
namespace {

template <typename To, typename T>
std::vector<To> widened(const Tensor& tensor) {
  std::vector<To> out;
  out.reserve(static_cast<size_t>(tensor.numel()));
  for (const T& value : tensor.values<T>()) {
    if constexpr (std::is_arithmetic_v<T>) {
      out.push_back(static_cast<To>(value));
    } else {
      out.push_back(static_cast<To>(static_cast<float>(value)));
    }
  }
  return out;
}

bool is_whole(DType dtype) {
  return is_integer(dtype) || dtype == DType::kBool;
}

// The elements of a tensor of integers or of bool.
std::vector<int64_t> whole_numbers(const Tensor& tensor) {
  switch (tensor.dtype()) {
    case DType::kInt64:
      return widened<int64_t, int64_t>(tensor);
    case DType::kInt32:
      return widened<int64_t, int32_t>(tensor);
    case DType::kInt16:
      return widened<int64_t, int16_t>(tensor);
    case DType::kInt8:
      return widened<int64_t, int8_t>(tensor);
    case DType::kUint8:
      return widened<int64_t, uint8_t>(tensor);
    default:
      return widened<int64_t, bool>(tensor);
  }
}

// The elements of a tensor of floats.
std::vector<double> floats(const Tensor& tensor) {
  switch (tensor.dtype()) {
    case DType::kFloat64:
      return widened<double, double>(tensor);
    case DType::kFloat16:
      return widened<double, Float16>(tensor);
    case DType::kBfloat16:
      return widened<double, Bfloat16>(tensor);
    default:
      return widened<double, float>(tensor);
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

double distance(double a, double b) {
  if (a == b || (std::isnan(a) && std::isnan(b))) return 0;
  return std::isfinite(a) && std::isfinite(b) ? std::abs(a - b) : INFINITY;
}

// Exact for neighbours above 2^53, which are the same double.
double distance(int64_t a, int64_t b) {
  const auto larger = static_cast<uint64_t>(std::max(a, b));
  return static_cast<double>(larger - static_cast<uint64_t>(std::min(a, b)));
}

template <typename T>
Largest compare(const std::vector<T>& found, const std::vector<T>& expected,
                const Tolerance& tolerance) {
  Largest largest;
  if (!expected.empty()) largest.expected = static_cast<double>(expected[0]);
  for (size_t i = 0; i < found.size(); ++i) {
    const double difference = distance(found[i], expected[i]);
    if (difference == 0) continue;
    const double size = std::abs(static_cast<double>(expected[i]));
    if (!std::isfinite(difference) || difference > tolerance.atol + tolerance.rtol * size)
      ++largest.beyond;
    if (difference > largest.difference) {
      largest.difference = difference;
      largest.expected = static_cast<double>(expected[i]);
      largest.element = i;
    }
  }
  return largest;
}

// What does not match although elements are not compared yet; empty if nothing.
std::string mismatch(const Value& found, const Value& wanted) {
  const Tensor* const a = comparable(found);
  const Tensor* const b = comparable(wanted);
  if (a == nullptr || b == nullptr || found.kind() != wanted.kind() || a->dims() != b->dims() ||
      is_whole(a->dtype()) != is_whole(b->dtype()))
    return fmt::format("expected {}, found {}", describe(wanted), describe(found));
  for (const Tensor* const each : {a, b}) {
    if (!is_whole(each->dtype()) && !is_floating(each->dtype()))
      return fmt::format("element types cannot be compared: {}", describe(found));
  }
  if (const auto* const rows = found.get_if<SelectedRows>();
      rows != nullptr && (rows->rows != wanted.get_if<SelectedRows>()->rows ||
                          rows->height != wanted.get_if<SelectedRows>()->height))
    return "the rows differ";
  if (!b->lod().empty() && !(a->lod() == b->lod()))
    return fmt::format("expected LoD {}, found {}", b->lod().to_string(),
                       a->lod().empty() ? "none" : a->lod().to_string());
  return "";
}

}  // namespace
}  // namespace check_against_parts

CheckResult check_against(const executor::NamedValues& results,
                          const executor::NamedValues& expected, const Tolerance& tolerance) {
  using namespace check_against_parts;
  CheckResult check;
  const auto differs = [&](const std::string& line) {
    check.same = false;
    check.text += line;
  };
  if (expected.empty()) differs("nothing to compare with: no array is expected\n");
  for (const auto& [name, wanted] : expected) {
    const auto found = results.find(name);
    if (found == results.end()) {
      differs(fmt::format("{}: missing in the results\n", name));
      continue;
    }
    if (const std::string why = mismatch(found->second, wanted); !why.empty()) {
      differs(fmt::format("{}: {}\n", name, why));
      continue;
    }
    const Tensor& a = *comparable(found->second);
    const Tensor& b = *comparable(wanted);
    const Largest largest = is_whole(a.dtype())
                                ? compare(whole_numbers(a), whole_numbers(b), tolerance)
                                : compare(floats(a), floats(b), tolerance);
    const std::string line =
        fmt::format("{}: largest difference {:.3g} at element {} (expected {:.6g})", name,
                    largest.difference, largest.element, largest.expected);
    if (largest.beyond > 0) {
      differs(fmt::format("{}, {} of {} elements beyond rtol {:g}, atol {:g}\n", line,
                          largest.beyond, a.numel(), tolerance.rtol, tolerance.atol));
    } else {
      check.text += line + "\n";
    }
  }
  return check;
}

StatusOr<CheckResult> check_against_file(const executor::NamedValues& results,
                                         const std::string& path, const Tolerance& tolerance) {
  executor::NamedValues expected;
  if (!llvm::StringRef(path).endswith(".npy")) {
    MILLRACE_ASSIGN_OR_RETURN(expected, io::read_values(path));
    return check_against(results, expected, tolerance);
  }
  if (results.size() != 1)
    return Status(StatusCode::kUsage,
                  fmt::format("options.check_against: an npy has one result, found {} results",
                              results.size()));
  MILLRACE_ASSIGN_OR_RETURN(Tensor tensor, io::read_npy(path));
  expected[results.begin()->first].as<Tensor>() = std::move(tensor);
  return check_against(results, expected, tolerance);
}

}  // namespace millrace::jobs
