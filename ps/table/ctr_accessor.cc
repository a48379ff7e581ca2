#include "ps/table/ctr_accessor.h"

#include <algorithm>
#include <bit>

namespace millrace::ps {
namespace {

// Marks a row without embedx weights, in place of the first of them. Arithmetic can also produce
// NaNs, but not with this bit pattern.
constexpr uint32_t kAbsent = 0xffc0abceU;

bool is_absent(float weight) {
  return std::bit_cast<uint32_t>(weight) == kAbsent;
}

}  // namespace

CtrAccessor::CtrAccessor(const AccessorOptions& options)
    : Accessor(options),
      embed_(options.embed_rule, 1),
      embedx_(options.embedx_rule, options.embedx_dim),
      embedx_at_(kEmbed + 1 + embed_.state_floats()) {
  row_floats_ = embedx_at_ + (has_embedx() ? embedx_.dim() + embedx_.state_floats() : 0);
  pull_floats_ = options.embedx_dim + (options.kind == AccessorOptions::Kind::kSparse ? 1 : 3);
  push_floats_ = kPushEmbedx + options.embedx_dim;
  push_labels_ = 1;
}

void CtrAccessor::fill_weights(uint64_t seed, uint64_t key, std::span<float> weights) const {
  KeyedRandom random(seed ^ options_.weights->seed, key);
  options_.weights->fill(weights, random);
}

// A row whose embedding has one weight has no embedx weights at any score.
bool CtrAccessor::waits_for_embedx(const float* row) const {
  return has_embedx() && is_absent(row[embedx_at_]);
}

void CtrAccessor::begin_embedx(uint64_t seed, uint64_t key, float* row) const {
  KeyedRandom random(seed + 1, key);
  float* const weights = row + embedx_at_;
  embedx_.init(weights, weights + embedx_.dim(), random, false);
  if (options_.weights) fill_weights(seed + 1, key, {weights, static_cast<size_t>(embedx_.dim())});
}

void CtrAccessor::make(uint64_t seed, uint64_t key, float* row) const {
  std::fill_n(row, row_floats_, 0.0F);
  KeyedRandom random(seed, key);
  embed_.init(row + kEmbed, row + kEmbed + 1, random, options_.zero_init);
  if (options_.weights) fill_weights(seed, key, {row + kEmbed, 1});
  if (!has_embedx()) return;
  if (options_.embedx_threshold <= 0) {
    begin_embedx(seed, key, row);
  } else {
    row[embedx_at_] = std::bit_cast<float>(kAbsent);
  }
}

void CtrAccessor::select(const float* row, float* pulled) const {
  if (options_.kind == AccessorOptions::Kind::kCtrCommon) {
    *pulled++ = row[kShow];
    *pulled++ = row[kClick];
  }
  *pulled++ = row[kEmbed];
  if (waits_for_embedx(row)) {
    std::fill_n(pulled, embedx_.dim(), 0.0F);
  } else {
    std::copy_n(row + embedx_at_, embedx_.dim(), pulled);
  }
}

void CtrAccessor::assign(float* row, const float* pulled) const {
  if (options_.kind == AccessorOptions::Kind::kCtrCommon) {
    row[kShow] = *pulled++;
    row[kClick] = *pulled++;
  }
  row[kEmbed] = *pulled++;
  if (waits_for_embedx(row)) embedx_.init_state(row + embedx_at_ + embedx_.dim());
  std::copy_n(pulled, embedx_.dim(), row + embedx_at_);
}

Status CtrAccessor::update(uint64_t seed, uint64_t key, float* row, const float* push,
                           float rate) const {
  const float show = push[kPushShow];
  const float click = push[kPushClick];
  row[kSlot] = push[kPushSlot];
  row[kShow] += show;
  row[kClick] += click;
  row[kDelta] += score(show, click);
  row[kUnseen] = 0;
  const bool scales = options_.kind == AccessorOptions::Kind::kCtrCommon && options_.show_scale;
  const float divisor = scales && show > 0 ? show : 1;
  MILLRACE_RETURN_IF_ERROR(
      embed_.update(row + kEmbed, row + kEmbed + 1, push + kPushEmbed, divisor, rate));
  if (!has_embedx()) return Ok();
  if (!waits_for_embedx(row)) {
    return embedx_.update(row + embedx_at_, row + embedx_at_ + embedx_.dim(), push + kPushEmbedx,
                          divisor, rate);
  }
  if (score(row[kShow], row[kClick]) >= options_.embedx_threshold) begin_embedx(seed, key, row);
  return Ok();
}

bool CtrAccessor::is_saved(const float* row, int mode) const {
  if (mode != 1 && mode != 2) return true;
  return score(row[kShow], row[kClick]) >= options_.base_threshold &&
         row[kDelta] >= (mode == 2 ? 0 : options_.delta_threshold) &&
         row[kUnseen] <= options_.delta_keep_days;
}

void CtrAccessor::after_save(float* row, int mode) const {
  if (mode == 1 && is_saved(row, mode)) row[kDelta] = 0;
  if (mode == 3) row[kUnseen] += 1;
}

bool CtrAccessor::shrink(float* row) const {
  row[kShow] *= options_.show_click_decay_rate;
  row[kClick] *= options_.show_click_decay_rate;
  return score(row[kShow], row[kClick]) < options_.delete_threshold ||
         row[kUnseen] > options_.delete_after_unseen_days;
}

int CtrAccessor::used_floats(const float* row) const {
  return waits_for_embedx(row) ? embedx_at_ : row_floats_;
}

void CtrAccessor::set_used_floats(float* row, int used) const {
  if (used >= row_floats_) return;
  std::fill(row + embedx_at_, row + row_floats_, 0.0F);
  row[embedx_at_] = std::bit_cast<float>(kAbsent);
}

}  // namespace millrace::ps
