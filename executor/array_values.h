#pragma once

#include <map>
#include <string>
#include <vector>

#include <llvm/ADT/ArrayRef.h>

#include "executor/array.h"
#include "framework/base/status.h"
#include "framework/tensor/value.h"

/// Conversions between the arrays of the installed headers and values. All but one copy.
namespace millrace::executor {

/// Errors: kInvalidArgument naming the array if its bytes do not fit its dims; kResource.
StatusOr<Tensor> to_tensor(const std::string& name, const Array& array);
/// A dense value as an array, in row-major order. Errors: kInvalidArgument naming the var for a
/// value that is not a dense tensor, or none.
StatusOr<Array> to_array(const std::string& name, const Value& value);

/// Makes `values` hold exactly the arrays; memory of values with the same names is reused.
/// Errors: those of to_tensor().
Status to_values(const Arrays& arrays, std::map<std::string, Value>& values);
/// The same without a copy: the values have the memory of the views, for reading only. They must be
/// dropped before that memory is freed. Errors: as above.
Status borrow_values(const ArrayViews& views, std::map<std::string, Value>& values);
/// Values by name. \param names  one for each value
/// Errors: those of to_array().
StatusOr<Arrays> to_arrays(const std::vector<std::string>& names, llvm::ArrayRef<Value> values);
/// The same for values that have names.
StatusOr<Arrays> to_arrays(const std::map<std::string, Value>& values);

}  // namespace millrace::executor
