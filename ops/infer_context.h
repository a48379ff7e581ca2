#pragma once

#include <cstdint>
#include <string>
#include <utility>

#include <llvm/ADT/ArrayRef.h>
#include <llvm/ADT/StringRef.h>

#include "framework/base/status.h"
#include "framework/tensor/lod.h"
#include "framework/types.h"
#include "framework/var.h"
#include "ops/op_view.h"

namespace millrace::ops {

/// What inference knows about one var.
struct VarMeta {
  VarKind kind = VarKind::kLodTensor;
  DType dtype = DType::kFloat32;
  /// -1: a dim that is unknown before the run. Not used if !has_shape.
  Dims dims;
  int32_t lod_level = 0;
  /// False if not even the rank is known.
  bool has_shape = true;
  /// LoD offsets of the var, known at run time only. Copying the meta of an input to an output also
  /// copies the offsets.
  Lod lod;

  [[nodiscard]] size_t rank() const { return dims.size(); }
};

/// Access of an inference function to its op. The same functions run on a program (dims may be -1)
/// and before a kernel runs (all dims are known).
class InferContext : public OpView {
 public:
  using OpView::OpView;
  virtual ~InferContext() = default;
  InferContext(const InferContext&) = delete;
  InferContext& operator=(const InferContext&) = delete;

  /// Number of vars in a slot; the placeholder @EMPTY@ counts as absent.
  [[nodiscard]] size_t input_count(llvm::StringRef slot) const;
  [[nodiscard]] size_t output_count(llvm::StringRef slot) const;
  [[nodiscard]] bool has_input(llvm::StringRef slot) const { return input_count(slot) > 0; }
  [[nodiscard]] bool has_output(llvm::StringRef slot) const { return output_count(slot) > 0; }

  /// Meta of an input. A meta without shape if the slot has no such element, so callers need not
  /// check first.
  [[nodiscard]] const VarMeta& input(llvm::StringRef slot, size_t index = 0) const;
  /// Sets the meta of an output, including its LoD level. Does nothing if the op has no such
  /// output.
  void set_output(llvm::StringRef slot, VarMeta meta, size_t index = 0);
  /// Sets an output of element type dtype with the given dims, LoD level 0.
  void set_output(llvm::StringRef slot, DType dtype, llvm::ArrayRef<int64_t> dims);
  /// Copies the meta of an input to an output: kind, dtype, dims, LoD level and offsets.
  void copy(llvm::StringRef input_slot, llvm::StringRef output_slot);

 protected:
  /// Meta of a var by name; a meta without shape if nothing is known.
  [[nodiscard]] virtual const VarMeta& meta(NameId name) const = 0;
  virtual void set_meta(NameId name, VarMeta meta) = 0;
};

/// "[2, -1, 3]", for messages.
std::string dims_text(llvm::ArrayRef<int64_t> dims);
/// False if both dims are known and differ.
inline bool dims_agree(int64_t a, int64_t b) {
  return a == b || a < 0 || b < 0;
}
/// The axis as a number in [0, rank); nullopt if it is not in [-rank, rank).
std::optional<int64_t> normalize_axis(int64_t axis, size_t rank);
/// Product of all dims; -1 if one of them is unknown, or if the product exceeds int64.
int64_t dims_product(llvm::ArrayRef<int64_t> dims);

}  // namespace millrace::ops
