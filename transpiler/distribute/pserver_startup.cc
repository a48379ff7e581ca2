#include <algorithm>

#include <llvm/ADT/DenseMap.h>
#include <llvm/ADT/STLExtras.h>

#include "framework/base/errors.h"
#include "framework/names.h"
#include "transpiler/distribute/pserver_builder.h"
#include "transpiler/distribute/pserver_program.h"
#include "transpiler/roles.h"

namespace millrace::transpiler {
namespace {

// The server's name for the var that the original startup program writes; empty if the server does
// not hold it.
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

// Ops of the original startup program whose first output is a var that this server keeps, in
// program order. The search starts from the vars of the server, so that not every server of a job
// walks a whole large program.
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
  const AttrValue* const old = op.find_attr("shape");
  if (op.type() == "assign_value" && old != nullptr && old->kind() == AttrKind::kInts) {
    op.set_attr("shape", AttrValue::of_ints(
                             std::vector<int32_t>(output.dims().begin(), output.dims().end())));
    return;
  }
  op.set_attr("shape", AttrValue::of_longs(
                           std::vector<int64_t>(output.dims().begin(), output.dims().end())));
}

// The rows of a sliced var that this server holds: of a param, or of state that is sliced with one.
const PlacedSlice* slice_held(const DistributionJob& job, size_t server, llvm::StringRef name) {
  for (const OwnedSlice& owned : job.owned[server]) {
    const ParamGrad& pair = job.pairs[owned.pair];
    const bool is_state = llvm::any_of(job.ops_of_pair[owned.pair], [&](const Op* op) {
      return op->reads(name) || op->writes(name);
    });
    if (pair.param == name || is_state) return &pair.slices[owned.slice];
  }
  return nullptr;
}

template <typename T>
std::vector<T> elements_of(llvm::ArrayRef<T> values, const Slice& slice) {
  const auto part =
      values.slice(static_cast<size_t>(slice.offset), static_cast<size_t>(slice.elems));
  return {part.begin(), part.end()};
}

// Reduces the values of an assign_value to those of the slice. Errors: the op does not have all
// values of the whole var.
Status slice_values(Op& op, const Slice& slice, int64_t whole) {
  bool is_sliced = false;
  for (const char* const name :
       {"fp32_values", "fp64_values", "int32_values", "int64_values", "bool_values", "values"}) {
    const AttrValue* const value = op.find_attr(name);
    if (value == nullptr) continue;
    const auto has_all = [&](size_t count) { return static_cast<int64_t>(count) == whole; };
    if (value->kind() == AttrKind::kFloats && has_all(value->floats().size())) {
      op.set_attr(name, AttrValue::of_floats(elements_of(value->floats(), slice)));
    } else if (value->kind() == AttrKind::kFloat64s && has_all(value->float64s().size())) {
      op.set_attr(name, AttrValue::of_float64s(elements_of(value->float64s(), slice)));
    } else if (value->kind() == AttrKind::kInts && has_all(value->ints().size())) {
      op.set_attr(name, AttrValue::of_ints(elements_of(value->ints(), slice)));
    } else if (value->kind() == AttrKind::kLongs && has_all(value->longs().size())) {
      op.set_attr(name, AttrValue::of_longs(elements_of(value->longs(), slice)));
    } else if (value->kind() == AttrKind::kBools && has_all(value->bools().size())) {
      op.set_attr(name, AttrValue::of_bools(elements_of(value->bools(), slice)));
    } else if (value->kind() == AttrKind::kScalars && has_all(value->scalars().size())) {
      op.set_attr(name, AttrValue::of_scalars(elements_of(value->scalars(), slice)));
    } else {
      continue;
    }
    is_sliced = true;
  }
  if (is_sliced) return Ok();
  return InvalidProgram("the initializer does not have the {} values of the whole var", whole);
}

// Makes the initializer of a sliced var initialize only the slice that the server holds.
Status make_slice(Op& copy, const Op& op, const Var& target, const DistributionJob& job,
                  size_t server) {
  if (has_shape_attr(copy.type())) {
    set_shape(copy, target);
    return Ok();
  }
  const llvm::StringRef whole = op.output_names()[0];
  const Var* const declared = op.block().find_var(whole);
  if (declared == nullptr || declared->dims() == target.dims()) return Ok();
  const PlacedSlice* const held = slice_held(job, server, whole);
  if (copy.type() != "assign_value" || held == nullptr ||
      llvm::ArrayRef<int64_t>(held->slice.dims) != target.dims()) {
    return Unimplemented(
               "'{}' initializes '{}' as a whole, but this server holds a slice; supported are "
               "fill_constant, uniform_random, gaussian_random, truncated_gaussian_random and "
               "assign_value",
               op.type().str(), whole.str())
        .at(op.location())
        .with_hint("set slice_var_up to false");
  }
  set_shape(copy, target);
  Status status = slice_values(copy, held->slice, element_count(declared->dims()).value_or(0));
  return status.ok() ? Ok() : std::move(status).at(op.location());
}

// Checks that the server also has what an initializer reads.
Status check_inputs(const Op& op, const Block& startup) {
  for (const llvm::StringRef name : op.input_names()) {
    if (startup.find_var(name) != nullptr) continue;
    return Unimplemented("'{}' initializes '{}' from '{}', which this server does not have",
                         op.type().str(), op.output_names()[0].str(), name.str())
        .at(op.location());
  }
  return Ok();
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
    MILLRACE_RETURN_IF_ERROR(check_inputs(*op, block));
    const Var* const first = block.find_var(copy.output_names()[0]);
    if (first != nullptr) MILLRACE_RETURN_IF_ERROR(make_slice(copy, *op, *first, job, server));
  }
  if (job.config.enable_dc_asgd) append_backups(block, job, server);
  return program;
}

}  // namespace millrace::transpiler
