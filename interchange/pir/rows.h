#pragma once

#include <map>
#include <string>

#include "interchange/pir/op_context.h"

namespace millrace::interchange::pir {

/// An op of the original that is one op of PIR. Three lists of words, separated by blanks, say how.
///
/// Inputs, in the order of PIR:
///   - `X` the var of a slot; `X?` it may be absent; `X*` all vars, as a list; `X*?`; `-` none
///   - `!X` is no operand: the slot has no influence
///   - `@axis:i32` a constant with the value of an attribute; kinds i32, i64, f32, i64s
///   - `@axis:i32|AxisTensor|AxisList*` the first of the slots that has vars, else the constant
///
/// Attributes: `axis:i32`, or `dim<axis:i32` where the original has another name, or
/// `sorted:bool=true` for a constant. Kinds: bool, i32, i64, f32, f64, str, dtype and the lists
/// i32s, i64s, f32s, f64s, strs; `place` is an attribute without source; `!name` has no influence.
///
/// Results: `Out` the var of a slot, which the op may lack; `Out?` there is no result if it lacks
/// it; `Out*` all vars, from a list; `ParamOut=Param` the op updates this operand in place; `-` the
/// op does not compute the result.
struct Row {
  const char* type;     ///< of the op of the original
  const char* name;     ///< of the op of PIR, without dialect
  const char* inputs;   ///< see above
  const char* attrs;    ///< see above
  const char* outputs;  ///< see above
};

/// Converts the op by a row. Errors: those of refuse(), for a value that is not finite.
Status convert_by_row(OpContext& c, const Row& row);

/// The attributes of a slice, and of its gradient.
std::vector<Attr> slice_attrs(OpContext& c);

/// The converters of all op types.
struct Converters {
  std::map<std::string, const Row*> rows;      ///< ops that are one op of PIR
  std::map<std::string, Converter> functions;  ///< all others, and ops that need more than a row
};

/// All converters. Thread-safety: any thread.
const Converters& all_converters();

/// The families of ops. The rows live as long as the program.
void add_activation_ops(Converters& table);
void add_control_flow_ops(Converters& table);
void add_conv_ops(Converters& table);
void add_detection_ops(Converters& table);
void add_elementwise_ops(Converters& table);
void add_embedding_ops(Converters& table);
void add_fill_ops(Converters& table);
void add_formula_gradient_ops(Converters& table);
void add_formula_ops(Converters& table);
void add_gradient_ops(Converters& table);
void add_index_ops(Converters& table);
void add_loss_ops(Converters& table);
void add_matmul_ops(Converters& table);
void add_norm_ops(Converters& table);
void add_optimizer_ops(Converters& table);
void add_pool_ops(Converters& table);
void add_quant_ops(Converters& table);
void add_reduce_ops(Converters& table);
void add_resize_ops(Converters& table);
void add_sequence_ops(Converters& table);
void add_shape_ops(Converters& table);

}  // namespace millrace::interchange::pir
