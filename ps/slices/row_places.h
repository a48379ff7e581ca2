#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "framework/base/status.h"
#include "framework/tensor/value.h"

namespace millrace::ps {

/// Where a row of a table is, shards of which are on several servers.
struct RowPlace {
  int64_t row = 0;      ///< row number or key
  uint32_t shard = 0;   ///< index of the shard
  size_t position = 0;  ///< of the row in its shard
};

/// Adds the places of the rows of one shard. \param keep  false for rows to leave out; empty: all
void add_places(std::span<const int64_t> rows, size_t shard, std::vector<RowPlace>& places,
                const std::function<bool(int64_t)>& keep = {});

/// Sorts places by row. \param what  of the rows in the message: "row", "key"
/// Errors: kInvalidData naming a row that occurs twice.
Status sort_places(std::vector<RowPlace>& places, const char* what = "row");

/// Joins the shards of a distributed table: all their rows, in ascending order. Shards without rows
/// may have any form.
/// \param shards  at least one, by server
/// \param whole   none of them; gets the height of the shards, which may be more than its rows
/// Errors: kInvalidData for shards with other heights, element types or row dims than the first one
/// with rows, and for a row that occurs twice or is not below the height; kResource.
Status join_shards(std::span<const SelectedRows* const> shards, SelectedRows& whole);

}  // namespace millrace::ps
