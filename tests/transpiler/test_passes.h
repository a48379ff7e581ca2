#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "transpiler/pass.h"

namespace millrace::transpiler::testing {

/// A pass that calls a function, for tests of code that runs passes.
class FunctionPass final : public Pass {
 public:
  using Body = std::function<StatusOr<bool>(Program&, PassContext&)>;
  FunctionPass(std::string name, Body body) : name_(std::move(name)), body_(std::move(body)) {}
  llvm::StringRef name() const override { return name_; }
  StatusOr<bool> run(Program& program, PassContext& context) override {
    return body_(program, context);
  }

 private:
  std::string name_;
  Body body_;
};

/// The program with one op type per line, only the main block.
inline std::string op_list(const Program& program) {
  std::string out;
  for (const Op& op : program.root().ops()) out += op.type().str() + "\n";
  return out;
}

}  // namespace millrace::transpiler::testing
