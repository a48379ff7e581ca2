#include "ps/table/accessor.h"

#include <algorithm>

#include "framework/base/errors.h"
#include "ps/table/ctr_accessor.h"

namespace millrace::ps {
namespace {

using AccessorKind = AccessorOptions::Kind;

// Rows with only weights and the state of their rule.
class EmbeddingAccessor final : public Accessor {
 public:
  explicit EmbeddingAccessor(const AccessorOptions& options)
      : Accessor(options), rule_(options.embedx_rule, options.embedx_dim) {
    row_floats_ = options.embedx_dim + rule_.state_floats();
    pull_floats_ = push_floats_ = options.embedx_dim;
  }

  void make(uint64_t seed, uint64_t key, float* row) const override {
    KeyedRandom random(seed ^ options_.initializer.seed, key);
    options_.initializer.fill({row, static_cast<size_t>(pull_floats_)}, random);
    rule_.init_state(row + pull_floats_);
  }
  void select(const float* row, float* pulled) const override {
    std::copy_n(row, pull_floats_, pulled);
  }
  void assign(float* row, const float* pulled) const override {
    std::copy_n(pulled, pull_floats_, row);
  }
  Status update(uint64_t, uint64_t, float* row, const float* push, float rate) const override {
    return rule_.update(row, row + pull_floats_, push, 1, rate);
  }

 private:
  SparseRule rule_;
};

class CommMergeAccessor final : public Accessor {
 public:
  explicit CommMergeAccessor(const AccessorOptions& options) : Accessor(options) {
    row_floats_ = pull_floats_ = push_floats_ = options.embedx_dim;
  }

  void make(uint64_t seed, uint64_t key, float* row) const override {
    KeyedRandom random(seed ^ options_.initializer.seed, key);
    options_.initializer.fill({row, static_cast<size_t>(row_floats_)}, random);
  }
  void select(const float* row, float* pulled) const override {
    std::copy_n(row, row_floats_, pulled);
  }
  void assign(float* row, const float* pulled) const override {
    std::copy_n(pulled, row_floats_, row);
  }
  Status update(uint64_t, uint64_t, float* row, const float* push, float) const override {
    for (int i = 0; i < row_floats_; ++i) row[i] += push[i];
    return Ok();
  }
};

}  // namespace

std::string Accessor::op_states() const {
  std::string text;
  for (const SparseRuleOptions* const rule : {&options_.embed_rule, &options_.embedx_rule}) {
    if (rule->op == nullptr) continue;
    text.append(text.empty() ? "op" : ", op");
    for (const UpdateSlot& state : rule->op->states()) text.append(1, ' ').append(state.input);
  }
  return text;
}

bool Accessor::is_saved(const float*, int) const {
  return true;
}
void Accessor::after_save(float*, int) const {}
bool Accessor::shrink(float*) const {
  return false;
}
int Accessor::used_floats(const float*) const {
  return row_floats_;
}
void Accessor::set_used_floats(float*, int) const {}
float Accessor::unseen_days(const float*) const {
  return 0;
}

StatusOr<AccessorKind> parse_accessor(std::string_view name) {
  if (name == "EmbeddingAccessor") return AccessorKind::kEmbedding;
  if (name == "CommMergeAccessor") return AccessorKind::kCommMerge;
  if (name == "SparseAccessor") return AccessorKind::kSparse;
  if (name == "CtrCommonAccessor") return AccessorKind::kCtrCommon;
  return InvalidArgument("unknown table accessor '{}'", name);
}

StatusOr<std::unique_ptr<Accessor>> Accessor::create(const AccessorOptions& options) {
  const bool has_embed =
      options.kind == AccessorKind::kSparse || options.kind == AccessorKind::kCtrCommon;
  if (const int least = has_embed ? 0 : 1; options.embedx_dim < least)
    return InvalidArgument("embedx_dim is {}, expected at least {}", options.embedx_dim, least);
  if (options.kind == AccessorKind::kEmbedding)
    return std::unique_ptr<Accessor>(std::make_unique<EmbeddingAccessor>(options));
  if (options.kind == AccessorKind::kCommMerge)
    return std::unique_ptr<Accessor>(std::make_unique<CommMergeAccessor>(options));
  if (options.fea_dim != options.embedx_dim + 3)
    return InvalidArgument("fea_dim is {}, expected embedx_dim + 3 = {}", options.fea_dim,
                           options.embedx_dim + 3);
  return std::unique_ptr<Accessor>(std::make_unique<CtrAccessor>(options));
}

}  // namespace millrace::ps
