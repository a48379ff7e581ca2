#pragma once

#include <string>

#include "framework/program.h"

namespace millrace {

/// How export_program() writes.
struct ExportOptions {
  /// Encode everything anew with fields in order of their numbers, even what was never edited.
  bool canonical = false;
};

/// Serializes a program as a ProgramDesc message.
///
/// An unedited program gives the bytes it was read from; in an edited one every op and var that was
/// not edited keeps its bytes. Elsewhere fields stand in order of their numbers, repeated scalars
/// are unpacked, unknown fields last.
std::string export_program(const Program& program, const ExportOptions& options = {});

/// Canonical encoding of one op or var; what export_program() writes for it once it was edited.
std::string encode_op(const Op& op);
std::string encode_var(const Var& var);

}  // namespace millrace
