#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string_view>

#include "framework/base/status.h"
#include "ps/table/initializer.h"
#include "ps/table/sparse_rule.h"

namespace millrace::ps {

/// What the floats of a row mean. Names, defaults and layouts are those of the original
/// (spec/ps_runtime.md section 7).
struct AccessorOptions {
  enum class Kind : uint8_t {
    kEmbedding,  ///< weights and their rule's state only; pulls weights, takes gradients
    kCommMerge,  ///< values to which pushes are added
    kSparse,     ///< as kCtrCommon, pulls embed_w and embedx_w
    kCtrCommon,  ///< slot, unseen days, delta score, show, click, embed_w, its state, embedx_w, its
                 ///< state; pulls show, click, embed_w, embedx_w
  };
  Kind kind = Kind::kEmbedding;
  int fea_dim = 0;     ///< floats of a push value; kEmbedding and kCommMerge: see embedx_dim
  int embedx_dim = 0;  ///< weights of a row; of the two others those behind embed_w
  float embedx_threshold = 0;  ///< score from which a row has embedx weights
  float nonclk_coeff = 0.1F;
  float click_coeff = 1;
  float base_threshold = 1.5F;
  float delta_threshold = 0.25F;
  float delta_keep_days = 16;
  float show_click_decay_rate = 0.98F;
  float delete_threshold = 0.8F;
  float delete_after_unseen_days = 30;
  bool show_scale = true;  ///< kCtrCommon: gradients are divided by the push's show
  bool zero_init = true;   ///< embed_w begins with 0
  SparseRuleOptions embed_rule;
  SparseRuleOptions embedx_rule;
  /// How weights of kEmbedding and values of kCommMerge begin.
  Initializer initializer;
  /// How weights of the other two begin, embed_w and embedx_w alike; else zero_init and the ranges
  /// of the rules say it.
  std::optional<Initializer> weights;
};

/// "CommMergeAccessor", "SparseAccessor", "CtrCommonAccessor"; "EmbeddingAccessor" is our own.
/// Errors: kInvalidArgument.
StatusOr<AccessorOptions::Kind> parse_accessor(std::string_view name);

/// Makes, reads and changes rows.
///
/// Thread-safety: immutable; rows are the business of their holder.
class Accessor {
 public:
  /// Errors: kInvalidArgument for dims that the kind does not have: of kSparse fea_dim is
  /// embedx_dim + 3 (weights + 2), of kCtrCommon embedx_dim + 3, with embedx_dim > 0.
  static StatusOr<std::unique_ptr<Accessor>> create(const AccessorOptions& options);
  Accessor(const Accessor&) = delete;
  Accessor& operator=(const Accessor&) = delete;
  virtual ~Accessor() = default;

  [[nodiscard]] const AccessorOptions& options() const { return options_; }
  /// Floats of a row, of what a pull gives and of what a push takes.
  [[nodiscard]] int row_floats() const { return row_floats_; }
  [[nodiscard]] int pull_floats() const { return pull_floats_; }
  [[nodiscard]] int push_floats() const { return push_floats_; }
  /// Leading floats of a push value that name something (the slot); those of equal keys are not
  /// added up.
  [[nodiscard]] int push_labels() const { return push_labels_; }

  /// A new row. Depends on the seed and the key only.
  virtual void make(uint64_t seed, uint64_t key, float* row) const = 0;
  /// What a pull gives.
  virtual void select(const float* row, float* pulled) const = 0;
  /// The inverse of select(): the row gets these weights (and statistics, where they are pulled).
  virtual void assign(float* row, const float* pulled) const = 0;
  /// One push. \param rate  factor of the learning rates
  virtual void update(uint64_t seed, uint64_t key, float* row, const float* push,
                      float rate) const = 0;

  /// Whether a save of a mode (0 all, 1 delta, 2 base, 3 all at the end of a day, 5 all) has the
  /// row.
  [[nodiscard]] virtual bool is_saved(const float* row, int mode) const;
  /// What a save changes in a row that it has seen.
  virtual void after_save(float* row, int mode) const;
  /// The end of a day: statistics fade. \returns whether the row is to be dropped
  [[nodiscard]] virtual bool shrink(float* row) const;
  /// Floats of the row that have a meaning: fewer than row_floats() without embedx weights.
  [[nodiscard]] virtual int used_floats(const float* row) const;
  /// Marks what is behind the first `used` floats of a row that was read as absent.
  virtual void set_used_floats(float* row, int used) const;
  /// Days since the row's last push; 0 where rows do not know.
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
