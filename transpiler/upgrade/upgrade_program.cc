#include "transpiler/pass_registry.h"
#include "transpiler/upgrade/upgrade.h"

namespace millrace::transpiler {
namespace {

struct UpgradeStep {
  llvm::StringRef name;
  llvm::StringRef summary;
  UpgradeFn run;
};

// The order matters: names of attributes before their kinds, and versions last, because the other
// passes read the version of the release that wrote the program.
constexpr UpgradeStep kUpgradeSteps[] = {
    {"upgrade-attr-names", "rename attributes and slots that have another name in release 2.6",
     upgrade_attr_names},
    {"upgrade-attr-kinds", "convert attributes to the types that release 2.6 expects",
     upgrade_attr_kinds},
    {"upgrade-formulas",
     "replace ops whose formula later releases changed by the formula of the program's release",
     upgrade_formulas},
    {"upgrade-op-types", "replace op types that release 2.6 no longer has by their successors",
     upgrade_op_types},
    {"upgrade-gradients",
     "add the inputs, outputs and attributes that release 2.6 requires to gradient ops",
     upgrade_gradients},
    {"stamp-versions", "set the version of the program and of its ops to those of release 2.6.2",
     stamp_versions},
};

template <size_t kStep>
class UpgradePass final : public Pass {
 public:
  llvm::StringRef name() const override { return kUpgradeSteps[kStep].name; }

  StatusOr<bool> run(Program& program, PassContext& context) override {
    return kUpgradeSteps[kStep].run(program, context);
  }
  bool takes_old_forms() const override { return true; }
};

class UpgradeProgram final : public Pass {
 public:
  llvm::StringRef name() const override { return "upgrade-program"; }

  StatusOr<bool> run(Program& program, PassContext& context) override {
    bool changed = false;
    for (const UpgradeStep& step : kUpgradeSteps) {
      MILLRACE_ASSIGN_OR_RETURN(const bool step_changed, step.run(program, context));
      if (step_changed) context.remarks.push_back(step.name.str() + ": changed the program");
      changed |= step_changed;
    }
    return changed;
  }
  bool takes_old_forms() const override { return true; }
};

template <size_t... kStep>
void register_steps(PassRegistry& passes, std::index_sequence<kStep...> /*steps*/) {
  (passes.add(PassInfo(kUpgradeSteps[kStep].name, kUpgradeSteps[kStep].summary)
                  .makes<UpgradePass<kStep>>()),
   ...);
}

}  // namespace

// Adds the passes of upgrade.h by name (upgrade-attr-kinds, ...) and all of them as
// upgrade-program.
void add_upgrade_upgrade_program(PassRegistry& registry) {
  register_steps(registry, std::make_index_sequence<std::size(kUpgradeSteps)>());
  registry.add(PassInfo("upgrade-program",
                        "rewrite a program of an older release into the form of release 2.6: "
                        "upgrade-attr-names, upgrade-attr-kinds, upgrade-formulas, "
                        "upgrade-op-types, upgrade-gradients, stamp-versions")
                   .makes<UpgradeProgram>());
}

}  // namespace millrace::transpiler
