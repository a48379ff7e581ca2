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

/// The exchange of differences: what a trainer's parameters (live) are now, against what it and the
/// servers last agreed on (old).
///
/// A push sends delta = (live - old) / trainers and adds it to old; a pull does live += server -
/// old, old = server. So live - old keeps the part of the trainer's move that others make up for,
/// and no pull changes it. Of tables only rows that were looked up since the last push take part,
/// and only rows that changed on the servers come back. Deltas that are still on their way when a
/// server answers are added to its answer. Source: spec/ps_runtime.md section 5.
///
/// Thread-safety: exchange() for different parameters from several threads at once, beside one
/// thread for everything else.
class Geo {
 public:
  /// \param receive  contexts of the parameters; positions in the map are the indices below. A
  ///     context may have several dense vars, which travel together, or one table
  Geo(const CommContexts& receive, int trainers, Sender& sender);
  Geo(const Geo&) = delete;
  Geo& operator=(const Geo&) = delete;

  /// Takes the present values as old. Errors: kNotFound, kUnimplemented for types other than f32
  /// and f64.
  Status begin(Scope& scope);
  /// Rows that a step has looked up; negative ids (padding) do not count. Errors: kExecution for an
  /// id beyond the table or of another type than int64.
  Status record(size_t param, const Value& ids);
  /// Puts what came from the servers into the scope.
  Status apply(Scope& scope);
  /// The next difference of each var of a parameter's context; of a table the rows that were looked
  /// up, maybe none.
  StatusOr<std::vector<Value>> take_delta(size_t param, Scope& scope);
  /// Sends a difference and asks for the servers' values; from the thread of the parameter's lane.
  Status exchange(size_t param, const CommContext& send, std::span<Value> delta, Deadline deadline);

  [[nodiscard]] bool is_sparse(size_t param) const { return params_[param].context->is_sparse; }
  /// Position of a parameter; -1 if it is none.
  [[nodiscard]] int64_t find(std::string_view var) const;
  [[nodiscard]] size_t count() const { return params_.size(); }

 private:
  /// An answer of the servers and how many deltas they had by then.
  struct Answer {
    int64_t deltas = 0;
    std::vector<Value> values;  ///< of each var
  };
  struct Param {
    const CommContext* context = nullptr;
    std::vector<std::string> vars;
    std::vector<Tensor> old;  ///< of each var
    /// Looked-up rows by server: rows of one server go out together.
    std::vector<std::vector<int64_t>> touched;
    std::vector<Answer> on_way;   ///< deltas that some answer may lack, with their numbers
    int64_t taken = 0;            ///< deltas taken
    int64_t applied = 0;          ///< deltas that the last applied answer had
    int64_t sent = 0;             ///< deltas sent; of the lane's thread
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
