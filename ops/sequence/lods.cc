#include "ops/sequence/lods.h"

namespace millrace::ops {

Lod without_last(const Lod& lod) {
  if (lod.size() < 2) return {};
  std::vector<LodLevel> levels = lod.levels();
  levels.pop_back();
  return Lod(std::move(levels));
}

Lod with_last(const Lod& lod, LodLevel offsets) {
  if (lod.empty()) return Lod({std::move(offsets)});
  std::vector<LodLevel> levels = lod.levels();
  levels.back() = std::move(offsets);
  return Lod(std::move(levels));
}

Expanded expanded(const Lod& x, int64_t x_rows, llvm::ArrayRef<int64_t> repeats) {
  const int64_t sequences = x.empty() ? x_rows : x.sequences(x.size() - 1);
  if (sequences != static_cast<int64_t>(repeats.size()) - 1) return {};
  LodLevel offsets{0};
  for (size_t i = 0; i + 1 < repeats.size(); ++i) {
    const int64_t rows = x.empty() ? 1 : x.last()[i + 1] - x.last()[i];
    for (int64_t copy = repeats[i]; copy < repeats[i + 1]; ++copy)
      offsets.push_back(offsets.back() + rows);
  }
  Expanded result;
  result.rows = offsets.back();
  if (!x.empty()) result.lod = Lod({std::move(offsets)});
  return result;
}

}  // namespace millrace::ops
