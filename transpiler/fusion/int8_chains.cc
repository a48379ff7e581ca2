#include <string>
#include <vector>

#include "framework/op_attrs.h"
#include "transpiler/fusion/fake_quant.h"
#include "transpiler/fusion/inner_vars.h"
#include "transpiler/pass_registry.h"

namespace millrace::transpiler {
namespace int8_chains {
namespace {

// True for an op whose result has no number below 0, as unsigned integers have none.
bool may_write_integers(const Op& op) {
  if (op.type() != "int8_conv2d" || !single_input(op, "ResidualData").empty() ||
      !single_input(op, "OutScale").empty())
    return false;
  const auto activation = get_attr_or<std::string>(op, "activation", "");
  return activation == "relu" || activation == "relu6";
}

// The scale by which every reader of the var rounds it; empty if one of them needs the floats.
llvm::StringRef common_scale(const InnerVars& inner, llvm::StringRef name) {
  llvm::StringRef scale;
  for (const Op* const reader : inner.block().readers_of(name)) {
    const bool rounds = reader->type() == "int8_conv2d" && single_input(*reader, "Input") == name &&
                        single_input(*reader, "ResidualData") != name;
    const llvm::StringRef its = single_input(*reader, "InScale");
    if (!rounds || its.empty() || (!scale.empty() && its != scale)) return {};
    scale = its;
  }
  return scale;
}

class Int8Chains final : public Pass {
 public:
  explicit Int8Chains(const PassOptions& options) : keep_(options.strings("keep")) {}

  llvm::StringRef name() const override { return "int8-chains"; }

  StatusOr<bool> run(Program& program, PassContext& /*context*/) override {
    const InnerVars inner(program, keep_);
    bool changed = false;
    for (Op& op : program.root().ops()) {
      if (!may_write_integers(op)) continue;
      const llvm::StringRef out = single_output(op, "Output");
      if (!inner.contains(out)) continue;
      const std::string scale = common_scale(inner, out).str();
      if (scale.empty() || !is_fixed_scale(inner.block(), scale)) continue;
      op.set_input("OutScale", scale);
      rename(inner.block(), out);
      changed = true;
    }
    return changed;
  }

 private:
  // A var that is fetched has floats, and a fetch of one that is gone compiles the program again.
  static void rename(Block& block, llvm::StringRef name) {
    std::string integers = name.str() + "@INT8";
    while (block.find_var_recursive(integers) != nullptr) integers += '_';
    block.rename(name, integers);
  }

  std::vector<std::string> keep_;
};

}  // namespace
}  // namespace int8_chains

void add_fusion_int8_chains(PassRegistry& registry) {
  registry.add(PassInfo("int8-chains",
                        "let convolutions of integers that only convolutions of integers read "
                        "write the integers that those multiply")
                   .strings("keep", "vars whose value is needed after a run")
                   .makes<int8_chains::Int8Chains>());
}

}  // namespace millrace::transpiler
