// Images with other extents.

#include "interchange/pir/rows.h"

namespace millrace::interchange::pir {
namespace {

constexpr const char* kInterpInputs = "X OutSize? SizeTensor*? Scale?";
constexpr const char* kInterpAttrs =
    "data_format<data_layout:str out_d:i32 out_h:i32 out_w:i32 scale:f64s interp_method:str "
    "align_corners:bool align_mode:i32";

constexpr Row kResizeRows[] = {
    {"affine_grid", "affine_grid", "Theta @output_shape:i64s|OutputShape", "align_corners:bool",
     "Output"},
    {"bicubic_interp_v2", "bicubic_interp", kInterpInputs, kInterpAttrs, "Out"},
    {"bilinear_interp_v2", "bilinear_interp", kInterpInputs, kInterpAttrs, "Out"},
    {"grid_sampler", "grid_sample", "X Grid", "mode:str padding_mode:str align_corners:bool",
     "Output"},
    {"linear_interp_v2", "linear_interp", kInterpInputs, kInterpAttrs, "Out"},
    {"nearest_interp_v2", "nearest_interp", kInterpInputs, kInterpAttrs, "Out"},
    {"trilinear_interp_v2", "trilinear_interp", kInterpInputs, kInterpAttrs, "Out"},
};

// The op of the first generation reads pixels by the ratio of the extents. That of PIR does so
// where no factor is given; a factor that is an integer is that ratio.
Status interp_v1(OpContext& c) {
  const std::string name = c.op().type().str();
  const auto factor = c.attr<float>("scale");
  std::vector<int64_t> extents = {c.attr<int64_t>("out_d"), c.attr<int64_t>("out_h"),
                                  c.attr<int64_t>("out_w")};
  const auto layout = c.attr<std::string>("data_layout");
  if (c.has("Scale")) return c.refuse("a factor given as a tensor");
  const bool has_size = c.has("OutSize") || c.has("SizeTensor");
  std::vector<double> factors;
  if (factor > 0 && !has_size) {
    const Dims dims = c.dims("X");
    const size_t spatial = dims.size() - 2;
    const size_t first = layout == "NCHW" || layout == "NCDHW" || layout == "NCW" ? 2 : 1;
    const bool is_whole = factor == static_cast<float>(static_cast<int64_t>(factor));
    for (size_t i = 0; i < spatial; ++i) {
      const int64_t extent = dims[first + i];
      if (extent < 0 && !is_whole)
        return c.refuse("a factor that is no integer, of unknown extents");
      factors.push_back(factor);
      if (extent >= 0)
        extents[3 - spatial + i] = static_cast<int64_t>(static_cast<float>(extent) * factor);
    }
    if (!is_whole) factors.clear();
  }
  const Value sizes = has_size && c.has("SizeTensor") ? c.list(c.ins("SizeTensor")) : Value{};
  c.set("Out",
        c.node(name, {c.in("X"), c.in_or_none("OutSize"), sizes, Value{}},
               {of_string("data_format", layout), of_i32("out_d", extents[0]),
                of_i32("out_h", extents[1]), of_i32("out_w", extents[2]), of_f64s("scale", factors),
                of_string("interp_method", c.attr<std::string>("interp_method")),
                of_bool("align_corners", c.attr<bool>("align_corners")),
                of_i32("align_mode", c.attr<int64_t>("align_mode"))},
               c.out_type("Out")));
  return Ok();
}

}  // namespace

void add_resize_ops(Converters& table) {
  for (const Row& row : kResizeRows) table.rows[row.type] = &row;
  for (const char* type :
       {"bicubic_interp", "bilinear_interp", "linear_interp", "nearest_interp", "trilinear_interp"})
    table.functions[type] = interp_v1;
}

}  // namespace millrace::interchange::pir
