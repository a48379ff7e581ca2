#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "framework/base/status.h"

/// Which vector instructions kernels use: those of oneDNN, and our own loops, tiles and int8
/// products. Each part of the processor's instructions that may be forbidden has a name.
namespace millrace::kernels {

/// Names for limit_cpu_isa(), from old to new: "avx2", "avx512", ..., "amx".
std::vector<std::string> cpu_isa_names();

/// Forbids instructions newer than the named ones for the rest of the process, so that a newer
/// processor computes as an older one does: same results, and about its speed relative to peers.
/// Call it before anything runs. Thread-safety: only while no other thread computes.
/// Errors: kUsage for a name that cpu_isa_names() lacks, and if kernels have run; kUnimplemented
/// if the processor has no such instructions, because then it would forbid nothing.
Status limit_cpu_isa(std::string_view name);

/// True if the processor has the named instructions and they are not forbidden; false for a name
/// that cpu_isa_names() lacks. The first call, as the first kernel, fixes the limit.
bool cpu_isa_allows(std::string_view name);

/// The newest instructions that kernels may use: a name, or "none of them" on other processors.
/// ONEDNN_MAX_CPU_ISA, the variable of oneDNN, bounds them, too.
std::string effective_cpu_isa();

}  // namespace millrace::kernels
