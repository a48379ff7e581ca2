#include "transpiler/fusion/attention_pattern.h"

#include <algorithm>
#include <vector>

#include <llvm/ADT/STLExtras.h>
#include <llvm/ADT/SmallPtrSet.h>

#include "framework/names.h"
#include "ops/read_attr.h"

namespace millrace::transpiler {
namespace {

// Walks from op to op. A step that fails returns null or an empty name, and all later steps return
// the same.
class AttentionPatternFinder {
 public:
  AttentionPatternFinder(Op& softmax, const InnerVars& inner, const ops::OpRegistry& registry)
      : softmax_(softmax), inner_(inner), block_(inner.block()), registry_(registry) {}

  std::optional<AttentionPattern> find() {
    if (!find_scores() || !find_values() || !find_gradient() || !is_closed()) return std::nullopt;
    return std::move(found_);
  }

 private:
  template <typename T>
  [[nodiscard]] T attr(const Op& op, llvm::StringRef name) const {
    return ops::read_attr<T>(*registry_.find(op.type()), op, name);
  }
  // The op of that type which writes an inner var; recorded as one of the forward ops.
  Op* writer(llvm::StringRef name, llvm::StringRef type) {
    Op* const op = inner_.writer(name);
    if (op == nullptr || op->type() != type) return nullptr;
    // Q and K may be one tensor that was split only once
    if (!llvm::is_contained(found_.forward, op)) found_.forward.push_back(op);
    return op;
  }
  // The one op of that type which reads an inner var in a slot.
  [[nodiscard]] Op* reader(llvm::StringRef name, llvm::StringRef type, llvm::StringRef slot) const {
    if (!inner_.contains(name)) return nullptr;
    Op* result = nullptr;
    for (Op* const op : block_.readers_of(name)) {
      if (op->type() != type || single_input(*op, slot) != name) continue;
      if (result != nullptr) return nullptr;
      result = op;
    }
    return result;
  }
  [[nodiscard]] const Var* tensor(llvm::StringRef name, size_t rank) const {
    const Var* const var = name.empty() ? nullptr : block_.find_var(name);
    const bool fits = var != nullptr && var->spec().has_tensor() &&
                      var->dtype() == DType::kFloat32 && var->dims().size() == rank;
    return fits ? var : nullptr;
  }
  // True if a var holds the same value wherever block 0 reads it: a feed that an op overwrites does
  // not.
  [[nodiscard]] bool is_steady(llvm::StringRef name) const {
    const auto writers = block_.writers_of(name);
    return inner_.is_plain(name) && (writers.empty() || inner_.writer(name) != nullptr);
  }
  // True if the op exchanges dims 1 and 2 of four.
  [[nodiscard]] bool turns_heads(const Op& op) const {
    return attr<std::vector<int32_t>>(op, "axis") == std::vector<int32_t>{0, 2, 1, 3};
  }
  // True if the op keeps dims 0 and 1 and reshapes only the rest.
  [[nodiscard]] bool keeps_rows(const Op& reshape, const Var& x) const {
    const auto shape = attr<std::vector<int32_t>>(reshape, "shape");
    const bool from_attr =
        single_input(reshape, "Shape").empty() && reshape.input("ShapeTensor").empty();
    return from_attr && shape.size() > 2 && (shape[1] == 0 || shape[1] == x.dims()[1]) &&
           (shape[0] == 0 || shape[0] == x.dims()[0] || shape[1] > 0);
  }

  // The tensor that was split into a matrix of heads; sets the number of heads.
  llvm::StringRef split_source(llvm::StringRef name) {
    Op* const transpose = writer(name, "transpose2");
    if (transpose == nullptr || !turns_heads(*transpose)) return {};
    const llvm::StringRef split = single_input(*transpose, "X");
    Op* const reshape = writer(split, "reshape2");
    if (reshape == nullptr) return {};
    const llvm::StringRef source = single_input(*reshape, "X");
    const Var* const from = tensor(source, 3);
    const Var* const to = tensor(split, 4);
    if (from == nullptr || to == nullptr || !is_steady(source) || !keeps_rows(*reshape, *from))
      return {};
    const int64_t heads = to->dims()[2];
    if (heads <= 0 || to->dims()[3] <= 0 || heads * to->dims()[3] != from->dims()[2]) return {};
    if (heads_ > 0 && heads_ != heads) return {};
    heads_ = heads;
    found_.heads = static_cast<int32_t>(heads);
    return source;
  }

  // True for a plain product of two inner vars, with the second one transposed as given.
  bool is_product(const Op& op, bool transposed) const {
    if (op.type() == "matmul_v2")
      return !attr<bool>(op, "trans_x") && attr<bool>(op, "trans_y") == transposed;
    return op.type() == "matmul" && !attr<bool>(op, "transpose_X") &&
           attr<bool>(op, "transpose_Y") == transposed && attr<int32_t>(op, "head_number") <= 1;
  }
  [[nodiscard]] float alpha(const Op& op) const {
    return op.type() == "matmul" ? attr<float>(op, "alpha") : 1.0F;
  }
  Op* product_writer(llvm::StringRef name) {
    Op* const op = inner_.writer(name);
    if (op == nullptr) return nullptr;
    return writer(name, op->type());
  }

  bool find_scores() {
    const int32_t axis = attr<int32_t>(softmax_, "axis");
    found_.probs = single_output(softmax_, "Out");
    if ((axis != -1 && axis != 3) || tensor(found_.probs, 4) == nullptr) return false;
    found_.forward.push_back(&softmax_);
    llvm::StringRef scores = single_input(softmax_, "X");
    if (Op* const add = inner_.writer(scores); add != nullptr && add->type() == "elementwise_add") {
      found_.forward.push_back(add);
      found_.mask = single_input(*add, "Y");
      const Var* const mask = tensor(found_.mask, 4);
      if (mask == nullptr || !is_steady(found_.mask) || inner_.writer(found_.mask) == add)
        return false;
      scores = single_input(*add, "X");
      const Var* const like = tensor(scores, 4);
      for (size_t i = 0; like != nullptr && i < 4; ++i) {
        if (mask->dims()[i] != 1 && mask->dims()[i] != like->dims()[i]) return false;
      }
      if (like == nullptr) return false;
      add_ = add;
    }
    product_ = product_writer(scores);
    if (product_ == nullptr || !is_product(*product_, /*transposed=*/true)) return false;
    found_.scale = alpha(*product_);
    llvm::StringRef q = single_input(*product_, "X");
    if (Op* const scale = inner_.writer(q); scale != nullptr && scale->type() == "scale") {
      if (attr<float>(*scale, "bias") != 0.0F || !single_input(*scale, "ScaleTensor").empty())
        return false;
      found_.forward.push_back(scale);
      found_.scale *= attr<float>(*scale, "scale");
      scale_ = scale;
      q = single_input(*scale, "X");
    }
    found_.q = split_source(q);
    found_.k = split_source(single_input(*product_, "Y"));
    return !found_.q.empty() && !found_.k.empty();
  }

  bool find_values() {
    for (const char* const type : {"matmul_v2", "matmul"}) {
      if (values_ == nullptr) values_ = reader(found_.probs, type, "X");
    }
    if (values_ == nullptr || !is_product(*values_, /*transposed=*/false) ||
        alpha(*values_) != 1.0F)
      return false;
    found_.forward.push_back(values_);
    found_.v = split_source(single_input(*values_, "Y"));
    Op* const transpose = reader(single_output(*values_, "Out"), "transpose2", "X");
    if (found_.v.empty() || transpose == nullptr || !turns_heads(*transpose)) return false;
    const llvm::StringRef turned = single_output(*transpose, "Out");
    join_ = reader(turned, "reshape2", "X");
    if (join_ == nullptr || tensor(turned, 4) == nullptr) return false;
    found_.out = single_output(*join_, "Out");
    const Var* const v = tensor(found_.v, 3);
    const Var* const out = tensor(found_.out, 3);
    if (out == nullptr || out->dims()[2] != v->dims()[2] ||
        !keeps_rows(*join_, *block_.find_var(turned)))
      return false;
    found_.forward.push_back(transpose);
    found_.forward.push_back(join_);
    return llvm::all_of(found_.forward,
                        [&](Op* op) { return op == join_ || op->comes_before(*join_); });
  }

  // The next op of the gradient: the only reader of a var; null if there is none of that type.
  Op* next(llvm::StringRef name, llvm::StringRef type) {
    Op* const op = inner_.only_reader(name);
    if (op == nullptr || op->type() != type) return nullptr;
    found_.backward.push_back(op);
    return op;
  }
  llvm::StringRef through(llvm::StringRef name, llvm::StringRef type, llvm::StringRef slot) {
    Op* const op = next(name, type);
    return op == nullptr ? llvm::StringRef() : single_output(*op, slot);
  }
  // Walks from the gradient of a matrix of heads to the gradient of the tensor it was split from.
  llvm::StringRef joined(llvm::StringRef name) {
    return through(through(name, "transpose2_grad", "X@GRAD"), "reshape2_grad", "X@GRAD");
  }

  bool find_gradient() {
    Op* const first = reader(single_output(*join_, "XShape"), "reshape2_grad", "XShape");
    // without a gradient, is_closed() requires that no op reads the inner values
    if (first == nullptr) return true;
    found_.backward.push_back(first);
    found_.dout = single_input(*first, "Out@GRAD");
    const std::string product_grad = (product_->type() + "_grad").str();
    const std::string values_grad = (values_->type() + "_grad").str();
    const llvm::StringRef turned =
        through(single_output(*first, "X@GRAD"), "transpose2_grad", "X@GRAD");
    const Op* const of_values = next(turned, values_grad);
    if (of_values == nullptr) return false;
    llvm::StringRef grad = through(single_output(*of_values, "X@GRAD"), "softmax_grad", "X@GRAD");
    if (add_ != nullptr) {
      const Op* const of_add = next(grad, "elementwise_add_grad");
      if (of_add == nullptr || !single_output(*of_add, "Y@GRAD").empty()) return false;
      grad = single_output(*of_add, "X@GRAD");
    }
    const Op* const of_product = next(grad, product_grad);
    if (of_product == nullptr) return false;
    llvm::StringRef dq = single_output(*of_product, "X@GRAD");
    if (scale_ != nullptr) {
      const Op* const of_scale = next(dq, "scale");
      if (of_scale == nullptr || attr<float>(*of_scale, "bias") != 0.0F ||
          attr<float>(*of_scale, "scale") != attr<float>(*scale_, "scale"))
        return false;
      dq = single_output(*of_scale, "Out");
    }
    found_.dq = joined(dq);
    found_.dk = joined(single_output(*of_product, "Y@GRAD"));
    found_.dv = joined(single_output(*of_values, "Y@GRAD"));
    return !found_.dout.empty() && !found_.dq.empty() && !found_.dk.empty() && !found_.dv.empty();
  }

  // True if no other op reads the inner values and none is kept.
  [[nodiscard]] bool is_closed() const {
    llvm::SmallPtrSet<const Op*, 32> ours(found_.forward.begin(), found_.forward.end());
    ours.insert(found_.backward.begin(), found_.backward.end());
    // the mask may be one of the values that the fused op does not store
    if (!found_.mask.empty() && ours.contains(inner_.writer(found_.mask))) return false;
    const auto is_result = [&](llvm::StringRef name) {
      return name == found_.out || name == found_.dq || name == found_.dk || name == found_.dv;
    };
    return llvm::all_of(ours, [&](const Op* op) {
      return llvm::all_of(op->output_names(), [&](llvm::StringRef name) {
        if (is_result(name) || name == names::kEmpty) return true;
        return inner_.contains(name) &&
               llvm::all_of(block_.readers_of(name), [&](Op* user) { return ours.contains(user); });
      });
    });
  }

  Op& softmax_;
  const InnerVars& inner_;
  Block& block_;
  const ops::OpRegistry& registry_;
  AttentionPattern found_;
  int64_t heads_ = 0;
  Op* add_ = nullptr;      // adds the mask
  Op* scale_ = nullptr;    // of Q
  Op* product_ = nullptr;  // of Q and K
  Op* values_ = nullptr;   // product with V
  Op* join_ = nullptr;     // of the heads
};

}  // namespace

std::optional<AttentionPattern> find_attention(Op& softmax, const InnerVars& inner,
                                               const ops::OpRegistry& registry) {
  return AttentionPatternFinder(softmax, inner, registry).find();
}

}  // namespace millrace::transpiler
