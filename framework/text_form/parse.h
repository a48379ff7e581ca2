#pragma once

#include <memory>
#include <string>

#include "framework/base/status.h"
#include "framework/import.h"
#include "framework/program.h"

namespace millrace {

/// Reads the text form (docs/text_form.md) that print_program() writes.
///
/// Checks the grammar only; the rules of programs are checked by the verifier. A `wire` annotation
/// is kept if it still encodes the element next to it and dropped if the element was edited. Memory
/// use is proportional to the text; the parser is not recursive.
/// \param file  name for error messages
/// Errors: kInvalidData with line, column, what was expected and what was found; kUnimplemented for
/// a later version of the form; kResource above the limit.
StatusOr<std::unique_ptr<Program>> parse_program(const std::string& text, const std::string& file,
                                                 const ImportOptions& options = {});

/// True if the bytes are in the text form: they begin with '#', which no serialized program does.
bool is_text_form(const std::string& bytes);

}  // namespace millrace
