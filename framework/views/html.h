#pragma once

#include <string>

#include "framework/program.h"

namespace millrace {

/// The program as one self-contained page: sizes, a picture of each block, and tables of ops, vars
/// and parameters that a search box filters. The page opens no connection; every name is escaped.
/// Blocks above 2000 ops are shown without picture.
std::string html_view(const Program& program, const std::string& file);

}  // namespace millrace
