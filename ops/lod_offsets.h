#pragma once

#include <utility>

#include <llvm/ADT/ArrayRef.h>

#include "ops/infer_context.h"

namespace millrace::ops {

/// LoD reaches an output in two ways: as a number of levels, which programs declare, and as
/// offsets, which exist when the op runs; the executor gives an output the offsets of its meta. The
/// original hands the two on by different rules. These helpers state the offsets of an op where
/// they are not those of the var that its meta is copied from.

/// The meta of a var that has no LoD when the op runs, whatever levels are declared.
inline VarMeta without_offsets(VarMeta meta) {
  meta.lod = {};
  return meta;
}

/// The meta of a var without LoD.
inline VarMeta without_lod(VarMeta meta) {
  meta.lod_level = 0;
  meta.lod = {};
  return meta;
}

/// The meta of a var that gets the offsets of another one, even if that has other rows.
inline VarMeta with_offsets_of(VarMeta meta, const VarMeta& from) {
  meta.lod = from.lod;
  return meta;
}

/// As copy_each(), without offsets.
void copy_each_without_offsets(InferContext& ctx, llvm::StringRef input_slot,
                               llvm::StringRef output_slot);

/// Meta of a dense tensor with levels and offsets of another one.
inline VarMeta tensor_with_lod_of(const VarMeta& from, DType dtype, llvm::ArrayRef<int64_t> dims) {
  VarMeta meta;
  meta.dtype = dtype;
  meta.dims.assign(dims.begin(), dims.end());
  meta.lod_level = from.lod_level;
  meta.lod = from.lod;
  return meta;
}

/// GradSpec::infer of gradient ops whose results have no LoD when they run; else as without it.
Status infer_grad_without_offsets(InferContext& ctx);
/// A rule with that inference.
inline GradSpec without_offsets(GradSpec spec) {
  spec.infer = infer_grad_without_offsets;
  return spec;
}

}  // namespace millrace::ops
