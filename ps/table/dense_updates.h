#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string_view>
#include <vector>

#include "framework/base/status.h"
#include "ps/table/update_op.h"

namespace millrace::ps {

/// A column of a dense table and its name ("Param", "Moment1", ...), for checkpoints.
struct DenseColumn {
  std::string_view name;
  std::span<float> values;
  bool is_scalar = false;  ///< powers of beta: equal on all servers
};

/// How one range of a dense table is updated. The ranges of a table are in order and without gaps;
/// a server that has nothing of a range has 0 elements of it.
struct DenseUpdate {
  int64_t elements = 0;  ///< on this server
  std::shared_ptr<const UpdateOp> op;
  float rate_factor = 1;
};

/// Updates the ranges of a dense table by ops of programs, and holds the state of the ops.
///
/// Thread-safety: columns() and apply() exclude each other and must be called with lock() held.
class DenseUpdates {
 public:
  explicit DenseUpdates(std::vector<DenseUpdate> ranges);

  [[nodiscard]] std::unique_lock<std::mutex> lock() { return std::unique_lock(mutex_); }
  /// Applies one gradient for every element. \param locks  one for each `block` elements of param;
  /// held while the elements change. Errors: those of the ops.
  Status apply(std::span<float> param, std::span<const float> grads, float rate,
               std::span<std::mutex> locks, size_t block);
  /// The state: one column for each state of any op, with zeros in ranges without it. A column of
  /// scalars has one element for each range.
  std::vector<DenseColumn> columns();
  [[nodiscard]] size_t floats() const;

 private:
  struct State {
    std::string_view name;
    bool is_scalar = false;
    std::vector<float> values;
  };
  State& state_of(const UpdateSlot& slot);
  Status apply_range(size_t range, size_t first, size_t count, float* param, const float* grads,
                     float rate, bool keeps_scalars);

  Status advance_scalars(size_t range, float rate);

  std::vector<DenseUpdate> ranges_;
  std::vector<State> states_;
  std::vector<std::vector<size_t>> used_;  ///< by range: the states of its op
  std::mutex mutex_;
};

}  // namespace millrace::ps
