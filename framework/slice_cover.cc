#include "framework/slice_cover.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "framework/base/errors.h"

namespace millrace {
namespace {

Status check_form(const std::string& var, std::optional<DType> dtype, llvm::ArrayRef<int64_t> dims,
                  const VarSlice& slice) {
  if (dtype && slice.dtype && *dtype != *slice.dtype)
    return InvalidData("slice {} of '{}' is {}, expected {}", slice.label, var,
                       dtype_name(*slice.dtype), dtype_name(*dtype));
  if (slice.dims.empty() || dims.empty()) return Ok();
  const llvm::ArrayRef<int64_t> own(slice.dims);
  if (own.size() == dims.size() && own.drop_front() == dims.drop_front()) return Ok();
  return InvalidData("slice {} of '{}' has dims [{}], expected rows of [{}]", slice.label, var,
                     fmt::join(own, ", "), fmt::join(dims, ", "));
}

}  // namespace

Status check_slices_cover(llvm::StringRef var, std::optional<DType> dtype,
                          llvm::ArrayRef<int64_t> dims, llvm::ArrayRef<VarSlice> slices) {
  const std::string name = var.str();
  const std::optional<int64_t> whole = element_count(dims);
  if (!whole || *whole < 0)
    return InvalidData("'{}' has dims [{}], which are not a shape", name, fmt::join(dims, ", "));
  int64_t covered = 0;
  for (const VarSlice& slice : slices) {
    MILLRACE_RETURN_IF_ERROR(check_form(name, dtype, dims, slice));
    if (slice.elements == 0) continue;
    if (slice.offset != covered)
      return InvalidData("slice {} of '{}' begins at element {}, expected {}: {}", slice.label,
                         name, slice.offset, covered,
                         slice.offset > covered ? "a gap" : "an overlap");
    if (slice.elements < 0 || slice.elements > *whole - covered)
      return InvalidData("slice {} of '{}' has {} elements at {}, but '{}' has {} elements",
                         slice.label, name, slice.elements, covered, name, *whole);
    covered += slice.elements;
  }
  if (covered == *whole) return Ok();
  return InvalidData("the slices of '{}' have {} elements, expected {}", name, covered, *whole);
}

}  // namespace millrace
