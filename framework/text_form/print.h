#pragma once

#include <string>

#include <llvm/ADT/StringRef.h>

#include "framework/program.h"

namespace millrace {

/// First line of the text form, without the line feed. read_program() detects the form by its first
/// character.
inline constexpr const char* kTextFormHeader = "# millrace program 1";

/// What print_program() prints. Settings other than the defaults omit facts; the first line says
/// so.
struct TextOptions {
  bool attrs = true;      ///< attributes of ops, and wire bytes where needed
  bool callstack = true;  ///< the attribute op_callstack
  bool is_part = false;   ///< the caller removed ops or vars; only changes the first line
};

/// The text form of a program: complete, deterministic, one declaration per line and, where it
/// fits, one op per line. parse_program() creates an equal program from it, which exports to the
/// same bytes if the fields were in order of their numbers. The grammar is in docs/text_form.md.
std::string print_program(const Program& program, const TextOptions& options = {});

/// One op or var in the text form, without indentation and line feed.
std::string print_op(const Op& op, const TextOptions& options = {});
std::string print_var(const Var& var);
/// Type of a var: "f32(784, 200) lod=1".
std::string print_var_type(const VarSpec& spec);

/// The name in the text form: plain, or in quotes if it contains characters other than letters,
/// digits and _ . @ / + - $ ~ |.
std::string print_name(llvm::StringRef name);

}  // namespace millrace
