#include <llvm/ADT/SmallVector.h>

#include "framework/base/errors.h"
#include "ops/verify_context.h"

namespace millrace::ops::verify {
namespace {

// Determines which op owns which sub-block, and which blocks a run can reach.
class BlockOwners {
 public:
  explicit BlockOwners(Context& context)
      : context_(context),
        owner_(context.program.block_count()),
        leads_to_(context.program.block_count()) {}

  void run() {
    for (const Block& block : context_.program.blocks()) {
      int64_t index = 0;
      for (const Op& op : block.ops()) {
        const int64_t own_index = index++;
        for (const Attr& attr : op.attrs()) {
          const AttrKind kind = attr.value.kind();
          if (kind == AttrKind::kBlock) {
            own(op, own_index, attr, attr.value.integer(), /*nested=*/false);
          } else if (kind == AttrKind::kBlocks) {
            for (const int32_t target : attr.value.ints())
              own(op, own_index, attr, target, /*nested=*/true);
          } else if (kind == AttrKind::kInt || kind == AttrKind::kStrings) {
            note_server_blocks(op, attr);
          }
        }
      }
    }
    mark_reachable();
  }

 private:
  [[nodiscard]] bool in_range(int64_t index) const {
    return index >= 0 && index < static_cast<int64_t>(context_.program.block_count());
  }

  // A list of blocks (the optimizer blocks of a server) may hold blocks nested in one another.
  [[nodiscard]] bool is_below(int32_t block, int32_t ancestor, bool nested) const {
    int32_t parent = context_.program.block(block).parent();
    while (nested && parent > ancestor) parent = context_.program.block(parent).parent();
    return parent == ancestor;
  }

  void own(const Op& op, int64_t index, const Attr& attr, int64_t target, bool nested) {
    const OpView view{op, index, context_.type_of(op)};
    const int32_t holder = op.block().index();
    const llvm::StringRef name = op.name_of(attr.name);
    const std::string_view type = text(op.type());
    if (!in_range(target)) {
      error(view, name,
            InvalidProgram("'{}' refers to block {} in '{}' (expected a child of block {}; the "
                           "program has {} blocks)",
                           type, target, text(name), holder, context_.program.block_count()));
      return;
    }
    const auto block = static_cast<int32_t>(target);
    if (!is_below(block, holder, nested)) {
      error(
          view, name,
          InvalidProgram("'{}' refers to block {} in '{}', whose parent is block {} (expected a "
                         "child of block {})",
                         type, block, text(name), context_.program.block(block).parent(), holder));
      return;
    }
    leads_to_[holder].push_back(block);
    Owner& owner = owner_[block];
    // Gradient ops of old programs also own the block of their forward op.
    if (owner.op != nullptr && !view.type.is_gradient && !owner.is_gradient) {
      error(view, name,
            InvalidProgram("'{}' refers to block {} in '{}', which op {} ({}) of block {} already "
                           "owns",
                           type, block, text(name), owner.index, text(owner.op->type()),
                           owner.op->block().index()));
    }
    if (owner.op == nullptr || owner.is_gradient) owner = Owner{&op, index, view.type.is_gradient};
  }

  void error(const OpView& view, llvm::StringRef attr, Status status) {
    Location where = Context::place(view);
    where.attr = attr.str();
    context_.error(view, "sub-block", std::move(status), std::move(where));
  }

  // Servers name further blocks by number: "checkpint_block_id" (sic) and "var:number".
  void note_server_blocks(const Op& op, const Attr& attr) {
    const llvm::StringRef name = op.name_of(attr.name);
    auto note = [&](int64_t target) {
      if (in_range(target)) leads_to_[op.block().index()].push_back(static_cast<int32_t>(target));
    };
    if (attr.value.kind() == AttrKind::kInt) {
      if (name == "checkpint_block_id" || name == "lr_decay_block_id") note(attr.value.integer());
    } else if (name == "prefetch_var_name_to_block_id") {
      for (const llvm::StringRef entry : attr.value.strings()) {
        int64_t target = 0;
        if (!entry.rsplit(':').second.getAsInteger(10, target)) note(target);
      }
    }
  }

  void mark_reachable() {
    std::vector<int32_t> pending = {0};
    context_.reachable[0] = true;
    while (!pending.empty()) {
      const int32_t block = pending.back();
      pending.pop_back();
      for (const int32_t next : leads_to_[block]) {
        if (context_.reachable[next]) continue;
        context_.reachable[next] = true;
        pending.push_back(next);
      }
    }
  }

  struct Owner {
    const Op* op = nullptr;
    int64_t index = 0;
    bool is_gradient = false;
  };

  Context& context_;
  std::vector<Owner> owner_;
  std::vector<llvm::SmallVector<int32_t, 2>> leads_to_;
};

}  // namespace

void find_reachable(Context& context) {
  BlockOwners(context).run();
}

}  // namespace millrace::ops::verify
