#include "transpiler/pass_registry.h"

namespace millrace::transpiler {
namespace {

class StripDebug final : public Pass {
 public:
  explicit StripDebug(const PassOptions& options) : also_(options.strings("also")) {}

  llvm::StringRef name() const override { return "strip-debug"; }

  StatusOr<bool> run(Program& program, PassContext& /*context*/) override {
    std::vector<std::string> attrs{"op_callstack", "op_namescope"};
    attrs.insert(attrs.end(), also_.begin(), also_.end());
    bool changed = false;
    for (Block& block : program.blocks()) {
      for (Op& op : block.ops()) {
        for (const std::string& attr : attrs) {
          if (!op.has_attr(attr)) continue;
          op.remove_attr(attr);
          changed = true;
        }
      }
    }
    return changed;
  }

 private:
  std::vector<std::string> also_;
};

}  // namespace

void add_passes_strip_debug(PassRegistry& registry) {
  registry.add(
      PassInfo("strip-debug",
               "drop op_callstack and op_namescope, which name the author's files and scopes")
          .strings("also", "further attributes to drop")
          .makes<StripDebug>());
}

}  // namespace millrace::transpiler
