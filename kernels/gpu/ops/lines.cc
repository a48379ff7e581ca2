#include "kernels/gpu/ops/lines.h"

#include <algorithm>

namespace millrace::gpu {
namespace {

LineGroups line_groups(const GroupedRows& grouped, int64_t width) {
  const RowGroups groups = grouped.groups(nullptr, width);
  return {groups.rows, groups.starts, groups.sources, groups.width};
}

template <typename T>
Status add_lines_of(Device& device, const LineGroups& groups, int64_t count, const Tensor& lines,
                    Tensor& matrix, bool replaces) {
  return each(device,
              AddLines<T>{groups, reinterpret_cast<const T*>(lines.raw()),
                          reinterpret_cast<T*>(matrix.raw()), replaces},
              count);
}

Status check_size_of(llvm::ArrayRef<int64_t> rows, int64_t width, const Tensor& matrix) {
  if (width > 0 && matrix.numel() < int64_t{1} << 31 &&
      static_cast<int64_t>(rows.size()) * width < int64_t{1} << 31)
    return Ok();
  return refuse("{} lines of {} elements", rows.size(), width);
}

}  // namespace

Status take_elements(Device& device, const Box<2>& box, const Coordinates& c, const Tensor& from,
                     Tensor& to, bool puts) {
  if (c.steps.size() > kMostDepth) return refuse("an index has {} coordinates", c.steps.size());
  MILLRACE_ASSIGN_OR_RETURN(const Walk<2> walk, box.walk());
  const int64_t bytes = dtype_size(to.dtype());
  if (bytes > 8) return refuse("elements of {} bytes", bytes);
  return with_word(bytes, [&](auto word) -> Status {
    using Word = decltype(word);
    if constexpr (sizeof(Word) <= 8) {
      TakeAt<Word> take{};
      take.from = reinterpret_cast<const Word*>(from.raw());
      take.to = reinterpret_cast<Word*>(to.raw());
      take.index = index_values(*c.index);
      std::copy(c.steps.begin(), c.steps.end(), take.steps);
      take.depth = static_cast<int32_t>(c.steps.size());
      take.limit = c.limit;
      take.puts = puts;
      take.walk = walk;
      return each(device, take, box.count());
    } else {
      return refuse("elements of {} bytes", sizeof(Word));
    }
  });
}

Status add_lines(Memory& memory, GroupedRows& grouped, llvm::ArrayRef<int64_t> rows,
                 const Tensor& lines, int64_t width, Tensor& matrix, bool replaces) {
  if (rows.empty()) return Ok();
  MILLRACE_RETURN_IF_ERROR(check_size_of(rows, width, matrix));
  MILLRACE_RETURN_IF_ERROR(grouped.make(memory, rows, -1));
  const LineGroups groups = line_groups(grouped, width);
  const int64_t count = grouped.count() * width;
  Device& device = memory.device();
  switch (matrix.dtype()) {
    case DType::kFloat32:
      return add_lines_of<float>(device, groups, count, lines, matrix, replaces);
    case DType::kFloat64:
      return add_lines_of<double>(device, groups, count, lines, matrix, replaces);
    case DType::kInt32:
      return add_lines_of<int32_t>(device, groups, count, lines, matrix, replaces);
    case DType::kInt64:
      return add_lines_of<int64_t>(device, groups, count, lines, matrix, replaces);
    default:
      return refuse("the GPU kernel does not add {}", describe(lines));
  }
}

Status put_lines(Memory& memory, GroupedRows& grouped, llvm::ArrayRef<int64_t> rows,
                 const Tensor* lines, int64_t width, Tensor& matrix) {
  if (rows.empty()) return Ok();
  MILLRACE_RETURN_IF_ERROR(check_size_of(rows, width, matrix));
  MILLRACE_RETURN_IF_ERROR(grouped.make(memory, rows, -1));
  return with_word(dtype_size(matrix.dtype()), [&](auto word) -> Status {
    using Word = decltype(word);
    if constexpr (sizeof(Word) <= 8) {
      return each(
          memory.device(),
          PutLast<Word>{line_groups(grouped, width),
                        lines == nullptr ? nullptr : reinterpret_cast<const Word*>(lines->raw()),
                        reinterpret_cast<Word*>(matrix.raw())},
          grouped.count() * width);
    } else {
      return refuse("elements of {} bytes", sizeof(Word));
    }
  });
}

Status copy_all(Device& device, const Tensor& from, Tensor& to) {
  if (from.raw() == to.raw() || from.bytes() == 0) return Ok();
  return device.copy(from.raw(), to.raw(), from.bytes());
}

}  // namespace millrace::gpu
