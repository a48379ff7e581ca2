#include "executor/collective/gather_rows.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <vector>

#include "framework/base/errors.h"

namespace millrace::executor {
namespace gather_rows_parts {
namespace {

constexpr size_t kFacts = 4;  // rows, height, elements of a row, type
using Facts = std::array<int64_t, kFacts>;

Facts facts_of(const SelectedRows& rows) {
  const auto count = static_cast<int64_t>(rows.rows.size());
  const int64_t width = count == 0 ? 0 : rows.value.numel() / count;
  return {count, rows.height, width, static_cast<int64_t>(rows.value.dtype())};
}

// A rank without rows need not know the width.
Status check_alike(const std::vector<Facts>& facts, const Facts& own) {
  for (size_t rank = 0; rank < facts.size(); ++rank) {
    if (facts[rank][0] == 0 || own[0] == 0) continue;
    if (std::equal(facts[rank].begin() + 1, facts[rank].end(), own.begin() + 1)) continue;
    return InvalidData(
        "rank {} has rows of {} elements of {} out of {}, this rank of {} of {} out of {}", rank,
        facts[rank][2], dtype_name(static_cast<DType>(facts[rank][3])), facts[rank][1], own[2],
        dtype_name(static_cast<DType>(own[3])), own[1]);
  }
  return Ok();
}

// Parts of unequal length are padded to the longest.
Status gather_uneven(CollectiveGroup& group, const std::byte* own, const std::vector<Facts>& facts,
                     int64_t row_bytes, std::byte* all) {
  int64_t longest = 0;
  for (const Facts& rank : facts) longest = std::max(longest, rank[0] * row_bytes);
  std::vector<std::byte> part(static_cast<size_t>(longest));
  std::vector<std::byte> padded(part.size() * facts.size());
  const auto own_bytes =
      static_cast<size_t>(facts[static_cast<size_t>(group.rank())][0] * row_bytes);
  if (own_bytes > 0) std::memcpy(part.data(), own, own_bytes);
  MILLRACE_RETURN_IF_ERROR(group.all_gather(part.data(), longest, padded.data()));
  for (size_t rank = 0; rank < facts.size(); ++rank) {
    const auto bytes = static_cast<size_t>(facts[rank][0] * row_bytes);
    if (bytes > 0) std::memcpy(all, padded.data() + rank * part.size(), bytes);
    all += bytes;
  }
  return Ok();
}

}  // namespace
}  // namespace gather_rows_parts

Status gather_rows(CollectiveGroup& group, SelectedRows& rows) {
  using namespace gather_rows_parts;
  const Facts own = facts_of(rows);
  std::vector<Facts> facts(static_cast<size_t>(group.size()));
  MILLRACE_RETURN_IF_ERROR(group.all_gather(reinterpret_cast<const std::byte*>(own.data()),
                                            sizeof own,
                                            reinterpret_cast<std::byte*>(facts.data())));
  MILLRACE_RETURN_IF_ERROR(check_alike(facts, own));
  Facts shape = own;
  int64_t total = 0;
  for (const Facts& rank : facts) {
    total += rank[0];
    if (rank[0] > 0) shape = rank;
  }
  if (total == 0) return Ok();
  const auto dtype = static_cast<DType>(shape[3]);
  Dims dims(rows.value.dims().begin(), rows.value.dims().end());
  if (own[0] == 0) dims = Dims{0, shape[2]};
  dims[0] = total;
  std::vector<int64_t> numbers(static_cast<size_t>(total));
  MILLRACE_RETURN_IF_ERROR(
      gather_uneven(group, reinterpret_cast<const std::byte*>(rows.rows.data()), facts,
                    sizeof(int64_t), reinterpret_cast<std::byte*>(numbers.data())));
  MILLRACE_ASSIGN_OR_RETURN(Tensor value, Tensor::create(dtype, dims));
  MILLRACE_RETURN_IF_ERROR(
      gather_uneven(group, rows.value.raw(), facts, shape[2] * dtype_size(dtype), value.raw()));
  rows.rows = std::move(numbers);
  rows.height = shape[1];
  rows.value = std::move(value);
  return Ok();
}

}  // namespace millrace::executor
