#include <map>

#include "transpiler/distribute/geo_passes.h"
#include "transpiler/roles.h"

namespace millrace::transpiler {
namespace {

bool is_sparse_param(const DistributionJob& job, llvm::StringRef name) {
  const auto pair = job.pair_of_param.find(name);
  return pair != job.pair_of_param.end() &&
         job.pairs[pair->second].grad_kind == VarKind::kSelectedRows;
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
  Op& send = block.append_op("send").set_input("X", ids);
  send.set_output("Out", job.controls.create(block)).set_strings("send_varnames", tables);
  finish(send, role::kForward);
  return Ok();
}

}  // namespace millrace::transpiler
