#include "ops/construct/default_attrs.h"

#include <array>

namespace millrace::ops {
namespace {

// Settings of the original's kernels: which ops write them, and what.
struct Setting {
  llvm::StringLiteral op;  ///< a type, or the beginning of types if it ends in '_'
  llvm::StringLiteral attr;
  enum class Kind { kOne, kOneList, kFloat32Name, kSix, kWorkspace } kind;
};
constexpr auto kOne = Setting::Kind::kOne;
constexpr auto kName = Setting::Kind::kFloat32Name;

constexpr std::array kSettings = {
    Setting{"clip", "mkldnn_data_type", kName},
    Setting{"concat", "mkldnn_data_type", kName},
    Setting{"conv2d", "mkldnn_data_type", kName},
    Setting{"conv2d", "Scale_in", kOne},
    Setting{"conv2d", "Scale_out", kOne},
    Setting{"conv2d", "Scale_in_eltwise", kOne},
    Setting{"conv2d", "Scale_weights", Setting::Kind::kOneList},
    Setting{"conv2d", "fuse_brelu_threshold", Setting::Kind::kSix},
    Setting{"conv2d", "workspace_size_MB", Setting::Kind::kWorkspace},
    Setting{"elementwise_", "mkldnn_data_type", kName},
    Setting{"elementwise_", "Scale_x", kOne},
    Setting{"elementwise_", "Scale_y", kOne},
    Setting{"elementwise_", "Scale_out", kOne},
    Setting{"gelu", "mkldnn_data_type", kName},
    Setting{"layer_norm", "mkldnn_data_type", kName},
    Setting{"matmul_v2", "mkldnn_data_type", kName},
    Setting{"mul", "scale_x", kOne},
    Setting{"mul", "scale_y", Setting::Kind::kOneList},
    Setting{"mul", "scale_out", kOne},
    Setting{"pool2d", "mkldnn_data_type", kName},
    Setting{"slice", "mkldnn_data_type", kName},
    Setting{"softmax", "mkldnn_data_type", kName},
    Setting{"sum", "mkldnn_data_type", kName},
    Setting{"transpose2", "mkldnn_data_type", kName},
};

AttrValue value_of(Setting::Kind kind) {
  switch (kind) {
    case Setting::Kind::kOne:
      return make_attr(1.0F);
    case Setting::Kind::kOneList:
      return make_attr(std::vector<float>{1.0F});
    case Setting::Kind::kFloat32Name:
      return make_attr("float32");
    case Setting::Kind::kSix:
      return make_attr(6.0F);
    case Setting::Kind::kWorkspace:
      return make_attr(int32_t{512});
  }
  return {};
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

}  // namespace millrace::ops
