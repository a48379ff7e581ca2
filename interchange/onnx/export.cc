#include "interchange/onnx/export.h"

#include <fmt/format.h>

#include "framework/base/errors.h"
#include "framework/base/version.h"
#include "interchange/onnx/check_model.h"
#include "interchange/onnx/op_context.h"
#include "interchange/source_program.h"
#include "ops/registry.h"

namespace millrace::interchange {
namespace {

// protobuf cannot read a message of 2 GiB; the rest is for nodes and names.
constexpr int64_t kMaxConstantBytes = (int64_t{1} << 31) - (int64_t{1} << 26);
// The file format that opset 17 was released with; later opsets do not need a newer one.
constexpr int64_t kIrVersion = 8;

const ConverterTable& converters() {
  static const ConverterTable& table = *[] {
    auto* const made = new ConverterTable;
    add_activation_ops(*made);
    add_conv_ops(*made);
    add_crf_ops(*made);
    add_detection_ops(*made);
    add_elementwise_ops(*made);
    add_embedding_ops(*made);
    add_fill_ops(*made);
    add_index_ops(*made);
    add_matmul_ops(*made);
    add_norm_ops(*made);
    add_pool_ops(*made);
    add_reduce_ops(*made);
    add_resize_ops(*made);
    add_rnn_ops(*made);
    add_sequence_ops(*made);
    add_shape_ops(*made);
    add_yolo_ops(*made);
    return made;
  }();
  return table;
}

// Converts one program.
class Export {
 public:
  Export(const ops::OpRegistry& registry, Program& program, const io::ParamValues& params,
         const OnnxOptions& options, int opset)
      : registry_(registry),
        block_(program.root()),
        params_(params),
        options_(options),
        builder_(*model_.mutable_graph(), opset) {
    for (const ops::AttrDef& attr : registry.common_attrs()) common_.insert(attr.name.str());
    model_.set_ir_version(kIrVersion);
    model_.set_producer_name("millrace");
    model_.set_producer_version(std::string(version_info().version));
    ::onnx::OperatorSetIdProto& set = *model_.add_opset_import();
    set.set_domain("");
    set.set_version(opset);
    model_.mutable_graph()->set_name("program");
  }

  StatusOr<::onnx::ModelProto> run() {
    MILLRACE_RETURN_IF_ERROR(add_inputs());
    MILLRACE_RETURN_IF_ERROR(add_params());
    for (Op& op : block_.ops()) {
      if (op.type() == "feed" || op.type() == "fetch") continue;
      MILLRACE_RETURN_IF_ERROR(convert(op));
      if (builder_.constant_bytes() > kMaxConstantBytes)
        return Unimplemented("export to ONNX: more than 2 GB of parameters");
    }
    MILLRACE_RETURN_IF_ERROR(add_outputs());
    drop_unused_offsets();
    return std::move(model_);
  }

 private:
  Status add_inputs() {
    for (const Op* const feed : in_columns(block_, "feed")) {
      MILLRACE_ASSIGN_OR_RETURN(const Var* const var, fed_var(block_, *feed, options_.input_dims));
      const std::string name = var->name().str();
      if (onnx_type(var->dtype()) == 0) {
        return Unimplemented("export to ONNX: element type {} of the fed var '{}'",
                             dtype_name(var->dtype()), name)
            .at(feed->location());
      }
      vars_.value[name] = builder_.unique(name);
      add_value_info(*model_.mutable_graph()->add_input(), name, onnx_type(var->dtype()),
                     var->dims());
      for (int32_t level = 0; level < var->lod_level(); ++level) {
        const std::string offsets = builder_.unique(fmt::format("{}.lod{}", name, level));
        add_value_info(*model_.mutable_graph()->add_input(), offsets, ::onnx::TensorProto::INT64,
                       {-1});
        vars_.lod[name].push_back(offsets);
        offset_inputs_.insert(offsets);
      }
    }
    return check_input_names(block_, options_.input_dims);
  }

  static void add_value_info(::onnx::ValueInfoProto& info, const std::string& name, int32_t type,
                             llvm::ArrayRef<int64_t> dims) {
    info.set_name(name);
    ::onnx::TypeProto::Tensor& tensor = *info.mutable_type()->mutable_tensor_type();
    tensor.set_elem_type(type);
    ::onnx::TensorShapeProto& shape = *tensor.mutable_shape();
    for (size_t i = 0; i < dims.size(); ++i) {
      auto& dim = *shape.add_dim();
      if (dims[i] < 0)
        dim.set_dim_param(fmt::format("{}_dim{}", name, i));
      else
        dim.set_dim_value(dims[i]);
    }
  }

  // Parameters that ops read.
  Status add_params() {
    MILLRACE_ASSIGN_OR_RETURN(const auto read, read_params(block_, params_));
    for (const auto& [name, tensor] : read) {
      if (tensor->bytes() + builder_.constant_bytes() > kMaxConstantBytes)
        return Unimplemented("export to ONNX: more than 2 GB of parameters");
      vars_.value[name] = builder_.unique(name);
      vars_.constant[name] = tensor;
      Status status = builder_.add_tensor(vars_.value[name], *tensor);
      if (!status.ok()) return std::move(status).with_note(fmt::format("parameter '{}'", name));
    }
    return Ok();
  }

  Status convert(Op& op) {
    const auto found = converters().find(op.type().str());
    const ops::OpDef* const def = registry_.find(op.type());
    if (found == converters().end() || def == nullptr)
      return Unimplemented("export to ONNX: the op has no counterpart").at(op.location());
    MILLRACE_RETURN_IF_ERROR(check_dense_inputs(op, "ONNX"));
    MILLRACE_RETURN_IF_ERROR(infer_dims(registry_, op));
    OpContext context(op, *def, builder_, vars_);
    MILLRACE_RETURN_IF_ERROR(found->second(context));
    return context.finish(common_);
  }

  Status add_outputs() {
    MILLRACE_ASSIGN_OR_RETURN(const std::vector<const Op*> fetches, fetches_of(block_));
    std::set<std::string> done;
    for (const Op* const fetch : fetches) {
      const std::string name = fetch->first_input("X").str();
      if (!done.insert(name).second) continue;
      const auto found = vars_.value.find(name);
      if (found == vars_.value.end())
        return InvalidProgram("the fetched var '{}' has no value", name).at(fetch->location());
      const Var* const var = block_.find_var(name);
      if (var == nullptr || onnx_type(var->dtype()) == 0)
        return Unimplemented("export to ONNX: the type of the fetched var '{}'", name)
            .at(fetch->location());
      MILLRACE_RETURN_IF_ERROR(
          add_output(name, found->second, onnx_type(var->dtype()), var->dims(), fetch->location()));
      const std::vector<std::string> levels = vars_.lod[name];
      for (size_t i = 0; i < levels.size(); ++i) {
        MILLRACE_RETURN_IF_ERROR(add_output(fmt::format("{}.lod{}", name, i), levels[i],
                                            ::onnx::TensorProto::INT64, {-1}, fetch->location()));
      }
    }
    return Ok();
  }

  // An output has the name of its var. Values with other names, inputs and parameters are copied.
  Status add_output(const std::string& name, const std::string& value, int32_t type,
                    llvm::ArrayRef<int64_t> dims, const Location& location) {
    std::string output = name;
    if (value != name || !is_node_output(value)) {
      if (value == name) {
        return Unimplemented("export to ONNX: '{}' is fetched, but no op computes it", name)
            .at(location);
      }
      output = builder_.unique(name);
      if (output != name) {
        return Unimplemented(
                   "export to ONNX: '{}' is fetched, but the name is that of another value", name)
            .at(location);
      }
      ::onnx::NodeProto& copy = *model_.mutable_graph()->add_node();
      copy.set_op_type("Identity");
      copy.add_input(value);
      copy.add_output(output);
    }
    // Extents that depend on the input are left to shape inference.
    ::onnx::ValueInfoProto& info = *model_.mutable_graph()->add_output();
    add_value_info(info, output, type, dims);
    return Ok();
  }

  [[nodiscard]] bool is_node_output(const std::string& value) const {
    for (const ::onnx::NodeProto& node : model_.graph().node())
      for (const std::string& output : node.output())
        if (output == value) return true;
    return false;
  }

  // Offsets that nothing reads would be inputs that a caller has to give for nothing.
  void drop_unused_offsets() {
    std::set<std::string> read;
    for (const ::onnx::NodeProto& node : model_.graph().node())
      read.insert(node.input().begin(), node.input().end());
    auto& inputs = *model_.mutable_graph()->mutable_input();
    for (int i = inputs.size() - 1; i >= 0; --i)
      if (offset_inputs_.contains(inputs[i].name()) && !read.contains(inputs[i].name()))
        inputs.DeleteSubrange(i, 1);
  }

  const ops::OpRegistry& registry_;
  Block& block_;
  const io::ParamValues& params_;
  const OnnxOptions& options_;
  ::onnx::ModelProto model_;
  GraphBuilder builder_;
  VarValues vars_;
  std::set<std::string> common_;
  std::set<std::string> offset_inputs_;
};

}  // namespace

StatusOr<std::string> export_onnx(const Program& program, const io::ParamValues& params,
                                  const OnnxOptions& options) {
  if (options.opset < kFirstOpset || options.opset > kLastOpset) {
    return InvalidArgument("opset {}: expected {} to {}", options.opset, kFirstOpset, kLastOpset);
  }
  const std::unique_ptr<ops::OpRegistry> registry = ops::standard_registry();
  // The ONNX library knows opset 17; the form for a later one is checked in that of 17 first.
  std::unique_ptr<Program> copy = program.clone();
  MILLRACE_ASSIGN_OR_RETURN(::onnx::ModelProto model,
                            Export(*registry, *copy, params, options, kFirstOpset).run());
  MILLRACE_RETURN_IF_ERROR(check_model(model));
  if (options.opset != kFirstOpset) {
    copy = program.clone();
    MILLRACE_ASSIGN_OR_RETURN(model,
                              Export(*registry, *copy, params, options, options.opset).run());
  }
  return model.SerializeAsString();
}

std::vector<std::string> onnx_op_types() {
  std::vector<std::string> types;
  for (const auto& [type, converter] : converters()) types.push_back(type);
  return types;
}

}  // namespace millrace::interchange
