#include "ops/op_def.h"

#include <cassert>

#include <llvm/ADT/STLExtras.h>

namespace millrace::ops {

KindMask mask_of(VarKind kind) {
  switch (kind) {
    case VarKind::kLodTensor:
      return kTensor;
    case VarKind::kSelectedRows:
      return kSelectedRows;
    case VarKind::kLodTensorArray:
      return kTensorArray;
    case VarKind::kStepScopes:
      return kScopes;
    case VarKind::kLodRankTable:
      return kRankTable;
    case VarKind::kReader:
      return kReaderKind;
    case VarKind::kFeedMinibatch:
    case VarKind::kFetchList:
    case VarKind::kFeedList:
      return kFeedFetch;
    case VarKind::kRaw:
      return kRawKind;
    default:
      return kOtherKind;
  }
}

OpDef& OpDef::doc(llvm::StringRef text) {
  doc_ = text;
  return *this;
}

OpDef& OpDef::input(llvm::StringRef name, llvm::StringRef doc, Arity arity, uint32_t kinds) {
  inputs_.push_back(SlotDef{name, doc, arity, kinds, false});
  return *this;
}

OpDef& OpDef::output(llvm::StringRef name, llvm::StringRef doc, Arity arity, uint32_t kinds) {
  outputs_.push_back(SlotDef{name, doc, arity, kinds, false});
  return *this;
}

OpDef& OpDef::intermediate(llvm::StringRef name, llvm::StringRef doc, Arity arity, uint32_t kinds) {
  outputs_.push_back(SlotDef{name, doc, arity, kinds, true});
  return *this;
}

OpDef& OpDef::add_attr(llvm::StringRef name, AttrKind kind, std::optional<AttrValue> fallback,
                       llvm::StringRef doc) {
  assert(find_attr(name) == nullptr);
  AttrDef def;
  def.name = name;
  def.doc = doc;
  def.kind = kind;
  def.fallback = std::move(fallback);
  attrs_.push_back(std::move(def));
  return *this;
}

OpDef& OpDef::add_attr_def(AttrDef def) {
  attrs_.push_back(std::move(def));
  return *this;
}

AttrValue zero_value(AttrKind kind) {
  switch (kind) {
    case AttrKind::kInt:
      return AttrValue::of_int(0);
    case AttrKind::kFloat:
      return AttrValue::of_float(0);
    case AttrKind::kString:
      return AttrValue::of_string("");
    case AttrKind::kInts:
      return AttrValue::of_ints({});
    case AttrKind::kFloats:
      return AttrValue::of_floats({});
    case AttrKind::kStrings:
      return AttrValue::of_strings({});
    case AttrKind::kBool:
      return AttrValue::of_bool(false);
    case AttrKind::kBools:
      return AttrValue::of_bools({});
    case AttrKind::kBlock:
      return AttrValue::of_block(0);
    case AttrKind::kLong:
      return AttrValue::of_long(0);
    case AttrKind::kBlocks:
      return AttrValue::of_blocks({});
    case AttrKind::kLongs:
      return AttrValue::of_longs({});
    case AttrKind::kFloat64s:
      return AttrValue::of_float64s({});
    case AttrKind::kVar:
      return AttrValue::of_var("");
    case AttrKind::kVars:
      return AttrValue::of_vars({});
    case AttrKind::kFloat64:
      return AttrValue::of_float64(0);
    case AttrKind::kScalar:
      return AttrValue::of_scalar({});
    case AttrKind::kScalars:
      return AttrValue::of_scalars({});
  }
  return {};
}

OpDef& OpDef::block_attr(llvm::StringRef name, llvm::StringRef doc) {
  return add_attr(name, AttrKind::kBlock, std::nullopt, doc);
}

OpDef& OpDef::blocks_attr(llvm::StringRef name, llvm::StringRef doc) {
  return add_attr(name, AttrKind::kBlocks, std::nullopt, doc);
}

OpDef& OpDef::range(double min, double max) {
  attrs_.back().min = min;
  attrs_.back().max = max;
  return *this;
}

OpDef& OpDef::one_of(std::initializer_list<const char*> choices) {
  attrs_.back().choices.assign(choices.begin(), choices.end());
  return *this;
}

OpDef& OpDef::infer(InferFn fn) {
  infer_ = fn;
  return *this;
}

OpDef& OpDef::grad(GradSpec spec) {
  grad_spec_ = std::move(spec);
  return *this;
}

OpDef& OpDef::grad(GradFn fn) {
  grad_ = fn;
  return *this;
}

OpDef& OpDef::flops(FlopsFn fn) {
  flops_ = fn;
  return *this;
}

OpDef& OpDef::inplace(llvm::StringRef input, llvm::StringRef output) {
  inplace_.emplace_back(input, output);
  return *this;
}

OpDef& OpDef::side_effects(bool value) {
  side_effects_ = value;
  return *this;
}

OpDef& OpDef::capability(Capability value) {
  capability_ = value;
  return *this;
}

OpDef& OpDef::shares_block(bool value) {
  shares_block_ = value;
  return *this;
}

OpDef& OpDef::unsupported(llvm::StringRef why) {
  unsupported_ = why;
  return *this;
}

OpDef& OpDef::open_slots(bool value) {
  open_slots_ = value;
  return *this;
}

namespace {
template <typename Def>
const Def* find_named(const std::vector<Def>& defs, llvm::StringRef name) {
  const auto it = llvm::find_if(defs, [&](const Def& def) { return def.name == name; });
  return it == defs.end() ? nullptr : &*it;
}
}  // namespace

const SlotDef* OpDef::find_input(llvm::StringRef name) const {
  return find_named(inputs_, name);
}
const SlotDef* OpDef::find_output(llvm::StringRef name) const {
  return find_named(outputs_, name);
}
const AttrDef* OpDef::find_attr(llvm::StringRef name) const {
  return find_named(attrs_, name);
}

}  // namespace millrace::ops
