#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include <llvm/ADT/StringRef.h>

#include "framework/base/status.h"
#include "interchange/pir/json_form.h"

/// PIR programs as they are in a file, checked for their form only.
namespace millrace::interchange::pir {

/// The value of an attribute. Integers of 32 and 64 bits are one kind, f32 and f64 another. A list
/// without elements does not say of which kind it is.
using SourceAttr =
    std::variant<bool, int64_t, double, std::string, std::vector<bool>, std::vector<int64_t>,
                 std::vector<double>, std::vector<std::string>, std::monostate>;

/// A result of an op.
struct SourceResult {
  int64_t id = 0;                      ///< 0: the op does not compute it
  std::vector<TensorType> types = {};  ///< one, or those of the tensors of a list
  bool is_list = false;
};

/// An op.
struct SourceOp {
  std::string name;  ///< with the number of its dialect: "1.relu", "0.combine"
  std::map<std::string, SourceAttr> attrs;
  std::vector<int64_t> inputs;  ///< ids of values; 0: the operand is absent
  std::vector<SourceResult> results;
  bool has_regions = false;  ///< it owns blocks, which are not read
};

/// The name as messages show it: "op 12 (pd_op.relu)".
std::string op_text(llvm::StringRef name, size_t index);

/// A parameter and its value.
struct SourceParam {
  std::string name;
  int64_t id = 0;
  TensorType type;
  /// It has a value in the file. Release 3 does not store the state of dropout in recurrent layers.
  bool is_stored = true;
};

/// The block of a program.
struct SourceProgram {
  std::vector<SourceParam> params;
  std::vector<SourceOp> ops;  ///< in order, without those of parameters
};

/// True if the bytes begin as those of a PIR program in JSON.
bool is_pir(std::string_view bytes);

/// Reads a program. Errors: kInvalidData, with the op, for bytes that are no such program, for a
/// value that is computed twice or read before; kUnimplemented for another version of the form, and
/// for types and attributes that it does not know.
StatusOr<SourceProgram> read_source(std::string_view bytes);

}  // namespace millrace::interchange::pir
