#pragma once

#include <span>
#include <string>
#include <string_view>

namespace millrace {

/// Copy of a string that is safe on a terminal and in a log: control characters, DEL and bytes that
/// are no valid UTF-8 become \xHH; everything else stays.
std::string printable(std::string_view text);

/// Double-quoted form with \" \\ \n \t and \xHH escapes that unquote() reads back to the same
/// bytes.
std::string in_quotes(std::string_view text);

/// Edit distance (insert, delete, replace, swap of neighbours) of two words.
size_t edit_distance(std::string_view a, std::string_view b);

/// The candidate nearest to word by edit distance, or an empty string if none is within a third of
/// its length. Ties go to the first candidate.
std::string nearest_name(std::string_view word, std::span<const std::string_view> candidates);

}  // namespace millrace
