#include <algorithm>

#include <llvm/ADT/MapVector.h>

#include "framework/base/errors.h"
#include "framework/op_attrs.h"
#include "ops/verify_context.h"

namespace millrace::ops::verify {
namespace {

constexpr int64_t kMaxColumns = 65536;

struct Column {
  int64_t col;
  const Op* op;
  int64_t index;
};

// Checks the columns of all feed (fetch) ops that share a holder var.
class ColumnChecker {
 public:
  ColumnChecker(Context& context, llvm::StringRef type) : context_(context), type_(type) {}

  void run(std::vector<Column>& columns) {
    const auto count = static_cast<int64_t>(columns.size());
    std::stable_sort(columns.begin(), columns.end(),
                     [](const Column& a, const Column& b) { return a.col < b.col; });
    int64_t expected = 0;
    for (size_t i = 0; i < columns.size(); ++i) {
      const Column& column = columns[i];
      if (column.col < 0 || column.col >= kMaxColumns) {
        report(column, fmt::format("col is {} (expected 0 to {})", column.col, kMaxColumns - 1));
      } else if (i > 0 && column.col == columns[i - 1].col) {
        report(column, fmt::format("col {} occurs twice (expected each of 0 to {} once)",
                                   column.col, count - 1));
      } else if (column.col > expected) {
        report(column, fmt::format("col is {}, but col {} is missing (expected each of 0 to {} "
                                   "once)",
                                   column.col, expected, count - 1));
      }
      expected = std::max(expected, column.col + 1);
    }
  }

 private:
  void report(const Column& column, const std::string& what) {
    const OpView view{*column.op, column.index, context_.type_of(*column.op)};
    Location where = Context::place(view);
    where.attr = "col";
    context_.error(view, "feed-fetch-col", InvalidProgram("{} {}", text(type_), what),
                   std::move(where));
  }

  Context& context_;
  llvm::StringRef type_;
};

// The holder of a feed or fetch op must have a specific kind; the schema permits more.
void check_holder(Context& context, const OpView& view, bool is_feed) {
  const Slot* const slot = is_feed ? view.op.find_input("X") : view.op.find_output("Out");
  if (slot == nullptr || slot->args.empty()) return;
  const Var* const var = view.op.block().find_var_recursive(view.op.name_of(slot->args[0].name));
  if (var == nullptr) return;
  const VarKind wanted = is_feed ? VarKind::kFeedMinibatch : VarKind::kFetchList;
  // Programs written by an edge optimizer fetch into a tensor array.
  const VarKind other = is_feed ? VarKind::kFeedList : VarKind::kLodTensorArray;
  if (var->kind() == wanted || var->kind() == other) return;
  if (context.faulty.count(&view.op) != 0) return;  // already reported
  Location where = Context::place(view);
  where.slot = is_feed ? "input X" : "output Out";
  where.slot_index = 0;
  where.var = var->name().str();
  context.error(view, "slot-kind",
                InvalidProgram("var '{}' is a {} (expected {})", where.var,
                               var_kind_name(var->kind()), var_kind_name(wanted)),
                where);
}

bool is_transfer(const Op& op, bool is_feed) {
  return is_feed ? op.type() == "feed" : op.type() == "fetch" || op.type() == "fetch_v2";
}

void check_direction(Context& context, bool is_feed) {
  llvm::MapVector<uint32_t, std::vector<Column>> by_holder;
  for (const Block& block : context.program.blocks()) {
    int64_t index = -1;
    for (const Op& op : block.ops()) {
      ++index;
      if (!is_transfer(op, is_feed)) continue;
      const OpView view{op, index, context.type_of(op)};
      check_holder(context, view, is_feed);
      const Slot* const slot = is_feed ? op.find_input("X") : op.find_output("Out");
      const bool has_holder = slot != nullptr && !slot->args.empty();
      const uint32_t holder = has_holder ? static_cast<uint32_t>(slot->args[0].name) : ~0U - 2;
      by_holder[holder].push_back(Column{get_attr_or<int64_t>(op, "col", 0), &op, index});
    }
  }
  for (auto& [holder, columns] : by_holder)
    ColumnChecker(context, is_feed ? "feed" : "fetch").run(columns);
}

}  // namespace

void check_feed_fetch(Context& context) {
  check_direction(context, /*is_feed=*/true);
  check_direction(context, /*is_feed=*/false);
}

}  // namespace millrace::ops::verify
