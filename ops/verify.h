#pragma once

#include <cstddef>
#include <vector>

#include "framework/base/status.h"
#include "framework/finding.h"
#include "framework/program.h"
#include "framework/verify_structure.h"
#include "ops/registry.h"

namespace millrace::ops {

/// What the verifier checks, and what it permits a program to do.
struct VerifyOptions {
  StructureLimits limits;
  /// Runs shape inference with unknown dims; its errors become findings.
  bool check_shapes = true;
  /// Adds warnings about style: unused vars, dead stores, unreachable blocks, missing roles,
  /// unknown attributes, declared shapes that inference contradicts.
  bool lint = false;
  /// File ops may name absolute paths and paths with "..". Off: such paths are errors.
  bool allow_outside_paths = false;
  /// Ops that open sockets are accepted. Off for process roles that do not communicate.
  bool allow_network = true;
  /// Ops that call code of the host language are accepted (but never run).
  bool allow_host_code = true;
  /// Forms of older releases that upgrade-program rewrites (ops/old_forms.h) are warnings instead
  /// of errors. Such a program must be upgraded before it is run.
  bool allow_old_forms = false;
  /// Maximum number of findings to keep; further ones are only counted.
  size_t max_findings = 10000;
};

/// Checks a program against all rules for programs and op schemas, and reports all faults at once.
///
/// Does not change the program or access data. Cost: linear in the size of the program, also for an
/// invalid one. If the blocks do not form a tree, only structural faults are reported.
///
/// \returns findings in program order. If none is an error, the program may be run, transformed and
/// exported. docs/verifier.md lists the rules by id.
/// Thread-safety: concurrent calls on one program and registry are safe.
/// Source: design/reliability.md sections 4 and 6.
std::vector<Finding> verify_program(const OpRegistry& registry, const Program& program,
                                    const VerifyOptions& options = {});

/// Runs verify_program() and returns ok, or all errors combined in one status (to_status()).
Status check_program(const OpRegistry& registry, const Program& program,
                     const VerifyOptions& options = {});

}  // namespace millrace::ops
