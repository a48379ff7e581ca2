#include "kernels/cpu/sequence/sequence.h"

namespace millrace::kernels {

namespace sequence_levels {
namespace {

int64_t rows_of(const Tensor& tensor) {
  return tensor.rank() == 0 ? 1 : tensor.dim(0);
}

// Offsets of a level, which must end at the last row.
StatusOr<llvm::ArrayRef<int64_t>> level_of(const Tensor& tensor, const char* slot, bool outermost) {
  if (tensor.lod().empty())
    return Status(StatusCode::kExecution,
                  fmt::format("{} must have LoD, found {} without LoD", slot, describe(tensor)));
  const llvm::ArrayRef<int64_t> offsets = outermost ? tensor.lod().level(0) : tensor.lod().last();
  if (offsets.empty() || offsets.back() != rows_of(tensor)) {
    return Status(
        StatusCode::kExecution,
        fmt::format("{} of {} must end with the {} rows of {}, found {}",
                    tensor.lod().size() > 1 && outermost ? "the first level of the LoD" : "LoD",
                    slot, rows_of(tensor), describe(tensor), tensor.lod().to_string()));
  }
  return offsets;
}

}  // namespace
}  // namespace sequence_levels

StatusOr<llvm::ArrayRef<int64_t>> sequences_of(const Tensor& tensor, const char* slot) {
  return sequence_levels::level_of(tensor, slot, /*outermost=*/false);
}

StatusOr<llvm::ArrayRef<int64_t>> outer_sequences_of(const Tensor& tensor, const char* slot) {
  return sequence_levels::level_of(tensor, slot, /*outermost=*/true);
}

StatusOr<LodLevel> outer_rows_of(const Tensor& tensor, const char* slot) {
  MILLRACE_RETURN_IF_ERROR(sequences_of(tensor, slot).status());
  const Lod& lod = tensor.lod();
  if (Status fits = lod.check(sequence_levels::rows_of(tensor)); !fits.ok())
    return std::move(fits).with_note(fmt::format("the LoD is that of {}", slot));
  LodLevel rows(lod.level(0).begin(), lod.level(0).end());
  for (size_t i = 1; i < lod.size(); ++i) {
    for (int64_t& row : rows) row = lod.level(i)[static_cast<size_t>(row)];
  }
  return rows;
}

Lod with_last_level(const Lod& lod, LodLevel level) {
  std::vector<LodLevel> levels = lod.levels();
  if (levels.empty()) levels.emplace_back();
  levels.back() = std::move(level);
  return Lod(std::move(levels));
}

}  // namespace millrace::kernels
