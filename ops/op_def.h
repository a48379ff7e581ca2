#pragma once

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <llvm/ADT/ArrayRef.h>
#include <llvm/ADT/SmallVector.h>
#include <llvm/ADT/StringRef.h>

#include "framework/attribute.h"
#include "framework/base/status.h"
#include "framework/op_attrs.h"
#include "framework/types.h"
#include "framework/var.h"

namespace millrace::ops {

class InferContext;
class GradContext;
struct GradOp;

/// The kinds of var that a slot accepts, as a bit set.
enum KindMask : uint32_t {
  kTensor = 1U << 0U,  ///< LOD_TENSOR
  kSelectedRows = 1U << 1U,
  kTensorArray = 1U << 2U,
  kScopes = 1U << 3U,  ///< STEP_SCOPES
  kRankTable = 1U << 4U,
  kReaderKind = 1U << 5U,
  kFeedFetch = 1U << 6U,  ///< FEED_MINIBATCH, FETCH_LIST, FEED_LIST
  kRawKind = 1U << 7U,
  kOtherKind = 1U << 8U,  ///< strings, vocab, sparse, tuple, place list
  kTensorLike = kTensor | kSelectedRows,
  kAnyKind = ~0U,
};
/// The bit of a var kind.
KindMask mask_of(VarKind kind);

/// The number of names that a slot accepts.
enum class Arity {
  kOne,       ///< exactly one
  kOptional,  ///< none or one
  kMany,      ///< one or more
  kAny,       ///< none or more
};

/// One input or output slot of an op. The strings are literals.
struct SlotDef {
  llvm::StringRef name;
  llvm::StringRef doc;
  Arity arity = Arity::kOne;
  uint32_t kinds = kTensorLike;
  /// An output that only the gradient op reads. It may be absent in inference programs.
  bool intermediate = false;
};

/// One attribute with its default and range.
struct AttrDef {
  llvm::StringRef name;
  llvm::StringRef doc;
  AttrKind kind = AttrKind::kInt;
  std::optional<AttrValue> fallback;                      ///< absent: the attribute is required
  double min = -std::numeric_limits<double>::infinity();  ///< inclusive; each element of a list
  double max = std::numeric_limits<double>::infinity();   ///< inclusive
  std::vector<std::string> choices;                       ///< for strings; empty: any
};

/// 0, "", false or an empty list of the kind.
AttrValue zero_value(AttrKind kind);

/// What an op may access besides its vars. The executor checks it before it runs an op
/// (design/reliability.md section 4).
enum class Capability { kPure, kFile, kNetwork, kHostCode };

/// Shape inference: reads input metas and attributes, sets output metas. Must accept dims of -1.
/// Does not access data.
using InferFn = Status (*)(InferContext&);
/// Gradient rule: returns the ops that compute the gradients of one forward op, in order.
using GradFn = StatusOr<std::vector<GradOp>> (*)(const GradContext&);
/// Floating-point operations of one run; dims may be -1 (counted as 1).
using FlopsFn = double (*)(const InferContext&);

/// Declares a gradient op of the common form: it reads forward vars and output gradients, computes
/// input gradients, and has all attributes of the forward op.
struct GradSpec {
  /// Type of the gradient op, usually "<op>_grad".
  llvm::StringRef type;
  /// Slots it reads: "X" (a forward input or output) or "Out@GRAD".
  std::vector<llvm::StringRef> inputs;
  /// Slots it writes: "X@GRAD" for a forward input X.
  std::vector<llvm::StringRef> outputs;
  /// The var with the shape of an output whose forward var is not among the inputs, for example
  /// {"X@GRAD", "Out@GRAD"}.
  std::vector<std::pair<llvm::StringRef, llvm::StringRef>> shape_like = {};
  /// Input gradients are declared without LoD, as the original does for some sequence ops.
  bool drops_lod = false;
  /// Shape inference of the gradient op if the rule of shape_like does not suffice; null: that
  /// rule.
  InferFn infer = nullptr;
};

/// Schema of one op type. Every setter returns *this, so that a definition can be written as one
/// expression.
///
/// Slot, attribute and doc strings must be literals (or live as long as the registry).
/// Thread-safety: immutable once registered.
class OpDef {
 public:
  explicit OpDef(llvm::StringRef type) : type_(type) {}

  OpDef& doc(llvm::StringRef text);
  /// Adds an input (output) slot. The order is that of the wire format.
  OpDef& input(llvm::StringRef name, llvm::StringRef doc, Arity arity = Arity::kOne,
               uint32_t kinds = kTensorLike);
  OpDef& output(llvm::StringRef name, llvm::StringRef doc, Arity arity = Arity::kOne,
                uint32_t kinds = kTensorLike);
  /// Adds an output slot that only the gradient op reads; always optional in a program.
  OpDef& intermediate(llvm::StringRef name, llvm::StringRef doc, Arity arity = Arity::kOptional,
                      uint32_t kinds = kTensorLike);
  /// Adds an attribute with a default.
  template <typename T>
  OpDef& attr(llvm::StringRef name, T fallback, llvm::StringRef doc = "") {
    return add_attr(name, AttrTraits<T>::kKind, make_attr(std::move(fallback)), doc);
  }
  OpDef& attr(llvm::StringRef name, const char* fallback, llvm::StringRef doc = "") {
    return add_attr(name, AttrKind::kString, make_attr(fallback), doc);
  }
  /// Adds an attribute that every op must have.
  template <typename T>
  OpDef& required_attr(llvm::StringRef name, llvm::StringRef doc = "") {
    return add_attr(name, AttrTraits<T>::kKind, std::nullopt, doc);
  }
  /// Adds an attribute that holds the index of a sub-block owned by the op.
  OpDef& block_attr(llvm::StringRef name, llvm::StringRef doc);
  /// Adds an attribute that holds the indices of several sub-blocks.
  OpDef& blocks_attr(llvm::StringRef name, llvm::StringRef doc);
  /// Sets inclusive bounds of the attribute added last (of each element, for a list).
  OpDef& range(double min, double max = std::numeric_limits<double>::infinity());
  /// Sets the permitted values of the string attribute added last.
  OpDef& one_of(std::initializer_list<const char*> choices);

  /// Adds a complete AttrDef, for defs that are derived from others.
  OpDef& add_attr_def(AttrDef def);

  OpDef& infer(InferFn fn);
  OpDef& grad(GradSpec spec);
  OpDef& grad(GradFn fn);
  OpDef& flops(FlopsFn fn);
  /// The output may reuse the memory of the input.
  OpDef& inplace(llvm::StringRef input, llvm::StringRef output);
  /// The op has effects besides writing its outputs, so dead-op removal keeps it.
  OpDef& side_effects(bool value = true);
  OpDef& capability(Capability value);
  /// Several ops may own the same sub-block (a forward op and its gradient do so in old programs).
  OpDef& shares_block(bool value = true);
  /// The op is known, but this implementation does not run it. `why` is the reason for messages.
  OpDef& unsupported(llvm::StringRef why);
  /// Slots that the schema does not list are accepted (plug-in ops, ops of other tools).
  OpDef& open_slots(bool value = true);

  [[nodiscard]] llvm::StringRef type() const { return type_; }
  [[nodiscard]] llvm::StringRef doc() const { return doc_; }
  [[nodiscard]] llvm::ArrayRef<SlotDef> inputs() const { return inputs_; }
  [[nodiscard]] llvm::ArrayRef<SlotDef> outputs() const { return outputs_; }
  [[nodiscard]] llvm::ArrayRef<AttrDef> attrs() const { return attrs_; }
  [[nodiscard]] const SlotDef* find_input(llvm::StringRef name) const;
  [[nodiscard]] const SlotDef* find_output(llvm::StringRef name) const;
  [[nodiscard]] const AttrDef* find_attr(llvm::StringRef name) const;
  [[nodiscard]] InferFn infer_fn() const { return infer_; }
  [[nodiscard]] const std::optional<GradSpec>& grad_spec() const { return grad_spec_; }
  [[nodiscard]] GradFn grad_fn() const { return grad_; }
  [[nodiscard]] bool has_grad() const { return grad_ != nullptr || grad_spec_.has_value(); }
  [[nodiscard]] FlopsFn flops_fn() const { return flops_; }
  [[nodiscard]] llvm::ArrayRef<std::pair<llvm::StringRef, llvm::StringRef>> inplace_pairs() const {
    return inplace_;
  }
  [[nodiscard]] bool has_side_effects() const { return side_effects_; }
  [[nodiscard]] Capability capability() const { return capability_; }
  [[nodiscard]] bool block_shared() const { return shares_block_; }
  [[nodiscard]] llvm::StringRef unsupported_reason() const { return unsupported_; }
  [[nodiscard]] bool has_open_slots() const { return open_slots_; }
  /// Forward def this gradient op was derived from; null for the others.
  [[nodiscard]] const OpDef* forward() const { return forward_; }

 private:
  friend class OpRegistry;
  OpDef& add_attr(llvm::StringRef name, AttrKind kind, std::optional<AttrValue> fallback,
                  llvm::StringRef doc);

  llvm::StringRef type_;
  llvm::StringRef doc_;
  std::vector<SlotDef> inputs_;
  std::vector<SlotDef> outputs_;
  std::vector<AttrDef> attrs_;
  InferFn infer_ = nullptr;
  std::optional<GradSpec> grad_spec_;
  GradFn grad_ = nullptr;
  FlopsFn flops_ = nullptr;
  std::vector<std::pair<llvm::StringRef, llvm::StringRef>> inplace_;
  bool side_effects_ = false;
  bool shares_block_ = false;
  bool open_slots_ = false;
  Capability capability_ = Capability::kPure;
  llvm::StringRef unsupported_;
  const OpDef* forward_ = nullptr;
};

}  // namespace millrace::ops
