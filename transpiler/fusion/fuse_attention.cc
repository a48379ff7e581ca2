#include "transpiler/fusion/attention_pattern.h"
#include "transpiler/pass_registry.h"

namespace millrace::transpiler {
namespace {

void set_sources(Op& op, const AttentionPattern& found) {
  op.set_input("Q", found.q).set_input("K", found.k).set_input("V", found.v);
  op.set_int("heads", found.heads);
  op.set_float("scale", found.scale);
}

class FuseAttention final : public Pass {
 public:
  explicit FuseAttention(const PassOptions& options) : keep_(options.strings("keep")) {}

  llvm::StringRef name() const override { return "fuse-attention"; }

  StatusOr<bool> run(Program& program, PassContext& context) override {
    for (const char* const type :
         {"softmax", "reshape2", "transpose2", "matmul_v2", "matmul", "scale"}) {
      if (context.registry.find(type) == nullptr) return false;
    }
    const InnerVars inner(program, keep_);
    std::vector<Op*> candidates;
    for (Op& op : program.root().ops()) {
      if (op.type() == "softmax") candidates.push_back(&op);
    }
    bool changed = false;
    for (Op* const softmax : candidates) {
      const auto found = find_attention(*softmax, inner, context.registry);
      if (!found) continue;
      fuse(*found, inner);
      changed = true;
    }
    return changed;
  }

 private:
  // The forward op takes the position of the op that writes the result, the gradient op that of the
  // op that first reads its input; both ops are rewritten in place.
  static void fuse(const AttentionPattern& found, const InnerVars& inner) {
    const bool has_gradient = !found.backward.empty();
    Op& forward = *found.forward.back();
    for (Op* const op : found.forward) {
      if (op != &forward) inner.erase(*op, has_gradient ? found.probs : llvm::StringRef());
    }
    inner.erase_outputs(forward, found.out);
    turn_into(forward, "multi_head_attention");
    set_sources(forward, found);
    if (!found.mask.empty()) forward.set_input("Mask", found.mask);
    forward.set_output("Out", found.out);
    if (!has_gradient) return;
    forward.set_output("Probs", found.probs);
    Op& backward = *found.backward.front();
    const auto erase = [&](Op* op) {
      if (op == &backward) return;
      for (const llvm::StringRef kept : {found.dq, found.dk, found.dv}) {
        if (op->writes(kept)) return inner.erase(*op, kept);
      }
      inner.erase(*op);
    };
    llvm::for_each(found.backward, erase);
    inner.erase_outputs(backward, {});
    turn_into(backward, "multi_head_attention_grad");
    set_sources(backward, found);
    backward.set_input("Probs", found.probs).set_input("Out@GRAD", found.dout);
    backward.set_output("Q@GRAD", found.dq).set_output("K@GRAD", found.dk);
    backward.set_output("V@GRAD", found.dv);
  }

  std::vector<std::string> keep_;
};

}  // namespace

void add_fusion_fuse_attention(PassRegistry& registry) {
  registry.add(
      PassInfo("fuse-attention",
               "fuse attention over heads, from splitting the inputs into heads to joining the "
               "heads of the result, into one op, and its gradient into another")
          .strings("keep", "vars whose value is needed after a run")
          .makes<FuseAttention>());
}

}  // namespace millrace::transpiler
