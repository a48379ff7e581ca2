#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "framework/base/status.h"
#include "framework/program.h"

namespace millrace {

/// Limits for reading programs from untrusted sources.
struct ImportOptions {
  int64_t max_bytes = (int64_t{1} << 31U) - 1;  ///< larger inputs are rejected; in bytes
};

/// Reads a serialized ProgramDesc.
///
/// Checks the encoding only: required fields, wire types and known attribute types. The rules of
/// programs are checked by the verifier (verify_program). Memory use is proportional to the input.
/// Unknown fields, field order and field presence are kept, so an unedited program exports to the
/// same bytes.
///
/// \param bytes  shared, because ops and vars refer to ranges of it until they are edited
/// \param file  name for error messages
/// Errors: kInvalidProgram with block, op and byte offset; kResource above the limit.
/// Source: spec/model_format.md section 2.
StatusOr<std::unique_ptr<Program>> import_program(std::shared_ptr<const std::string> bytes,
                                                  const std::string& file,
                                                  const ImportOptions& options = {});

}  // namespace millrace
