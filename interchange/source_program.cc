#include "interchange/source_program.h"

#include <algorithm>
#include <set>

#include <llvm/ADT/STLExtras.h>

#include "framework/base/errors.h"
#include "framework/op_attrs.h"
#include "framework/program.h"
#include "ops/infer_shapes.h"

namespace millrace::interchange {

namespace {

// Blocks of loops and branches read vars of the root block as well.
bool is_read(const Block& root, llvm::StringRef name) {
  return llvm::any_of(root.program().blocks(), [&](const Block& block) {
    return (block.index() == root.index() || block.find_var(name) == nullptr) &&
           block.has_readers(name);
  });
}

}  // namespace

std::vector<const Op*> in_columns(const Block& block, llvm::StringRef type) {
  std::vector<const Op*> found;
  for (const Op& op : block.ops())
    if (op.type() == type) found.push_back(&op);
  std::stable_sort(found.begin(), found.end(), [](const Op* a, const Op* b) {
    return get_attr_or<int32_t>(*a, "col", 0) < get_attr_or<int32_t>(*b, "col", 0);
  });
  return found;
}

StatusOr<std::vector<const Op*>> fetches_of(const Block& block) {
  std::vector<const Op*> fetches = in_columns(block, "fetch");
  if (fetches.empty())
    return InvalidProgram("the program has no fetch ops, so it is not an inference program");
  return fetches;
}

StatusOr<Var*> fed_var(Block& block, const Op& feed,
                       const std::map<std::string, Dims>& input_dims) {
  const std::string name = feed.first_output("Out").str();
  Var* const var = block.find_var(name);
  if (const auto dims = input_dims.find(name); dims != input_dims.end()) {
    if (var == nullptr || var->dims().size() != dims->second.size())
      return InvalidArgument("dims of the input '{}': expected {} of them, found {}", name,
                             var == nullptr ? 0 : var->dims().size(), dims->second.size());
    var->set_dims(dims->second);
  }
  if (var == nullptr || !var->spec().has_tensor())
    return InvalidProgram("the fed var '{}' has no declared shape", name).at(feed.location());
  return var;
}

Status check_input_names(const Block& block, const std::map<std::string, Dims>& input_dims) {
  std::set<std::string> fed;
  for (const Op* const feed : in_columns(block, "feed"))
    fed.insert(feed->first_output("Out").str());
  for (const auto& [name, dims] : input_dims)
    if (!fed.contains(name))
      return InvalidArgument("dims of '{}', which is no input of the program", name);
  return Ok();
}

StatusOr<std::map<std::string, const Tensor*>> read_params(const Block& block,
                                                           const io::ParamValues& params) {
  std::set<std::string> fed;
  for (const Op* const feed : in_columns(block, "feed"))
    fed.insert(feed->first_output("Out").str());
  std::map<std::string, const Tensor*> found;
  for (const Var& var : block.vars()) {
    const std::string name = var.name().str();
    if (!var.persistable() || fed.contains(name) || !is_read(block, name)) continue;
    if (var.kind() == VarKind::kFeedMinibatch || var.kind() == VarKind::kFetchList) continue;
    const auto value = params.find(name);
    const Tensor* const tensor = value == params.end() ? nullptr : value->second.get_if<Tensor>();
    if (tensor == nullptr || !tensor->initialized()) {
      const Op* const writer = block.first_writer(name);
      if (writer != nullptr && !writer->reads(name)) continue;  // an op sets it
      return NotFound("the parameter '{}' has no value, or it is not a dense tensor", name);
    }
    found[name] = tensor;
  }
  return found;
}

Status check_dense_inputs(const Op& op, llvm::StringRef format) {
  for (const llvm::StringRef name : op.input_names()) {
    const Var* const var = op.block().find_var_recursive(name);
    if (var == nullptr || var->kind() == VarKind::kLodTensor) continue;
    return Unimplemented("export to {}: '{}' is a var of kind {}, expected a dense tensor",
                         format.str(), name.str(), var_kind_name(var->kind()))
        .at(op.location());
  }
  return Ok();
}

Block* owned_block(const Op& op) {
  const AttrValue* const attr = op.find_attr("sub_block");
  if (attr == nullptr || attr->kind() != AttrKind::kBlock) return nullptr;
  return &op.program().block(static_cast<size_t>(attr->integer()));
}

Status infer_dims(const ops::OpRegistry& registry, Op& op) {
  std::vector<std::pair<Var*, Dims>> before;
  for (const llvm::StringRef name : op.output_names()) {
    Var* const var = op.block().find_var_recursive(name);
    if (var != nullptr) before.emplace_back(var, Dims(var->dims().begin(), var->dims().end()));
  }
  MILLRACE_RETURN_IF_ERROR(ops::infer_op(registry, op));
  for (const auto& [var, declared] : before) {
    Dims dims(var->dims().begin(), var->dims().end());
    if (dims.size() != declared.size()) continue;
    for (size_t i = 0; i < dims.size(); ++i)
      if (dims[i] < 0) dims[i] = declared[i];
    var->set_dims(dims);
  }
  return Ok();
}

}  // namespace millrace::interchange
