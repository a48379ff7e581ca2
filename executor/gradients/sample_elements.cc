#include "executor/gradients/sample_elements.h"

#include <set>

namespace millrace::executor {
namespace {

// The generator splitmix64: one chain of multiplications per number, the same on every machine.
class SplitMix {
 public:
  explicit SplitMix(uint64_t seed) : state_(seed) {}
  uint64_t next() {
    uint64_t z = state_ += 0x9E3779B97F4A7C15;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EB;
    return z ^ (z >> 31);
  }

 private:
  uint64_t state_;
};

}  // namespace

std::vector<int64_t> sample_elements(const std::vector<double>& gradient, int64_t count,
                                     uint64_t seed) {
  const auto total = static_cast<int64_t>(gradient.size());
  std::vector<int64_t> all;
  std::vector<int64_t> nonzero;
  for (int64_t i = 0; i < total; ++i) {
    all.push_back(i);
    if (gradient[static_cast<size_t>(i)] != 0) nonzero.push_back(i);
  }
  if (count <= 0 || count >= total) return all;
  SplitMix random(seed);
  std::set<int64_t> chosen;
  // a position that is drawn twice is taken once
  for (int64_t i = 0; i < (count + 1) / 2 && !nonzero.empty(); ++i)
    chosen.insert(nonzero[random.next() % nonzero.size()]);
  while (static_cast<int64_t>(chosen.size()) < count)
    chosen.insert(all[random.next() % all.size()]);
  return {chosen.begin(), chosen.end()};
}

std::vector<double> random_signs(size_t count, uint64_t seed) {
  SplitMix random(~seed);
  std::vector<double> signs;
  signs.reserve(count);
  for (size_t i = 0; i < count; ++i) signs.push_back((random.next() >> 63) != 0 ? 1.0 : -1.0);
  return signs;
}

std::vector<int64_t> indices_of(int64_t position, llvm::ArrayRef<int64_t> dims) {
  std::vector<int64_t> indices(dims.size());
  for (size_t i = dims.size(); i-- > 0;) {
    indices[i] = position % dims[i];
    position /= dims[i];
  }
  return indices;
}

}  // namespace millrace::executor
