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

// The convolutions of PIR have no bias: it is added to the result.
Status conv(OpContext& c) {
  const std::string type = c.op().type().str();
  const Row* row = nullptr;
  for (const Row& known : kConvRows)
    if (type == known.type) row = &known;
  MILLRACE_RETURN_IF_ERROR(convert_by_row(c, *row));
  if (!c.has("Bias")) return Ok();
  const Value out = c.vars()[c.op().first_output("Output").str()];
  const std::string layout = c.attr<std::string>("data_format");
  std::vector<int64_t> dims(out.type().dims.size(), 1);
  dims[layout == "NHWC" || layout == "NDHWC" ? dims.size() - 1 : 1] = -1;
  const Value bias = c.reshape(c.in("Bias"), dims);
  c.set("Output", c.node("add", {out, bias}, {}, out.type()));
  return Ok();
}

}  // namespace

void add_conv_ops(Converters& table) {
  for (const Row& row : kConvRows) table.rows[row.type] = &row;
  for (const char* type : {"conv2d", "conv2d_transpose", "conv3d", "conv3d_transpose",
                           "depthwise_conv2d", "depthwise_conv2d_transpose"}) {
    table.rows.erase(type);
    table.functions[type] = conv;
  }
}

}  // namespace millrace::interchange::pir
