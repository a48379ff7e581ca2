#include "framework/var.h"

#include "framework/block.h"
#include "framework/program.h"

namespace millrace {
namespace {

bool same_text(const std::shared_ptr<const std::string>& a,
               const std::shared_ptr<const std::string>& b) {
  if (a == nullptr || b == nullptr) return a == b;
  return *a == *b;
}

}  // namespace

VarSpec VarSpec::tensor(DType dtype, llvm::ArrayRef<int64_t> dims) {
  VarSpec spec;
  spec.form = TensorForm::kLodTensor;
  spec.dtype = dtype;
  spec.dims.assign(dims.begin(), dims.end());
  return spec;
}

VarSpec VarSpec::shapeless(VarKind kind) {
  VarSpec spec;
  spec.kind = kind;
  return spec;
}

bool VarSpec::operator==(const VarSpec& other) const {
  return kind == other.kind && form == other.form && dtype == other.dtype && dims == other.dims &&
         lod_level == other.lod_level && persistable == other.persistable &&
         need_check_feed == other.need_check_feed && is_parameter == other.is_parameter &&
         stop_gradient == other.stop_gradient && same_text(type_extra, other.type_extra) &&
         same_text(extra, other.extra);
}

llvm::StringRef Var::name() const {
  return block_->program().names().str(name_);
}

void Var::touch() {
  wire_ = {};
  block_->touch();
}

void Var::set_spec(VarSpec spec) {
  spec_ = std::move(spec);
  touch();
}

void Var::set_dims(llvm::ArrayRef<int64_t> dims) {
  spec_.dims.assign(dims.begin(), dims.end());
  touch();
}

void Var::set_persistable(bool value) {
  spec_.persistable = value;
  touch();
}

std::optional<int64_t> element_count(llvm::ArrayRef<int64_t> dims) {
  int64_t product = 1;
  bool unknown = false;
  for (const int64_t dim : dims) {
    if (dim < -1) return std::nullopt;
    if (dim == -1) {
      unknown = true;
      continue;
    }
    if (__builtin_mul_overflow(product, dim, &product)) return std::nullopt;
  }
  return unknown ? -1 : product;
}

}  // namespace millrace
