#include "transpiler/distribute/legacy_shuffle.h"

#include <numeric>
#include <random>
#include <utility>

namespace millrace::transpiler {

std::vector<uint32_t> legacy_shuffle(uint32_t seed, uint32_t count) {
  std::vector<uint32_t> order(count);
  std::iota(order.begin(), order.end(), 0U);
  std::mt19937 generator(seed);
  for (uint32_t i = count; i-- > 1;) {
    uint32_t mask = i;
    for (uint32_t shift = 1; shift < 32; shift *= 2) mask |= mask >> shift;
    uint32_t j = 0;
    do {
      j = static_cast<uint32_t>(generator()) & mask;
    } while (j > i);
    std::swap(order[i], order[j]);
  }
  return order;
}

}  // namespace millrace::transpiler
