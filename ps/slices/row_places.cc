#include "ps/slices/row_places.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include <fmt/format.h>

#include "framework/base/errors.h"
#include "framework/tensor/join_rows.h"

namespace millrace::ps {
namespace {

// Whether the rows of two shards can be in one table.
Status check_fits(const SelectedRows& like, const SelectedRows& shard) {
  const Tensor& values = shard.value;
  const auto row_dims = [](const Tensor& tensor) { return tensor.dims().drop_front(); };
  if (values.rank() == 0 || values.dim(0) != static_cast<int64_t>(shard.rows.size()))
    return InvalidData("{} row numbers, but values {}", shard.rows.size(), describe(values));
  if (shard.height != like.height)
    return InvalidData("expected a table of {} rows, found {}", like.height, shard.height);
  if (values.dtype() != like.value.dtype() || row_dims(values) != row_dims(like.value))
    return InvalidData("expected rows like those of {}, found {}", describe(like.value),
                       describe(values));
  return Ok();
}

}  // namespace

void add_places(std::span<const int64_t> rows, size_t shard, std::vector<RowPlace>& places,
                const std::function<bool(int64_t)>& keep) {
  for (size_t i = 0; i < rows.size(); ++i) {
    if (!keep || keep(rows[i])) places.push_back({rows[i], static_cast<uint32_t>(shard), i});
  }
}

Status sort_places(std::vector<RowPlace>& places, const char* what) {
  std::ranges::sort(places, {}, &RowPlace::row);
  const auto twice = std::ranges::adjacent_find(places, {}, &RowPlace::row);
  if (twice == places.end()) return Ok();
  return InvalidData("two servers have {} {}", what, twice->row);
}

Status join_shards(std::span<const SelectedRows* const> shards, SelectedRows& whole) {
  const auto has_rows = [](const SelectedRows* shard) { return !shard->rows.empty(); };
  const auto found = std::ranges::find_if(shards, has_rows);
  const SelectedRows& like = found == shards.end() ? *shards.front() : **found;
  std::vector<RowPlace> places;
  for (size_t i = 0; i < shards.size(); ++i) {
    if (shards[i]->rows.empty()) continue;
    if (Status status = check_fits(like, *shards[i]); !status.ok())
      return std::move(status).with_note(fmt::format("in the shard of server {}", i));
    add_places(shards[i]->rows, i, places);
  }
  MILLRACE_RETURN_IF_ERROR(sort_places(places));
  whole.height = like.height;
  whole.rows.clear();
  MILLRACE_RETURN_IF_ERROR(
      resize_rows(like.value, static_cast<int64_t>(places.size()), whole.value));
  if (places.empty()) return Ok();
  const auto bytes = static_cast<size_t>(whole.value.bytes()) / places.size();
  std::byte* to = whole.value.raw();
  for (const RowPlace& place : places) {
    if (place.row < 0 || place.row >= whole.height)
      return InvalidData("server {} has row {} of a table of {} rows", place.shard, place.row,
                         whole.height);
    std::memcpy(to, shards[place.shard]->value.raw() + place.position * bytes, bytes);
    to += bytes;
    whole.rows.push_back(place.row);
  }
  return Ok();
}

}  // namespace millrace::ps
