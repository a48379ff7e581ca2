#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "framework/base/status.h"
#include "io/checkpoint/box.h"
#include "io/checkpoint/manifest.h"
#include "io/checkpoint/state.h"

/// Decides which rank writes what.
namespace millrace::io {

/// What a rank states about one of its tensors.
struct TensorClaim {
  std::string name;
  StoredTensor::Kind kind = StoredTensor::Kind::kDense;
  DType dtype = DType::kFloat32;
  Dims dims;  ///< of the whole tensor; selected rows: of this rank's value
  Box box;    ///< the part that this rank has
  int64_t height = 0;
  bool part = false;  ///< other ranks may have other parts
};

struct RecordClaim {
  std::string name;
  int64_t bytes = 0;
};

/// Everything that a rank states.
struct RankClaims {
  std::vector<TensorClaim> tensors;
  std::vector<StoredArray> arrays;  ///< their elements are among the tensors
  std::vector<RecordClaim> records;
};

/// The claims of a state without arrays (see flatten()). Errors: kInvalidArgument with the var for
/// a value that is neither a dense tensor nor selected rows, has no data, occurs twice, or is not a
/// part of its global dims.
StatusOr<RankClaims> claims_of(const LocalState& state);

/// One chunk to write.
struct PlannedChunk {
  size_t tensor = 0;  ///< index in SavePlan::tensors
  Box box;
  int32_t owner = 0;
  size_t claim = 0;  ///< index in the owner's RankClaims::tensors
};

/// What all ranks write together. Identical on all ranks.
struct SavePlan {
  std::vector<StoredTensor> tensors;  ///< sorted by name, without chunks
  std::vector<StoredArray> arrays;    ///< sorted by name
  std::vector<PlannedChunk> chunks;   ///< sorted by tensor, then box
};

/// Combines the claims of all ranks. Each part is written once: by the rank that has least to write
/// among those that have the part; whole tensors by the coordinator if it has them.
/// Errors: kInvalidArgument with the tensor and the ranks if ranks disagree on dtype, shape or
/// kind, or on the length of an array, and if the parts overlap or leave a gap.
StatusOr<SavePlan> make_save_plan(const std::vector<RankClaims>& ranks, int32_t coordinator);

/// Text form of claims, for Gather. Errors: kInvalidData.
std::string claims_text(const RankClaims& claims);
StatusOr<RankClaims> parse_claims(std::string_view text);

}  // namespace millrace::io
