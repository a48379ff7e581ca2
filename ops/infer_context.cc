#include "ops/infer_context.h"

#include <llvm/ADT/STLExtras.h>

#include "framework/names.h"
#include "framework/program.h"

namespace millrace::ops {
namespace {

const VarMeta& unknown_meta() {
  static const VarMeta kUnknown = [] {
    VarMeta meta;
    meta.has_shape = false;
    return meta;
  }();
  return kUnknown;
}

size_t count_present(const Op& op, const Slot* slot) {
  if (slot == nullptr) return 0;
  return static_cast<size_t>(llvm::count_if(
      slot->args, [&](const Arg& arg) { return op.name_of(arg.name) != names::kEmpty; }));
}

}  // namespace

size_t InferContext::input_count(llvm::StringRef slot) const {
  return count_present(op(), op().find_input(slot));
}
size_t InferContext::output_count(llvm::StringRef slot) const {
  return count_present(op(), op().find_output(slot));
}

const VarMeta& InferContext::input(llvm::StringRef slot, size_t index) const {
  const Slot* const found = op().find_input(slot);
  if (found == nullptr || index >= found->args.size()) return unknown_meta();
  return meta(found->args[index].name);
}

void InferContext::set_output(llvm::StringRef slot, VarMeta meta, size_t index) {
  const Slot* const found = op().find_output(slot);
  if (found == nullptr || index >= found->args.size()) return;
  if (op().name_of(found->args[index].name) == names::kEmpty) return;
  set_meta(found->args[index].name, std::move(meta));
}

void InferContext::set_output(llvm::StringRef slot, DType dtype, llvm::ArrayRef<int64_t> dims) {
  VarMeta meta;
  meta.dtype = dtype;
  meta.dims.assign(dims.begin(), dims.end());
  set_output(slot, std::move(meta));
}

void InferContext::copy(llvm::StringRef input_slot, llvm::StringRef output_slot) {
  if (has_input(input_slot)) set_output(output_slot, input(input_slot));
}

std::string dims_text(llvm::ArrayRef<int64_t> dims) {
  std::string out = "[";
  for (size_t i = 0; i < dims.size(); ++i) out += (i == 0 ? "" : ", ") + std::to_string(dims[i]);
  return out + "]";
}

std::optional<int64_t> normalize_axis(int64_t axis, size_t rank) {
  const auto signed_rank = static_cast<int64_t>(rank);
  if (axis < -signed_rank || axis >= signed_rank) return std::nullopt;
  return axis < 0 ? axis + signed_rank : axis;
}

int64_t dims_product(llvm::ArrayRef<int64_t> dims) {
  int64_t product = 1;
  for (const int64_t dim : dims) {
    if (dim < 0) return -1;
    if (__builtin_mul_overflow(product, dim, &product)) return -1;
  }
  return product;
}

}  // namespace millrace::ops
