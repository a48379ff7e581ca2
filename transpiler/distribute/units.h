#pragma once

#include <string>

/// Formats amounts for people: three digits and a unit.
namespace millrace::transpiler {

/// "0 B", "512 B", "1.50 KiB", "3.81 MiB", "12.0 GiB"
std::string bytes_text(double bytes);
/// "950 flop", "2.00 Mflop"
std::string flops_text(double flops);
/// "12.0 us", "3.10 ms", "2.00 s"
std::string seconds_text(double seconds);

}  // namespace millrace::transpiler
