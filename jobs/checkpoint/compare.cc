#include "jobs/checkpoint/compare.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <complex>
#include <cstring>
#include <optional>
#include <set>
#include <type_traits>
#include <utility>

#include <fmt/format.h>

#include "framework/base/errors.h"
#include "io/checkpoint/arrays.h"

namespace millrace::jobs {
namespace {

template <typename T>
double as_double(T value) {
  return static_cast<double>(value);
}

template <typename T>
bool same_bytes(const T& a, const T& b) {
  using Bytes = std::array<std::byte, sizeof(T)>;
  return std::bit_cast<Bytes>(a) == std::bit_cast<Bytes>(b);
}

template <typename T>
void compare_tensors(const Tensor& a, const Tensor& b, const Tolerance& tolerance,
                     ValueDifference& found) {
  const auto left = a.values<T>();
  const auto right = b.values<T>();
  for (size_t i = 0; i < left.size(); ++i) {
    const double x = as_double(left[i]);
    const double y = as_double(right[i]);
    // equal infinities and two NaNs do not differ; int64 compares exactly.
    if (same_bytes(left[i], right[i]) || (std::isnan(x) && std::isnan(y))) continue;
    const double distance = std::abs(x - y);
    // an infinity differs from every other number, although its tolerance is infinite
    const bool within =
        std::isfinite(distance) && distance <= tolerance.atol + tolerance.rtol * std::abs(y);
    // Positive and negative zero are equal. Integers can differ although their doubles are equal.
    const bool equal = x == y && !std::is_integral_v<T>;
    if (within && (tolerance.atol > 0 || tolerance.rtol > 0 || equal)) continue;
    ++found.count;
    if (std::isnan(distance) || distance > found.largest || found.count == 1) {
      found.largest = distance;
      found.at = static_cast<int64_t>(i);
    }
  }
}

// The difference of two complex numbers is the absolute value of their difference.
template <typename T>
void compare_complex(const Tensor& a, const Tensor& b, const Tolerance& tolerance,
                     ValueDifference& found) {
  for (int64_t i = 0; i < a.numel(); ++i) {
    std::complex<T> left;
    std::complex<T> right;
    std::memcpy(&left, a.raw() + i * static_cast<int64_t>(sizeof left), sizeof left);
    std::memcpy(&right, b.raw() + i * static_cast<int64_t>(sizeof right), sizeof right);
    if (left == right || same_bytes(left, right)) continue;
    const double distance = std::abs(std::complex<double>(left) - std::complex<double>(right));
    const double size = std::abs(std::complex<double>(right));
    if (std::isfinite(distance) && distance <= tolerance.atol + tolerance.rtol * size) continue;
    ++found.count;
    if (std::isnan(distance) || distance > found.largest || found.count == 1) {
      found.largest = distance;
      found.at = i;
    }
  }
}

void compare_bytes(const Tensor& a, const Tensor& b, ValueDifference& found) {
  const int64_t size = dtype_size(a.dtype());
  for (int64_t i = 0; i < a.numel(); ++i) {
    if (std::memcmp(a.raw() + i * size, b.raw() + i * size, static_cast<size_t>(size)) == 0)
      continue;
    if (found.count++ == 0) found.at = i;
  }
}

void compare_tensors(const Tensor& a, const Tensor& b, const Tolerance& tolerance,
                     ValueDifference& found) {
  if (a.dtype() != b.dtype() || a.dims() != b.dims()) {
    found.what = describe(a) + " and " + describe(b);
    return;
  }
  if (!(a.lod() == b.lod())) {
    found.what = "LoD " + a.lod().to_string() + " and " + b.lod().to_string();
    return;
  }
  switch (a.dtype()) {
    case DType::kFloat32:
      return compare_tensors<float>(a, b, tolerance, found);
    case DType::kFloat64:
      return compare_tensors<double>(a, b, tolerance, found);
    case DType::kFloat16:
      return compare_tensors<Float16>(a, b, tolerance, found);
    case DType::kBfloat16:
      return compare_tensors<Bfloat16>(a, b, tolerance, found);
    case DType::kInt64:
      return compare_tensors<int64_t>(a, b, tolerance, found);
    case DType::kInt32:
      return compare_tensors<int32_t>(a, b, tolerance, found);
    case DType::kInt16:
      return compare_tensors<int16_t>(a, b, tolerance, found);
    case DType::kInt8:
      return compare_tensors<int8_t>(a, b, tolerance, found);
    case DType::kUint8:
      return compare_tensors<uint8_t>(a, b, tolerance, found);
    case DType::kComplex64:
      return compare_complex<float>(a, b, tolerance, found);
    case DType::kComplex128:
      return compare_complex<double>(a, b, tolerance, found);
    default:
      return compare_bytes(a, b, found);
  }
}

std::optional<ValueDifference> compare_value(const std::string& name, const Value& a,
                                             const Value& b, const Tolerance& tolerance) {
  ValueDifference found;
  found.name = name;
  const auto* const left_rows = a.get_if<SelectedRows>();
  const auto* const right_rows = b.get_if<SelectedRows>();
  const auto* const left = left_rows == nullptr ? a.get_if<Tensor>() : &left_rows->value;
  const auto* const right = right_rows == nullptr ? b.get_if<Tensor>() : &right_rows->value;
  const bool same_kind = a.kind() == b.kind() && left != nullptr && right != nullptr;
  if (!same_kind) {
    found.what = describe(a) + " and " + describe(b);
  } else if (left_rows != nullptr &&
             (left_rows->rows != right_rows->rows || left_rows->height != right_rows->height)) {
    found.what = "different rows";
  } else {
    compare_tensors(*left, *right, tolerance, found);
  }
  if (found.what.empty() && found.count == 0) return std::nullopt;
  return found;
}

void compare_arrays(const std::string& name, const TensorArray& a, const TensorArray& b,
                    const Tolerance& tolerance, std::vector<ValueDifference>& differences) {
  if (a.size() != b.size()) {
    differences.push_back({name, fmt::format("{} and {} elements", a.size(), b.size()), 0, 0, 0});
    return;
  }
  for (size_t i = 0; i < a.size(); ++i) {
    ValueDifference found;
    found.name = io::array_element_name(name, i);
    if (a[i].initialized() != b[i].initialized()) {
      found.what = a[i].initialized() ? "only in A" : "only in B";
    } else if (a[i].initialized()) {
      compare_tensors(a[i], b[i], tolerance, found);
    }
    if (!found.what.empty() || found.count > 0) differences.push_back(std::move(found));
  }
}

}  // namespace

StatusOr<SourceComparison> compare_sources(const TensorSource& a, const TensorSource& b,
                                           const CompareOptions& options) {
  const std::vector<std::string> left = a.names();
  const std::vector<std::string> right = b.names();
  std::set<std::string> names(left.begin(), left.end());
  names.insert(right.begin(), right.end());
  SourceComparison result;
  for (const std::string& name : names) {
    if (options.wanted && !options.wanted(name)) continue;
    const bool in_a = std::ranges::binary_search(left, name);
    const bool in_b = std::ranges::binary_search(right, name);
    if (!in_a || !in_b) {
      result.differences.push_back({name, in_a ? "only in A" : "only in B", 0, 0, 0});
      continue;
    }
    ++result.compared;
    MILLRACE_RETURN_IF_ERROR(options.proceed());
    MILLRACE_ASSIGN_OR_RETURN(const Value x, a.load(name));
    MILLRACE_ASSIGN_OR_RETURN(const Value y, b.load(name));
    const auto* const left_array = x.get_if<TensorArray>();
    const auto* const right_array = y.get_if<TensorArray>();
    if (left_array != nullptr && right_array != nullptr) {
      compare_arrays(name, *left_array, *right_array, options.tolerance, result.differences);
    } else if (auto found = compare_value(name, x, y, options.tolerance)) {
      result.differences.push_back(*std::move(found));
    }
    options.progress(io::tensor_bytes(x));
  }
  if (result.compared == 0 && result.differences.empty()) return NotFound("no variable to compare");
  return result;
}

}  // namespace millrace::jobs
