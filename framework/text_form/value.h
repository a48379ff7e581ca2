#pragma once

#include <string>

#include "framework/attribute.h"

namespace millrace {

/// An attribute value in the text form. The kind can be read back: 5 (int), 5l (long), true, 1.5
/// (float), 1.5d (float64), "s", %v (var), ^2 (block), scalar(5l), lists of these in brackets,
/// ints[] (empty list of that kind). Floats are written as the shortest decimals that read back to
/// the same bits, NaNs as 0x and their bits.
void append_value(std::string& out, const AttrValue& value);
std::string print_value(const AttrValue& value);

/// "7f0a": two hex digits per byte.
std::string hex_of(llvm::StringRef bytes);

}  // namespace millrace
