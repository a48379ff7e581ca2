#include "ops/registry.h"

#include <llvm/ADT/STLExtras.h>

#include "framework/base/registered_twice.h"
#include "framework/base/text.h"
#include "ops/derived_grad.h"
#include "ops/register_all.h"

namespace millrace::ops {
namespace {

AttrDef common_attr(llvm::StringRef name, AttrValue fallback, llvm::StringRef doc) {
  AttrDef def;
  def.name = name;
  def.doc = doc;
  def.kind = fallback.kind();
  def.fallback = std::move(fallback);
  return def;
}

}  // namespace

OpRegistry::OpRegistry() {
  common_ = {
      common_attr("op_role", AttrValue::of_int(0),
                  "bit set: 1 backward, 2 optimize, 4 rpc, 8 dist, 16 lr, 256 loss"),
      common_attr("op_role_var", AttrValue::of_strings({}), "param, grad, param, grad, ..."),
      common_attr("op_namescope", AttrValue::of_string("/"), "name scope of the front end"),
      common_attr("op_callstack", AttrValue::of_strings({}),
                  "stack trace of the code that created the op"),
      common_attr("op_device", AttrValue::of_string(""), "device chosen by the user; empty: none"),
      common_attr("with_quant_attr", AttrValue::of_bool(false),
                  "the op carries quantization attributes"),
      common_attr("use_cudnn", AttrValue::of_bool(false),
                  "kernel choice of the original; no effect"),
      common_attr("use_mkldnn", AttrValue::of_bool(false),
                  "kernel choice of the original; no effect"),
      common_attr("use_quantizer", AttrValue::of_bool(false),
                  "kernel choice of the original; no effect"),
      common_attr("mkldnn_data_type", AttrValue::of_string("float32"),
                  "kernel choice of the original; no effect"),
      common_attr("is_test", AttrValue::of_bool(false),
                  "true in inference programs; no effect on most ops"),
  };
}

void OpRegistry::add(OpDef def) {
  const llvm::StringRef type = saver_.save(def.type());
  def.type_ = type;
  const bool replaces_derived = derived_.count(type) > 0;
  if (by_type_.count(type) > 0 && !replaces_derived) abort_registered_twice("op", type);
  const OpDef* const forward = replaces_derived ? by_type_[type]->forward() : nullptr;
  derived_.erase(type);
  defs_.push_back(std::make_unique<OpDef>(std::move(def)));
  OpDef& added = *defs_.back();
  added.forward_ = forward;
  by_type_[type] = &added;
  if (added.grad_spec()) add_derived_grad(added);
}

void OpRegistry::add_derived_grad(const OpDef& forward) {
  const llvm::StringRef type = forward.grad_spec()->type;
  const auto existing = by_type_.find(type);
  if (existing != by_type_.end()) {
    // An explicit def, or a gradient op that another forward op shares (as with depthwise_conv2d).
    return;
  }
  defs_.push_back(std::make_unique<OpDef>(derive_grad_def(forward, saver_)));
  OpDef& added = *defs_.back();
  added.forward_ = &forward;
  by_type_[added.type()] = &added;
  derived_[added.type()] = true;
}

const OpDef* OpRegistry::find(llvm::StringRef type) const {
  const auto it = by_type_.find(type);
  return it == by_type_.end() ? nullptr : it->second;
}

std::vector<llvm::StringRef> OpRegistry::types() const {
  std::vector<llvm::StringRef> out;
  out.reserve(by_type_.size());
  for (const auto& entry : by_type_) out.push_back(entry.getKey());
  llvm::sort(out);
  return out;
}

const AttrDef* OpRegistry::find_common_attr(llvm::StringRef name) const {
  const auto it = llvm::find_if(common_, [&](const AttrDef& def) { return def.name == name; });
  return it == common_.end() ? nullptr : &*it;
}

std::string OpRegistry::suggest(llvm::StringRef type) const {
  std::vector<std::string_view> names;
  for (const llvm::StringRef name : types()) names.emplace_back(name.data(), name.size());
  return nearest_name({type.data(), type.size()}, names);
}

std::unique_ptr<OpRegistry> standard_registry() {
  auto registry = std::make_unique<OpRegistry>();
  register_all(*registry);
  return registry;
}

}  // namespace millrace::ops
