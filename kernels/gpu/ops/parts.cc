#include "kernels/gpu/ops/parts.h"

#include <algorithm>

#include "kernels/gpu/ops/words.h"

namespace millrace::gpu {
namespace {

template <typename Word>
Status run_words(Device& device, bool cuts, llvm::ArrayRef<Part> parts, int64_t rows,
                 int64_t whole_row, std::byte* whole) {
  int64_t start = 0;
  while (!parts.empty()) {
    const size_t count = std::min<size_t>(parts.size(), kMostParts);
    Parts<Word> some;
    some.count = static_cast<int32_t>(count);
    some.whole_row = whole_row;
    int64_t columns = 0;
    for (size_t k = 0; k < count; ++k) {
      // read only when joined
      some.parts[k] = reinterpret_cast<Word*>(const_cast<std::byte*>(parts[k].data));
      some.starts[k] = static_cast<uint32_t>(columns);
      columns += parts[k].columns;
    }
    some.starts[count] = static_cast<uint32_t>(columns);
    parts = parts.drop_front(count);
    if (columns == 0) continue;
    some.row = Divider(columns);
    auto* const at = reinterpret_cast<Word*>(whole) + start;
    MILLRACE_RETURN_IF_ERROR(cuts ? each(device, gpu::Cut<Word>{some, at}, rows * columns)
                                  : each(device, gpu::Join<Word>{some, at}, rows * columns));
    start += columns;
  }
  return Ok();
}

}  // namespace

Status run_parts(Device& device, bool cuts, const std::vector<Part>& parts, int64_t rows,
                 int64_t bytes, std::byte* whole) {
  int64_t whole_row = 0;
  int64_t factor = 16 / std::max<int64_t>(bytes, 1);
  int64_t aligned = common_factor(16, {address_of(whole)});
  for (const Part& part : parts) {
    whole_row += part.columns;
    factor = common_factor(factor, {part.columns});
    if (part.data != nullptr) aligned = common_factor(aligned, {address_of(part.data)});
  }
  if (rows * whole_row >= int64_t{1} << 31)
    return refuse("the GPU kernel joins less than 2^31 elements, found {}", rows * whole_row);
  while (factor > 1 && factor * bytes > aligned) factor /= 2;
  std::vector<Part> wide = parts;
  for (Part& part : wide) part.columns /= factor;
  return with_word(bytes * factor, [&](auto word) {
    return run_words<decltype(word)>(device, cuts, wide, rows, whole_row / factor, whole);
  });
}

}  // namespace millrace::gpu
