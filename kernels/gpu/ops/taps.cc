#include "kernels/gpu/ops/taps.h"

#include <cstring>

namespace millrace::gpu {

Taps Taps::one() {
  Taps taps;
  taps.add(0, 1.0);
  taps.finish();
  return taps;
}

Taps transposed(const Taps& taps) {
  Taps made;
  made.size = taps.results();
  std::vector<std::vector<std::pair<int64_t, double>>> takers(static_cast<size_t>(taps.size));
  for (size_t i = 0; i + 1 < taps.starts.size(); ++i) {
    for (auto k = static_cast<size_t>(taps.starts[i]); k < static_cast<size_t>(taps.starts[i + 1]);
         ++k)
      takers[static_cast<size_t>(taps.index[k])].emplace_back(static_cast<int64_t>(i),
                                                              taps.weight[k]);
  }
  for (const auto& taken : takers) {
    for (const auto& [position, factor] : taken) made.add(position, factor);
    made.finish();
  }
  return made;
}

Status TapTables::upload(const TapDims& dims) {
  // weights of all dims, then positions, so that all are aligned
  std::vector<std::byte> bytes;
  const auto append = [&bytes](const auto& values) {
    const size_t at = bytes.size();
    bytes.resize(at + values.size() * sizeof(values[0]));
    if (!values.empty())
      std::memcpy(bytes.data() + at, values.data(), values.size() * sizeof(values[0]));
    return at;
  };
  size_t weights[3];
  size_t starts[3];
  size_t index[3];
  for (size_t i = 0; i < 3; ++i) weights[i] = append(dims[i].weight);
  for (size_t i = 0; i < 3; ++i) {
    starts[i] = append(dims[i].starts);
    index[i] = append(dims[i].index);
  }
  const auto size = static_cast<int64_t>(bytes.size());
  if (block_ == nullptr || block_->bytes() < size) {
    block_.reset();
    MILLRACE_ASSIGN_OR_RETURN(block_, memory_.allocate(size, "weights of an image op"));
  }
  std::byte* const data = block_->data();
  for (size_t i = 0; i < 3; ++i) {
    sides_[i] = {dims[i].size, dims[i].results(),
                 reinterpret_cast<const int32_t*>(data + starts[i]),
                 reinterpret_cast<const int32_t*>(data + index[i]),
                 reinterpret_cast<const double*>(data + weights[i])};
  }
  return memory_.copy_in(bytes.data(), data, size);
}

}  // namespace millrace::gpu
