#include "ps/table/table_steps.h"

#include <algorithm>
#include <span>
#include <unordered_map>

#include <llvm/ADT/StringRef.h>

#include "framework/base/errors.h"
#include "ps/table/typed_table.h"
#include "ps/values.h"

namespace millrace::ps {
namespace {

constexpr std::string_view kTableStepsPrefix = "@TABLE@";

// Number of leading floats of a push value that are not gradients: label, shows and clicks.
size_t leading(const Accessor& accessor) {
  switch (accessor.options().kind) {
    case AccessorOptions::Kind::kSparse:
    case AccessorOptions::Kind::kCtrCommon:
      return static_cast<size_t>(accessor.push_labels()) + 2;
    default:
      return static_cast<size_t>(accessor.push_labels());
  }
}

// The merged pushes of all trainers, one row per key.
struct Merged {
  std::vector<int64_t> keys;  // in order of first occurrence
  std::vector<float> values;
  std::vector<int32_t> accesses;
};

class Merger {
 public:
  explicit Merger(const Accessor& accessor)
      : width_(static_cast<size_t>(accessor.push_floats())),
        labels_(static_cast<size_t>(accessor.push_labels())) {}

  /// \param stride  floats of a row: the width, followed by the accesses if they are included
  void add(std::span<const int64_t> keys, const float* from, size_t stride) {
    for (const int64_t key : keys) {
      const auto [place, is_new] = places_.try_emplace(key, merged_.keys.size());
      if (is_new) {
        merged_.keys.push_back(key);
        merged_.values.insert(merged_.values.end(), from, from + width_);
        merged_.accesses.push_back(0);
      } else {
        float* const to = merged_.values.data() + place->second * width_;
        for (size_t i = labels_; i < width_; ++i) to[i] += from[i];
      }
      if (stride > width_) merged_.accesses[place->second] += static_cast<int32_t>(from[width_]);
      from += stride;
    }
  }

  Merged& merged() { return merged_; }

 private:
  const size_t width_;
  const size_t labels_;
  std::unordered_map<int64_t, size_t> places_;  // never iterated, so its order does not matter
  Merged merged_;
};

}  // namespace

void TableSteps::add(SparseTable& table, int64_t shrink_every) {
  Held& held = held_[table.options().table_id];
  held.table = &table;
  held.shrink_every = shrink_every;
  held.parts.resize(static_cast<size_t>(trainers_));
}

void TableSteps::add(DenseTable& table) {
  Held& held = held_[table.options().table_id];
  held.dense = &table;
  held.parts.resize(static_cast<size_t>(trainers_));
}

void TableSteps::add(int id, RateTable& table) {
  held_[id].rate = &table;
}

bool TableSteps::is_item(std::string_view name) {
  return name.starts_with(kTableStepsPrefix);
}

Status TableSteps::keep(int trainer, const RequestItem& item) {
  int id = 0;
  llvm::StringRef rest(item.name);
  rest.consume_front({kTableStepsPrefix.data(), kTableStepsPrefix.size()});
  const auto found = rest.consumeInteger(10, id) ? held_.end() : held_.find(id);
  if (found != held_.end()) {
    Held& held = found->second;
    const bool is_keys = rest == "@KEYS";
    if (held.table != nullptr && (is_keys || rest == "@ROWS"))
      return keep_rows(held, trainer, item, is_keys);
    if (held.dense != nullptr && rest == "@GRADS") return keep_gradients(held, trainer, item);
    if (held.rate != nullptr && rest == "@RATE")
      return held.rate->push(PushKind::kUpdate, {trainer, 0, {&item.value, 1}});
  }
  return NotFound("this server has no typed table for '{}' of trainer {}", item.name, trainer);
}

Status TableSteps::keep_rows(Held& held, int trainer, const RequestItem& item, bool is_keys) {
  const Tensor* const tensor = item.value == nullptr ? nullptr : item.value->get_if<Tensor>();
  const int width = held.table->accessor().push_floats() + 1;
  const bool fits = tensor != nullptr && tensor->initialized() &&
                    (is_keys ? tensor->dtype() == DType::kInt64 && tensor->rank() == 1
                             : tensor->dtype() == DType::kFloat32 && tensor->rank() == 2 &&
                                   tensor->dim(1) == width);
  if (!fits) {
    return InvalidArgument("'{}' of trainer {}: expected {}, found {}", item.name, trainer,
                           is_keys ? std::string("i64(n)") : fmt::format("f32(n, {})", width),
                           tensor == nullptr ? "no tensor" : describe(*tensor));
  }
  const std::lock_guard lock(mutex_);
  Part& part = held.parts[static_cast<size_t>(trainer)];
  MILLRACE_RETURN_IF_ERROR(copy_value_into(*item.value, is_keys ? part.keys : part.rows));
  if (is_keys) {
    part.arrived = false;
    return Ok();
  }
  const auto* const keys = part.keys.get_if<Tensor>();
  part.arrived = keys != nullptr && keys->initialized() && keys->dim(0) == tensor->dim(0);
  if (part.arrived) return Ok();
  return InvalidArgument("'{}' of trainer {} has {} rows, expected as many as keys", item.name,
                         trainer, tensor->dim(0));
}

Status TableSteps::keep_gradients(Held& held, int trainer, const RequestItem& item) {
  const Tensor* const tensor = item.value == nullptr ? nullptr : item.value->get_if<Tensor>();
  const int64_t elements = held.dense->options().elements;
  if (tensor == nullptr || !tensor->initialized() || tensor->dtype() != DType::kFloat32 ||
      tensor->numel() != elements)
    return InvalidArgument("'{}' of trainer {}: expected f32({}), found {}", item.name, trainer,
                           elements, tensor == nullptr ? "no tensor" : describe(*tensor));
  const std::lock_guard lock(mutex_);
  Part& part = held.parts[static_cast<size_t>(trainer)];
  MILLRACE_RETURN_IF_ERROR(copy_value_into(*item.value, part.rows));
  part.arrived = true;
  return Ok();
}

void TableSteps::drop(int trainer) {
  const std::lock_guard lock(mutex_);
  if (trainer < 0 || trainer >= trainers_) return;
  for (auto& [id, held] : held_) {
    if (held.rate == nullptr) held.parts[static_cast<size_t>(trainer)].arrived = false;
  }
}

Status TableSteps::apply(llvm::ArrayRef<char> arrivals, int64_t step) {
  const std::lock_guard lock(mutex_);
  for (auto& [id, held] : held_) {
    if (held.rate != nullptr) continue;
    Status status = held.dense != nullptr ? push_dense(held, arrivals) : push(held, arrivals);
    if (status.ok() && held.shrink_every > 0 && (steps_before_ + step) % held.shrink_every == 0)
      status = held.table->shrink().status();
    if (!status.ok()) return std::move(status).with_note(fmt::format("in typed table {}", id));
    for (Part& part : held.parts) part.arrived = false;
  }
  return Ok();
}

Status TableSteps::push(Held& held, llvm::ArrayRef<char> arrivals) {
  const Accessor& accessor = held.table->accessor();
  const auto width = static_cast<size_t>(accessor.push_floats());
  Merger merger(accessor);
  for (size_t t = 0; t < held.parts.size(); ++t) {
    const Part& part = held.parts[t];
    if (arrivals[t] == 0 || !part.arrived) continue;
    merger.add(part.keys.get_if<Tensor>()->values<int64_t>(),
               part.rows.get_if<Tensor>()->data<float>(), width + 1);
  }
  Merged& merged = merger.merged();
  if (merged.keys.empty()) return Ok();
  const auto arrived = static_cast<float>(std::count(arrivals.begin(), arrivals.end(), char{1}));
  if (accessor.options().kind != AccessorOptions::Kind::kCommMerge && arrived > 1) {
    for (size_t row = 0; row < merged.keys.size(); ++row) {
      for (size_t i = leading(accessor); i < width; ++i)
        merged.values[row * width + i] *= 1.0F / arrived;
    }
  }
  MILLRACE_RETURN_IF_ERROR(held.table->push(merged.keys, merged.values.data()));
  const EntryPolicy::Kind entry = held.table->options().entry.kind;
  if (entry != EntryPolicy::Kind::kCountFilter && entry != EntryPolicy::Kind::kProbability)
    return Ok();
  std::vector<float> nowhere(merged.keys.size() * static_cast<size_t>(accessor.pull_floats()));
  return held.table->pull(merged.keys, nowhere.data(), merged.accesses);
}

Status TableSteps::push_dense(Held& held, llvm::ArrayRef<char> arrivals) {
  for (size_t t = 0; t < held.parts.size(); ++t) {
    const Part& part = held.parts[t];
    if (arrivals[t] == 0 || !part.arrived) continue;
    MILLRACE_RETURN_IF_ERROR(
        held.dense->push(part.rows.get_if<Tensor>()->values<float>(), static_cast<int>(t)));
  }
  return held.dense->apply_pending();
}

}  // namespace millrace::ps
