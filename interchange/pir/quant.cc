// Quantized values, as they are simulated in training and stored.

#include "interchange/pir/rows.h"

namespace millrace::interchange::pir {
namespace {

constexpr Row kQuantRows[] = {
    {"dequantize_abs_max", "dequantize_abs_max", "X Scale", "max_range:f32", "Out"},
    {"fake_channel_wise_dequantize_max_abs", "fake_channel_wise_dequantize_max_abs", "X Scales*",
     "quant_bits:i32s quant_axis:i32 x_num_col_dims:i32", "Out"},
    {"fake_channel_wise_quantize_abs_max", "fake_channel_wise_quantize_abs_max", "X",
     "bit_length:i32 round_type:i32 quant_axis:i32 is_test:bool", "Out OutScale"},
    {"fake_channel_wise_quantize_dequantize_abs_max",
     "fake_channel_wise_quantize_dequantize_abs_max", "X",
     "bit_length:i32 round_type:i32 quant_axis:i32", "Out OutScale"},
    {"fake_dequantize_max_abs", "fake_dequantize_max_abs", "X Scale", "max_range:f32", "Out"},
    {"fake_quantize_abs_max", "fake_quantize_abs_max", "X", "bit_length:i32 round_type:i32",
     "Out OutScale"},
    {"fake_quantize_dequantize_abs_max", "fake_quantize_dequantize_abs_max", "X",
     "bit_length:i32 round_type:i32", "Out OutScale"},
    {"fake_quantize_dequantize_moving_average_abs_max",
     "fake_quantize_dequantize_moving_average_abs_max_", "X InScale InAccum? InState?",
     "moving_rate:f32 bit_length:i32 is_test:bool round_type:i32",
     "Out OutScale OutState OutAccum"},
    {"fake_quantize_moving_average_abs_max", "fake_quantize_moving_average_abs_max_",
     "X InScale InAccum? InState?", "moving_rate:f32 bit_length:i32 is_test:bool round_type:i32",
     "Out OutScale OutState OutAccum"},
    {"fake_quantize_range_abs_max", "fake_quantize_range_abs_max_", "X InScale Iter?",
     "window_size:i32 bit_length:i32 is_test:bool round_type:i32", "Out OutScale OutScales"},
    {"moving_average_abs_max_scale", "moving_average_abs_max_scale_", "X InAccum? InState?",
     "moving_rate:f32 is_test:bool", "Out OutScale OutState OutAccum"},
};

const Row* quant_row(llvm::StringRef type) {
  for (const Row& row : kQuantRows)
    if (type == row.type) return &row;
  return nullptr;
}

// Release 3 takes the limits of the integers from attributes that older ops do not have.
Status quantize_linear(OpContext& c) {
  const auto bits = c.attr<int64_t>("bit_length");
  if (bits < 2 || bits > 31) return c.refuse("a bit_length outside 2 to 31");
  const int64_t above = int64_t{1} << static_cast<uint64_t>(bits - 1);
  std::vector<Value> results = {result_of(c.out_type("Y"))};
  constexpr const char* kStatistics[] = {"OutState", "OutAccum", "OutScale"};
  for (const char* slot : kStatistics) {
    const bool is_absent = c.op().first_output(slot).empty();
    results.push_back(is_absent ? Value{} : result_of(c.out_type(slot)));
  }
  results = c.nodes("quantize_linear",
                    {c.in("X"), c.in("Scale"), c.in("ZeroPoint"), c.in_or_none("InAccum"),
                     c.in_or_none("InState")},
                    {of_i32("quant_axis", c.attr<int64_t>("quant_axis")),
                     of_i32("bit_length", bits), of_i32("qmin", -above), of_i32("qmax", above - 1),
                     of_i32("round_type", c.attr<int64_t>("round_type")),
                     of_bool("is_test", c.attr<bool>("is_test")),
                     of_bool("only_observer", c.attr<bool>("only_observer"))},
                    std::move(results));
  c.set("Y", results[0]);
  for (size_t i = 0; i < 3; ++i) c.set(kStatistics[i], results[i + 1]);
  return Ok();
}

// Moving averages: in training the kernels of release 3 need the sums so far.
Status with_averages(OpContext& c) {
  if (!c.attr<bool>("is_test") && (!c.has("InAccum") || !c.has("InState")))
    return c.refuse("a moving average in training without InAccum and InState");
  if (c.attr<bool>("is_test") && c.op().type() == "moving_average_abs_max_scale" &&
      c.wants("OutScale"))
    return c.refuse("a scale that is read, but computed in training only");
  return convert_by_row(c, *quant_row(c.op().type()));
}

}  // namespace

void add_quant_ops(Converters& table) {
  for (const Row& row : kQuantRows) table.rows[row.type] = &row;
  table.functions["quantize_linear"] = quantize_linear;
  for (const char* type :
       {"fake_quantize_dequantize_moving_average_abs_max", "fake_quantize_moving_average_abs_max",
        "moving_average_abs_max_scale"}) {
    table.functions[type] = with_averages;
  }
}

}  // namespace millrace::interchange::pir
