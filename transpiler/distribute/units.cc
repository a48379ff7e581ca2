#include "transpiler/distribute/units.h"

#include <fmt/format.h>

namespace millrace::transpiler {
namespace units_parts {
namespace {

std::string scaled(double value, double step, const char* const* units, int count) {
  int unit = 0;
  while (unit + 1 < count && value >= step) {
    value /= step;
    ++unit;
  }
  if (unit == 0 || value >= 99.95) return fmt::format("{:.0f} {}", value, units[unit]);
  return value >= 9.995 ? fmt::format("{:.1f} {}", value, units[unit])
                        : fmt::format("{:.2f} {}", value, units[unit]);
}

}  // namespace
}  // namespace units_parts

std::string bytes_text(double bytes) {
  constexpr const char* kUnits[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
  return units_parts::scaled(bytes, 1024, kUnits, 6);
}

std::string flops_text(double flops) {
  constexpr const char* kUnits[] = {"flop", "kflop", "Mflop", "Gflop", "Tflop", "Pflop"};
  return units_parts::scaled(flops, 1000, kUnits, 6);
}

std::string seconds_text(double seconds) {
  constexpr const char* kUnits[] = {"us", "ms"};
  if (seconds >= 1) return fmt::format("{:.2f} s", seconds);
  return units_parts::scaled(seconds * 1e6, 1000, kUnits, 2);
}

}  // namespace millrace::transpiler
