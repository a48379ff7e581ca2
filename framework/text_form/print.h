#pragma once

#include <string>

#include <llvm/ADT/StringRef.h>

#include "framework/program.h"

namespace millrace {

/// First line of the text form, without the line feed; read_program() tells the form by its start.
inline constexpr const char* kTextFormHeader = "# millrace program 1";

/// What print_program() shows. Anything but the default loses facts, and the first line says so.
struct TextOptions {
  bool attrs = true;      ///< attributes of ops, and the wire bytes of odd ones
  bool callstack = true;  ///< the attribute op_callstack
  bool is_part = false;   ///< the caller took ops or vars away; only the first line changes
};

/// The text form of a program: complete, deterministic, one declaration and (where it fits) one op
/// a line. parse_program() makes an equal program of it, with the same bytes wherever the fields
/// stood in order of their numbers; the grammar stands in docs/text_form.md.
std::string print_program(const Program& program, const TextOptions& options = {});

/// One op or var as it stands in the text form, without indentation and line feed.
std::string print_op(const Op& op, const TextOptions& options = {});
std::string print_var(const Var& var);
/// Type of a var: "f32(784, 200) lod=1".
std::string print_var_type(const VarSpec& spec);

/// The name as the text form spells it: plain, or in quotes where it holds other characters than
/// letters, digits and _ . @ / + - $ ~ |.
std::string print_name(llvm::StringRef name);

}  // namespace millrace
