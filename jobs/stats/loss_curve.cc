#include "jobs/stats/loss_curve.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include <fmt/format.h>

#include "framework/base/html.h"

namespace millrace::jobs {
namespace {

constexpr double kWidth = 720;
constexpr double kHeight = 400;
constexpr double kLeft = 64;
constexpr double kRight = 16;
constexpr double kTop = 40;
constexpr double kBottom = 44;
constexpr size_t kMaxPoints = 2000;  // more points cannot be distinguished

// The round interval (1, 2 or 5 times a power of ten) that divides a span into about five.
double round_step(double span) {
  const double raw = span / 5;
  const double power = std::pow(10.0, std::floor(std::log10(raw)));
  for (const double factor : {1.0, 2.0, 5.0}) {
    if (factor * power >= raw) return factor * power;
  }
  return 10 * power;
}

struct Frame {
  double low = 0;
  double high = 1;
  double steps = 1;

  [[nodiscard]] double x(double step) const {
    return kLeft + (kWidth - kLeft - kRight) * (steps <= 1 ? 0.5 : step / (steps - 1));
  }
  [[nodiscard]] double y(double value) const {
    return kHeight - kBottom - (kHeight - kTop - kBottom) * (value - low) / (high - low);
  }
};

Frame frame_of(const std::vector<double>& values) {
  Frame frame;
  double low = std::numeric_limits<double>::infinity();
  double high = -low;
  for (const double value : values) {
    if (!std::isfinite(value)) continue;
    low = std::min(low, value);
    high = std::max(high, value);
  }
  if (low > high) low = high = 0;
  const double margin = high > low ? 0.05 * (high - low) : std::max(std::abs(high), 1.0) * 0.1;
  frame.low = low - margin;
  frame.high = high + margin;
  frame.steps = static_cast<double>(values.size());
  return frame;
}

std::string polyline(const std::vector<double>& values, const Frame& frame, const char* style) {
  const size_t stride = std::max<size_t>(values.size() / kMaxPoints, 1);
  std::string path;
  bool pen_is_down = false;
  for (size_t i = 0; i < values.size(); i += stride) {
    if (!std::isfinite(values[i])) {
      pen_is_down = false;
      continue;
    }
    path += fmt::format("{}{:.1f} {:.1f}", pen_is_down ? "L" : "M", frame.x(static_cast<double>(i)),
                        frame.y(values[i]));
    pen_is_down = true;
  }
  return fmt::format("<path d=\"{}\" {}/>\n", path, style);
}

std::vector<double> running_mean(const std::vector<double>& values) {
  const double keep = 1 - 1 / std::max(1.0, static_cast<double>(values.size()) / 20);
  std::vector<double> means;
  double mean = 0;
  double weight = 0;
  for (const double value : values) {
    if (std::isfinite(value)) {
      mean = keep * mean + (1 - keep) * value;
      weight = keep * weight + (1 - keep);
    }
    means.push_back(weight > 0 ? mean / weight : value);
  }
  return means;
}

std::string axes(const Frame& frame) {
  std::string out;
  const double step = round_step(frame.high - frame.low);
  for (double value = std::ceil(frame.low / step) * step; value <= frame.high; value += step) {
    const double shown = std::abs(value) < step / 1e6 ? 0 : value;
    out += fmt::format(
        "<path d=\"M{0} {1:.1f}H{2}\" stroke=\"#ddd\"/><text x=\"{3}\" y=\"{4:.1f}\" "
        "text-anchor=\"end\">{5:.6g}</text>\n",
        kLeft, frame.y(value), kWidth - kRight, kLeft - 6, frame.y(value) + 4, shown);
  }
  const double every = std::max(round_step(std::max(frame.steps - 1, 1.0)), 1.0);
  for (double at = 0; at < frame.steps; at += every) {
    out += fmt::format("<text x=\"{:.1f}\" y=\"{}\" text-anchor=\"middle\">{:.0f}</text>\n",
                       frame.x(at), kHeight - kBottom + 18, at);
  }
  return out + fmt::format("<text x=\"{}\" y=\"{}\" text-anchor=\"middle\">step</text>\n",
                           (kLeft + kWidth - kRight) / 2, kHeight - 8);
}

}  // namespace

std::string loss_curve_svg(const std::string& name, const std::vector<double>& values) {
  const Frame frame = frame_of(values);
  std::string out = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0} {1}\" "
      "font-family=\"sans-serif\" "
      "font-size=\"12\">\n<rect width=\"{0}\" height=\"{1}\" fill=\"#fff\"/>\n"
      "<text x=\"{2}\" y=\"24\" font-size=\"15\">{3}</text>\n",
      kWidth, kHeight, kLeft, html_escaped(name));
  out += axes(frame);
  out += polyline(values, frame, "fill=\"none\" stroke=\"#9bc\"");
  out += polyline(running_mean(values), frame, "fill=\"none\" stroke=\"#036\" stroke-width=\"2\"");
  return out + "</svg>\n";
}

}  // namespace millrace::jobs
