#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "framework/base/status.h"
#include "framework/tensor/value.h"
#include "ps/table/routing.h"

namespace millrace::ps {

/// A list of ids taken apart: each distinct id once, by server.
struct KeyPlan {
  int64_t shard_num = 0;
  std::optional<int64_t> padding;
  std::vector<int64_t> ids;  ///< as they were given
  struct Part {
    Value keys;    ///< i64 [n], in order of first occurrence
    Value counts;  ///< i64 [n]: how often each occurs
    size_t size = 0;
  };
  std::vector<Part> parts;  ///< by server
  /// Where each id's row is: its server, and the position in that part; the server is -1 for
  /// padding.
  struct Place {
    int32_t server = -1;
    uint32_t position = 0;
  };
  std::vector<Place> places;  ///< one an id
  bool has_repeats = false;
};

/// Errors: kResource; kInvalidArgument for shard_num not > 0.
StatusOr<KeyPlan> make_key_plan(std::span<const int64_t> ids, int64_t shard_num, size_t servers,
                                std::optional<int64_t> padding);

}  // namespace millrace::ps
