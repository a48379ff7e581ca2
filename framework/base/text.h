#pragma once

#include <span>
#include <string>
#include <string_view>

namespace millrace {

/// Copy of a string that is safe on a terminal and in a log: control characters, DEL and bytes that
/// are not valid UTF-8 become \xHH; everything else stays.
std::string printable(std::string_view text);

/// Double-quoted form with the escapes \" \\ \n \t and \xHH. unquote() restores the same bytes.
std::string in_quotes(std::string_view text);

/// Edit distance (insert, delete, replace, swap of neighbours) of two words.
size_t edit_distance(std::string_view a, std::string_view b);

/// The candidate nearest to the word by edit distance, or an empty string if no candidate is within
/// a third of the word's length. Ties go to the first candidate.
std::string nearest_name(std::string_view word, std::span<const std::string_view> candidates);

}  // namespace millrace
