#pragma once

#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "ops/infer_context.h"
#include "ops/registry.h"
#include "ops/verify.h"
#include "tests/support/program_builder.h"

namespace millrace::ops {

/// Schemas for tests of the verifier, one for each property that a schema can have. They are not
/// the real ones, so that a change of a real schema does not change a test of the verifier.
std::unique_ptr<OpRegistry> test_registry();

/// Programs built by a test, verified against test_registry().
class VerifyTest : public ::testing::Test {
 protected:
  VerifyTest() : registry_(test_registry()) {}

  /// y = x * w, with feed and fetch: valid.
  void build_small_net() {
    b_.var("x", {-1, 3}).param("w", {3, 2}).var("y", {-1, 2});
    b_.feed("x", 0);
    b_.op("mul", {{"X", {"x"}}, {"Y", {"w"}}}, {{"Out", {"y"}}});
    b_.fetch("y", 0);
  }

  Op& op_at(size_t index) { return *b_.block().op_vector()[index]; }

  std::vector<Finding> verify() { return verify_program(*registry_, b_.program(), options_); }

  /// Findings of one rule, as text without the rule.
  std::vector<std::string> found(std::string_view rule) {
    std::vector<std::string> out;
    for (const Finding& finding : verify()) {
      if (finding.rule == rule) {
        out.push_back((finding.severity == Severity::kError ? "error: " : "warning: ") +
                      finding.status.location().to_string() + ": " + finding.status.message());
      }
    }
    return out;
  }

  /// All findings, for programs that must have none.
  std::string all() { return to_text(verify()); }

  std::unique_ptr<OpRegistry> registry_;
  testing::ProgramBuilder b_;
  VerifyOptions options_;
};

}  // namespace millrace::ops
