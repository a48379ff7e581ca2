#pragma once

#include <string>
#include <string_view>

namespace millrace {

/// Text for an element or a quoted attribute of HTML, SVG or XML: & < > " ' are escaped; control
/// characters and bytes that are not valid UTF-8 become the visible text \xHH.
std::string html_escaped(std::string_view text);

/// A self-contained page. Its content security policy forbids all network access.
/// \param title  plain text; escaped here
/// \param script  JavaScript for the end of the body; may be empty
std::string html_page(std::string_view title, std::string_view style, std::string_view body,
                      std::string_view script);

}  // namespace millrace
