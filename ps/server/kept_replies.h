#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "framework/base/status.h"
#include "framework/tensor/value.h"

namespace millrace::ps {

/// What a server has returned for the last calls of one trainer that run a block. A repeat of such
/// a call gets the same response, because running the block again could change its vars twice.
/// Only as many as fit the limits are kept; the oldest are dropped first. Not thread-safe.
class KeptReplies {
 public:
  struct Reply {
    Status status;  ///< of the block; with an error there are no outputs
    std::vector<std::pair<std::string, Value>> outputs;
  };
  static constexpr size_t kMostCalls = 64;
  static constexpr int64_t kMostBytes = int64_t{256} << 20U;  ///< the last call is always kept

  /// Keeps the response to a call. \param sequence  the number of the call
  void keep(uint64_t sequence, Reply reply);
  /// The response to a call; null: it was dropped, or there was no such call.
  [[nodiscard]] std::shared_ptr<const Reply> find(uint64_t sequence) const;
  /// Drops the responses to all calls up to this number, which will not be repeated.
  void settle(uint64_t sequence);
  [[nodiscard]] size_t count() const { return kept_.size(); }

 private:
  struct Kept {
    std::shared_ptr<const Reply> reply;
    int64_t bytes = 0;
  };
  void drop_first();

  std::map<uint64_t, Kept> kept_;
  int64_t bytes_ = 0;  ///< of all outputs
};

}  // namespace millrace::ps
