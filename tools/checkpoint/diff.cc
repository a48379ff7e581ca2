#include <algorithm>
#include <cmath>
#include <complex>
#include <cstring>
#include <optional>
#include <set>
#include <type_traits>

#include <fmt/format.h>

#include "framework/base/errors.h"
#include "framework/base/json_writer.h"
#include "framework/base/text.h"
#include "io/checkpoint/arrays.h"
#include "tools/checkpoint/byte_progress.h"
#include "tools/checkpoint/options.h"
#include "tools/checkpoint/source.h"
#include "tools/common/program_options.h"

namespace millrace::tools {
namespace {

// How one tensor differs.
struct Difference {
  std::string name;
  std::string what;  // "only in A", a different shape, ...; empty if elements differ
  double largest = 0;
  int64_t at = 0;     // element with the largest difference
  int64_t count = 0;  // elements beyond the tolerance
};

template <typename T>
double as_double(T value) {
  return static_cast<double>(value);
}

template <typename T>
void compare_diff(const Tensor& a, const Tensor& b, const CheckpointFlags& flags,
                  Difference& found) {
  const auto left = a.values<T>();
  const auto right = b.values<T>();
  for (size_t i = 0; i < left.size(); ++i) {
    const double x = as_double(left[i]);
    const double y = as_double(right[i]);
    // equal infinities and two NaNs do not differ; int64 compares exactly.
    if (std::memcmp(&left[i], &right[i], sizeof(T)) == 0 || (std::isnan(x) && std::isnan(y)))
      continue;
    const double distance = std::abs(x - y);
    const bool within = distance <= flags.atol + flags.rtol * std::abs(y);
    // Positive and negative zero are equal. Integers can differ although their doubles are equal.
    const bool equal = x == y && !std::is_integral_v<T>;
    if (within && (flags.atol > 0 || flags.rtol > 0 || equal)) continue;
    ++found.count;
    if (std::isnan(distance) || distance > found.largest || found.count == 1) {
      found.largest = distance;
      found.at = static_cast<int64_t>(i);
    }
  }
}

// The difference of two complex numbers is the absolute value of their difference.
template <typename T>
void compare_complex(const Tensor& a, const Tensor& b, const CheckpointFlags& flags,
                     Difference& found) {
  for (int64_t i = 0; i < a.numel(); ++i) {
    std::complex<T> left;
    std::complex<T> right;
    std::memcpy(&left, a.raw() + i * static_cast<int64_t>(sizeof left), sizeof left);
    std::memcpy(&right, b.raw() + i * static_cast<int64_t>(sizeof right), sizeof right);
    if (left == right || std::memcmp(&left, &right, sizeof left) == 0) continue;
    const double distance = std::abs(std::complex<double>(left) - std::complex<double>(right));
    const double size = std::abs(std::complex<double>(right));
    if (distance <= flags.atol + flags.rtol * size) continue;
    ++found.count;
    if (std::isnan(distance) || distance > found.largest || found.count == 1) {
      found.largest = distance;
      found.at = i;
    }
  }
}

void compare_bytes(const Tensor& a, const Tensor& b, Difference& found) {
  const int64_t size = dtype_size(a.dtype());
  for (int64_t i = 0; i < a.numel(); ++i) {
    if (std::memcmp(a.raw() + i * size, b.raw() + i * size, static_cast<size_t>(size)) == 0)
      continue;
    if (found.count++ == 0) found.at = i;
  }
}

void compare_diff(const Tensor& a, const Tensor& b, const CheckpointFlags& flags,
                  Difference& found) {
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
      return compare_diff<float>(a, b, flags, found);
    case DType::kFloat64:
      return compare_diff<double>(a, b, flags, found);
    case DType::kFloat16:
      return compare_diff<Float16>(a, b, flags, found);
    case DType::kBfloat16:
      return compare_diff<Bfloat16>(a, b, flags, found);
    case DType::kInt64:
      return compare_diff<int64_t>(a, b, flags, found);
    case DType::kInt32:
      return compare_diff<int32_t>(a, b, flags, found);
    case DType::kInt16:
      return compare_diff<int16_t>(a, b, flags, found);
    case DType::kInt8:
      return compare_diff<int8_t>(a, b, flags, found);
    case DType::kUint8:
      return compare_diff<uint8_t>(a, b, flags, found);
    case DType::kComplex64:
      return compare_complex<float>(a, b, flags, found);
    case DType::kComplex128:
      return compare_complex<double>(a, b, flags, found);
    default:
      return compare_bytes(a, b, found);
  }
}

std::optional<Difference> compare_diff(const std::string& name, const Value& a, const Value& b,
                                       const CheckpointFlags& flags) {
  Difference found;
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
    compare_diff(*left, *right, flags, found);
  }
  if (found.what.empty() && found.count == 0) return std::nullopt;
  return found;
}

void compare_arrays(const std::string& name, const TensorArray& a, const TensorArray& b,
                    const CheckpointFlags& flags, std::vector<Difference>& differences) {
  if (a.size() != b.size()) {
    differences.push_back({name, fmt::format("{} and {} elements", a.size(), b.size()), 0, 0, 0});
    return;
  }
  for (size_t i = 0; i < a.size(); ++i) {
    Difference found;
    found.name = io::array_element_name(name, i);
    if (a[i].initialized() != b[i].initialized()) {
      found.what = a[i].initialized() ? "only in A" : "only in B";
    } else if (a[i].initialized()) {
      compare_diff(a[i], b[i], flags, found);
    }
    if (!found.what.empty() || found.count > 0) differences.push_back(std::move(found));
  }
}

std::string diff_text(const std::vector<Difference>& differences) {
  std::string out;
  for (const Difference& each : differences) {
    out += printable(each.name) + ": ";
    out += each.what.empty() ? fmt::format("{} elements differ, by at most {:.6g}, at element {}",
                                           each.count, each.largest, each.at)
                             : printable(each.what);
    out += '\n';
  }
  return out;
}

std::string diff_json(const std::vector<Difference>& differences, size_t compared) {
  JsonWriter out;
  out.begin_object();
  out.key("schema").begin_object().member("name", "millrace.checkpoint_diff");
  out.member("version", 1).end_object().member("same", differences.empty());
  out.member("compared", static_cast<uint64_t>(compared)).key("differences").begin_array();
  for (const Difference& each : differences) {
    out.begin_object().member("name", each.name);
    if (!each.what.empty()) {
      out.member("what", each.what);
    } else {
      out.member("elements", each.count).member("largest", each.largest).member("at", each.at);
    }
    out.end_object();
  }
  return out.end_array().end_object().take();
}

}  // namespace

StatusOr<int> checkpoint_diff(Tool& tool, const CheckpointFlags& flags) {
  MILLRACE_ASSIGN_OR_RETURN(const auto a, open_source(tool, flags, flags.paths[0]));
  MILLRACE_ASSIGN_OR_RETURN(const auto b, open_source(tool, flags, flags.paths[1]));
  const std::vector<std::string> left = a->names();
  const std::vector<std::string> right = b->names();
  std::set<std::string> names(left.begin(), left.end());
  names.insert(right.begin(), right.end());
  const auto wanted = name_globs(flags.vars);
  std::vector<Difference> differences;
  size_t compared = 0;
  {
    ByteProgress progress = progress_of(tool, flags, "diff", a->bytes());
    for (const std::string& name : names) {
      if (wanted && !wanted(name)) continue;
      const bool in_a = std::ranges::binary_search(left, name);
      const bool in_b = std::ranges::binary_search(right, name);
      if (!in_a || !in_b) {
        differences.push_back({name, in_a ? "only in A" : "only in B", 0, 0, 0});
        continue;
      }
      ++compared;
      MILLRACE_RETURN_IF_ERROR(check_stopped(flags));
      MILLRACE_ASSIGN_OR_RETURN(const Value x, a->load(name));
      MILLRACE_ASSIGN_OR_RETURN(const Value y, b->load(name));
      const auto* const left_array = x.get_if<TensorArray>();
      const auto* const right_array = y.get_if<TensorArray>();
      if (left_array != nullptr && right_array != nullptr) {
        compare_arrays(name, *left_array, *right_array, flags, differences);
      } else if (auto found = compare_diff(name, x, y, flags)) {
        differences.push_back(*std::move(found));
      }
      progress.add(io::tensor_bytes(x));
    }
  }
  MILLRACE_RETURN_IF_ERROR(tool.write_output(tool.common().json ? diff_json(differences, compared)
                                                                : diff_text(differences)));
  return differences.empty() ? kDone : kAnswerIsNo;
}

}  // namespace millrace::tools
