#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "framework/base/status.h"
#include "framework/program.h"
#include "io/params.h"
#include "jobs/checkpoint/tensor_source.h"
#include "jobs/checkpoint/write_options.h"

namespace millrace::jobs {

/// The variables of an inference program. Loads one value at a time. The sources must outlive this.
class ModelValues {
 public:
  /// Errors: kNotFound for a variable that no source has; kInvalidData for one that has different
  /// values in two of them; those of the sources.
  static StatusOr<ModelValues> find(const Program& program,
                                    const std::vector<std::unique_ptr<TensorSource>>& sources);

  /// In byte order, as in the combined files of the original.
  [[nodiscard]] const std::vector<std::string>& names() const { return names_; }
  /// A value of names() with the dtype and dims that the program declares; a table becomes a dense
  /// tensor, in which rows that the table does not have are 0. Errors: those of the source;
  /// kInvalidData for a value that does not fit.
  [[nodiscard]] StatusOr<Value> load(const std::string& name) const;

 private:
  struct Place {
    io::ParamSpec spec;
    const TensorSource* source;
  };
  std::vector<std::string> names_;
  std::map<std::string, Place> places_;
};

/// Writes a folder with a model: the values, and the file of the program as __model__.
///
/// \param params_filename    one combined file of this name; empty: one file per variable
/// \param max_program_bytes  a larger program is refused
/// Errors: those of ModelValues::load() and of writing; kUsage if a file exists and may not be
/// replaced.
Status export_model(const ModelValues& values, const std::string& program,
                    int64_t max_program_bytes, const std::string& params_filename,
                    const std::string& output, const WriteOptions& options);

}  // namespace millrace::jobs
