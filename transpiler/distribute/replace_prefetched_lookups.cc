#include "framework/base/errors.h"
#include "transpiler/distribute/fetch_rows.h"
#include "transpiler/distribute/pserver_passes.h"
#include "transpiler/distribute/table_plan.h"
#include "transpiler/roles.h"

namespace millrace::transpiler {
namespace replace_prefetched_lookups_parts {
namespace {

std::string_view view(llvm::StringRef s) {
  return {s.data(), s.size()};
}

// Facts shared by all lookups of one table.
struct LookupGroup {
  std::string type;
  std::vector<std::string> ids;
  std::vector<std::string> outputs;
  int64_t padding_idx = -1;
};

// Removes the lookups of the table that have the type of the first one from the program. Errors:
// those of common_padding().
StatusOr<LookupGroup> take_lookups(Block& block, DistributionJob& job, const ParamGrad& pair) {
  LookupGroup group;
  std::vector<Op*> taken;
  std::vector<Op*> others;
  for (Op* const op : job.prefetch_lookups) {
    const bool of_table = op->reads(pair.param);
    if (!of_table || (!group.type.empty() && op->type() != group.type)) {
      others.push_back(op);
      continue;
    }
    if (group.type.empty()) group.type = op->type().str();
    group.ids.push_back(op->first_input("Ids").str());
    group.outputs.push_back(op->first_output("Out").str());
    taken.push_back(op);
  }
  MILLRACE_ASSIGN_OR_RETURN(group.padding_idx, common_padding(taken));
  for (Op* const op : taken) block.erase(*op);
  job.prefetch_lookups = std::move(others);
  return group;
}

// Last op that writes one of the ids; null if all are fed. Errors: an output is read before that
// op.
StatusOr<Op*> last_producer(const Block& block, const ParamGrad& pair, const LookupGroup& group) {
  Op* producer = nullptr;
  for (const std::string& ids : group.ids) {
    Op* const writer = block.last_writer(ids);
    if (writer != nullptr && (producer == nullptr || producer->comes_before(*writer)))
      producer = writer;
  }
  if (producer == nullptr) return producer;
  for (const std::string& output : group.outputs) {
    for (const Op* const reader : block.readers_of(output)) {
      if (reader == producer || reader->comes_before(*producer)) {
        return InvalidProgram(
                   "'{}' is read before all ids of table '{}' are known, so its lookups cannot "
                   "become one remote "
                   "lookup",
                   output, pair.param)
            .at(reader->location());
      }
    }
  }
  return producer;
}

Status replace_lookups(Block& block, DistributionJob& job, const ParamGrad& pair) {
  MILLRACE_ASSIGN_OR_RETURN(const LookupGroup group, take_lookups(block, job, pair));
  MILLRACE_ASSIGN_OR_RETURN(Op* const producer, last_producer(block, pair, group));
  Op* const first = block.op_count() == 0 ? nullptr : &block.front();
  Op& lookup = producer == nullptr ? block.insert_before(first, "distributed_lookup_table")
                                   : block.insert_after(*producer, "distributed_lookup_table");
  lookup.set_input("Ids", group.ids)
      .set_input("W", llvm::StringRef(pair.param))
      .set_output("Outputs", group.outputs);
  describe_remote_lookup(lookup, job, pair, group.padding_idx, group.type);
  return Ok();
}

}  // namespace
}  // namespace replace_prefetched_lookups_parts

Status replace_prefetched_lookups(Program& main, PassContext& context, DistributionJob& job) {
  using namespace replace_prefetched_lookups_parts;
  (void)context;
  for (const ParamGrad& pair : job.pairs) {
    if (!pair.prefetched) continue;
    fetch_rows_of_losses(main.root(), job, pair);
    const bool is_looked_up = llvm::any_of(
        job.prefetch_lookups, [&](const Op* const op) { return op->reads(pair.param); });
    if (is_looked_up) MILLRACE_RETURN_IF_ERROR(replace_lookups(main.root(), job, pair));
    job.sparse_tables.insert(pair.param);
  }
  for (const Op* const op : job.prefetch_lookups) {
    const auto name = op->first_input("W");
    const auto it = job.pair_of_param.find(name);
    if (it != job.pair_of_param.end() && job.pairs[it->second].prefetched) {
      return InvalidProgram(
                 "table '{}' is looked up by ops of different types; remote_prefetch needs one "
                 "type",
                 view(name))
          .at(op->location());
    }
  }
  return Ok();
}

}  // namespace millrace::transpiler
