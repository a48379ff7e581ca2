#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "framework/base/status.h"
#include "framework/program.h"

namespace millrace {

/// Limits for reading programs from outside.
struct ImportOptions {
  int64_t max_bytes = (int64_t{1} << 31U) - 1;  ///< refuse larger inputs, in bytes
};

/// Reads a serialized ProgramDesc.
///
/// Nothing is judged but the encoding: required fields, wire types and known attribute types. Rules
/// of programs are the verifier's (verify_program). Memory stays proportional to the input. Unknown
/// fields, field order and presence are kept, so an unedited program exports to the same bytes.
///
/// \param bytes  shared, because ops and vars keep slices of it until they are edited
/// \param file   name for error messages
/// Errors: kInvalidProgram with block, op and byte offset; kResource above the limit.
/// Source: spec/model_format.md section 2.
StatusOr<std::unique_ptr<Program>> import_program(std::shared_ptr<const std::string> bytes,
                                                  const std::string& file,
                                                  const ImportOptions& options = {});

}  // namespace millrace
