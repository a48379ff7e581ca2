#include "ps/table/typed_table.h"

#include <fmt/format.h>

#include "framework/op.h"

namespace millrace::ps {

StatusOr<SparseLayout> layout_of(const TypedTable& table) {
  MILLRACE_ASSIGN_OR_RETURN(const std::unique_ptr<Accessor> accessor,
                            Accessor::create(table.options.accessor));
  SparseLayout layout;
  layout.table_id = table.options.table_id;
  layout.shard_num = table.shard_num;
  layout.pull_width = accessor->pull_floats();
  layout.push_width = accessor->push_floats();
  layout.push_labels = accessor->push_labels();
  layout.padding = table.options.padding;
  layout.counts_accesses = table.options.entry.kind == EntryPolicy::Kind::kCountFilter ||
                           table.options.entry.kind == EntryPolicy::Kind::kProbability;
  return layout;
}

void name_pushed_gradients(Program& program) {
  for (Op& op : program.root().ops()) {
    if (op.type() != "distributed_push_sparse" || op.output("Outputs").empty()) continue;
    const auto grads = op.output("Outputs");
    op.set_input("Grads", llvm::ArrayRef<llvm::StringRef>(grads));
    op.remove_output("Outputs");
  }
}

std::string table_item(int table_id, const std::string& part) {
  return fmt::format("@TABLE@{}@{}", table_id, part);
}

std::string table_keys_item(int table_id) {
  return table_item(table_id, "KEYS");
}

std::string table_rows_item(int table_id) {
  return table_item(table_id, "ROWS");
}

std::string table_grads_item(int table_id) {
  return table_item(table_id, "GRADS");
}

std::string table_rate_item(int table_id) {
  return table_item(table_id, "RATE");
}

}  // namespace millrace::ps
