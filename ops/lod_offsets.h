#pragma once

#include <utility>

#include <llvm/ADT/ArrayRef.h>

#include "ops/infer_context.h"

namespace millrace::ops {

/// The LoD of an output has two parts: a number of levels, which programs declare, and offsets,
/// which exist only when the op runs. The executor gives an output the offsets of its meta. The
/// original propagates the two by different rules. These helpers set the offsets where they are not
/// those of the var whose meta is copied.

/// A meta with the declared LoD levels but without offsets: at run time the var has no LoD.
inline VarMeta without_offsets(VarMeta meta) {
  meta.lod = {};
  return meta;
}

/// A meta without LoD levels and offsets.
inline VarMeta without_lod(VarMeta meta) {
  meta.lod_level = 0;
  meta.lod = {};
  return meta;
}

/// A meta with the offsets of another var, even if the number of rows differs.
inline VarMeta with_offsets_of(VarMeta meta, const VarMeta& from) {
  meta.lod = from.lod;
  return meta;
}

/// As copy_each(), but without offsets.
void copy_each_without_offsets(InferContext& ctx, llvm::StringRef input_slot,
                               llvm::StringRef output_slot);

/// Meta of a dense tensor with the LoD levels and offsets of another one.
inline VarMeta tensor_with_lod_of(const VarMeta& from, DType dtype, llvm::ArrayRef<int64_t> dims) {
  VarMeta meta;
  meta.dtype = dtype;
  meta.dims.assign(dims.begin(), dims.end());
  meta.lod_level = from.lod_level;
  meta.lod = from.lod;
  return meta;
}

/// GradSpec::infer for gradient ops whose results have no offsets at run time. Otherwise as the
/// default inference.
Status infer_grad_without_offsets(InferContext& ctx);
/// A copy of a GradSpec that uses infer_grad_without_offsets().
inline GradSpec without_offsets(GradSpec spec) {
  spec.infer = infer_grad_without_offsets;
  return spec;
}

}  // namespace millrace::ops
