#include "transpiler/fleet/row_terms.h"

#include "framework/op_attrs.h"
#include "transpiler/roles.h"

namespace millrace::transpiler {
namespace {

// The op whose value of a var reaches `before`, if it is of that type and role Optimize and has
// that number of inputs; else null.
Op* last_writer(const Block& block, llvm::StringRef name, const Op& before, llvm::StringRef type,
                size_t inputs) {
  Op* found = nullptr;
  for (Op* const op : block.writers_of(name)) {
    if (op->comes_before(before) && (found == nullptr || found->comes_before(*op))) found = op;
  }
  const bool fits = found != nullptr && role::is_optimize_op(*found) && found->type() == type &&
                    found->input_names().size() == inputs;
  return fits ? found : nullptr;
}

// Recognizes scale(param) and scale(sign(param)) as the term that regularization adds.
bool read_decay(const Block& block, llvm::StringRef param, const Op& sum, RowTerms& out) {
  Op* const scale = last_writer(block, sum.input("X")[1], sum, "scale", 1);
  if (scale == nullptr || get_attr_or(*scale, "bias", 0.0F) != 0) return false;
  const float factor = get_attr_or(*scale, "scale", 1.0F);
  const llvm::StringRef base = scale->first_input("X");
  if (base == param) {
    out.l2 = factor;
  } else {
    Op* const sign = last_writer(block, base, *scale, "sign", 1);
    if (sign == nullptr || sign->first_input("X") != param) return false;
    out.l1 = factor;
    out.ops.push_back(sign);
  }
  out.ops.push_back(scale);
  return true;
}

// True if no op besides these and the update uses what they compute.
bool serve_only(const Block& block, const std::vector<Op*>& ops, const Op& update) {
  for (const Op* const op : ops) {
    for (const llvm::StringRef name : op->output_names()) {
      for (const Op* const reader : block.readers_of(name)) {
        if (reader != &update && !llvm::is_contained(ops, reader)) return false;
      }
    }
  }
  return true;
}

}  // namespace

RowTerms find_row_terms(const Block& block, const Op& update) {
  RowTerms out;
  out.gradient = update.first_input("Grad").str();
  const Op* reader = &update;
  Op* const sum = last_writer(block, out.gradient, update, "sum", 2);
  if (sum != nullptr && read_decay(block, update.first_input("Param"), *sum, out)) {
    out.ops.push_back(sum);
    out.gradient = sum->first_input("X").str();
    reader = sum;
  }
  Op* const clip = last_writer(block, out.gradient, *reader, "clip", 1);
  if (clip != nullptr) {
    out.clip_min = get_attr_or(*clip, "min", 0.0F);
    out.clip_max = get_attr_or(*clip, "max", 0.0F);
    out.ops.push_back(clip);
    out.gradient = clip->first_input("X").str();
  }
  if (serve_only(block, out.ops, update)) return out;
  RowTerms none;
  none.gradient = update.first_input("Grad").str();
  return none;
}

}  // namespace millrace::transpiler
