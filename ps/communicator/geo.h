#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "framework/base/status.h"
#include "framework/tensor/scope.h"
#include "framework/tensor/value.h"
#include "ps/communicator/comm_context.h"
#include "ps/communicator/sender.h"

namespace millrace::ps {

/// Exchange of parameter differences: a trainer's current parameters (live) relative to the values
/// that it and the servers last agreed on (old).
///
/// A push sends delta = (live - old) / trainers and adds it to old. A pull does live += server -
/// old, then old = server. So live - old keeps the share of the trainer's change that was not sent,
/// and no pull changes it. Of tables, only rows that were looked up since the last push are sent,
/// and only rows that changed on the servers are received. Deltas that a server had not applied
/// when it responded are added to its response.
/// Source: spec/ps_runtime.md section 5.
///
/// Thread-safety: exchange() may be called concurrently for different parameters, and concurrently
/// with one thread that makes all other calls.
class Geo {
 public:
  /// \param receive  contexts of the parameters; positions in the map are the indices below. A
  ///     context has either one or more dense vars, which are sent together, or one table
  Geo(const CommContexts& receive, int trainers, Sender& sender);
  Geo(const Geo&) = delete;
  Geo& operator=(const Geo&) = delete;

  /// Stores the current values as old. Errors: kNotFound, kUnimplemented for types other than f32
  /// and f64.
  Status begin(Scope& scope);
  /// Records rows that a step has trained: ids that it looked up, or its gradient of selected rows.
  /// Ignores negative ids (padding). Errors: kExecution for an id beyond the table, or for another
  /// value.
  Status record(size_t param, const Value& ids);
  /// Applies values received from the servers to the scope.
  Status apply(Scope& scope);
  /// The next difference of each var of a parameter's context; of a table, the rows that were
  /// looked up, which may be none.
  StatusOr<std::vector<Value>> take_delta(size_t param, Scope& scope);
  /// Sends a difference and fetches the servers' values. Called by the thread of the parameter's
  /// lane.
  Status exchange(size_t param, const CommContext& send, std::span<Value> delta, Deadline deadline);

  [[nodiscard]] bool is_sparse(size_t param) const { return params_[param].context->is_sparse; }
  /// Index of a parameter; -1 if there is none of that name.
  [[nodiscard]] int64_t find(std::string_view var) const;
  [[nodiscard]] size_t count() const { return params_.size(); }

 private:
  /// A response of the servers, and the number of deltas that they had applied by then.
  struct Answer {
    int64_t deltas = 0;
    std::vector<Value> values;  ///< one for each var
  };
  struct Param {
    const CommContext* context = nullptr;
    std::vector<std::string> vars;
    std::vector<Tensor> old;  ///< one for each var
    /// Looked-up rows by server: rows of one server are sent together.
    std::vector<std::vector<int64_t>> touched;
    std::vector<Answer> on_way;   ///< deltas that a response may lack, with their numbers
    int64_t taken = 0;            ///< deltas taken
    int64_t applied = 0;          ///< deltas included in the last applied response
    int64_t sent = 0;             ///< deltas sent; only used by the lane's thread
    std::vector<Answer> answers;  ///< guarded by Geo::mutex_
  };

  [[nodiscard]] size_t shard_of(const Param& param, int64_t row) const;
  static std::vector<int64_t> take_rows(Param& param);
  Status apply_answer(Param& param, Answer& answer, Scope& scope);
  StatusOr<Value> take_rows_of(Param& param, const Tensor& live);
  static StatusOr<Tensor*> find_live(const std::string& var, Scope& scope);

  const int trainers_;
  Sender& sender_;
  std::vector<Param> params_;
  std::map<std::string, size_t, std::less<>> index_;
  std::mutex mutex_;
};

}  // namespace millrace::ps
