#pragma once

#include <string>

#include "framework/program.h"

namespace millrace {

/// The program as one self-contained page: sizes, a picture of each block, and tables of ops, vars
/// and parameters that can be filtered with a search box. The page makes no network access; every
/// name is escaped. Blocks with more than 2000 ops are shown without a picture.
std::string html_view(const Program& program, const std::string& file);

}  // namespace millrace
