#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "transpiler/pass.h"

namespace millrace::transpiler::testing {

/// Pass made of a function, for tests of what runs passes.
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

/// Program as one op type a line, main block only.
inline std::string op_list(const Program& program) {
  std::string out;
  for (const Op& op : program.root().ops()) out += op.type().str() + "\n";
  return out;
}

}  // namespace millrace::transpiler::testing
