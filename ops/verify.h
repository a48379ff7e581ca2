#pragma once

#include <cstddef>
#include <vector>

#include "framework/base/status.h"
#include "framework/finding.h"
#include "framework/program.h"
#include "framework/verify_structure.h"
#include "ops/registry.h"

namespace millrace::ops {

/// What a program may do and how closely it is looked at.
struct VerifyOptions {
  StructureLimits limits;
  /// Runs shape inference with unknown dims; its errors become findings.
  bool check_shapes = true;
  /// Adds warnings about style: unused vars, dead stores, unreachable blocks, missing roles,
  /// unknown attributes, declared shapes that inference contradicts.
  bool lint = false;
  /// File ops may name absolute paths and paths with "..". Off: such paths are errors.
  bool allow_outside_paths = false;
  /// Ops that open sockets are accepted; off for roles without peers.
  bool allow_network = true;
  /// Ops that call code of the host language are accepted (no build runs them).
  bool allow_host_code = true;
  /// What only programs of older releases have, and upgrade-program rewrites, is a warning instead
  /// of an error (rules attr-renamed and old-formula). Such a program must not be run.
  bool allow_old_forms = false;
  /// Findings kept; further ones are counted.
  size_t max_findings = 10000;
};

/// Checks every rule of programs and op schemas and reports all faults at once.
///
/// Nothing is changed and no data is touched; cost is linear in the size of the program, whatever
/// it contains. If the blocks form no tree, only the structural faults are reported.
///
/// \returns findings in program order; no error among them means that the program may be run,
///          transformed and exported. docs/verifier.md lists the rules by id.
/// Thread-safety: concurrent calls on one program and registry.
/// Source: design/reliability.md sections 4 and 6.
std::vector<Finding> verify_program(const OpRegistry& registry, const Program& program,
                                    const VerifyOptions& options = {});

/// verify_program() as a status: ok, or all errors in one (to_status()).
Status check_program(const OpRegistry& registry, const Program& program,
                     const VerifyOptions& options = {});

}  // namespace millrace::ops
