#include "interchange/from_onnx/import.h"

#include <algorithm>
#include <limits>

#include <fmt/format.h>
#include <llvm/ADT/STLExtras.h>

#include "framework/base/errors.h"
#include "interchange/from_onnx/node_context.h"

namespace millrace::interchange {
namespace {

const NodeTable& node_rows() {
  static const NodeTable& table = *[] {
    auto* const made = new NodeTable;
    add_activation_nodes(*made);
    add_conv_nodes(*made);
    add_elementwise_nodes(*made);
    add_fill_nodes(*made);
    add_index_nodes(*made);
    add_matmul_nodes(*made);
    add_norm_nodes(*made);
    add_pool_nodes(*made);
    add_reduce_nodes(*made);
    add_resize_nodes(*made);
    add_rnn_nodes(*made);
    add_shape_nodes(*made);
    return made;
  }();
  return table;
}

bool is_default_domain(const std::string& domain) {
  return domain.empty() || domain == "ai.onnx";
}

// The version of the operators without a domain.
StatusOr<int64_t> opset_of(const ::onnx::ModelProto& model) {
  int64_t version = 0;
  for (const auto& set : model.opset_import())
    if (is_default_domain(set.domain())) version = set.version();
  if (version == 0)
    return Unimplemented("import of ONNX: the model states no operator set of ONNX itself");
  if (version >= kFirstImportedOpset && version <= kLastImportedOpset) return version;
  return Unimplemented("import of ONNX: operator set {}, expected {} to {}", version,
                       kFirstImportedOpset, kLastImportedOpset);
}

// Converts one model.
class Import {
 public:
  Import(const ::onnx::ModelProto& model, const OnnxImportOptions& options,
         const ops::OpRegistry& registry)
      : graph_(model.graph()), options_(options), program_(Program::create()) {
    state_.program = program_.get();
    state_.registry = &registry;
    state_.folder = options.folder;
  }

  StatusOr<ImportedModel> run(int64_t opset) {
    state_.opset = opset;
    MILLRACE_RETURN_IF_ERROR(reserve_names());
    MILLRACE_RETURN_IF_ERROR(add_constants());
    MILLRACE_RETURN_IF_ERROR(add_inputs());
    for (const ::onnx::NodeProto& node : graph_.node()) MILLRACE_RETURN_IF_ERROR(convert(node));
    MILLRACE_RETURN_IF_ERROR(add_outputs());
    return finish_import(*state_.registry, std::move(program_), std::move(state_.params));
  }

 private:
  [[nodiscard]] Block& block() const { return program_->root(); }

  // Vars that converters make must not take the name of a value.
  Status reserve_names() {
    const auto reserve = [&](const std::string& name) -> Status {
      if (is_reserved_name(name))
        return Unimplemented("import of ONNX: a value with the name '{}'", name);
      if (state_.names.insert(name).second) return Ok();
      return InvalidProgram("the value '{}' is computed twice", name);
    };
    for (const auto& constant : graph_.initializer())
      MILLRACE_RETURN_IF_ERROR(reserve(constant.name()));
    for (const auto& input : graph_.input()) {
      // Old files list constants as inputs as well.
      const bool is_constant = llvm::any_of(
          graph_.initializer(), [&](const auto& c) { return c.name() == input.name(); });
      if (!is_constant) MILLRACE_RETURN_IF_ERROR(reserve(input.name()));
    }
    for (const auto& node : graph_.node())
      for (const std::string& output : node.output())
        if (!output.empty()) MILLRACE_RETURN_IF_ERROR(reserve(output));
    if (graph_.sparse_initializer_size() > 0)
      return Unimplemented("import of ONNX: sparse constants");
    return Ok();
  }

  Status add_constants() {
    for (const ::onnx::TensorProto& proto : graph_.initializer()) {
      const std::string& name = proto.name();
      StatusOr<Tensor> tensor = tensor_from_onnx(proto, options_.folder);
      if (!tensor.ok())
        return std::move(tensor).status().with_note(fmt::format("constant '{}'", name));
      VarSpec spec = VarSpec::tensor(tensor->dtype(), tensor->dims());
      spec.persistable = true;
      block().declare(name, std::move(spec));
      note_known(state_, name, *tensor);
      state_.params[name].as<Tensor>() = std::move(*tensor);
      state_.value[name] = name;
    }
    return Ok();
  }

  Status add_inputs() {
    std::set<std::string> fed;
    for (const ::onnx::ValueInfoProto& input : graph_.input()) {
      const std::string& name = input.name();
      if (state_.params.contains(name)) continue;
      MILLRACE_ASSIGN_OR_RETURN(VarSpec spec, input_spec(input));
      spec.need_check_feed = true;
      block().declare(name, std::move(spec));
      state_.value[name] = name;
      fed.insert(name);
    }
    for (const auto& [name, dims] : options_.input_dims)
      if (!fed.contains(name))
        return InvalidArgument("dims of '{}', which is no input of the model", name);
    declare_holder(block(), "feed");
    int32_t column = 0;
    for (const ::onnx::ValueInfoProto& input : graph_.input())
      if (fed.contains(input.name())) append_link(block(), "feed", "feed", input.name(), column++);
    return Ok();
  }

  StatusOr<VarSpec> input_spec(const ::onnx::ValueInfoProto& input) const {
    const std::string& name = input.name();
    if (!input.type().has_tensor_type())
      return Unimplemented("import of ONNX: the input '{}' is no tensor", name);
    const auto& type = input.type().tensor_type();
    StatusOr<DType> dtype = dtype_from_onnx(type.elem_type());
    if (!dtype.ok()) return std::move(dtype).status().with_note(fmt::format("input '{}'", name));
    Dims dims;
    for (const auto& dim : type.shape().dim())
      dims.push_back(dim.has_dim_value() && dim.dim_value() >= 0 ? dim.dim_value() : -1);
    if (!has_fair_size(dims)) return InvalidData("the input '{}' has too many elements", name);
    const auto stated = options_.input_dims.find(name);
    if (stated != options_.input_dims.end()) {
      if (type.has_shape() && stated->second.size() != dims.size())
        return InvalidArgument("dims of the input '{}': expected {} of them, found {}", name,
                               dims.size(), stated->second.size());
      dims = stated->second;
    } else if (!type.has_shape()) {
      return Unimplemented("import of ONNX: the input '{}' has no number of dims", name)
          .with_hint("state them, as --input-dims does");
    }
    return VarSpec::tensor(*dtype, dims);
  }

  Status convert(const ::onnx::NodeProto& node) {
    const auto row = node_rows().find(node.op_type());
    if (!is_default_domain(node.domain()) || row == node_rows().end())
      return Unimplemented("import of ONNX: {}: the operator has no counterpart", node_text(node));
    MILLRACE_RETURN_IF_ERROR(check_inputs(node, row->second));
    NodeContext context(node, state_);
    MILLRACE_RETURN_IF_ERROR(row->second.convert(context));
    MILLRACE_RETURN_IF_ERROR(context.finish());
    fold_known(node, state_);
    return Ok();
  }

  Status check_inputs(const ::onnx::NodeProto& node, const NodeRow& row) const {
    const auto count = static_cast<size_t>(node.input_size());
    if (count < row.min_inputs || count > row.max_inputs)
      return InvalidProgram("{}: {} inputs, expected {} to {}", node_text(node), count,
                            row.min_inputs, row.max_inputs);
    for (const std::string& input : node.input()) {
      if (input.empty() || state_.value.contains(input)) continue;
      if (state_.not_computed.contains(input))
        return Unimplemented(
            "import of ONNX: {}: the output '{}' of another node is read, but the "
            "import does not compute it",
            node_text(node), input);
      return InvalidProgram("{}: the input '{}' is computed by no earlier node", node_text(node),
                            input);
    }
    return Ok();
  }

  Status add_outputs() {
    declare_holder(block(), "fetch");
    if (graph_.output_size() == 0) return InvalidProgram("the model has no outputs");
    int32_t column = 0;
    for (const ::onnx::ValueInfoProto& output : graph_.output()) {
      const std::string& name = output.name();
      const auto value = state_.value.find(name);
      if (value == state_.value.end())
        return state_.not_computed.contains(name)
                   ? Unimplemented("import of ONNX: the output '{}' is not computed by the import",
                                   name)
                   : InvalidProgram("the output '{}' is computed by no node", name);
      MILLRACE_RETURN_IF_ERROR(check_output(output, value->second));
      MILLRACE_RETURN_IF_ERROR(name_output(block(), name, value->second, "ONNX"));
      append_link(block(), "fetch", name, "fetch", column++);
    }
    return Ok();
  }

  // What the model says about an output has to agree with what was found.
  Status check_output(const ::onnx::ValueInfoProto& output, const std::string& var) const {
    if (!output.type().has_tensor_type())
      return Unimplemented("import of ONNX: the output '{}' is no tensor", output.name());
    const auto& type = output.type().tensor_type();
    StatusOr<DType> dtype = dtype_from_onnx(type.elem_type());
    if (!dtype.ok())
      return std::move(dtype).status().with_note(fmt::format("output '{}'", output.name()));
    const DType found = block().find_var(var)->dtype();
    if (*dtype == found) return Ok();
    return InvalidProgram("the output '{}' is declared as {}, but has the element type {}",
                          output.name(), dtype_name(*dtype), dtype_name(found));
  }

  const ::onnx::GraphProto& graph_;
  const OnnxImportOptions& options_;
  std::unique_ptr<Program> program_;
  ImportState state_;
};

StatusOr<::onnx::ModelProto> parse(std::string_view bytes) {
  ::onnx::ModelProto model;
  if (bytes.size() > static_cast<size_t>(std::numeric_limits<int>::max()))
    return Unimplemented("import of ONNX: a file of more than 2 GB");
  if (!model.ParseFromArray(bytes.data(), static_cast<int>(bytes.size())))
    return InvalidData("the bytes are no ONNX model, or the file is cut off");
  if (!model.has_graph()) return InvalidData("the file has no graph, so it is no ONNX model");
  return model;
}

}  // namespace

StatusOr<ImportedModel> import_onnx(std::string_view bytes, const OnnxImportOptions& options) {
  MILLRACE_ASSIGN_OR_RETURN(const ::onnx::ModelProto model, parse(bytes));
  MILLRACE_ASSIGN_OR_RETURN(const int64_t opset, opset_of(model));
  if (model.training_info_size() > 0)
    return Unimplemented("import of ONNX: information for training");
  const std::unique_ptr<ops::OpRegistry> registry = ops::standard_registry();
  return Import(model, options, *registry).run(opset);
}

std::vector<std::string> imported_node_types() {
  std::vector<std::string> types;
  for (const auto& [type, row] : node_rows()) types.push_back(type);
  return types;
}

}  // namespace millrace::interchange
