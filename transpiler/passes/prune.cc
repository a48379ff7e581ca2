#include "framework/base/errors.h"
#include "transpiler/needed_ops.h"
#include "transpiler/pass_registry.h"
#include "transpiler/program_edit.h"
#include "transpiler/roles.h"

namespace millrace::transpiler {
namespace {

// An optimizer op writes the parameters it reads. If it counted as their producer, the whole
// backward pass would become part of an inference program.
bool updates_parameters(const Op& op) {
  return (role::of(op) & role::kOptimize) != 0 || role::is_optimizer(op);
}

bool is_fed_by_op(const Op& op) {
  return op.type() == "feed" || op.type() == "read" || op.type() == "create_py_reader";
}

class Prune final : public Pass {
 public:
  explicit Prune(const PassOptions& options)
      : targets_(options.strings("targets")), feeds_(options.strings("feeds")) {}

  llvm::StringRef name() const override { return "prune"; }

  StatusOr<bool> run(Program& program, PassContext& /*context*/) override {
    for (const std::string& name : targets_) {
      if (!is_known_var(program, name)) return no_such_var(program, name, "targets");
    }
    for (const std::string& name : feeds_) {
      if (!is_known_var(program, name)) return no_such_var(program, name, "feeds");
    }
    NeedRules rules;
    rules.is_root = [](const Op&) { return false; };
    rules.not_by_outputs = updates_parameters;
    rules.targets = targets_;
    rules.feeds = feeds_;
    const NeededOps needed(program, rules);
    if (!feeds_.empty()) MILLRACE_RETURN_IF_ERROR(check_sources(program, needed));

    size_t removed = needed.erase_others(program);
    removed += erase_unowned_blocks(program);
    std::vector<std::string> keep = targets_;
    keep.insert(keep.end(), feeds_.begin(), feeds_.end());
    removed += erase_unmentioned_vars(program, keep, /*persistable=*/true);
    return removed > 0;
  }

 private:
  // If feeds are given, every var that the kept ops read in block 0 must be fed, computed or
  // persistable.
  Status check_sources(const Program& program, const NeededOps& needed) const {
    for (const Op& op : program.root().ops()) {
      if (!needed.contains(op) || is_fed_by_op(op)) continue;
      for (const llvm::StringRef name : op.input_names()) {
        const Var* const var = program.root().find_var(name);
        if (var == nullptr || var->persistable() || llvm::is_contained(feeds_, name)) continue;
        const auto writers = program.root().writers_of(name);
        if (llvm::any_of(writers, [&](const Op* writer) { return needed.contains(*writer); }))
          continue;
        Location place = op.location();
        place.var = name.str();
        return InvalidArgument("the targets need '{}', which is neither fed nor computed",
                               name.str())
            .at(std::move(place))
            .with_hint("add it to 'feeds', or choose targets that do not depend on it");
      }
    }
    return Ok();
  }

  std::vector<std::string> targets_;
  std::vector<std::string> feeds_;
};

}  // namespace

void add_passes_prune(PassRegistry& registry) {
  registry.add(
      PassInfo(
          "prune",
          "keep only ops, sub-blocks and declarations that the targets depend on; optimizer ops "
          "do not count as producers")
          .strings("targets", "vars to compute")
          .required()
          .strings("feeds", "vars that the caller feeds; ops that compute them are dropped")
          .makes<Prune>());
}

}  // namespace millrace::transpiler
