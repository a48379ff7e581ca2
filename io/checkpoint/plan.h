#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "framework/base/status.h"
#include "io/checkpoint/box.h"
#include "io/checkpoint/manifest.h"
#include "io/checkpoint/state.h"

/// Which rank writes what.
namespace millrace::io {

/// What a rank says of one of its tensors.
struct TensorClaim {
  std::string name;
  StoredTensor::Kind kind = StoredTensor::Kind::kDense;
  DType dtype = DType::kFloat32;
  Dims dims;  ///< of the whole tensor; of selected rows: of this rank's value
  Box box;    ///< what this rank has of it
  int64_t height = 0;
  bool part = false;  ///< other ranks may have other parts
};

struct RecordClaim {
  std::string name;
  int64_t bytes = 0;
};

/// Everything a rank says.
struct RankClaims {
  std::vector<TensorClaim> tensors;
  std::vector<StoredArray> arrays;  ///< whose elements are among the tensors
  std::vector<RecordClaim> records;
};

/// The claims of a state without arrays (see flatten()). Errors: kInvalidArgument with the var for
/// a value that is neither a dense tensor nor selected rows, has no data, is there twice, or is no
/// part of its global dims.
StatusOr<RankClaims> claims_of(const LocalState& state);

/// One chunk that some rank writes.
struct PlannedChunk {
  size_t tensor = 0;  ///< index in SavePlan::tensors
  Box box;
  int32_t owner = 0;
  size_t claim = 0;  ///< index in the owner's RankClaims::tensors
};

/// What all ranks write together: the same on all of them.
struct SavePlan {
  std::vector<StoredTensor> tensors;  ///< by name, without chunks
  std::vector<StoredArray> arrays;    ///< by name
  std::vector<PlannedChunk> chunks;   ///< by tensor, then box
};

/// Joins the claims of all ranks: each part is written once, by the rank with the least to write
/// of those that have it; whole tensors by the coordinator where it has them.
/// Errors: kInvalidArgument with the tensor and the ranks where ranks disagree on dtype, shape or
/// kind, or on the length of an array, and where the parts overlap or leave a gap.
StatusOr<SavePlan> make_save_plan(const std::vector<RankClaims>& ranks, int32_t coordinator);

/// Text form of claims, for Gather. Errors: kInvalidData.
std::string claims_text(const RankClaims& claims);
StatusOr<RankClaims> parse_claims(std::string_view text);

}  // namespace millrace::io
