#include <algorithm>

#include <llvm/ADT/DenseMap.h>
#include <llvm/ADT/STLExtras.h>

#include "framework/base/errors.h"
#include "framework/names.h"
#include "transpiler/distribute/pserver_builder.h"
#include "transpiler/distribute/pserver_program.h"
#include "transpiler/distribute/roles.h"

namespace millrace::transpiler {
namespace {

// Where this server keeps what the original startup program writes under a name; empty if it does
// not.
std::string target_of(const DistributionJob& job, const llvm::DenseMap<uint32_t, uint32_t>& slices,
                      const Block& pserver, llvm::StringRef name) {
  const auto pair = job.pair_of_param.find(name);
  if (pair != job.pair_of_param.end()) {
    const auto owned = slices.find(pair->second);
    if (owned != slices.end()) return job.pairs[pair->second].slices[owned->second].param;
  }
  return pserver.find_var(name) != nullptr ? name.str() : std::string();
}

bool has_shape_attr(llvm::StringRef type) {
  return type == "gaussian_random" || type == "fill_constant" || type == "uniform_random" ||
         type == "truncated_gaussian_random";
}

// Ops of the original startup program that write, as their first output, something this server
// keeps; in program order. Found from the vars of the server, so that a job's servers do not each
// walk a whole large program.
std::vector<const Op*> initializers(const Block& startup, const Block& pserver,
                                    const DistributionJob& job, size_t server) {
  std::vector<const Op*> ops;
  const auto add = [&](llvm::StringRef name) {
    for (const Op* const op : startup.writers_of(name)) {
      if (op->output_names()[0] == name) ops.push_back(op);
    }
  };
  for (const Var& var : pserver.vars()) add(var.name());
  for (const OwnedSlice& owned : job.owned[server]) add(job.pairs[owned.pair].param);
  llvm::sort(ops, [](const Op* a, const Op* b) { return a->comes_before(*b); });
  ops.erase(std::unique(ops.begin(), ops.end()), ops.end());
  return ops;
}

void set_shape(Op& op, const Var& output) {
  op.set_attr("shape", AttrValue::of_longs(
                           std::vector<int64_t>(output.dims().begin(), output.dims().end())));
}

void append_backups(Block& block, const DistributionJob& job, size_t server) {
  for (const OwnedSlice& owned : job.owned[server]) {
    const std::string& param = job.pairs[owned.pair].slices[owned.slice].param;
    for (int64_t trainer = 0; trainer < job.trainers; ++trainer) {
      const std::string backup = names::dc_backup(param, trainer);
      Op& assign = block.append_op("assign");
      assign.set_input("X", llvm::StringRef(param)).set_output("Out", llvm::StringRef(backup));
      finish(assign, role::kForward);
    }
  }
}

}  // namespace

StatusOr<std::unique_ptr<Program>> make_pserver_startup(const Program& startup,
                                                        const Program& pserver,
                                                        const DistributionJob& job, size_t server) {
  std::unique_ptr<Program> program = Program::create();
  program->set_version(startup.has_version(), startup.version());
  Block& block = program->root();
  for (const Var& var : pserver.root().vars()) {
    block.declare(var.name(), server_spec(var));
  }
  llvm::DenseMap<uint32_t, uint32_t> slices;
  for (const OwnedSlice& owned : job.owned[server]) slices[owned.pair] = owned.slice;
  for (const Op* const op : initializers(startup.root(), pserver.root(), job, server)) {
    const llvm::StringRef type = op->type();
    if (type == "recv" || type == "fetch_barrier" || type == "concat") continue;
    const auto outputs = op->output_names();
    Op& copy = block.append_clone(*op);
    copy.set_string("op_namescope", "/");
    copy.remove_attr("op_callstack");
    for (const llvm::StringRef output : outputs) {
      const std::string target = target_of(job, slices, pserver.root(), output);
      if (!target.empty() && target != output) copy.replace_output(output, target);
    }
    if (!has_shape_attr(type)) continue;
    const Var* const first = block.find_var(copy.output_names()[0]);
    if (first != nullptr) set_shape(copy, *first);
  }
  if (job.config.enable_dc_asgd) append_backups(block, job, server);
  return program;
}

}  // namespace millrace::transpiler
