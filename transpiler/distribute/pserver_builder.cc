#include "transpiler/distribute/pserver_builder.h"

#include "framework/base/errors.h"

namespace millrace::transpiler {

VarSpec plain_spec(VarKind kind, DType dtype, llvm::ArrayRef<int64_t> dims) {
  VarSpec spec = VarSpec::tensor(dtype, dims);
  spec.kind = kind;
  if (kind == VarKind::kSelectedRows) spec.form = TensorForm::kSelectedRows;
  if (kind == VarKind::kLodTensorArray) spec.form = TensorForm::kTensorArray;
  return spec;
}

VarSpec server_spec(const Var& var) {
  VarSpec spec = var.spec();
  spec.is_parameter.reset();
  if (spec.kind != VarKind::kStepScopes && spec.kind != VarKind::kRaw) spec.persistable = true;
  return spec;
}

PserverBuilder::PserverBuilder(const Program& origin_program, const PassContext& pass_context,
                               const DistributionJob& the_job, size_t server_index)
    : origin(origin_program),
      context(pass_context),
      job(the_job),
      server(server_index),
      program(Program::create()) {
  program->set_version(origin.has_version(), origin.version());
  for (const OwnedSlice& owned_slice : job.owned[server])
    slice_of_pair[owned_slice.pair] = owned_slice.slice;
}

const PlacedSlice* PserverBuilder::owned(uint32_t pair) const {
  const auto it = slice_of_pair.find(pair);
  return it == slice_of_pair.end() ? nullptr : &job.pairs[pair].slices[it->second];
}

std::string PserverBuilder::local_name(llvm::StringRef name) const {
  if (const auto it = job.pair_of_param.find(name); it != job.pair_of_param.end()) {
    if (const PlacedSlice* const slice = owned(it->second)) return slice->param;
  }
  if (const auto it = job.pair_of_grad.find(name); it != job.pair_of_grad.end()) {
    if (const PlacedSlice* const slice = owned(it->second)) return slice->server_grad;
  }
  return name.str();
}

Status PserverBuilder::clone_var(llvm::StringRef name, const Op& user) {
  if (root().find_var(name) != nullptr) return Ok();
  const Var* const var = user.block().find_var_recursive(name);
  if (var == nullptr) {
    return InvalidProgram("'{}' is not declared", std::string_view(name.data(), name.size()))
        .at(user.location());
  }
  root().declare(name, server_spec(*var));
  return Ok();
}

StatusOr<Op*> PserverBuilder::copy_op(Block& block, const Op& op, bool& sliced) {
  Op& copy = block.append_clone(op);
  copy.set_string("op_namescope", "/");
  copy.remove_attr("op_callstack");
  auto localize = [&](bool is_output) -> Status {
    const auto& slots = is_output ? op.outputs() : op.inputs();
    for (const Slot& slot : slots) {
      std::vector<std::string> names;
      for (const Arg& arg : slot.args) {
        const llvm::StringRef name = op.name_of(arg.name);
        names.push_back(local_name(name));
        if (names.back() != name) {
          sliced = true;
        } else {
          MILLRACE_RETURN_IF_ERROR(clone_var(name, op));
        }
      }
      const llvm::StringRef slot_name = op.name_of(slot.name);
      if (is_output) {
        copy.set_output(slot_name, names);
      } else {
        copy.set_input(slot_name, names);
      }
    }
    return Ok();
  };
  MILLRACE_RETURN_IF_ERROR(localize(/*is_output=*/false));
  MILLRACE_RETURN_IF_ERROR(localize(/*is_output=*/true));
  return &copy;
}

}  // namespace millrace::transpiler
