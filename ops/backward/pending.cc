#include "ops/backward/pending.h"

#include <map>

#include <fmt/format.h>

#include "framework/names.h"

namespace millrace::ops::backward {
namespace {

constexpr llvm::StringLiteral kGrad = "@GRAD";

PendingOp make_sum(std::vector<std::string> names, const std::string& out) {
  GradOp sum("sum");
  sum.input("X", std::move(names)).output("Out", {out}).attr("use_mkldnn", make_attr(false));
  return {std::move(sum), nullptr};
}

void rename_in(std::vector<std::pair<std::string, std::vector<std::string>>>& slots,
               const std::string& from, const std::string& to) {
  for (auto& [slot, names] : slots) std::replace(names.begin(), names.end(), from, to);
}

// Gives each writer of a gradient with several writers a distinct output name, and adds the sums.
class Summing {
 public:
  Summing(std::vector<PendingOp>& ops, int32_t block, const Names& given)
      : ops_(ops), block_(block), given_(given) {
    for (const std::string& name : given) {
      order_.push_back(name);
      writers_[name].names = {name};
    }
  }

  void run() {
    for (size_t i = 0; i < ops_.size(); ++i) {
      ops_[i].each_input([&](const std::string& name) { sum_before_reader(name, i); });
      for (auto& [slot, names] : ops_[i].op.outputs) {
        for (std::string& name : names) add_writer(name, i);
      }
    }
    for (const std::string& name : order_) {
      Writers& writers = writers_[name];
      if (writers.names.size() > 1)
        sums_[ops_.size()].push_back(make_sum(std::move(writers.names), name));
    }
    std::vector<PendingOp> out;
    for (size_t i = 0; i <= ops_.size(); ++i) {
      for (PendingOp& sum : sums_[i]) out.push_back(std::move(sum));
      if (i < ops_.size()) out.push_back(std::move(ops_[i]));
    }
    ops_ = std::move(out);
  }

 private:
  struct Writers {
    std::vector<std::string> names;  ///< of the terms; a single one is not renamed
    size_t first = 0;                ///< op that writes the first term
    int count = 0;                   ///< number of generated names so far
  };

  void sum_before_reader(const std::string& name, size_t reader) {
    const auto found = writers_.find(name);
    if (found == writers_.end() || found->second.names.size() < 2) return;
    sums_[reader].push_back(make_sum(std::move(found->second.names), name));
    found->second.names = {name};
  }

  // Later arguments of the same op may still have the plain name.
  void add_writer(std::string& name, size_t writer) {
    if (!is_grad_name(name) || name == names::kEmpty) return;
    const auto [found, is_new] = writers_.try_emplace(name);
    Writers& writers = found->second;
    if (is_new) order_.push_back(name);
    // A loop updates the gradient from the ops after it, so its output is not a separate term. If
    // there is no such gradient, its output is the first term; in the original the next writer
    // overwrites it.
    if (ops_[writer].reads(name) && !writers.names.empty()) return;
    if (writers.names.empty()) {
      writers.names = {name};
      writers.first = writer;
      return;
    }
    if (writers.names.size() == 1 && !given_.contains(name)) {
      const std::string first = next_name(name, writers);
      rename_first(name, first, writers.first, writer, name);
      writers.names = {first};
    }
    const std::string plain = name;
    name = next_name(plain, writers);
    writers.names.push_back(name);
  }

  std::string next_name(const std::string& name, Writers& writers) const {
    return fmt::format("{}@RENAME@block{}@{}", name, block_, writers.count++);
  }

  // Renames from the first writer on, up to the current argument of the current op.
  void rename_first(const std::string& from, const std::string& to, size_t begin, size_t end,
                    const std::string& present) {
    for (size_t i = begin; i < end; ++i) {
      rename_in(ops_[i].op.inputs, from, to);
      rename_in(ops_[i].op.outputs, from, to);
      // also a sum that an op between the terms reads
      if (const auto sums = sums_.find(i); sums != sums_.end())
        for (PendingOp& sum : sums->second) rename_in(sum.op.outputs, from, to);
    }
    for (auto& [slot, names] : ops_[end].op.outputs) {
      for (std::string& name : names) {
        if (&name == &present) return;
        if (name == from) name = to;
      }
    }
  }

  std::vector<PendingOp>& ops_;
  int32_t block_;
  const Names& given_;
  std::map<std::string, Writers> writers_;
  std::vector<std::string> order_;  ///< names in order of their first write
  std::map<size_t, std::vector<PendingOp>> sums_;
};

// True if the op only reads or writes gradients in the set; its outputs are then added to the set.
bool is_unneeded(const PendingOp& pending, Names& no_grad) {
  bool any_output = false;
  bool all_outputs = true;
  pending.each_output([&](const std::string& name) {
    any_output = true;
    all_outputs = all_outputs && (name == names::kEmpty || no_grad.contains(name));
  });
  if (!any_output || all_outputs) return true;
  bool any_grad = false;
  bool all_grads = true;
  pending.each_input([&](const std::string& name) {
    if (!is_grad_name(name)) return;
    any_grad = true;
    all_grads = all_grads && no_grad.contains(name);
  });
  if (!any_grad || !all_grads) return false;
  pending.each_output([&](const std::string& name) { no_grad.insert(name); });
  return true;
}

}  // namespace

bool is_grad_name(llvm::StringRef name) {
  return name.contains(kGrad);
}

bool PendingOp::reads(const std::string& name) const {
  bool found = false;
  each_input([&](const std::string& input) { found = found || input == name; });
  return found;
}

void hand_out_once(GradOp& grad) {
  for (auto& [slot, names] : grad.outputs) {
    if (slot == "initial_states@GRAD") continue;
    Names seen;
    for (std::string& name : names)
      if (!seen.insert(name).second) name = names::kEmpty;
  }
}

void sum_repeated_outputs(std::vector<PendingOp>& ops, int32_t block, const Names& given) {
  Summing(ops, block, given).run();
}

void remove_unneeded(std::vector<PendingOp>& ops, const Names& no_grad) {
  Names grads;
  for (const std::string& name : no_grad) grads.insert(names::grad(name));
  std::erase_if(ops, [&](const PendingOp& op) { return is_unneeded(op, grads); });
  std::vector<PendingOp> out;
  for (PendingOp& pending : ops) {
    pending.each_input([&](const std::string& name) {
      if (!is_grad_name(name) || !grads.contains(name)) return;
      GradOp fill("fill_any_like");
      fill.input("X", {llvm::StringRef(name).split(kGrad).first.str()})
          .output("Out", {name})
          .attr("value", make_attr(0.0F))
          .attr("dtype", make_attr(int32_t{-1}));
      out.push_back({std::move(fill), nullptr});
      grads.erase(name);
    });
    out.push_back(std::move(pending));
  }
  ops = std::move(out);
}

}  // namespace millrace::ops::backward
