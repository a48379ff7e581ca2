#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include <llvm/ADT/StringRef.h>

#include "framework/base/status.h"
#include "framework/program.h"
#include "framework/tensor/value.h"

namespace millrace::jobs {

/// What is shown of one parameter.
struct ParamFacts {
  std::string name;
  DType dtype = DType::kFloat32;
  Dims dims;        ///< of selected rows: those of the stored rows
  std::string lod;  ///< "" without LoD, or "rows of HEIGHT"
  int64_t bytes = 0;
  bool has_range = false;  ///< has values other than NaN, and they are not complex
  double min = 0;
  double max = 0;
  double mean = 0;  ///< of the values that are not NaN
  int64_t nan = 0;  ///< number of NaN values
};

/// Parameters of a program, in order of names. `path` is an npz archive, a combined file, a folder
/// with one file per variable, or one file of such a folder (recognized by its name).
/// \param wanted  names to keep; null keeps all
/// Errors: those of io::read_parameters(); kNotFound if no name is wanted.
StatusOr<std::vector<ParamFacts>> read_param_facts(
    const Program& program, const std::string& path,
    const std::function<bool(llvm::StringRef)>& wanted);

/// Appends the facts of one value to a list: one entry for a tensor or selected rows, one per
/// element for an array.
void add_param_facts(const std::string& name, const Value& value, std::vector<ParamFacts>& facts);

}  // namespace millrace::jobs
