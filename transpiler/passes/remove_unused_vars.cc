#include "transpiler/pass_registry.h"
#include "transpiler/program_edit.h"

namespace millrace::transpiler {
namespace {

class RemoveUnusedVars final : public Pass {
 public:
  explicit RemoveUnusedVars(const PassOptions& options)
      : keep_(options.strings("keep")), persistable_(options.flag("persistable")) {}

  llvm::StringRef name() const override { return "remove-unused-vars"; }

  StatusOr<bool> run(Program& program, PassContext& /*context*/) override {
    for (const std::string& name : keep_)
      if (!is_known_var(program, name)) return no_such_var(program, name, "keep");
    return erase_unmentioned_vars(program, keep_, persistable_) > 0;
  }

 private:
  std::vector<std::string> keep_;
  bool persistable_;
};

}  // namespace

void add_passes_remove_unused_vars(PassRegistry& registry) {
  registry.add(PassInfo("remove-unused-vars", "drop declarations of vars that no op mentions")
                   .strings("keep", "vars whose declaration stays")
                   .flag("persistable", false, "drop persistable vars too")
                   .makes<RemoveUnusedVars>());
}

}  // namespace millrace::transpiler
