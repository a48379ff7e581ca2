#include "tools/common/pages.h"

#include <algorithm>
#include <cctype>

#include <fmt/format.h>

#include "tools/common/help.h"
#include "tools/common/tool.h"

namespace millrace::tools {
namespace {

std::string replaced(std::string text, std::string_view from, std::string_view to) {
  for (size_t at = text.find(from); at != std::string::npos; at = text.find(from, at + to.size()))
    text.replace(at, from.size(), to);
  return text;
}

std::vector<std::string> spellings(const CLI::Option& option) {
  std::vector<std::string> out;
  for (const std::string& name : option.get_snames()) out.push_back("-" + name);
  for (const std::string& name : option.get_lnames()) out.push_back("--" + name);
  return out;
}

// Escapes text inside [] and '' of _arguments.
std::string zsh_text(std::string text) {
  std::replace(text.begin(), text.end(), '\n', ' ');
  for (const std::string_view special : {"\\", "[", "]", ":"})
    text = replaced(std::move(text), special, "\\" + std::string(special));
  return replaced(std::move(text), "'", "'\\''");
}

// Escapes text of a manual page: characters that start a request or an escape.
std::string roff(std::string text) {
  text = replaced(std::move(text), "\\", "\\e");
  text = replaced(std::move(text), "-", "\\-");
  std::string out;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    const std::string_view line = std::string_view(text).substr(begin, end - begin);
    if (!line.empty() && (line[0] == '.' || line[0] == '\'')) out += "\\&";
    out += line;
    out += '\n';
    begin = end + 1;
  }
  return out;
}

void append_options(std::string& out, const CLI::App& app) {
  for (const std::string& group : option_groups(app)) {
    std::string entries;
    for (const CLI::Option* option : app.get_options())
      if (option->get_group() == group)
        entries += ".TP\n.B " + roff(option_label(*option)) + roff(option_text(*option));
    if (!entries.empty() && !group.empty()) out += ".SS " + roff(group) + entries;
  }
}

}  // namespace

std::string bash_completion(const ToolInfo& info, const CLI::App& app) {
  std::string words;
  for (const CLI::Option* option : app.get_options())
    for (const std::string& name : spellings(*option)) words += (words.empty() ? "" : " ") + name;
  const std::string function = "_" + replaced(info.name, "-", "_");
  return fmt::format(
      "# {0}: options; what follows them is completed as file names\n"
      "{1}() {{\n"
      "  COMPREPLY=()\n"
      "  [[ ${{COMP_WORDS[COMP_CWORD]}} == -* ]] || return\n"
      "  mapfile -t COMPREPLY < <(compgen -W '{2}' -- \"${{COMP_WORDS[COMP_CWORD]}}\")\n"
      "}}\n"
      "complete -o bashdefault -o default -F {1} {0}\n",
      info.name, function, words);
}

std::string zsh_completion(const ToolInfo& info, const CLI::App& app) {
  std::string out = fmt::format("#compdef {}\n\n_arguments -s", info.name);
  for (const CLI::Option* option : app.get_options()) {
    for (const std::string& name : spellings(*option)) {
      const bool takes_value = !is_flag(*option);
      const bool is_long = name.rfind("--", 0) == 0;
      const std::string value =
          takes_value ? fmt::format(":{}:_files", zsh_text(option->get_type_name())) : "";
      out += fmt::format(" \\\n  '*{}{}[{}]{}'", name, takes_value && is_long ? "=" : "",
                         zsh_text(option->get_description()), value);
    }
  }
  return out + " \\\n  '*:file:_files'\n";
}

std::string manual_page(const ToolInfo& info, const CLI::App& app, const std::string& version) {
  std::string title = info.name;
  std::transform(title.begin(), title.end(), title.begin(),
                 [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
  std::string out = fmt::format(".TH \"{}\" 1 \"\" \"millrace {}\"\n", title, version);
  out += ".SH NAME\n" + roff(fmt::format("{} - {}", info.name, info.purpose));
  out += ".SH SYNOPSIS\n.B " + roff(usage_line(info, app));
  if (!info.notes.empty()) out += ".SH DESCRIPTION\n";
  for (const std::string& note : info.notes) out += ".PP\n" + roff(note);
  out += ".SH OPTIONS\n";
  append_options(out, app);
  if (!info.examples.empty()) out += ".SH EXAMPLES\n";
  for (const std::string& example : info.examples) out += ".PP\n.EX\n" + roff(example) + ".EE\n";
  out += ".SH EXIT STATUS\n";
  for (const auto& [code, text] : exit_code_texts(info))
    out += fmt::format(".TP\n{}\n", code) + roff(text);
  return out;
}

}  // namespace millrace::tools
