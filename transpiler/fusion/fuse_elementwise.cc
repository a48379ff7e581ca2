#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <llvm/ADT/STLExtras.h>
#include <llvm/ADT/SmallVector.h>

#include "framework/text_form/print.h"
#include "ops/elementwise/chain_steps.h"
#include "ops/lod_source.h"
#include "ops/read_attr.h"
#include "transpiler/fusion/inner_vars.h"
#include "transpiler/pass_registry.h"

namespace millrace::transpiler {
namespace {

constexpr size_t kMostSteps = 16;
// Tensors with fewer elements stay in the cache anyway.
constexpr int64_t kLeastElements = 1024;

// An op of a chain: the operand that is the result of the op before it, and its own result.
struct Link {
  Op* op = nullptr;
  llvm::StringRef running;
  llvm::StringRef out;
};

const Var* float_tensor(const Block& block, llvm::StringRef name) {
  const Var* const var = name.empty() ? nullptr : block.find_var(name);
  const bool fits = var != nullptr && var->kind() == VarKind::kLodTensor &&
                    var->spec().has_tensor() && var->dtype() == DType::kFloat32;
  return fits ? var : nullptr;
}

bool is_gradient(llvm::StringRef type) {
  return type.consume_back("_grad") && ops::is_chain_function(type);
}

// True if all inputs of the op are one var each, of the shape of `like` or one element.
bool operands_fit(const Op& op, const Var& like) {
  for (const Slot& slot : op.inputs()) {
    if (slot.args.empty()) continue;
    const Var* const var = float_tensor(op.block(), single_input(op, op.name_of(slot.name)));
    if (var == nullptr) return false;
    const bool single = var->dims() == llvm::ArrayRef<int64_t>{1} && var->persistable();
    if (var->dims() != like.dims() && !single) return false;
  }
  return true;
}

bool is_in_chains(const Op& op, const PassContext& context) {
  const llvm::StringRef type = op.type();
  if (type != "scale" && !ops::is_chain_function(type) && !ops::is_chain_operator(type) &&
      !is_gradient(type))
    return false;
  return context.registry.find(type) != nullptr && single_input(op, "ScaleTensor").empty();
}

// The op as part of a chain in which `running` is the result of the op before; empty: the op is the
// first.
std::optional<Link> link_of(Op& op, llvm::StringRef running, const PassContext& context) {
  if (!is_in_chains(op, context)) return std::nullopt;
  const bool gradient = is_gradient(op.type());
  Link link{&op, running, single_output(op, gradient ? "X@GRAD" : "Out")};
  const llvm::StringRef main = single_input(op, gradient ? "Out@GRAD" : "X");
  const bool either = ops::is_chain_operator(op.type()) && running == single_input(op, "Y");
  if (running.empty()) link.running = main;
  if (link.running != main && !either) return std::nullopt;
  const Var* const out = float_tensor(op.block(), link.out);
  const Var* const in = float_tensor(op.block(), link.running);
  if (out == nullptr || in == nullptr || out->dims() != in->dims() || out->dims().empty() ||
      op.writes(link.running) || !operands_fit(op, *out))
    return std::nullopt;
  return link;
}

// The input of the chain whose LoD the result of its last op has; empty: it has none; nullopt: not
// known.
std::optional<llvm::StringRef> lod_source(llvm::ArrayRef<Link> chain, const PassContext& context) {
  std::optional<llvm::StringRef> source = chain.front().running;
  for (const Link& link : chain) {
    const std::optional<llvm::StringRef> own =
        ops::lod_source(context.registry, *link.op, link.out);
    const bool hands_on = &link != &chain.front() && own == link.running;
    if (!hands_on) source = own;
    if (!source) return std::nullopt;
  }
  return source;
}

bool is_large(const Var& var) {
  int64_t count = 1;
  for (const int64_t dim : var.dims()) {
    if (dim < 0) return true;
    count *= dim;
  }
  return count >= kLeastElements;
}

class FuseElementwise final : public Pass {
 public:
  explicit FuseElementwise(const PassOptions& options) : keep_(options.strings("keep")) {}

  llvm::StringRef name() const override { return "fuse-elementwise"; }

  StatusOr<bool> run(Program& program, PassContext& context) override {
    if (context.registry.find("elementwise_chain") == nullptr) return false;
    const InnerVars inner(program, keep_);
    bool changed = false;
    for (Op* op = program.root().op_count() == 0 ? nullptr : &program.root().front();
         op != nullptr;) {
      const std::vector<Link> chain = chain_from(*op, inner, context);
      op = inner.block().next(chain.empty() ? *op : *chain.front().op);
      while (op != nullptr && llvm::any_of(chain, [&](const Link& link) { return link.op == op; }))
        op = inner.block().next(*op);
      if (chain.size() < 2) continue;
      fuse(chain, inner, context);
      changed = true;
    }
    return changed;
  }

 private:
  static std::vector<Link> chain_from(Op& first, const InnerVars& inner,
                                      const PassContext& context) {
    std::vector<Link> chain;
    std::optional<Link> link = link_of(first, {}, context);
    if (!link || !is_large(*inner.block().find_var(link->out)) || !lod_source(*link, context))
      return chain;
    chain.push_back(*link);
    while (chain.size() < kMostSteps) {
      Op* const next = inner.only_reader(chain.back().out);
      if (next == nullptr) break;
      link = link_of(*next, chain.back().out, context);
      const bool steady = link && llvm::all_of(chain, [&](const Link& before) {
                            return inputs_unchanged(*before.op, *next);
                          });
      if (!steady || !lod_source(*link, context)) break;
      chain.push_back(*link);
    }
    return chain;
  }

  // The op as a step: names of its operands replaced, attributes with default values left out.
  static std::string step_text(const Link& link, bool is_first, llvm::ArrayRef<std::string> inputs,
                               const PassContext& context) {
    const auto scratch = Program::create();
    Op& step = scratch->root().append_clone(*link.op);
    const ops::OpDef& def = *context.registry.find(step.type());
    llvm::SmallVector<std::string, 8> gone;
    for (const Attr& attr : step.attrs()) {
      const std::string name = step.name_of(attr.name).str();
      const ops::AttrDef* const known = def.find_attr(name);
      const bool counts = known != nullptr && (!known->fallback || *known->fallback != attr.value);
      if (!counts || name == "axis") gone.push_back(name);
    }
    for (const std::string& name : gone) step.remove_attr(name);
    for (const Slot& slot : link.op->inputs()) {
      const std::string slot_name = link.op->name_of(slot.name).str();
      if (slot.args.empty()) {
        step.remove_input(slot_name);
        continue;
      }
      const llvm::StringRef name = link.op->name_of(slot.args.front().name);
      const bool handed_on = !is_first && name == link.running;
      const auto at = llvm::find(inputs, name.str()) - inputs.begin();
      step.set_input(slot_name, handed_on ? std::string("t") : "x" + std::to_string(at));
    }
    step.set_output(is_gradient(step.type()) ? "X@GRAD" : "Out", "t");
    std::string text = print_op(step);
    while (!text.empty() && (text.back() == '\n' || text.back() == ' ')) text.pop_back();
    return text.substr(std::min(text.find_first_not_of(' '), text.size()));
  }

  // The last op becomes the fused op, so that it is at the position where the result is written.
  static void fuse(const std::vector<Link>& chain, const InnerVars& inner,
                   const PassContext& context) {
    std::vector<std::string> inputs{chain.front().running.str()};
    for (size_t i = 0; i < chain.size(); ++i) {
      for (const llvm::StringRef name : chain[i].op->input_names()) {
        const bool handed_on = i > 0 && name == chain[i].running;
        if (!handed_on && !llvm::is_contained(inputs, name.str())) inputs.push_back(name.str());
      }
    }
    std::vector<std::string> steps;
    for (const Link& link : chain)
      steps.push_back(step_text(link, &link == &chain.front(), inputs, context));
    const std::string out = chain.back().out.str();
    const std::string lod_from = lod_source(chain, context)->str();
    const auto lod_of = lod_from.empty() ? -1 : llvm::find(inputs, lod_from) - inputs.begin();
    Op& last = *chain.back().op;
    turn_into(last, "elementwise_chain");
    last.set_input("X", llvm::ArrayRef(inputs)).set_output("Out", out);
    last.set_strings("steps", std::move(steps));
    if (lod_of != 0) last.set_int("lod_of", static_cast<int32_t>(lod_of));
    for (const Link& link : llvm::ArrayRef(chain).drop_back()) inner.erase(*link.op);
  }

  std::vector<std::string> keep_;
};

}  // namespace

void add_fusion_fuse_elementwise(PassRegistry& registry) {
  registry.add(
      PassInfo("fuse-elementwise",
               "fuse a chain of elementwise ops, each reading the result of the one before, "
               "into one op that computes all of them chunk by chunk")
          .strings("keep", "vars whose value is needed after a run")
          .makes<FuseElementwise>());
}

}  // namespace millrace::transpiler
