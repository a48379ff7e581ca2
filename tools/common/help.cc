#include "tools/common/help.h"

#include <algorithm>

#include <fmt/format.h>

#include "tools/common/tool.h"

namespace millrace::tools {
namespace {

constexpr size_t kColumns = 80;
constexpr size_t kIndent = 2;
constexpr size_t kTextColumn = 30;

// Breaks text at spaces; the first line starts at column `at`, the others at `indent`.
void append_wrapped(std::string& out, std::string_view text, size_t at, size_t indent) {
  size_t column = at;
  bool first = true;
  while (!text.empty()) {
    const size_t end = text.find_first_of(" \n");
    const std::string_view word = text.substr(0, end);
    if (!first && column + 1 + word.size() > kColumns) {
      out += '\n';
      out.append(indent, ' ');
      column = indent;
      first = true;
    }
    if (!first) {
      out += ' ';
      ++column;
    }
    out += word;
    column += word.size();
    first = false;
    if (end == std::string_view::npos) break;
    if (text[end] == '\n') {
      out += '\n';
      out.append(indent, ' ');
      column = indent;
      first = true;
    }
    text.remove_prefix(end + 1);
  }
  out += '\n';
}

void append_entry(std::string& out, const std::string& label, const std::string& text) {
  out.append(kIndent, ' ');
  out += label;
  size_t column = kIndent + label.size();
  if (column + 2 > kTextColumn) {
    out += '\n';
    column = 0;
  }
  out.append(kTextColumn - column, ' ');
  append_wrapped(out, text, kTextColumn, kTextColumn);
}

void append_groups(std::string& out, const CLI::App& app,
                   const std::function<bool(const CLI::Option&)>& hidden) {
  for (const std::string& group : option_groups(app)) {
    std::string entries;
    for (const CLI::Option* option : app.get_options()) {
      if (option->get_group() != group || hidden(*option)) continue;
      append_entry(entries, option_label(*option), option_text(*option));
    }
    if (!entries.empty() && !group.empty()) out += fmt::format("\n{}:\n{}", group, entries);
  }
}

void append_exit_codes(std::string& out, const ToolInfo& info) {
  out += "\nExit codes:\n";
  for (const auto& [code, text] : exit_code_texts(info)) {
    out += fmt::format("  {:>3}  ", code);
    append_wrapped(out, text, 7, 7);
  }
}

}  // namespace

bool is_flag(const CLI::Option& option) {
  return option.get_expected_max() == 0 || option.get_type_size_max() == 0;
}

std::string option_text(const CLI::Option& option) {
  std::string text = option.get_description();
  const std::string fallback = option.get_default_str();
  const bool shown =
      !fallback.empty() && fallback != "[]" && fallback != "{}" && fallback != "\"\"";
  if (option.get_required()) {
    text += " (required)";
  } else if (shown && !(is_flag(option) && fallback == "false")) {
    text += fmt::format(" (default: {})", fallback);
  }
  return text;
}

std::string usage_line(const ToolInfo& info, const CLI::App& app) {
  std::string line = fmt::format("{} [OPTIONS]", info.name);
  for (const CLI::Option* option : app.get_options()) {
    if (!option->get_positional()) {
      if (option->get_required()) line += " " + option_label(*option);
      continue;
    }
    const std::string name = option->get_name(true);
    const char* const more = option->get_items_expected_max() > 1 ? "..." : "";
    line += option->get_required() ? fmt::format(" {}{}", name, more)
                                   : fmt::format(" [{}{}]", name, more);
  }
  return line;
}

std::vector<std::string> option_groups(const CLI::App& app) {
  std::vector<std::string> groups;
  for (const CLI::Option* option : app.get_options()) {
    const std::string& group = option->get_group();
    if (std::find(groups.begin(), groups.end(), group) == groups.end()) groups.push_back(group);
  }
  std::stable_partition(groups.begin(), groups.end(),
                        [](const std::string& g) { return g != "Common"; });
  return groups;
}

std::map<int, std::string> exit_code_texts(const ToolInfo& info) {
  std::map<int, std::string> codes = {
      {0, "done"},          {2, "wrong usage"},
      {3, "bad input"},     {6, "resource exhausted, or a system call failed"},
      {7, "not supported"}, {70, "a bug in millrace"}};
  for (const auto& [code, text] : info.exit_codes) codes[code] = text;
  return codes;
}

std::string option_label(const CLI::Option& option) {
  if (option.get_positional() && option.get_lnames().empty()) return option.get_name(true);
  std::string label;
  const auto add = [&](const std::string& name) {
    if (!label.empty()) label += ", ";
    label += name;
  };
  for (const std::string& name : option.get_snames()) add("-" + name);
  for (const std::string& name : option.get_lnames()) add("--" + name);
  if (!is_flag(option)) {
    const std::string type = option.get_type_name();
    if (!type.empty()) label += " " + type;
  }
  return label;
}

std::string help_text(const ToolInfo& info, const CLI::App& app,
                      const std::function<bool(const CLI::Option&)>& hidden) {
  std::string out = fmt::format("{} - {}\n\n", info.name, info.purpose);
  const std::string usage = "usage: " + usage_line(info, app);
  append_wrapped(out, usage, 0, 4);
  append_groups(out, app, hidden);
  for (const std::string& note : info.notes) {
    out += '\n';
    append_wrapped(out, note, 0, 0);
  }
  if (!info.examples.empty()) out += "\nExamples:\n";
  for (const std::string& example : info.examples) {
    out += "  ";
    append_wrapped(out, example, 2, 6);
  }
  append_exit_codes(out, info);
  return out;
}

}  // namespace millrace::tools
