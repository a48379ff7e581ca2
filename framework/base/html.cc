#include "framework/base/html.h"

#include <algorithm>

#include <fmt/format.h>

#include "framework/base/text.h"

namespace millrace {
namespace {

bool is_plain(char c) {
  return c >= 0x20 && c < 0x7F && c != '&' && c != '<' && c != '>' && c != '"' && c != '\'';
}

}  // namespace

std::string html_escaped(std::string_view text) {
  // Fast path: nearly all names need no escaping.
  if (std::all_of(text.begin(), text.end(), is_plain)) return std::string(text);
  std::string out;
  for (const char c : printable(text)) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&quot;";
        break;
      case '\'':
        out += "&#39;";
        break;
      default:
        out += c;
    }
  }
  return out;
}

std::string html_page(std::string_view title, std::string_view style, std::string_view body,
                      std::string_view script) {
  std::string out = fmt::format(
      "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
      "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src "
      "'unsafe-inline'; script-src 'unsafe-inline'\">\n"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
      "<title>{}</title>\n<style>{}</style>\n</head>\n<body>\n{}",
      html_escaped(title), style, body);
  if (!script.empty()) out += fmt::format("<script>{}</script>\n", script);
  return out + "</body>\n</html>\n";
}

}  // namespace millrace
