#pragma once

#include <span>

#include "ps/table/accessor.h"

namespace millrace::ps {

/// Rows with statistics of shows and clicks (kSparse and kCtrCommon).
///
/// A push value is slot, show, click, gradient of embed_w, gradients of embedx_w. The embedx
/// weights are created when the row's score reaches the threshold. Before that they read as 0. The
/// push that reaches the threshold was computed with these zeros, so it does not change the new
/// weights. With an embedx_dim of 0 (embeddings of one weight) rows end after the state of embed_w.
class CtrAccessor final : public Accessor {
 public:
  explicit CtrAccessor(const AccessorOptions& options);

  void make(uint64_t seed, uint64_t key, float* row) const override;
  void select(const float* row, float* pulled) const override;
  void assign(float* row, const float* pulled) const override;
  Status update(uint64_t seed, uint64_t key, float* row, const float* push,
                float rate) const override;
  [[nodiscard]] bool is_saved(const float* row, int mode) const override;
  void after_save(float* row, int mode) const override;
  [[nodiscard]] bool shrink(float* row) const override;
  [[nodiscard]] int used_floats(const float* row) const override;
  void set_used_floats(float* row, int used) const override;
  [[nodiscard]] float unseen_days(const float* row) const override { return row[kUnseen]; }

  /// Positions in a row. kEmbed is followed by its state, then the embedx weights and their state.
  enum Column : int { kSlot, kUnseen, kDelta, kShow, kClick, kEmbed };
  /// Positions in a push value.
  enum PushColumn : int { kPushSlot, kPushShow, kPushClick, kPushEmbed, kPushEmbedx };

 private:
  [[nodiscard]] float score(float show, float click) const {
    return (show - click) * options_.nonclk_coeff + click * options_.click_coeff;
  }
  [[nodiscard]] bool has_embedx() const { return embedx_.dim() > 0; }
  [[nodiscard]] bool waits_for_embedx(const float* row) const;
  void fill_weights(uint64_t seed, uint64_t key, std::span<float> weights) const;
  void begin_embedx(uint64_t seed, uint64_t key, float* row) const;

  SparseRule embed_;
  SparseRule embedx_;
  int embedx_at_;  ///< position of the first embedx weight in a row; its end if it has none
};

}  // namespace millrace::ps
