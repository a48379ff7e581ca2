#include "kernels/cpu/cpu_isa.h"

#include <algorithm>
#include <iterator>

#include <dnnl.hpp>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "framework/base/errors.h"

namespace millrace::kernels {
namespace cpu_isa {
namespace {

struct Isa {
  std::string_view name;
  dnnl::cpu_isa value;
};

constexpr Isa kAll[] = {
    {"avx2", dnnl::cpu_isa::avx2},
    {"avx2_vnni", dnnl::cpu_isa::avx2_vnni},
    {"avx512", dnnl::cpu_isa::avx512_core},
    {"avx512_vnni", dnnl::cpu_isa::avx512_core_vnni},
    {"avx512_bf16", dnnl::cpu_isa::avx512_core_bf16},
    {"amx", dnnl::cpu_isa::avx512_core_amx},
};

const Isa* find(std::string_view name) {
  const auto* const found =
      std::find_if(std::begin(kAll), std::end(kAll), [&](const Isa& i) { return i.name == name; });
  return found == std::end(kAll) ? nullptr : found;
}

// Values are sets of bits, one for each extension.
bool effective(const Isa& isa) {
  const auto wanted = static_cast<unsigned>(isa.value);
  return (static_cast<unsigned>(dnnl::get_effective_cpu_isa()) & wanted) == wanted;
}

}  // namespace
}  // namespace cpu_isa

std::vector<std::string> cpu_isa_names() {
  std::vector<std::string> names;
  for (const auto& isa : cpu_isa::kAll) names.emplace_back(isa.name);
  return names;
}

Status limit_cpu_isa(std::string_view name) {
  const cpu_isa::Isa* const isa = cpu_isa::find(name);
  if (isa == nullptr)
    return {StatusCode::kUsage, fmt::format("instructions '{}': expected one of {}", name,
                                            fmt::join(cpu_isa_names(), ", "))};
  // Asking what the processor has would fix the limit, so it is set first.
  if (dnnl::set_max_cpu_isa(isa->value) != dnnl::status::success)
    return {StatusCode::kUsage,
            fmt::format("instructions up to {}: kernels have run already, or this build of oneDNN "
                        "takes no limit",
                        name)};
  if (cpu_isa::effective(*isa)) return Ok();
  return Unimplemented("instructions up to {}: this processor has only those up to {}", name,
                       effective_cpu_isa());
}

bool cpu_isa_allows(std::string_view name) {
  const cpu_isa::Isa* const isa = cpu_isa::find(name);
  return isa != nullptr && cpu_isa::effective(*isa);
}

std::string effective_cpu_isa() {
  std::string_view newest = "none of them";
  for (const cpu_isa::Isa& isa : cpu_isa::kAll) {
    if (cpu_isa::effective(isa)) newest = isa.name;
  }
  return std::string(newest);
}

}  // namespace millrace::kernels
