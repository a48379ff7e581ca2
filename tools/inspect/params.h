#pragma once

#include <functional>
#include <string>
#include <vector>

#include <llvm/ADT/StringRef.h>

#include "framework/base/status.h"
#include "framework/program.h"
#include "framework/tensor/value.h"

namespace millrace::tools {

/// What inspect-program tells of one parameter.
struct ParamFacts {
  std::string name;
  DType dtype = DType::kFloat32;
  Dims dims;        ///< of selected rows: those of the stored rows
  std::string lod;  ///< "" without LoD, or "rows of HEIGHT"
  int64_t bytes = 0;
  bool has_range = false;  ///< there are numbers other than NaN, and they are not complex
  double min = 0;
  double max = 0;
  double mean = 0;  ///< of the numbers that are not NaN
  int64_t nan = 0;  ///< how many are NaN
};

/// Parameters of a program from an npz archive, a combined file, a folder of one file a var, or one
/// file of such a folder (told by its name), in order of names.
/// \param wanted  names to keep; null keeps all
/// Errors: those of io::read_parameters().
StatusOr<std::vector<ParamFacts>> read_param_facts(
    const Program& program, const std::string& path,
    const std::function<bool(llvm::StringRef)>& wanted);

/// Facts of one value, to the end of a list: one of a tensor or selected rows, one for each element
/// of an array.
void add_param_facts(const std::string& name, const Value& value, std::vector<ParamFacts>& facts);

/// A table, a line a parameter, and a line with their sum.
std::string params_text(const std::vector<ParamFacts>& facts);

/// The same as JSON; schema "millrace.params". \param path  as the user gave it
std::string params_json(const std::vector<ParamFacts>& facts, const std::string& path);

}  // namespace millrace::tools
