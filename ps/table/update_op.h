#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "executor/runtime.h"
#include "framework/base/status.h"
#include "framework/op.h"

namespace millrace::ps {

/// One var of an update op's state.
struct UpdateSlot {
  std::string_view input;   ///< "Velocity"
  std::string_view output;  ///< "VelocityOut"; empty: another op updates it (powers of adamax)
  bool is_scalar = false;   ///< one element for the whole parameter, such as a power of beta
};

/// An update op that tables can run.
struct UpdateOpKind {
  std::string_view type;
  std::span<const UpdateSlot> states;
  /// The update of an element depends on the whole parameter (lamb), so it cannot be split.
  bool is_whole = false;
  /// A gradient of zero changes the parameter or the state: in one process every step changes all
  /// rows of an embedding, in a table only those that the step uses.
  bool moves_without_gradient = true;
};

/// Null for ops that tables cannot run.
const UpdateOpKind* find_update_op(std::string_view type);

/// Their types, as text for messages.
std::string update_op_types();

/// The attributes of an update op that determine the update, such as "mu&0.9#use_nesterov&1", in
/// the order of the schema. Errors: kUnimplemented for an attribute that has no text form.
StatusOr<std::string> update_op_attrs(const Op& op);

/// Settings of an UpdateOp.
struct UpdateOpOptions {
  std::string type;
  std::string attrs;  ///< update_op_attrs()
  /// Initial values of the states, in the order of the kind; optional states at the end may be
  /// missing (MeanGrad of an rmsprop that is not centered).
  std::vector<float> initial;
};

/// An update op of a program (momentum, ftrl, ...), which tables run with the op's own kernel on
/// the weights of a row or on a range of dense parameters.
///
/// Thread-safety: all calls from any threads.
class UpdateOp {
 public:
  /// Errors: kInvalidArgument for an op that tables cannot run, or unknown attributes; those of the
  /// verifier for missing attributes and states; those of the op's kernel.
  static StatusOr<std::shared_ptr<const UpdateOp>> create(UpdateOpOptions options);
  UpdateOp(const UpdateOp&) = delete;
  UpdateOp& operator=(const UpdateOp&) = delete;
  ~UpdateOp();

  [[nodiscard]] const UpdateOpOptions& options() const { return options_; }
  [[nodiscard]] const UpdateOpKind& kind() const { return *kind_; }
  /// The states that this op has.
  [[nodiscard]] std::span<const UpdateSlot> states() const {
    return kind_->states.first(options_.initial.size());
  }
  /// Applies one gradient. \param states  for each state, `count` elements, or one for a scalar
  /// Errors: those of the kernel; weights and states are then unchanged.
  Status update(int64_t count, float* weights, std::span<float* const> states, const float* grad,
                float rate) const;

  /// The same with all states in one array, one after the other, as in rows of sparse tables.
  [[nodiscard]] int state_floats(int weights) const;
  void init_state(float* state, int weights) const;
  Status update_row(int count, float* weights, float* state, const float* grad, float rate) const;

 private:
  struct Runner;  // the op, compiled for a number of weights
  UpdateOp(UpdateOpOptions options, const UpdateOpKind& kind);
  StatusOr<std::unique_ptr<Runner>> runner(int64_t count) const;

  UpdateOpOptions options_;
  const UpdateOpKind* kind_;
  std::shared_ptr<const executor::Runtime> runtime_;
  mutable std::mutex mutex_;
  /// By number of weights: runners that no call uses.
  mutable std::map<int64_t, std::vector<std::unique_ptr<Runner>>> idle_;
};

}  // namespace millrace::ps
