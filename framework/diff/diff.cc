#include "framework/diff/diff.h"

#include <algorithm>

#include <fmt/format.h>
#include <llvm/ADT/STLExtras.h>

#include "framework/base/text.h"
#include "framework/diff/align.h"
#include "framework/diff/normal_form.h"
#include "framework/diff/order.h"
#include "framework/text_form/print.h"
#include "framework/text_form/value.h"

namespace millrace {
namespace diff {
namespace {

std::string join(const Names& names) {
  std::string out;
  for (const llvm::StringRef name : names) {
    if (!out.empty()) out += ", ";
    out += print_name(name);
  }
  return "[" + out + "]";
}

std::string op_line(const NormalOp& op) {
  std::string out = op.type.str();
  for (const auto& [slot, names] : op.inputs) out += fmt::format(" {}={}", slot.str(), join(names));
  out += " ->";
  for (const auto& [slot, names] : op.outputs)
    out += fmt::format(" {}={}", slot.str(), join(names));
  return out;
}

// The keys of both maps in order, without duplicates.
template <typename Map>
std::vector<llvm::StringRef> keys_of_both(const Map& a, const Map& b) {
  std::vector<llvm::StringRef> keys;
  keys.reserve(a.size() + b.size());
  for (const auto& [key, value] : a) keys.push_back(key);
  for (const auto& [key, value] : b) keys.push_back(key);
  llvm::sort(keys);
  keys.erase(std::unique(keys.begin(), keys.end()), keys.end());
  return keys;
}

template <typename Map>
auto value_or_null(const Map& map, llvm::StringRef key) {
  const auto it = map.find(key);
  return it == map.end() ? nullptr : &it->second;
}

class Comparison {
 public:
  explicit Comparison(const DiffOptions& options) : options_(options) {}

  std::vector<Difference> run(const NormalForm& a, const NormalForm& b) {
    const size_t blocks = std::min(a.blocks().size(), b.blocks().size());
    if (a.blocks().size() != b.blocks().size()) {
      add({}, "number of blocks", std::to_string(a.blocks().size()),
          std::to_string(b.blocks().size()));
    }
    const bool free_order = options_.any_order || options_.semantic;
    std::vector<std::vector<uint64_t>> keys_a;
    std::vector<std::vector<uint64_t>> keys_b;
    if (free_order) {
      keys_a = history_keys(a, options_, !options_.semantic);
      keys_b = history_keys(b, options_, !options_.semantic);
    }
    for (size_t i = 0; i < blocks; ++i) {
      const NormalBlock& x = a.blocks()[i];
      const NormalBlock& y = b.blocks()[i];
      block_ = static_cast<int>(i);
      number("index", x.index, y.index);
      number("parent", x.parent, y.parent);
      number("forward block", x.forward, y.forward);
      vars(x, y);
      if (free_order) {
        ops_in_any_order(x, keys_a[i], y, keys_b[i]);
      } else {
        ops_in_order(x, y);
      }
    }
    return std::move(found_);
  }

 private:
  struct Place {
    int64_t op_a = -1;
    int64_t op_b = -1;
    llvm::StringRef type;
  };

  void add(const Place& place, std::string what, std::string a, std::string b) {
    found_.push_back({block_, place.op_a, place.op_b, place.type.str(), std::move(what),
                      std::move(a), std::move(b)});
  }

  void number(const char* what, int64_t a, int64_t b) {
    if (a != b) add({}, what, std::to_string(a), std::to_string(b));
  }

  void vars(const NormalBlock& a, const NormalBlock& b) {
    std::set<llvm::StringRef> made;
    if (options_.semantic) {
      for (const NormalBlock* block : {&a, &b}) {
        for (const NormalOp& op : block->ops) {
          for (const auto& [slot, names] : op.outputs) made.insert(names.begin(), names.end());
        }
      }
    }
    for (const llvm::StringRef name : keys_of_both(a.vars, b.vars)) {
      if (options_.ignore_var && options_.ignore_var(name)) continue;
      const auto* const x = value_or_null(a.vars, name);
      const auto* const y = value_or_null(b.vars, name);
      const bool kept =
          (x != nullptr && (*x)->persistable()) || (y != nullptr && (*y)->persistable());
      // Names of vars that ops create do not matter here; comparing the ops detects differences.
      if (options_.semantic && !kept && (x == nullptr || y == nullptr) && made.count(name) != 0)
        continue;
      const bool with_dims = !(options_.ignore_shape && options_.ignore_shape(name));
      const std::string text_x = x == nullptr ? "" : var_facts(**x, options_, with_dims);
      const std::string text_y = y == nullptr ? "" : var_facts(**y, options_, with_dims);
      if (text_x != text_y) add({}, "var " + print_name(name), text_x, text_y);
    }
  }

  // ---- ops in order

  void ops_in_order(const NormalBlock& a, const NormalBlock& b) {
    const auto same_types = [&] {
      return a.ops.size() == b.ops.size() &&
             std::equal(a.ops.begin(), a.ops.end(), b.ops.begin(),
                        [](const NormalOp& x, const NormalOp& y) { return x.type == y.type; });
    };
    if (same_types()) {
      for (size_t i = 0; i < a.ops.size(); ++i) op(a.ops[i], b.ops[i]);
      return;
    }
    const auto keys = [](const NormalBlock& block) {
      std::vector<uint64_t> out;
      for (const NormalOp& op : block.ops) {
        StableHash hash;
        hash.add(std::string_view(op.type.data(), op.type.size()));
        for (const auto& [slot, names] : op.outputs) {
          for (const llvm::StringRef name : names)
            hash.add(std::string_view(name.data(), name.size()));
        }
        out.push_back(hash.value());
      }
      return out;
    };
    aligned_ops(a, b, align(keys(a), keys(b)));
  }

  void aligned_ops(const NormalBlock& a, const NormalBlock& b,
                   const std::vector<std::pair<size_t, size_t>>& pairs) {
    size_t i = 0;
    size_t j = 0;
    const auto up_to = [&](size_t end_a, size_t end_b) {
      for (; i < end_a; ++i) only(a.ops[i], /*in_a=*/true);
      for (; j < end_b; ++j) only(b.ops[j], /*in_a=*/false);
    };
    for (const auto& [x, y] : pairs) {
      up_to(x, y);
      op(a.ops[x], b.ops[y]);
      ++i;
      ++j;
    }
    up_to(a.ops.size(), b.ops.size());
  }

  void only(const NormalOp& op, bool in_a) {
    const Place place{in_a ? op.index : -1, in_a ? -1 : op.index, op.type};
    add(place, "op", in_a ? op_line(op) : "", in_a ? "" : op_line(op));
  }

  void op(const NormalOp& a, const NormalOp& b) {
    const Place place{a.index, b.index, a.type};
    slots(place, "input ", a.inputs, b.inputs);
    slots(place, "output ", a.outputs, b.outputs);
    for (const llvm::StringRef name : keys_of_both(a.attrs, b.attrs)) {
      const auto* const x = value_or_null(a.attrs, name);
      const auto* const y = value_or_null(b.attrs, name);
      if (!same_attr(a.type, name, x == nullptr ? nullptr : *x, y == nullptr ? nullptr : *y))
        add(place, "attr " + print_name(name), x == nullptr ? "" : print_value(**x),
            y == nullptr ? "" : print_value(**y));
    }
  }

  bool same_attr(llvm::StringRef type, llvm::StringRef name, const AttrValue* a,
                 const AttrValue* b) const {
    if (a == nullptr || b == nullptr)
      return !options_.strict_attrs && is_default_attr(type, name, a == nullptr ? *b : *a);
    return *a == *b ||
           comparable_attr(type, name, *a, options_) == comparable_attr(type, name, *b, options_);
  }

  void slots(const Place& place, const char* what, const std::map<llvm::StringRef, Names>& a,
             const std::map<llvm::StringRef, Names>& b) {
    const Names none;
    for (const llvm::StringRef slot : keys_of_both(a, b)) {
      const Names* const x = value_or_null(a, slot);
      const Names* const y = value_or_null(b, slot);
      const Names& names_x = x == nullptr ? none : *x;
      const Names& names_y = y == nullptr ? none : *y;
      if (names_x != names_y) add(place, what + print_name(slot), join(names_x), join(names_y));
    }
  }

  // ---- ops in any order

  void ops_in_any_order(const NormalBlock& a, const std::vector<uint64_t>& keys_a,
                        const NormalBlock& b, const std::vector<uint64_t>& keys_b) {
    std::map<uint64_t, int64_t> surplus;
    for (const uint64_t key : keys_a) ++surplus[key];
    for (const uint64_t key : keys_b) --surplus[key];
    std::vector<const NormalOp*> only_a = unmatched(a, keys_a, surplus, 1);
    std::vector<const NormalOp*> only_b = unmatched(b, keys_b, surplus, -1);
    // An op that reads a changed value also differs; the first differing ops are the cause. Ops
    // that are equal but have different histories are reported separately from ops that exist on
    // one side only.
    for (const NormalOp* op : only_a) {
      const auto it = llvm::find_if(only_b, [&](const NormalOp* other) {
        return other->type == op->type && other->inputs == op->inputs &&
               other->outputs == op->outputs;
      });
      if (it == only_b.end()) {
        only(*op, /*in_a=*/true);
        continue;
      }
      const size_t before = found_.size();
      this->op(*op, **it);
      if (found_.size() == before)
        add({op->index, (*it)->index, op->type}, "history", op_line(*op), op_line(**it));
      only_b.erase(it);
    }
    for (const NormalOp* op : only_b) only(*op, /*in_a=*/false);
  }

  static std::vector<const NormalOp*> unmatched(const NormalBlock& block,
                                                const std::vector<uint64_t>& keys,
                                                std::map<uint64_t, int64_t> surplus, int sign) {
    std::vector<const NormalOp*> out;
    for (size_t i = keys.size(); i-- > 0;) {
      int64_t& count = surplus[keys[i]];
      if (count * sign <= 0) continue;
      count -= sign;
      out.push_back(&block.ops[i]);
    }
    std::reverse(out.begin(), out.end());
    return out;
  }

  const DiffOptions& options_;
  int block_ = -1;
  std::vector<Difference> found_;
};

}  // namespace
}  // namespace diff

std::string Difference::to_string() const {
  std::string out;
  if (block >= 0) out = fmt::format("block {} ", block);
  if (op_a >= 0 || op_b >= 0) {
    const std::string place = op_a < 0 || op_b < 0 || op_a == op_b
                                  ? std::to_string(std::max(op_a, op_b))
                                  : fmt::format("{} -> {}", op_a, op_b);
    out += fmt::format("op {} ({}): ", place, op_type);
  }
  out += what;
  if (what == "history") {
    out += ": a var that it reads or writes was written differently before: " + a;
  } else if (a.empty()) {
    out += ": only in the second: " + b;
  } else if (b.empty()) {
    out += ": only in the first: " + a;
  } else {
    out += fmt::format(": {} -> {}", a, b);
  }
  return printable(out);
}

std::vector<Difference> diff_programs(const Program& a, const Program& b,
                                      const DiffOptions& options) {
  const diff::NormalForm x(a, options, options.rename);
  const diff::NormalForm y(b, options, {});
  return diff::Comparison(options).run(x, y);
}

}  // namespace millrace
