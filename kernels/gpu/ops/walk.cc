#include "kernels/gpu/ops/walk.h"

#include <algorithm>

#include "kernels/gpu/ops/words.h"

namespace millrace::gpu {
namespace {

template <typename Word>
Status move_words(Device& device, const Box<2>& box, std::byte* to, const std::byte* from) {
  MILLRACE_ASSIGN_OR_RETURN(const Walk<2> walk, box.walk());
  return each(device,
              Move<Word>{reinterpret_cast<const Word*>(from), reinterpret_cast<Word*>(to), walk},
              box.count());
}

}  // namespace

Status move_elements(Device& device, const Box<2>& box, Tensor& to, int64_t to_start,
                     const Tensor& from, int64_t from_start) {
  const int64_t bytes = dtype_size(to.dtype());
  std::byte* const target = to.raw() + to_start * bytes;
  const std::byte* const source = from.raw() + from_start * bytes;
  // wider words take fewer divisions and memory transactions
  int64_t factor = box.common_run(std::max<int64_t>(1, 16 / std::max<int64_t>(bytes, 1)));
  const int64_t aligned = common_factor(16, {address_of(target), address_of(source)});
  while (factor > 1 && factor * bytes > aligned) factor /= 2;
  const Box<2> wide = box.widened(factor);
  return with_word(bytes * factor, [&](auto word) {
    return move_words<decltype(word)>(device, wide, target, source);
  });
}

Status clear_elements(Device& device, Tensor& tensor) {
  const int64_t bytes = tensor.bytes();
  const int64_t width = common_factor(16, {bytes, address_of(tensor.raw())});
  return with_word(width, [&](auto word) {
    using Word = decltype(word);
    return each(device, Set<Word>{reinterpret_cast<Word*>(tensor.raw()), Word{}}, bytes / width);
  });
}

}  // namespace millrace::gpu
