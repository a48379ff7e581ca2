// Convolutions and their transposes.

#include "interchange/pir/rows.h"

namespace millrace::interchange::pir {
namespace {

constexpr const char* kConvAttrs =
    "strides:i32s paddings:i32s padding_algorithm:str dilations:i32s groups:i32 data_format:str "
    "!use_cudnn";
constexpr const char* kTransposeAttrs =
    "strides:i32s paddings:i32s output_padding:i32s padding_algorithm:str groups:i32 "
    "dilations:i32s "
    "data_format:str !use_cudnn";
constexpr const char* kTranspose3dAttrs =
    "strides:i32s paddings:i32s output_padding:i32s output_size:i32s padding_algorithm:str "
    "groups:i32 dilations:i32s data_format:str !use_cudnn";
constexpr const char* kTransposeInputs = "Input Filter @output_size:i64s";

constexpr Row kConvRows[] = {
    {"conv2d", "conv2d", "Input Filter", kConvAttrs, "Output"},
    {"conv2d_transpose", "conv2d_transpose", kTransposeInputs, kTransposeAttrs, "Output"},
    {"conv3d", "conv3d", "Input Filter", kConvAttrs, "Output"},
    {"conv3d_transpose", "conv3d_transpose", "Input Filter", kTranspose3dAttrs, "Output"},
    {"deformable_conv", "deformable_conv", "Input Offset Filter Mask",
     "strides:i32s paddings:i32s dilations:i32s deformable_groups:i32 groups:i32 im2col_step:i32",
     "Output"},
    {"deformable_conv_v1", "deformable_conv", "Input Offset Filter Mask?",
     "strides:i32s paddings:i32s dilations:i32s deformable_groups:i32 groups:i32 im2col_step:i32",
     "Output"},
    {"depthwise_conv2d", "depthwise_conv2d", "Input Filter", kConvAttrs, "Output"},
    {"depthwise_conv2d_transpose", "depthwise_conv2d_transpose", kTransposeInputs, kTransposeAttrs,
     "Output"},
    {"row_conv", "row_conv", "X Filter", "", "Out"},
};

// The function that a pass of the original has put into the op, for its oneDNN kernels only.
StatusOr<Value> with_fused_function(OpContext& c, const Value& out) {
  auto function = c.attr<std::string>("fuse_activation");
  if (function.empty() && c.attr<bool>("fuse_relu")) function = "relu";
  if (function.empty()) return out;
  if (!c.attr<bool>("use_mkldnn"))
    return c.refuse("a fused function in an op without use_mkldnn, which does not apply it");
  const auto alpha = c.attr<float>("fuse_alpha");
  const auto beta = c.attr<float>("fuse_beta");
  const TensorType type = out.type();
  if (function == "relu") return c.node("relu", {out}, {}, type);
  if (function == "leaky_relu")
    return c.node("leaky_relu", {out}, {of_f64("negative_slope", alpha)}, type);
  if (function == "relu6" && alpha == 0)
    return c.node("hardtanh", {out}, {of_f32("t_min", 0), of_f32("t_max", beta)}, type);
  return c.refuse("the fused function " + function);
}

// The convolutions of PIR have neither bias nor function: they are applied to the result.
Status conv(OpContext& c) {
  const std::string type = c.op().type().str();
  const Row* row = nullptr;
  for (const Row& known : kConvRows)
    if (type == known.type) row = &known;
  MILLRACE_RETURN_IF_ERROR(convert_by_row(c, *row));
  Value out = c.vars()[c.op().first_output("Output").str()];
  if (c.has("Bias")) {
    const auto layout = c.attr<std::string>("data_format");
    std::vector<int64_t> dims(out.type().dims.size(), 1);
    dims[layout == "NHWC" || layout == "NDHWC" ? dims.size() - 1 : 1] = -1;
    out = c.node("add", {out, c.reshape(c.in("Bias"), dims)}, {}, out.type());
  }
  MILLRACE_ASSIGN_OR_RETURN(out, with_fused_function(c, out));
  c.set("Output", out);
  return Ok();
}

}  // namespace

void add_conv_ops(Converters& table) {
  for (const Row& row : kConvRows) table.rows[row.type] = &row;
  for (const char* type : {"conv2d", "conv2d_transpose", "conv3d", "conv3d_transpose",
                           "depthwise_conv2d", "depthwise_conv2d_transpose"}) {
    table.functions[type] = conv;
  }
}

}  // namespace millrace::interchange::pir
