#include "interchange/op_reader.h"

#include <algorithm>
#include <array>

#include <fmt/format.h>
#include <llvm/ADT/STLExtras.h>

#include "framework/base/errors.h"
#include "framework/block.h"

namespace millrace::interchange {
namespace {

// Values of attributes with which the kernels of one library in the original change nothing.
enum class Neutral { kAny, kNothing, kOne, kFloat32 };

struct NeutralAttr {
  llvm::StringRef name;
  Neutral value;
};

constexpr std::array<NeutralAttr, 43> kNeutral = {{
    // memory and kernels
    {"inplace", Neutral::kAny},
    {"force_fp32_output", Neutral::kAny},
    {"fuse_relu_before_depthwise_conv", Neutral::kNothing},
    {"workspace_size_MB", Neutral::kAny},
    {"exhaustive_search", Neutral::kAny},
    {"use_addto", Neutral::kAny},
    {"search_times", Neutral::kAny},
    // notes of quantization: largest values seen, and how they were found
    {"out_threshold", Neutral::kAny},
    {"Out0_threshold", Neutral::kAny},
    {"Output0_threshold", Neutral::kAny},
    {"quantization_type", Neutral::kAny},
    {"activation_bits", Neutral::kAny},
    {"skip_quant", Neutral::kAny},
    // of one runtime
    {"onednn_data_type", Neutral::kFloat32},
    {"use_onednn", Neutral::kAny},
    {"@ENABLE_CACHE_RUNTIME_CONTEXT@", Neutral::kAny},
    {"__@kernel_type_attr@__", Neutral::kAny},
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
    // scales of quantized operands
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
  if (value.kind() == AttrKind::kString) {
    const bool is_default = found->value == Neutral::kFloat32 && value.string() == "float32";
    return value.string().empty() || is_default;
  }
  const auto numbers = convert_attr(value, AttrKind::kFloats);
  const auto longs = convert_attr(value, AttrKind::kLongs);
  const float wanted = found->value == Neutral::kOne ? 1.0F : 0.0F;
  if (numbers) return llvm::all_of(numbers->floats(), [&](float v) { return v == wanted; });
  return longs &&
         llvm::all_of(longs->longs(), [&](int64_t v) { return static_cast<float>(v) == wanted; });
}

}  // namespace

Status OpReader::refuse(const std::string& why) const {
  return Unimplemented("export to {}: {}", format_.str(), why).at(op_.location());
}

void OpReader::fail(Status status) {
  if (status_.ok()) status_ = std::move(status);
}

bool OpReader::has(llvm::StringRef slot) const {
  return !op_.first_input(slot).empty();
}

const Var* OpReader::var_of(llvm::StringRef slot, size_t k, bool is_output) const {
  const auto names = is_output ? op_.output(slot) : op_.input(slot);
  return k < names.size() ? op_.block().find_var_recursive(names[k]) : nullptr;
}

Dims OpReader::dims(llvm::StringRef slot, size_t k) const {
  const Var* const var = var_of(slot, k, /*is_output=*/false);
  return var == nullptr ? Dims() : Dims(var->dims().begin(), var->dims().end());
}

DType OpReader::dtype(llvm::StringRef slot) const {
  const Var* const var = var_of(slot, 0, /*is_output=*/false);
  return var == nullptr ? DType::kFloat32 : var->dtype();
}

bool OpReader::has_lod(llvm::StringRef slot) const {
  const Var* const var = var_of(slot, 0, /*is_output=*/false);
  return var != nullptr && var->lod_level() > 0;
}

DType OpReader::out_dtype(llvm::StringRef slot, size_t k) const {
  const Var* const var = var_of(slot, k, /*is_output=*/true);
  return var == nullptr ? DType::kFloat32 : var->dtype();
}

Dims OpReader::out_dims(llvm::StringRef slot, size_t k) const {
  const Var* const var = var_of(slot, k, /*is_output=*/true);
  return var == nullptr ? Dims() : Dims(var->dims().begin(), var->dims().end());
}

int64_t OpReader::axis(llvm::StringRef name, int64_t rank) {
  const auto value = attr<int64_t>(name);
  return value < 0 ? value + rank : value;
}

void OpReader::ignore(std::initializer_list<llvm::StringRef> names) {
  for (const llvm::StringRef name : names) known_.insert(name.str());
}

bool OpReader::wants(llvm::StringRef slot) const {
  const llvm::StringRef name = op_.first_output(slot);
  return !name.empty() && op_.block().has_readers(name);
}

Status OpReader::check_attrs(const std::set<std::string>& common_attrs) const {
  for (const Attr& attr : op_.attrs()) {
    const std::string name = op_.name_of(attr.name).str();
    // Converters read the default of an attribute whose value is that of a var.
    const bool is_var = attr.value.kind() == AttrKind::kVar || attr.value.kind() == AttrKind::kVars;
    if ((known_.contains(name) && !is_var) || common_attrs.contains(name)) continue;
    if (has_neutral_value(name, attr.value)) continue;
    const ops::AttrDef* const declared = def_.find_attr(name);
    if (declared != nullptr && declared->fallback) {
      const auto value = convert_attr(attr.value, declared->kind);
      const auto fallback = convert_attr(*declared->fallback, declared->kind);
      if (value && fallback && *value == *fallback) continue;
    }
    Location location = op_.location();
    location.attr = name;
    return Unimplemented("export to {}: the attribute has a value that the export does not know",
                         format_.str())
        .at(std::move(location));
  }
  return Ok();
}

Status OpReader::finish(const std::set<std::string>& common_attrs) {
  MILLRACE_RETURN_IF_ERROR(Status(status_));
  MILLRACE_RETURN_IF_ERROR(check_attrs(common_attrs));
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
        return refuse(fmt::format("output {} '{}' is read, but {} does not compute it", name,
                                  var.str(), format_.str()));
    }
  }
  return Ok();
}

}  // namespace millrace::interchange
