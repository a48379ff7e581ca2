#pragma once

#include <cstdint>
#include <string>

#include "interchange/from_pir/import.h"

namespace millrace::interchange {

/// How to read the files of a PIR program.
struct PirFiles {
  std::string program;    ///< path of the `.json` file
  std::string params;     ///< path of the parameters; empty: `X.pdiparams` for `X.json`
  int64_t max_bytes = 0;  ///< largest program that is read
  int threads = 1;        ///< that read parameters; >= 1
};

/// Reads and converts a PIR program with its parameters. Errors: those of PirSource::read(),
/// io::load_combined() and import_pir(), with the file; kNotFound without the file of the
/// parameters that the program has; kIo; kResource for a larger file.
StatusOr<ImportedModel> load_pir(const PirFiles& files, const PirImportOptions& options = {});

/// True if the file begins as a PIR program does. False if it cannot be read.
bool is_pir_file(const std::string& path);

}  // namespace millrace::interchange
