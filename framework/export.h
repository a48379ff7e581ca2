#pragma once

#include <string>

#include "framework/program.h"

namespace millrace {

/// How export_program() writes.
struct ExportOptions {
  /// Encode everything again with fields ordered by their numbers, even parts that were not edited.
  bool canonical = false;
};

/// Serializes a program as a ProgramDesc message.
///
/// An unedited program produces the bytes it was read from. In an edited program, every op and var
/// that was not edited keeps its bytes; everything else is encoded with fields in order of their
/// numbers, repeated scalars unpacked, unknown fields last.
/// Thread-safety: concurrent readers of the program. Cost: linear in its size.
std::string export_program(const Program& program, const ExportOptions& options = {});

/// Canonical encoding of one op or var; export_program() uses it for edited ones.
std::string encode_op(const Op& op);
std::string encode_var(const Var& var);

}  // namespace millrace
