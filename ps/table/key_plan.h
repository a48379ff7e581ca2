#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "framework/base/status.h"
#include "framework/tensor/value.h"
#include "ps/table/routing.h"

namespace millrace::ps {

/// A list of ids grouped by server, with each distinct id once.
struct KeyPlan {
  int64_t shard_num = 0;
  std::optional<int64_t> padding;
  std::vector<int64_t> ids;  ///< in the given order
  struct ServerKeys {
    Value keys;    ///< i64 [n], in order of first occurrence
    Value counts;  ///< i64 [n]: how often each occurs
    size_t size = 0;
  };
  std::vector<ServerKeys> by_server;  ///< by server
  /// Location of an id's row: its server, and the position in that server's keys; server -1 is
  /// padding.
  struct Place {
    int32_t server = -1;
    uint32_t position = 0;
  };
  std::vector<Place> places;  ///< one per id
  bool has_repeats = false;
};

/// Errors: kResource; kInvalidArgument if shard_num is not > 0.
StatusOr<KeyPlan> make_key_plan(std::span<const int64_t> ids, int64_t shard_num, size_t servers,
                                std::optional<int64_t> padding);

}  // namespace millrace::ps
