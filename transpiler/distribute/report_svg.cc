#include <algorithm>
#include <map>

#include <fmt/format.h>

#include "framework/base/html.h"
#include "transpiler/distribute/report_html.h"
#include "transpiler/distribute/slices_json.h"
#include "transpiler/distribute/units.h"

namespace millrace::transpiler {
namespace {

constexpr double kHeight = 320;  // of the fullest column, in user units
constexpr double kTop = 14;
constexpr double kLeft = 64;       // for the scale
constexpr double kBottom = 34;     // for the endpoints
constexpr double kThinnest = 1.2;  // slices thinner than this are drawn together
constexpr double kLabelled = 15;   // slices of at least this height show their name
constexpr int kHues = 12;

// One hue per variable; neighbours in the overview get very different hues.
int hue_of(size_t color) {
  return static_cast<int>((color * 5) % kHues) * (360 / kHues);
}

// The color number of each origin. Optimizer state gets that of its parameter if its name shows
// which one it is ("<parameter>_moment1_0"); the overview does not link the two.
std::map<std::string, size_t> color_numbers(const VarsDistributed& overview) {
  std::map<std::string, size_t> colors;
  for (const DistributedVar& var : overview.vars()) {
    if (var.vtype != "Optimizer") colors.emplace(var.origin.name, colors.size());
  }
  for (const DistributedVar& var : overview.vars()) {
    if (colors.count(var.origin.name) != 0) continue;
    size_t color = colors.size();
    std::string name = var.origin.name;
    for (size_t end = name.rfind('_'); end != std::string::npos && end > 0; end = name.rfind('_')) {
      name.resize(end);
      const auto param = colors.find(name);
      if (param == colors.end()) continue;
      color = param->second;
      break;
    }
    colors.emplace(var.origin.name, color);
  }
  return colors;
}

struct Column {
  double x = 0;
  double width = 0;
  double scale = 0;  // user units per byte
};

struct Drawn {
  const DistributedVar* var = nullptr;
  size_t color = 0;
};

std::string title_of(const DistributedVar& var) {
  std::string shape;
  for (const int64_t dim : var.slice.shape)
    shape += (shape.empty() ? "" : " x ") + std::to_string(dim);
  std::string text = fmt::format("{}\n{} [{}], {}", var.slice.name, var.vtype, shape,
                                 bytes_text(static_cast<double>(slice_bytes(var.slice))));
  if (var.is_slice) {
    text +=
        fmt::format("\nslice {} of {}, from element {}", var.block_id, var.origin.name, var.offset);
  }
  return html_text(text);
}

// A name truncated to the width, at about 6.2 units per character.
std::string fitting(const std::string& name, double width) {
  const auto most = static_cast<size_t>(std::max(0.0, (width - 6) / 6.2));
  if (name.size() <= most) return html_text(name);
  return most < 4 ? std::string() : html_text(name.substr(0, most - 1)) + "…";
}

std::string draw_slice(const Drawn& drawn, const Column& column, double y, double height) {
  const bool state = drawn.var->vtype == "Optimizer";
  std::string out = fmt::format(
      "<g class=\"{}\"><title>{}</title><rect x=\"{:.1f}\" y=\"{:.2f}\" width=\"{:.1f}\" "
      "height=\"{:.2f}\" style=\"--hue:{}\"/>",
      state ? "state" : "param", title_of(*drawn.var), column.x, y, column.width, height,
      hue_of(drawn.color));
  if (height >= kLabelled) {
    const std::string label = fitting(drawn.var->slice.name, column.width);
    if (!label.empty()) {
      out += fmt::format("<text x=\"{:.1f}\" y=\"{:.2f}\">{}</text>", column.x + 4,
                         y + height / 2 + 3.5, label);
    }
  }
  return out + "</g>\n";
}

std::string draw_column(const std::vector<Drawn>& slices, const Column& column) {
  std::string out;
  double y = kTop + kHeight;
  int64_t thin = 0;
  double thin_bytes = 0;
  for (const Drawn& drawn : slices) {
    const auto bytes = static_cast<double>(slice_bytes(drawn.var->slice));
    const double height = bytes * column.scale;
    if (height < kThinnest) {
      ++thin;
      thin_bytes += bytes;
      continue;
    }
    y -= height;
    out += draw_slice(drawn, column, y, height);
  }
  if (thin > 0) {
    const double height = std::max(thin_bytes * column.scale, kThinnest);
    out += fmt::format(
        "<g class=\"thin\"><title>{} small slice{}, {}</title><rect x=\"{:.1f}\" y=\"{:.2f}\" "
        "width=\"{:.1f}\" height=\"{:.2f}\"/></g>\n",
        thin, thin == 1 ? "" : "s", bytes_text(thin_bytes), column.x, y - height, column.width,
        height);
  }
  return out;
}

std::string draw_scale(double most, double width) {
  std::string out;
  for (const double part : {0.0, 0.5, 1.0}) {
    const double y = kTop + kHeight * (1 - part);
    out += fmt::format(
        "<line class=\"grid\" x1=\"{0}\" x2=\"{1:.1f}\" y1=\"{2:.1f}\" y2=\"{2:.1f}\"/>"
        "<text class=\"axis\" x=\"{3}\" y=\"{4:.1f}\" text-anchor=\"end\">{5}</text>\n",
        kLeft, width, y, kLeft - 6, y + 4, bytes_text(most * part));
  }
  return out;
}

// Drawn after the columns, which would otherwise hide it.
std::string draw_mean(double most, double mean, double width) {
  const double y = kTop + kHeight * (1 - mean / most);
  return fmt::format(
      "<line class=\"mean\" x1=\"{0}\" x2=\"{1:.1f}\" y1=\"{2:.1f}\" y2=\"{2:.1f}\"><title>mean {3}"
      "</title></line>\n",
      kLeft, width, y, bytes_text(mean));
}

// Width of a column, gap included: wide enough to read for few servers, thin bars for many.
double pitch_of(size_t servers) {
  return std::clamp(1040.0 / static_cast<double>(std::max<size_t>(servers, 1)), 6.0, 340.0);
}

}  // namespace

std::string slices_svg(const ProgramProperties& properties, const VarsDistributed& overview) {
  const std::vector<ServerBytes> servers = bytes_by_server(properties, overview);
  double most = 1;
  double total = 0;
  std::map<std::string, size_t> index;
  for (const ServerBytes& server : servers) {
    most = std::max(most, static_cast<double>(server.bytes()));
    total += static_cast<double>(server.bytes());
    index.emplace(server.endpoint, index.size());
  }
  // Parameters first, so that state is drawn above them.
  std::vector<std::vector<Drawn>> columns(servers.size());
  const std::map<std::string, size_t> colors = color_numbers(overview);
  for (const DistributedVar& var : overview.vars()) {
    const auto server = index.find(var.endpoint);
    if (server != index.end())
      columns[server->second].push_back({&var, colors.at(var.origin.name)});
  }
  const double pitch = pitch_of(servers.size());
  const double width = kLeft + pitch * static_cast<double>(servers.size()) + 8;
  std::string out = fmt::format(
      "<svg role=\"img\" aria-label=\"slices by server\" width=\"{0:.0f}\" height=\"{1:.0f}\" "
      "viewBox=\"0 0 {0:.0f} {1:.0f}\">\n",
      width, kTop + kHeight + kBottom);
  out += draw_scale(most, width);
  for (size_t i = 0; i < servers.size(); ++i) {
    std::stable_sort(columns[i].begin(), columns[i].end(), [](const Drawn& a, const Drawn& b) {
      return (a.var->vtype != "Optimizer") > (b.var->vtype != "Optimizer");
    });
    const double gap = pitch > 20 ? 10 : 1;
    const Column column{kLeft + pitch * static_cast<double>(i) + gap / 2, pitch - gap,
                        kHeight / most};
    out += draw_column(columns[i], column);
    const double middle = column.x + column.width / 2;
    const double below = kTop + kHeight + 14;
    if (pitch >= 60) {
      out += fmt::format(
          "<text class=\"axis\" x=\"{0:.1f}\" y=\"{1:.1f}\" text-anchor=\"middle\">{2}</text>"
          "<text class=\"axis\" x=\"{0:.1f}\" y=\"{3:.1f}\" text-anchor=\"middle\">{4}</text>\n",
          middle, below, fitting(servers[i].endpoint, pitch), below + 14,
          bytes_text(static_cast<double>(servers[i].bytes())));
    } else if (i % static_cast<size_t>(std::max(1.0, 60 / pitch)) == 0) {
      out += fmt::format(
          "<text class=\"axis\" x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"middle\">{}</text>\n",
          middle, below, i);
    }
  }
  const auto count = static_cast<double>(std::max<size_t>(servers.size(), 1));
  return out + draw_mean(most, total / count, width) + "</svg>\n";
}

std::string html_text(std::string_view text) {
  // Titles need line feeds, which html_escaped() would replace.
  std::string out;
  while (true) {
    const size_t end = text.find('\n');
    out += html_escaped(text.substr(0, end));
    if (end == std::string_view::npos) return out;
    out += '\n';
    text.remove_prefix(end + 1);
  }
}

}  // namespace millrace::transpiler
