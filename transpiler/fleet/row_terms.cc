#include "transpiler/fleet/row_terms.h"

#include "framework/op_attrs.h"
#include "transpiler/roles.h"

namespace millrace::transpiler {
namespace {

// The only op of role Optimize that writes a var, and that reads only the given number of inputs.
Op* only_writer(const Block& block, llvm::StringRef name, llvm::StringRef type, size_t inputs) {
  Op* found = nullptr;
  for (Op* const op : block.writers_of(name)) {
    if (!role::is_optimize_op(*op)) continue;
    if (found != nullptr) return nullptr;
    found = op;
  }
  const bool fits =
      found != nullptr && found->type() == type && found->input_names().size() == inputs;
  return fits ? found : nullptr;
}

// Recognizes scale(param) and scale(sign(param)) as the term that regularization adds.
bool read_decay(const Block& block, llvm::StringRef param, llvm::StringRef term, RowTerms& out) {
  Op* const scale = only_writer(block, term, "scale", 1);
  if (scale == nullptr || get_attr_or(*scale, "bias", 0.0F) != 0) return false;
  const float factor = get_attr_or(*scale, "scale", 1.0F);
  const llvm::StringRef base = scale->first_input("X");
  if (base == param) {
    out.l2 = factor;
  } else {
    Op* const sign = only_writer(block, base, "sign", 1);
    if (sign == nullptr || sign->first_input("X") != param) return false;
    out.l1 = factor;
    out.ops.push_back(sign);
  }
  out.ops.push_back(scale);
  return true;
}

}  // namespace

RowTerms find_row_terms(const Block& block, const Op& update) {
  RowTerms out;
  out.gradient = update.first_input("Grad").str();
  Op* const sum = only_writer(block, out.gradient, "sum", 2);
  if (sum != nullptr && !sum->reads(out.gradient) &&
      read_decay(block, update.first_input("Param"), sum->input("X")[1], out)) {
    out.ops.push_back(sum);
    out.gradient = sum->first_input("X").str();
  }
  Op* const clip = only_writer(block, out.gradient, "clip", 1);
  if (clip != nullptr && !clip->reads(out.gradient)) {
    out.clip_min = get_attr_or(*clip, "min", 0.0F);
    out.clip_max = get_attr_or(*clip, "max", 0.0F);
    out.ops.push_back(clip);
    out.gradient = clip->first_input("X").str();
  }
  return out;
}

}  // namespace millrace::transpiler
