#include "framework/diff/order.h"

#include <algorithm>
#include <map>
#include <set>

namespace millrace::diff {
namespace {

// The values of all vars at one point of the program: name to hash of the history that produced the
// value.
using Values = std::map<llvm::StringRef, uint64_t>;

class Histories {
 public:
  Histories(const NormalForm& program, const DiffOptions& options, bool by_name)
      : program_(program), options_(options), by_name_(by_name), keys_(program.blocks().size()) {
    for (const NormalBlock& block : program.blocks()) {
      for (const auto& [name, var] : block.vars)
        if (var->persistable()) persistable_.insert(name);
    }
  }

  std::vector<std::vector<uint64_t>> run() {
    // A block that an op refers to is visited with that op; other blocks are visited separately.
    std::set<int64_t> owned;
    for (const NormalBlock& block : program_.blocks()) {
      for (const NormalOp& op : block.ops)
        for (const int64_t child : children(op)) owned.insert(child);
    }
    for (size_t i = 0; i < keys_.size(); ++i) {
      Values values;
      if (i == 0 || owned.count(static_cast<int64_t>(i)) == 0) walk(i, values, 0);
    }
    for (size_t i = 0; i < keys_.size(); ++i) {
      Values values;
      if (!walked_.count(i)) walk(i, values, 0);
    }
    return std::move(keys_);
  }

 private:
  static constexpr int kDeepest = 32;
  // A block that several ops refer to is visited once per op. The limit stops hostile files from
  // making this take forever.
  static constexpr size_t kMostSteps = 50'000'000;

  [[nodiscard]] std::vector<int64_t> children(const NormalOp& op) const {
    std::vector<int64_t> out;
    for (const auto& [name, value] : op.attrs) {
      if (value->kind() == AttrKind::kBlock) out.push_back(value->integer());
      if (value->kind() == AttrKind::kBlocks)
        out.insert(out.end(), value->ints().begin(), value->ints().end());
    }
    return out;
  }

  [[nodiscard]] bool name_counts(llvm::StringRef name) const {
    return by_name_ || persistable_.count(name) != 0;
  }

  uint64_t value_of(llvm::StringRef name, const Values& values) const {
    const auto it = values.find(name);
    return it != values.end() ? it->second
                              : StableHash().add("unwritten").add(std::string_view(name)).value();
  }

  // Fills keys_[index] on the first visit and updates the values to the state after the block.
  uint64_t walk(size_t index, Values& values, int depth) {
    const bool first = walked_.insert(index).second;
    std::vector<uint64_t> keys;
    for (const NormalOp& op : program_.blocks()[index].ops) {
      const uint64_t key = op_key(op, values, depth);
      keys.push_back(key);
      write(op, key, values);
    }
    std::vector<uint64_t> sorted = keys;
    std::sort(sorted.begin(), sorted.end());
    StableHash all;
    for (const uint64_t key : sorted) all.add(key);
    if (first) keys_[index] = std::move(keys);
    return all.value();
  }

  uint64_t op_key(const NormalOp& op, Values& values, int depth) {
    ++steps_;
    StableHash hash;
    hash.add(std::string_view(op.type));
    for (const auto& [slot, names] : op.inputs) {
      hash.add(std::string_view(slot)).add(names.size());
      for (const llvm::StringRef name : names) hash.add(value_of(name, values));
    }
    for (const auto& [slot, names] : op.outputs) {
      hash.add("->").add(std::string_view(slot)).add(names.size());
      for (const llvm::StringRef name : names) {
        // The value that is replaced is part of the hash: two writes of one var may not swap.
        if (by_name_) hash.add(value_of(name, values));
        hash.add(name_counts(name) ? std::string_view(name) : std::string_view());
      }
    }
    for (const auto& [name, value] : op.attrs) {
      if (!by_name_ && name == "op_role_var") continue;  // contains only var names
      if (!options_.strict_attrs && is_default_attr(op.type, name, *value)) continue;
      hash.add(std::string_view(name)).add(comparable_attr(op.type, name, *value, options_));
    }
    for (const int64_t child : children(op)) {
      const bool exists = child >= 0 && static_cast<size_t>(child) < program_.blocks().size();
      if (!exists || depth >= kDeepest || steps_ > kMostSteps) continue;
      hash.add(walk(static_cast<size_t>(child), values, depth + 1));
    }
    return hash.value();
  }

  static void write(const NormalOp& op, uint64_t key, Values& values) {
    for (const auto& [slot, names] : op.outputs) {
      for (size_t i = 0; i < names.size(); ++i)
        values[names[i]] = StableHash().add(key).add(std::string_view(slot)).add(i).value();
    }
  }

  const NormalForm& program_;
  const DiffOptions& options_;
  bool by_name_;
  std::vector<std::vector<uint64_t>> keys_;
  std::set<size_t> walked_;
  std::set<llvm::StringRef> persistable_;
  size_t steps_ = 0;
};

}  // namespace

StableHash& StableHash::add(std::string_view text) {
  for (const char c : text) {
    state_ ^= static_cast<uint8_t>(c);
    state_ *= 0x100000001b3ULL;
  }
  return add(static_cast<uint64_t>(text.size()));
}

StableHash& StableHash::add(uint64_t number) {
  // splitmix64's finalizer
  uint64_t x = state_ ^ (number + 0x9e3779b97f4a7c15ULL);
  x = (x ^ (x >> 30U)) * 0xbf58476d1ce4e5b9ULL;
  x = (x ^ (x >> 27U)) * 0x94d049bb133111ebULL;
  state_ = x ^ (x >> 31U);
  return *this;
}

std::vector<std::vector<uint64_t>> history_keys(const NormalForm& program,
                                                const DiffOptions& options, bool by_name) {
  return Histories(program, options, by_name).run();
}

}  // namespace millrace::diff
