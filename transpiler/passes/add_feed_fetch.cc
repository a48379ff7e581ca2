#include "framework/base/errors.h"
#include "transpiler/pass_registry.h"
#include "transpiler/program_edit.h"
#include "transpiler/roles.h"

namespace millrace::transpiler {
namespace {

class AddFeedFetch final : public Pass {
 public:
  explicit AddFeedFetch(const PassOptions& options)
      : feeds_(options.strings("feeds")), fetches_(options.strings("fetches")) {}

  llvm::StringRef name() const override { return "add-feed-fetch"; }

  StatusOr<bool> run(Program& program, PassContext& /*context*/) override {
    Block& block = program.root();
    for (const Op& op : block.ops()) {
      if (op.type() != "feed" && op.type() != "fetch") continue;
      return InvalidProgram("the program has a {} op already", op.type().str())
          .at(op.location())
          .with_hint("run remove-feed-fetch first");
    }
    for (const std::string& name : feeds_) {
      if (block.find_var(name) == nullptr) return no_such_var(program, name, "feeds");
    }
    for (const std::string& name : fetches_) {
      if (block.find_var(name) == nullptr) return no_such_var(program, name, "fetches");
    }
    declare_holder(block, "feed", VarKind::kFeedMinibatch, feeds_);
    declare_holder(block, "fetch", VarKind::kFetchList, fetches_);
    // Each feed op is inserted before the others, so their columns are in descending order, as in
    // every saved inference program.
    for (size_t i = 0; i < feeds_.size(); ++i) {
      Op& op = block.op_count() == 0 ? block.append_op("feed")
                                     : block.insert_before(&block.front(), "feed");
      finish(op, "feed", feeds_[i], i);
    }
    for (size_t i = 0; i < fetches_.size(); ++i)
      finish(block.append_op("fetch"), fetches_[i], "fetch", i);
    return !feeds_.empty() || !fetches_.empty();
  }

 private:
  static void declare_holder(Block& block, llvm::StringRef name, VarKind kind,
                             const std::vector<std::string>& columns) {
    if (columns.empty()) return;
    VarSpec spec = VarSpec::shapeless(kind);
    spec.persistable = true;
    block.declare(name, std::move(spec));
  }

  static void finish(Op& op, llvm::StringRef from, llvm::StringRef to, size_t column) {
    op.set_input("X", from).set_output("Out", to);
    op.set_int("col", static_cast<int32_t>(column)).set_int("op_role", role::kForward);
  }

  std::vector<std::string> feeds_;
  std::vector<std::string> fetches_;
};

}  // namespace

void add_passes_add_feed_fetch(PassRegistry& registry) {
  registry.add(
      PassInfo("add-feed-fetch",
               "add the feed and fetch ops of an inference program, in order of the options")
          .strings("feeds", "vars of block 0 that are fed")
          .strings("fetches", "vars of block 0 that are fetched")
          .makes<AddFeedFetch>());
}

}  // namespace millrace::transpiler
