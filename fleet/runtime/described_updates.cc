#include "fleet/runtime/described_updates.h"

#include <llvm/ADT/SmallVector.h>
#include <llvm/ADT/StringRef.h>

#include "framework/base/errors.h"
#include "proto/fleet_desc.pb.h"
#include "ps/table/initializer.h"

namespace millrace::fleet {
namespace {

namespace desc = fleet_desc;

// The initial values of the states, which must be those of the op in its order.
template <typename Message>
StatusOr<std::vector<float>> initial_states(const Message& from, const ps::UpdateOpKind& kind) {
  std::vector<float> initial;
  for (int i = 0; i < from.params_size(); ++i) {
    const std::string& name = from.params(i);
    if (name == "Param" || name == "LearningRate") continue;
    if (i >= from.initializers_size() || initial.size() >= kind.states.size() ||
        kind.states[initial.size()].input != name)
      return InvalidArgument("ps_desc: '{}' is not the next state of the op {}", name, from.name());
    MILLRACE_ASSIGN_OR_RETURN(const ps::Initializer value,
                              ps::parse_initializer(from.initializers(i)));
    if (value.kind != ps::Initializer::Kind::kConstant)
      return InvalidArgument("ps_desc: '{}' of the op {} starts with '{}', expected a constant",
                             name, from.name(), from.initializers(i));
    initial.push_back(value.a);
  }
  return initial;
}

template <typename Message>
StatusOr<std::shared_ptr<const ps::UpdateOp>> update_of(const Message& from) {
  const ps::UpdateOpKind* const kind = ps::find_update_op(from.name());
  if (kind == nullptr)
    return InvalidArgument("ps_desc: tables do not support the update op '{}'", from.name());
  MILLRACE_ASSIGN_OR_RETURN(std::vector<float> initial, initial_states(from, *kind));
  return ps::UpdateOp::create({from.name(), from.attr(), std::move(initial)});
}

// True if the state of adam starts as that of the tables' own rule.
StatusOr<bool> starts_as_usual(const desc::CommonAccessorParameter& table,
                               const std::vector<float>& initial) {
  MILLRACE_ASSIGN_OR_RETURN(const float beta1, described_attr(table.attr(), "beta1", 0.9F));
  MILLRACE_ASSIGN_OR_RETURN(const float beta2, described_attr(table.attr(), "beta2", 0.999F));
  return initial == std::vector<float>{0, 0, beta1, beta2};
}

}  // namespace

StatusOr<float> described_attr(const std::string& attrs, const std::string& key, float fallback) {
  llvm::SmallVector<llvm::StringRef, 4> items;
  llvm::StringRef(attrs).split(items, '#');
  for (const llvm::StringRef item : items) {
    const auto [name, value] = item.split('&');
    double number = 0;
    if (name != key) continue;
    if (!value.getAsDouble(number)) return static_cast<float>(number);
    return InvalidArgument("ps_desc: expected a number for '{}', found '{}'", key, value.str());
  }
  return fallback;
}

StatusOr<std::shared_ptr<const ps::UpdateOp>> described_update(
    const desc::CommonAccessorParameter& table) {
  const ps::UpdateOpKind* const kind = ps::find_update_op(table.name());
  std::shared_ptr<const ps::UpdateOp> none;
  if (kind == nullptr || table.name() == "sgd") return none;
  if (table.name() == "adam") {
    MILLRACE_ASSIGN_OR_RETURN(const std::vector<float> initial, initial_states(table, *kind));
    MILLRACE_ASSIGN_OR_RETURN(const bool is_usual, starts_as_usual(table, initial));
    if (is_usual) return none;
  }
  return update_of(table);
}

StatusOr<std::vector<ps::DenseUpdate>> described_ranges(const desc::CommonAccessorParameter& table,
                                                        int64_t elements) {
  std::vector<ps::DenseUpdate> ranges;
  for (const desc::UpdateRangeParameter& from : table.update_ranges()) {
    ps::DenseUpdate& range = ranges.emplace_back();
    range.elements = static_cast<int64_t>(from.elements());
    range.rate_factor = from.rate_factor();
    MILLRACE_ASSIGN_OR_RETURN(range.op, update_of(from));
  }
  if (!ranges.empty()) return ranges;
  MILLRACE_ASSIGN_OR_RETURN(std::shared_ptr<const ps::UpdateOp> op, described_update(table));
  if (op != nullptr) ranges.push_back({elements, std::move(op), 1});
  return ranges;
}

}  // namespace millrace::fleet
