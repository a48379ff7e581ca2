#pragma once

#include <initializer_list>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "framework/program.h"

namespace millrace::testing {

/// Builds small programs in tests: declarations and ops are added to the current block, which is
/// block 0 at first.
class ProgramBuilder {
 public:
  using Slots = std::initializer_list<std::pair<const char*, std::vector<std::string>>>;

  ProgramBuilder() : program_(Program::create()) {}

  Program& program() { return *program_; }
  std::unique_ptr<Program> take() { return std::move(program_); }
  Block& block() { return program_->block(current_); }

  /// Adds a block and makes it the current one.
  int32_t enter_block(int32_t parent) {
    current_ = program_->add_block(parent).index();
    return current_;
  }
  ProgramBuilder& in_block(int32_t index) {
    current_ = index;
    return *this;
  }

  ProgramBuilder& var(const std::string& name, std::initializer_list<int64_t> dims,
                      DType dtype = DType::kFloat32) {
    block().declare(name, VarSpec::tensor(dtype, dims));
    return *this;
  }
  ProgramBuilder& param(const std::string& name, std::initializer_list<int64_t> dims,
                        DType dtype = DType::kFloat32) {
    VarSpec spec = VarSpec::tensor(dtype, dims);
    spec.persistable = true;
    spec.is_parameter = true;
    block().declare(name, std::move(spec));
    return *this;
  }
  /// A var of another kind, without a shape.
  ProgramBuilder& holder(const std::string& name, VarKind kind) {
    VarSpec spec = VarSpec::shapeless(kind);
    spec.persistable = true;
    block().declare(name, std::move(spec));
    return *this;
  }

  Op& op(const std::string& type, Slots inputs, Slots outputs) {
    Op& added = block().append_op(type);
    for (const auto& [slot, names] : inputs) added.set_input(slot, names);
    for (const auto& [slot, names] : outputs) added.set_output(slot, names);
    return added;
  }

  /// "feed" and "fetch" ops with their holders.
  Op& feed(const std::string& name, int32_t col) {
    holder("feed", VarKind::kFeedMinibatch);
    return op("feed", {{"X", {"feed"}}}, {{"Out", {name}}}).set_int("col", col);
  }
  Op& fetch(const std::string& name, int32_t col) {
    holder("fetch", VarKind::kFetchList);
    return op("fetch", {{"X", {name}}}, {{"Out", {"fetch"}}}).set_int("col", col);
  }

 private:
  std::unique_ptr<Program> program_;
  int32_t current_ = 0;
};

}  // namespace millrace::testing
