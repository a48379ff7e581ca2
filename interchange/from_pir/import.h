#pragma once

#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "framework/base/status.h"
#include "interchange/imported_model.h"
#include "io/params.h"

/// Converts PIR programs into inference programs (docs/interchange.md).
namespace millrace::interchange {

namespace pir {
struct SourceProgram;
}

/// How to read a PIR program.
struct PirImportOptions {
  /// Dims of inputs that replace the declared ones, by name; -1 is unknown until run time.
  std::map<std::string, Dims> input_dims = {};
};

/// A PIR program that has been read, but not converted yet. Movable only.
class PirSource {
 public:
  /// Reads the content of a `.json` file. Errors: kInvalidData, with the op, for bytes that are no
  /// PIR program; kUnimplemented for another version of the form, unknown types and attributes.
  static StatusOr<PirSource> read(std::string_view bytes);
  PirSource(PirSource&& other) noexcept;
  PirSource& operator=(PirSource&& other) noexcept;
  ~PirSource();

  /// The parameters in the order of the `.pdiparams` file: sorted by name as bytes.
  [[nodiscard]] std::vector<io::ParamSpec> parameters() const;
  [[nodiscard]] const pir::SourceProgram& program() const { return *program_; }

 private:
  explicit PirSource(std::unique_ptr<pir::SourceProgram> program);
  std::unique_ptr<pir::SourceProgram> program_;
};

/// Converts a program. \param params  values of all its parameters
///
/// Inputs are its ops `data` in their order, outputs its ops `fetch` in the order of `col`, under
/// their names. Ops that no output needs are left out. What an op computes is compared with the
/// element type and the dims that the program states for it.
///
/// Errors: kUnimplemented, with the op, for an op, attribute, operand or type without a
/// counterpart; kInvalidProgram for an op that lacks an attribute or operand; kNotFound for a
/// parameter without a value; kInvalidArgument for input_dims.
StatusOr<ImportedModel> import_pir(const PirSource& source, io::ParamValues params,
                                   const PirImportOptions& options = {});

/// The ops that import_pir() knows, without dialect, sorted.
std::vector<std::string> imported_pir_ops();

}  // namespace millrace::interchange
