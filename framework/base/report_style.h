#pragma once

#include <string_view>

/// Rules of the style sheets of pages about jobs and distributions, in CSS. A page joins those that
/// it uses with its own, so that all pages look alike.
namespace millrace::report_style {

/// Custom properties of :root; a page adds its own.
inline constexpr std::string_view kLightColors =
    R"css(color-scheme:light dark;--text:#1c2430;--dim:#5c6775;--line:#d9dee5;--page:#fbfcfd;--card:#fff;)css";
/// The same for dark screens.
inline constexpr std::string_view kDarkColors =
    R"css(--text:#e4e8ee;--dim:#98a3b1;--line:#343c47;--page:#14181d;--card:#1b2027;)css";
/// The page as a whole.
inline constexpr std::string_view kBodyRules =
    R"css(*{box-sizing:border-box}body{margin:0;padding:24px 28px 48px;background:var(--page);color:var(--text);font:14px/1.45 system-ui,-apple-system,"Segoe UI",Roboto,sans-serif}
)css";
/// Headings; without a line feed.
inline constexpr std::string_view kHeadingRules =
    R"css(h1{font-size:20px;margin:0 0 2px}h2{font-size:15px;margin:28px 0 8px})css";
/// Cards with one number each, and the frame around tables and pictures; the last line
/// has no line feed.
inline constexpr std::string_view kCardRules =
    R"css(.cards{display:flex;flex-wrap:wrap;gap:10px;margin:16px 0 0}.card{background:var(--card);border:1px solid var(--line);border-radius:8px;padding:9px 14px;min-width:118px}
.card b{display:block;font-size:18px;font-weight:600}.card span{color:var(--dim);font-size:12px}
.box{background:var(--card);border:1px solid var(--line);border-radius:8px;padding:10px;overflow-x:auto})css";
/// Tables of numbers.
inline constexpr std::string_view kTableRules =
    R"css(table{border-collapse:collapse;width:100%;font-variant-numeric:tabular-nums}th,td{padding:5px 12px;text-align:right;white-space:nowrap;border-bottom:1px solid var(--line)}
)css";
/// A line that explains colors; without a line feed.
inline constexpr std::string_view kLegendRule =
    R"css(.legend{display:flex;gap:18px;margin:0 0 8px;color:var(--dim);font-size:12px})css";
/// A colored square in it; without a line feed.
inline constexpr std::string_view kKeyRule =
    R"css(.key{display:inline-block;width:11px;height:11px;border-radius:2px;margin-right:6px;vertical-align:-1px})css";

}  // namespace millrace::report_style
