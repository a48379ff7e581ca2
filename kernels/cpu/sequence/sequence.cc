#include "kernels/cpu/sequence/sequence.h"

namespace millrace::kernels {

StatusOr<llvm::ArrayRef<int64_t>> sequences_of(const Tensor& tensor, const char* slot) {
  if (tensor.lod().empty())
    return Status(StatusCode::kExecution,
                  fmt::format("{} must have LoD, found {} without LoD", slot, describe(tensor)));
  const llvm::ArrayRef<int64_t> offsets = tensor.lod().last();
  const int64_t rows = tensor.rank() == 0 ? 1 : tensor.dim(0);
  if (offsets.empty() || offsets.back() != rows) {
    return Status(StatusCode::kExecution,
                  fmt::format("LoD of {} must end with the {} rows of {}, found {}", slot, rows,
                              describe(tensor), tensor.lod().to_string()));
  }
  return offsets;
}

Lod with_last_level(const Lod& lod, LodLevel level) {
  std::vector<LodLevel> levels = lod.levels();
  if (levels.empty()) levels.emplace_back();
  levels.back() = std::move(level);
  return Lod(std::move(levels));
}

}  // namespace millrace::kernels
