#include "interchange/onnx/op_context.h"

#include <algorithm>
#include <array>

#include <fmt/format.h>
#include <llvm/ADT/STLExtras.h>

#include "framework/base/errors.h"
#include "framework/block.h"

namespace millrace::interchange {
namespace {

// Values of attributes with which the kernels of one library in the original change nothing.
enum class Neutral { kAny, kNothing, kOne };

struct NeutralAttr {
  llvm::StringRef name;
  Neutral value;
};

constexpr std::array<NeutralAttr, 33> kNeutral = {{
    // memory and kernels
    {"inplace", Neutral::kAny},
    {"force_fp32_output", Neutral::kAny},
    {"fuse_relu_before_depthwise_conv", Neutral::kNothing},
    {"workspace_size_MB", Neutral::kAny},
    {"exhaustive_search", Neutral::kAny},
    {"use_addto", Neutral::kAny},
    {"search_times", Neutral::kAny},
    // functions of following ops, put into this one
    {"fuse_residual_connection", Neutral::kNothing},
    {"fuse_relu", Neutral::kNothing},
    {"fuse_with_relu", Neutral::kNothing},
    {"fuse_brelu", Neutral::kNothing},
    {"fuse_activation", Neutral::kNothing},
    {"fuse_alpha", Neutral::kNothing},
    {"fuse_beta", Neutral::kNothing},
    {"fuse_brelu_threshold", Neutral::kAny},  // read with fuse_brelu only
    // layouts of operands; empty: that of the program
    {"x_data_format", Neutral::kNothing},
    {"y_data_format", Neutral::kNothing},
    // scales of quantised operands
    {"Scale_in", Neutral::kOne},
    {"Scale_out", Neutral::kOne},
    {"Scale_in_eltwise", Neutral::kOne},
    {"Scale_weights", Neutral::kOne},
    {"Scale_x", Neutral::kOne},
    {"Scale_y", Neutral::kOne},
    {"scale_x", Neutral::kOne},
    {"scale_y", Neutral::kOne},
    {"scale_out", Neutral::kOne},
    {"Scale", Neutral::kOne},
    {"fused_transpose_X", Neutral::kNothing},
    {"fused_transpose_Y", Neutral::kNothing},
    {"fused_transpose_Out", Neutral::kNothing},
    {"fused_reshape_X", Neutral::kNothing},
    {"fused_reshape_Y", Neutral::kNothing},
    {"fused_reshape_Out", Neutral::kNothing},
}};

bool has_neutral_value(llvm::StringRef name, const AttrValue& value) {
  const auto* const found = std::find_if(kNeutral.begin(), kNeutral.end(),
                                         [&](const NeutralAttr& row) { return row.name == name; });
  if (found == kNeutral.end()) return false;
  if (found->value == Neutral::kAny) return true;
  if (value.kind() == AttrKind::kString) return value.string().empty();
  const auto numbers = convert_attr(value, AttrKind::kFloats);
  const auto longs = convert_attr(value, AttrKind::kLongs);
  const float wanted = found->value == Neutral::kOne ? 1.0F : 0.0F;
  if (numbers) return llvm::all_of(numbers->floats(), [&](float v) { return v == wanted; });
  return longs &&
         llvm::all_of(longs->longs(), [&](int64_t v) { return static_cast<float>(v) == wanted; });
}

}  // namespace

Status OpContext::refuse(const std::string& why) const {
  return Unimplemented("export to ONNX: {}", why).at(op_.location());
}

void OpContext::fail(Status status) {
  if (status_.ok()) status_ = std::move(status);
}

bool OpContext::has(llvm::StringRef slot) const {
  return !op_.first_input(slot).empty();
}

std::string OpContext::in(llvm::StringRef slot) {
  const std::vector<std::string> values = ins(slot);
  if (values.size() == 1) return values[0];
  fail(InvalidProgram("input {} has {} vars, expected one", slot.str(), values.size())
           .at(op_.location()));
  return "";
}

std::vector<std::string> OpContext::ins(llvm::StringRef slot) {
  inputs_read_.insert(slot.str());
  std::vector<std::string> values;
  for (const llvm::StringRef name : op_.input(slot)) {
    const auto found = vars_.value.find(name.str());
    if (found == vars_.value.end()) {
      fail(InvalidProgram("input {} '{}' has no value: no converted op writes it and it is neither "
                          "fed nor a parameter",
                          slot.str(), name.str())
               .at(op_.location()));
      return {};
    }
    values.push_back(found->second);
  }
  return values;
}

const Var* OpContext::var_of(llvm::StringRef slot, size_t k, bool is_output) const {
  const auto names = is_output ? op_.output(slot) : op_.input(slot);
  return k < names.size() ? op_.block().find_var_recursive(names[k]) : nullptr;
}

Dims OpContext::dims(llvm::StringRef slot, size_t k) const {
  const Var* const var = var_of(slot, k, false);
  return var == nullptr ? Dims() : Dims(var->dims().begin(), var->dims().end());
}

DType OpContext::dtype(llvm::StringRef slot) const {
  const Var* const var = var_of(slot, 0, false);
  return var == nullptr ? DType::kFloat32 : var->dtype();
}

DType OpContext::out_dtype(llvm::StringRef slot) const {
  const Var* const var = var_of(slot, 0, true);
  return var == nullptr ? DType::kFloat32 : var->dtype();
}

Dims OpContext::out_dims(llvm::StringRef slot) const {
  const Var* const var = var_of(slot, 0, true);
  return var == nullptr ? Dims() : Dims(var->dims().begin(), var->dims().end());
}

std::vector<std::string> OpContext::lod(llvm::StringRef slot) const {
  const auto found = vars_.lod.find(op_.first_input(slot).str());
  return found == vars_.lod.end() ? std::vector<std::string>() : found->second;
}

std::string OpContext::offsets(llvm::StringRef slot) {
  const std::vector<std::string> levels = lod(slot);
  if (!levels.empty()) return levels.back();
  fail(refuse(fmt::format("input {} '{}' has no LoD", slot.str(), op_.first_input(slot).str())));
  return "";
}

int64_t OpContext::axis(llvm::StringRef name, int64_t rank) {
  const auto value = attr<int64_t>(name);
  return value < 0 ? value + rank : value;
}

void OpContext::ignore(std::initializer_list<llvm::StringRef> names) {
  for (const llvm::StringRef name : names) known_.insert(name.str());
}

bool OpContext::wants(llvm::StringRef slot) const {
  const llvm::StringRef name = op_.first_output(slot);
  return !name.empty() && op_.block().has_readers(name);
}

void OpContext::set(llvm::StringRef slot, const std::string& value, size_t k) {
  const auto names = op_.output(slot);
  outputs_set_.insert(slot.str());
  if (k >= names.size() || !status_.ok()) return;
  const std::string name = names[k].str();
  std::string bound = value;
  if (graph_.is_temporary(value)) {
    bound = graph_.unique(name);
    graph_.rename(value, bound, first_node_);
  }
  vars_.value[name] = bound;
  vars_.constant.erase(name);
  if (lod_set_.contains(name)) return;
  vars_.lod.erase(name);
  const Var* const var = var_of(slot, k, true);
  if (var == nullptr || var->lod_level() == 0) return;
  for (const llvm::StringRef input : op_.input_names()) {
    const auto found = vars_.lod.find(input.str());
    if (found == vars_.lod.end()) continue;
    // Other levels than the output has are not those of its rows.
    if (static_cast<int32_t>(found->second.size()) != var->lod_level()) continue;
    vars_.lod[name] = found->second;
    break;
  }
}

void OpContext::set_lod(llvm::StringRef slot, std::vector<std::string> levels) {
  const std::string name = op_.first_output(slot).str();
  lod_set_.insert(name);
  vars_.lod.erase(name);
  if (!levels.empty()) vars_.lod[name] = std::move(levels);
}

std::string OpContext::node(const std::string& type, const std::vector<std::string>& inputs,
                            std::vector<NodeAttr> attrs) {
  return graph_.add_node(type, inputs, std::move(attrs), 1)[0];
}

std::string OpContext::cast(const std::string& value, DType to) {
  if (onnx_type(to) == 0)
    fail(refuse(fmt::format("element type {} has no counterpart", dtype_name(to))));
  return node("Cast", {value}, {{"to", int64_t{onnx_type(to)}}});
}

std::string OpContext::reshape(const std::string& value, const std::vector<int64_t>& dims) {
  return node("Reshape", {value, graph_.ints(dims)});
}

std::string OpContext::squeeze(const std::string& value, const std::vector<int64_t>& axes) {
  return axes.empty() ? value : node("Squeeze", {value, graph_.ints(axes)});
}

std::string OpContext::unsqueeze(const std::string& value, const std::vector<int64_t>& axes) {
  return axes.empty() ? value : node("Unsqueeze", {value, graph_.ints(axes)});
}

std::string OpContext::transpose(const std::string& value, const std::vector<int64_t>& order) {
  return node("Transpose", {value}, {{"perm", order}});
}

std::string OpContext::reduce(const std::string& type, const std::string& value,
                              const std::vector<int64_t>& axes, bool keep) {
  std::vector<NodeAttr> attrs = {{"keepdims", int64_t{keep}}};
  // ReduceSum has had axes as an input since opset 13, the others since 18.
  if (type == "ReduceSum" || opset() >= 18)
    return node(type, {value, graph_.ints(axes)}, std::move(attrs));
  attrs.push_back({"axes", axes});
  return node(type, {value}, std::move(attrs));
}

std::string OpContext::slice(const std::string& value, int64_t axis, int64_t begin, int64_t end) {
  return node("Slice", {value, graph_.ints({begin}), graph_.ints({end}), graph_.ints({axis})});
}

std::string OpContext::extent(const std::string& value, int64_t axis) {
  return node("Shape", {value}, {{"start", axis}, {"end", axis + 1}});
}

Status OpContext::finish(const std::set<std::string>& common_attrs) {
  MILLRACE_RETURN_IF_ERROR(Status(status_));
  for (const Attr& attr : op_.attrs()) {
    const std::string name = op_.name_of(attr.name).str();
    if (known_.contains(name) || common_attrs.contains(name)) continue;
    if (has_neutral_value(name, attr.value)) continue;
    const ops::AttrDef* const declared = def_.find_attr(name);
    if (declared != nullptr && declared->fallback) {
      const auto value = convert_attr(attr.value, declared->kind);
      const auto fallback = convert_attr(*declared->fallback, declared->kind);
      if (value && fallback && *value == *fallback) continue;
    }
    Location location = op_.location();
    location.attr = name;
    return Unimplemented("export to ONNX: the attribute has a value that the export does not know")
        .at(std::move(location));
  }
  for (const Slot& slot : op_.inputs()) {
    const std::string name = op_.name_of(slot.name).str();
    if (!slot.args.empty() && !inputs_read_.contains(name))
      return refuse(fmt::format("input {} is not known to the export", name));
  }
  for (const Slot& slot : op_.outputs()) {
    const std::string name = op_.name_of(slot.name).str();
    if (outputs_set_.contains(name)) continue;
    for (const Arg& arg : slot.args) {
      const llvm::StringRef var = op_.name_of(arg.name);
      // An op that updates its input in place leaves the value of the input.
      const bool is_read = op_.block().has_readers(var) && !op_.reads(var);
      if (is_read)
        return refuse(
            fmt::format("output {} '{}' is read, but ONNX does not compute it", name, var.str()));
    }
  }
  return Ok();
}

}  // namespace millrace::interchange
