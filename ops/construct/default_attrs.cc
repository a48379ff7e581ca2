#include "ops/construct/default_attrs.h"

#include <array>

#include <fmt/ranges.h>

#include "framework/base/errors.h"

namespace millrace::ops {
namespace {

// Attributes that configure kernels of the original: the ops that carry them, and their values.
struct Setting {
  enum class Kind { kFloat32, kAnyLayout, kTrue, kOne, kOneList, kWorkspace };
  llvm::StringLiteral op;  ///< an op type, or a prefix of op types if it ends in '_'
  llvm::StringLiteral attr;
  Kind kind;
};
using Kind = Setting::Kind;

constexpr std::array kSettings = {
    Setting{"clip", "mkldnn_data_type", Kind::kFloat32},
    Setting{"concat", "mkldnn_data_type", Kind::kFloat32},
    Setting{"conv2d", "use_cudnn", Kind::kTrue},
    Setting{"conv2d", "workspace_size_MB", Kind::kWorkspace},
    Setting{"conv2d_transpose", "mkldnn_data_type", Kind::kFloat32},
    Setting{"conv2d_transpose", "use_cudnn", Kind::kTrue},
    Setting{"conv2d_transpose", "workspace_size_MB", Kind::kWorkspace},
    Setting{"depthwise_conv2d", "mkldnn_data_type", Kind::kFloat32},
    Setting{"depthwise_conv2d", "Scale_in", Kind::kOne},
    Setting{"depthwise_conv2d", "Scale_in_eltwise", Kind::kOne},
    Setting{"depthwise_conv2d", "Scale_out", Kind::kOne},
    Setting{"depthwise_conv2d", "Scale_weights", Kind::kOneList},
    Setting{"depthwise_conv2d", "workspace_size_MB", Kind::kWorkspace},
    Setting{"elementwise_", "mkldnn_data_type", Kind::kFloat32},
    Setting{"elementwise_", "Scale_out", Kind::kOne},
    Setting{"elementwise_", "Scale_x", Kind::kOne},
    Setting{"elementwise_", "Scale_y", Kind::kOne},
    Setting{"gelu", "mkldnn_data_type", Kind::kFloat32},
    Setting{"layer_norm", "mkldnn_data_type", Kind::kFloat32},
    Setting{"matmul", "mkldnn_data_type", Kind::kFloat32},
    Setting{"matmul", "Scale_out", Kind::kOne},
    Setting{"matmul", "Scale_x", Kind::kOne},
    Setting{"matmul", "Scale_y", Kind::kOne},
    Setting{"matmul_v2", "mkldnn_data_type", Kind::kFloat32},
    Setting{"mul", "scale_out", Kind::kOne},
    Setting{"mul", "scale_x", Kind::kOne},
    Setting{"mul", "scale_y", Kind::kOneList},
    Setting{"pool2d", "mkldnn_data_type", Kind::kFloat32},
    Setting{"prelu", "mkldnn_data_type", Kind::kFloat32},
    Setting{"reshape2", "mkldnn_data_type", Kind::kFloat32},
    Setting{"sequence_softmax", "data_format", Kind::kAnyLayout},
    Setting{"slice", "mkldnn_data_type", Kind::kFloat32},
    Setting{"softmax", "data_format", Kind::kAnyLayout},
    Setting{"softmax", "mkldnn_data_type", Kind::kFloat32},
    Setting{"softmax", "use_cudnn", Kind::kTrue},
    Setting{"squeeze2", "mkldnn_data_type", Kind::kFloat32},
    Setting{"sum", "mkldnn_data_type", Kind::kFloat32},
    Setting{"transpose2", "data_format", Kind::kAnyLayout},
    Setting{"transpose2", "mkldnn_data_type", Kind::kFloat32},
};

AttrValue value_of(Kind kind) {
  switch (kind) {
    case Kind::kFloat32:
      return make_attr("float32");
    case Kind::kAnyLayout:
      return make_attr("AnyLayout");
    case Kind::kTrue:
      return make_attr(true);
    case Kind::kOne:
      return make_attr(1.0F);
    case Kind::kOneList:
      return make_attr(std::vector<float>{1.0F});
    case Kind::kWorkspace:
      return make_attr(int32_t{512});
  }
  return {};
}

Status check_number(const AttrDef& def, double value) {
  if (value >= def.min && value <= def.max) return Ok();
  return InvalidArgument("attribute '{}': expected {} to {}, found {}", def.name.str(), def.min,
                         def.max, value);
}

Status check_value(const AttrDef& def, const AttrValue& value) {
  switch (value.kind()) {
    case AttrKind::kFloat:
      return check_number(def, value.float32());
    case AttrKind::kInt:
    case AttrKind::kLong:
      return check_number(def, static_cast<double>(value.integer()));
    case AttrKind::kString:
      if (def.choices.empty() || llvm::is_contained(def.choices, value.string())) return Ok();
      return InvalidArgument("attribute '{}': expected one of {}, found \"{}\"", def.name.str(),
                             fmt::join(def.choices, ", "), value.string().str());
    default:
      return Ok();
  }
}

bool is_for(const Setting& setting, llvm::StringRef type) {
  return setting.op.endswith("_") ? type.startswith(setting.op) : type == setting.op;
}

}  // namespace

void add_default_attrs(const OpRegistry& registry, Op& op) {
  if (const OpDef* const def = registry.find(op.type())) {
    for (const AttrDef& attr : def->attrs()) {
      if (attr.fallback && !op.has_attr(attr.name)) op.set_attr(attr.name, *attr.fallback);
    }
  }
  for (const Setting& setting : kSettings) {
    if (is_for(setting, op.type()) && !op.has_attr(setting.attr))
      op.set_attr(setting.attr, value_of(setting.kind));
  }
}

Status check_attr_values(const OpRegistry& registry, const Op& op) {
  const OpDef* const def = registry.find(op.type());
  if (def == nullptr) return Ok();
  for (const AttrDef& attr : def->attrs()) {
    const AttrValue* const value = op.find_attr(attr.name);
    if (value == nullptr) continue;
    Status status = check_value(attr, *value);
    if (!status.ok()) return std::move(status).at(op.location());
  }
  return Ok();
}

}  // namespace millrace::ops
