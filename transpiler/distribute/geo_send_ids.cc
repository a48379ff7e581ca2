#include <map>
#include <set>

#include <llvm/ADT/STLExtras.h>

#include "transpiler/distribute/geo_passes.h"
#include "transpiler/roles.h"

namespace millrace::transpiler {
namespace {

bool is_sparse_param(const DistributionJob& job, llvm::StringRef name) {
  const auto pair = job.pair_of_param.find(name);
  return pair != job.pair_of_param.end() &&
         job.pairs[pair->second].grad_kind == VarKind::kSelectedRows;
}

// True for a lookup whose ids are still there at the end of the step.
bool names_its_rows(const Block& root, const Op& op) {
  if (&op.block() != &root || !op.has_attr("is_sparse") || op.input("Ids").empty()) return false;
  return llvm::all_of(op.input("Ids"), [&](llvm::StringRef ids) {
    const Op* const writer = root.last_writer(ids);
    return writer == nullptr || writer->comes_before(op);
  });
}

// Sparse params whose trained rows are not, or not only, the ids of lookups of the root block: nce
// and hierarchical_sigmoid choose rows themselves, and blocks may have lookups of their own.
std::set<std::string> params_of_other_readers(const DistributionJob& job, const Program& main) {
  constexpr int32_t kNotForward = role::kBackward | role::kOptimize | role::kRpc | role::kLrSched;
  std::set<std::string> names;
  for (size_t i = 0; i < main.block_count(); ++i) {
    for (const Op& op : main.block(i).ops()) {
      if ((role::of(op) & kNotForward) != 0 || names_its_rows(main.root(), op)) continue;
      for (const llvm::StringRef name : op.input_names()) {
        if (is_sparse_param(job, name)) names.insert(name.str());
      }
    }
  }
  return names;
}

}  // namespace

Status geo_send_ids(Program& main, PassContext& context, DistributionJob& job) {
  (void)context;
  Block& block = main.root();
  std::vector<std::string> ids;
  std::vector<std::string> tables;
  std::map<std::string, std::string> last_table;  // by ids var
  for (Op& op : block.ops()) {
    if (!op.has_attr("is_sparse")) continue;
    if (op.type() == "lookup_table") op.set_bool("remote_prefetch", false);
    const auto op_ids = op.input("Ids");
    const auto op_tables = op.input("W");
    for (size_t i = 0; i < std::min(op_ids.size(), op_tables.size()); ++i) {
      if (!is_sparse_param(job, op_tables[i])) continue;
      // The gradient op has the same pair as its lookup.
      std::string& known = last_table[op_ids[i].str()];
      if (known == op_tables[i]) continue;
      known = op_tables[i].str();
      ids.push_back(op_ids[i].str());
      tables.push_back(op_tables[i].str());
    }
  }
  // the rows of their gradients are those that the step trained
  for (const std::string& param : params_of_other_readers(job, main)) {
    ids.push_back(job.pairs[job.pair_of_param.lookup(param)].grad);
    tables.push_back(param);
  }
  Op& send = block.append_op("send").set_input("X", ids);
  send.set_output("Out", job.controls.create(block)).set_strings("send_varnames", tables);
  finish(send, role::kForward);
  return Ok();
}

}  // namespace millrace::transpiler
