#include "framework/views/html.h"

#include <fmt/format.h>

#include "framework/base/html.h"
#include "framework/text_form/print.h"
#include "framework/text_form/value.h"
#include "framework/views/graph.h"
#include "framework/views/summary.h"

namespace millrace {
namespace {

constexpr size_t kLargestPicture = 2000;

constexpr const char* kPageStyle = R"(
:root { color-scheme: light; }
body { font: 14px/1.5 system-ui, sans-serif; margin: 0; color: #1c2330; background: #f6f7f9; }
header { background: #fff; border-bottom: 1px solid #d8dde6; padding: 1rem 2rem; position: sticky; top: 0; z-index: 1; }
h1 { font-size: 1.1rem; margin: 0 0 .3rem; overflow-wrap: anywhere; }
h2 { font-size: 1rem; margin: 0 0 .6rem; }
main { padding: 1rem 2rem 3rem; }
section { background: #fff; border: 1px solid #d8dde6; border-radius: 6px; padding: 1rem; margin: 0 0 1rem; }
.facts span { margin-right: 1.2rem; white-space: nowrap; } .facts b { font-weight: 600; }
input { font: inherit; padding: .35rem .6rem; width: min(28rem, 100%); margin-top: .5rem; border: 1px solid #8a93a3; border-radius: 4px; }
table { border-collapse: collapse; width: 100%; }
th, td { text-align: left; vertical-align: top; padding: .2rem .6rem; border-bottom: 1px solid #e6e9ef; }
th { position: sticky; top: 0; background: #fff; font-weight: 600; }
td { font: 12px/1.5 ui-monospace, monospace; overflow-wrap: anywhere; } .d { color: #6b7589; }
.n { text-align: right; white-space: nowrap; } td.t { white-space: nowrap; }
.scroll { overflow: auto; max-height: 36rem; border: 1px solid #e6e9ef; }
details > summary { cursor: pointer; color: #44506a; } .chips span { display: inline-block; background: #eef1f6; border-radius: 3px; padding: 0 .5rem; margin: 0 .4rem .3rem 0; }
.hit { outline: 3px solid #e08a00; } #count { color: #44506a; margin-left: .8rem; }
)";

// Filters the rows of all tables and marks the remaining ops in the pictures.
constexpr const char* kPageScript = R"(
(function () {
  var box = document.getElementById('search'), count = document.getElementById('count');
  var rows = Array.prototype.slice.call(document.querySelectorAll('tbody tr'));
  var texts = rows.map(function (r) { return r.textContent.toLowerCase(); });
  var nodes = {};
  document.querySelectorAll('g[data-op]').forEach(function (g) { nodes[g.getAttribute('data-op')] = g; });
  function filter() {
    var words = box.value.toLowerCase().split(/\s+/).filter(Boolean), shown = 0;
    rows.forEach(function (row, i) {
      var hit = words.every(function (w) { return texts[i].indexOf(w) >= 0; });
      row.hidden = !hit;
      if (hit) shown++;
      var node = nodes[row.getAttribute('data-row')];
      if (node) node.classList.toggle('hit', hit && words.length > 0);
    });
    count.textContent = words.length ? shown + ' of ' + rows.length + ' rows' : '';
  }
  var timer = 0;
  box.addEventListener('input', function () { clearTimeout(timer); timer = setTimeout(filter, 120); });
  document.querySelectorAll('g[data-op]').forEach(function (g) {
    g.addEventListener('click', function () {
      var row = document.querySelector('tr[data-row="' + g.getAttribute('data-op') + '"]');
      if (!row) return;
      row.closest('details').open = true;
      row.scrollIntoView({block: 'center'});
    });
  });
})();
)";

std::string name_cell(llvm::StringRef name) {
  return html_escaped(print_name(name));
}

// Slots without vars are left out; `types` adds the declared type of each var.
std::string slots_cell(const Op& op, llvm::ArrayRef<Slot> slots, bool types) {
  std::string out;
  for (const Slot& slot : slots) {
    if (slot.args.empty()) continue;
    if (!out.empty()) out += "<br>";
    out += "<b>" + name_cell(op.name_of(slot.name)) + "</b> ";
    for (size_t i = 0; i < slot.args.size(); ++i) {
      const llvm::StringRef name = op.name_of(slot.args[i].name);
      out += (i == 0 ? "" : ", ") + name_cell(name);
      const Var* const var = types ? op.block().find_var_recursive(name) : nullptr;
      if (var != nullptr) {
        out += " <span class=\"d\">" + html_escaped(print_var_type(var->spec())) + "</span>";
      }
    }
  }
  return out;
}

std::string attrs_cell(const Op& op) {
  if (op.attrs().empty()) return "";
  std::string out = fmt::format("<details><summary>{}</summary>", op.attrs().size());
  for (const Attr& attr : op.attrs()) {
    const std::string value =
        attr.missing_value ? std::string("no value") : print_value(attr.value);
    out += fmt::format("{}: {}<br>", name_cell(op.name_of(attr.name)), html_escaped(value));
  }
  return out + "</details>";
}

void append_op_table(std::string& out, const Block& block) {
  out += fmt::format(
      "<details open><summary>{} ops</summary>\n<div class=\"scroll\"><table><thead>"
      "<tr><th class=\"n\">#</th><th>type</th><th>inputs</th><th>outputs</th><th>attributes</th>"
      "</tr></thead><tbody>\n",
      block.op_count());
  int64_t index = 0;
  for (const Op& op : block.ops()) {
    out += fmt::format(
        "<tr data-row=\"{}.{}\"><td class=\"n\">{}</td><td class=\"t\">{}</td><td>{}</td>"
        "<td>{}</td><td>{}</td></tr>\n",
        block.index(), index, index, name_cell(op.type()),
        slots_cell(op, op.inputs(), /*types=*/false), slots_cell(op, op.outputs(), /*types=*/true),
        attrs_cell(op));
    ++index;
  }
  out += "</tbody></table></div></details>\n";
}

void append_var_table(std::string& out, const Block& block) {
  out += fmt::format(
      "<details><summary>{} vars</summary>\n<div class=\"scroll\"><table><thead><tr>"
      "<th>name</th><th>type</th><th>facts</th><th class=\"n\">written by</th><th class=\"n\">read "
      "by</th>"
      "</tr></thead><tbody>\n",
      block.var_count());
  for (const Var& var : block.vars()) {
    std::string facts;
    if (var.is_parameter()) facts += "parameter ";
    if (var.persistable()) facts += "persistable ";
    if (var.stop_gradient()) facts += "stop_gradient ";
    out += fmt::format(
        "<tr><td>{}</td><td class=\"t\">{}</td><td>{}</td><td class=\"n\">{}</td>"
        "<td class=\"n\">{}</td></tr>\n",
        name_cell(var.name()), html_escaped(print_var_type(var.spec())), facts,
        block.writers_of(var.name()).size(), block.readers_of(var.name()).size());
  }
  out += "</tbody></table></div></details>\n";
}

void append_parameters(std::string& out, const Program& program) {
  out +=
      "<section><h2>Parameters and other stored vars</h2><div class=\"scroll\"><table><thead>"
      "<tr><th class=\"n\">block</th><th>name</th><th>type</th><th class=\"n\">elements</th>"
      "<th class=\"n\">bytes</th></tr></thead>"
      "<tbody>\n";
  for (const Block& block : program.blocks()) {
    for (const Var& var : block.vars()) {
      if (!is_stored(var)) continue;
      const int64_t elements = element_count(var.dims()).value_or(-1);
      const bool known = elements >= 0 && elements < (int64_t{1} << 56U);
      out += fmt::format(
          "<tr><td class=\"n\">{}</td><td>{}</td><td class=\"t\">{}</td><td class=\"n\">{}</td>"
          "<td class=\"n\">{}</td></tr>\n",
          block.index(), name_cell(var.name()), html_escaped(print_var_type(var.spec())),
          known ? std::to_string(elements) : "?",
          known ? std::to_string(elements * dtype_size(var.dtype())) : "?");
    }
  }
  out += "</tbody></table></div></section>\n";
}

void append_block_section(std::string& out, const Block& block) {
  out += fmt::format("<section><h2>Block {}", block.index());
  if (block.parent() >= 0) out += fmt::format(" (in block {})", block.parent());
  out += "</h2>\n";
  if (block.op_count() > kLargestPicture) {
    out += fmt::format("<p>No picture above {} ops.</p>\n", kLargestPicture);
  } else if (block.op_count() > 0) {
    out += fmt::format(
        "<details open><summary>picture</summary><div class=\"scroll\">{}</div>"
        "</details>\n",
        svg_of_block(block));
  }
  append_op_table(out, block);
  append_var_table(out, block);
  out += "</section>\n";
}

}  // namespace

std::string html_view(const Program& program, const std::string& file) {
  const ProgramSummary sizes = summarize(program);
  std::string body = fmt::format("<header><h1>{}</h1>\n<div class=\"facts\">", html_escaped(file));
  const auto fact = [&](const char* name, const std::string& value) {
    body += fmt::format("<span>{} <b>{}</b></span>", name, value);
  };
  fact("version", sizes.version.empty() ? "not stated" : sizes.version);
  fact("blocks", std::to_string(sizes.blocks));
  fact("ops", std::to_string(sizes.ops));
  fact("vars", std::to_string(sizes.vars));
  fact("stored", fmt::format("{} ({})", sizes.parameters, bytes_text(sizes.parameter_bytes)));
  body +=
      "</div>\n<input id=\"search\" type=\"search\" placeholder=\"Search ops, vars, attributes\" "
      "aria-label=\"Search ops, vars, attributes\"><span id=\"count\"></span></header>\n<main>\n";
  body += "<section><h2>Op types</h2><div class=\"chips\">";
  for (const auto& [type, count] : sizes.op_types)
    body += fmt::format("<span>{} <b>{}</b></span>", html_escaped(type), count);
  body += "</div></section>\n";
  for (const Block& block : program.blocks()) append_block_section(body, block);
  append_parameters(body, program);
  body += "</main>\n";
  return html_page(file, kPageStyle, body, kPageScript);
}

}  // namespace millrace
