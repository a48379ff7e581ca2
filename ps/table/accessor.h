#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "framework/base/status.h"
#include "ps/table/initializer.h"
#include "ps/table/sparse_rule.h"

namespace millrace::ps {

/// Defines the layout and meaning of the floats of a row. Names, defaults and layouts are those of
/// the original (spec/ps_runtime.md section 7).
struct AccessorOptions {
  enum class Kind : uint8_t {
    kEmbedding,  ///< only weights and their rule's state; pulls weights, pushes gradients
    kCommMerge,  ///< values; pushes are added to them
    kSparse,     ///< as kCtrCommon, but pulls only embed_w and embedx_w
    kCtrCommon,  ///< slot, unseen days, delta score, show, click, embed_w, its state, embedx_w, its
                 ///< state; pulls show, click, embed_w, embedx_w
  };
  Kind kind = Kind::kEmbedding;
  int fea_dim = 0;     ///< floats of a push value; kEmbedding and kCommMerge: see embedx_dim
  int embedx_dim = 0;  ///< weights of a row; kSparse and kCtrCommon: those after embed_w
  float embedx_threshold = 0;  ///< minimum score of rows with embedx weights
  float nonclk_coeff = 0.1F;
  float click_coeff = 1;
  float base_threshold = 1.5F;
  float delta_threshold = 0.25F;
  float delta_keep_days = 16;
  float show_click_decay_rate = 0.98F;
  float delete_threshold = 0.8F;
  float delete_after_unseen_days = 30;
  bool show_scale = true;  ///< kCtrCommon: divide gradients by the show of the push
  bool zero_init = true;   ///< embed_w is initialized with 0
  SparseRuleOptions embed_rule;
  SparseRuleOptions embedx_rule;
  /// Initial weights of kEmbedding and initial values of kCommMerge.
  Initializer initializer;
  /// Initial weights of the other kinds, for both embed_w and embedx_w. If unset, zero_init and the
  /// ranges of the rules determine them.
  std::optional<Initializer> weights;
};

/// "CommMergeAccessor", "SparseAccessor", "CtrCommonAccessor"; "EmbeddingAccessor" does not exist
/// in the original.
/// Errors: kInvalidArgument.
StatusOr<AccessorOptions::Kind> parse_accessor(std::string_view name);

/// Creates, reads and updates rows.
///
/// Thread-safety: immutable; callers must synchronize access to rows.
class Accessor {
 public:
  /// Errors: kInvalidArgument for dims that are invalid for the kind: kSparse and kCtrCommon need
  /// embedx_dim >= 0 and fea_dim = embedx_dim + 3 (the weights and 2 more), the others
  /// embedx_dim > 0.
  static StatusOr<std::unique_ptr<Accessor>> create(const AccessorOptions& options);
  Accessor(const Accessor&) = delete;
  Accessor& operator=(const Accessor&) = delete;
  virtual ~Accessor() = default;

  [[nodiscard]] const AccessorOptions& options() const { return options_; }
  /// Floats of a row, of a pulled value and of a push value.
  [[nodiscard]] int row_floats() const { return row_floats_; }
  [[nodiscard]] int pull_floats() const { return pull_floats_; }
  [[nodiscard]] int push_floats() const { return push_floats_; }
  /// Leading floats of a push value that are labels (the slot), which are not added up over equal
  /// keys.
  [[nodiscard]] int push_labels() const { return push_labels_; }

  /// Names of the states of rules that are ops of programs, such as "Velocity"; empty for other
  /// rules, whose rows differ in length.
  [[nodiscard]] std::string op_states() const;

  /// Creates a row. Depends only on the seed and the key.
  virtual void make(uint64_t seed, uint64_t key, float* row) const = 0;
  /// Copies the floats that a pull returns.
  virtual void select(const float* row, float* pulled) const = 0;
  /// The inverse of select(): sets the weights of the row (and the statistics, if they are pulled).
  virtual void assign(float* row, const float* pulled) const = 0;
  /// Applies one push. \param rate  factor for the learning rates. Errors: those of the rule.
  virtual Status update(uint64_t seed, uint64_t key, float* row, const float* push,
                        float rate) const = 0;

  /// True if a save includes the row. Modes: 0 all, 1 delta, 2 base, 3 all at the end of a day, 5
  /// all.
  [[nodiscard]] virtual bool is_saved(const float* row, int mode) const;
  /// Updates the statistics of a row after a save has included it.
  virtual void after_save(float* row, int mode) const;
  /// Ends a day: statistics decay. \returns whether the row must be dropped
  [[nodiscard]] virtual bool shrink(float* row) const;
  /// Number of floats of the row in use: less than row_floats() if it has no embedx weights.
  [[nodiscard]] virtual int used_floats(const float* row) const;
  /// Marks the floats after the first `used` as absent, for a row that was read from a file.
  virtual void set_used_floats(float* row, int used) const;
  /// Days since the row's last push; 0 for rows that do not record it.
  [[nodiscard]] virtual float unseen_days(const float* row) const;

 protected:
  explicit Accessor(const AccessorOptions& options) : options_(options) {}

  AccessorOptions options_;
  int row_floats_ = 0;
  int pull_floats_ = 0;
  int push_floats_ = 0;
  int push_labels_ = 0;
};

}  // namespace millrace::ps
