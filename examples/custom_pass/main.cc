// Runs a custom pass in a pipeline with passes of millrace. The pass replaces divisions by a
// constant with multiplications.
//
//   custom_pass PROGRAM [PIPELINE]
//
// Prints the rewritten program as text and, on stderr, what each pass did.
#include <cstdio>

#include "framework/op_attrs.h"
#include "framework/read_program.h"
#include "framework/text_form/print.h"
#include "ops/registry.h"
#include "ops/verify.h"
#include "transpiler/pass_manager.h"
#include "transpiler/register_all.h"

namespace {

using millrace::Op;
using millrace::Program;
namespace tp = millrace::transpiler;

// Replaces y = x / c by y = scale(x, 1 / c) if c comes from a fill_constant and is not overwritten.
class DivideByMultiplying final : public tp::Pass {
 public:
  explicit DivideByMultiplying(const tp::PassOptions& options)
      : exact_only_(options.flag("exact_only")) {}

  llvm::StringRef name() const override { return "divide-by-multiplying"; }

  millrace::StatusOr<bool> run(Program& program, tp::PassContext& context) override {
    bool changed = false;
    for (Op& op : program.root().ops()) {
      if (op.type() != "elementwise_div") continue;
      const float divisor = constant(op);
      if (divisor == 0 || (exact_only_ && !is_power_of_two(divisor))) continue;
      const std::string result = op.first_output("Out").str();
      op.set_type("scale");
      op.remove_input("Y");
      op.remove_attr("axis");
      op.set_float("scale", 1 / divisor);
      context.remarks.push_back(result + ": multiplied by " + std::to_string(1 / divisor));
      changed = true;
    }
    return changed;
  }

 private:
  // 0: not a constant
  static float constant(const Op& op) {
    const auto writers = op.block().writers_of(op.first_input("Y"));
    if (writers.size() != 1 || writers[0]->type() != "fill_constant") return 0;
    const millrace::Var* const var = op.block().find_var(op.first_input("Y"));
    if (var == nullptr || var->dims().size() != 1 || var->dims()[0] != 1) return 0;
    return millrace::get_attr_or(*writers[0], "value", 0.0F);
  }
  static bool is_power_of_two(float value) {
    for (float power = 1; power <= 1e30F; power *= 2) {
      if (value == power || value == 1 / power) return true;
    }
    return false;
  }

  bool exact_only_;
};

millrace::Status rewrite(const std::string& file, const std::string& pipeline) {
  tp::PassRegistry passes;
  tp::register_all(passes);
  passes.add(
      tp::PassInfo("divide-by-multiplying", "replace divisions by constants with multiplications")
          .flag("exact_only", true, "only divisors whose reciprocal is exact")
          .makes<DivideByMultiplying>());
  const auto manager = tp::PassManager::create(passes, pipeline);
  if (!manager.ok()) return manager.status();
  const auto program = millrace::read_program(file);
  if (!program.ok()) return program.status();
  const auto registry = millrace::ops::standard_registry();
  tp::PassContext context(*registry);
  tp::PassManagerOptions options;
  options.verify = [&](const Program& each) {
    return millrace::ops::check_program(*registry, each);
  };
  const auto report = manager->run(**program, context, options);
  if (!report.ok()) return report.status();
  std::fputs(millrace::print_program(**program).c_str(), stdout);
  for (const std::string& remark : context.remarks) std::fprintf(stderr, "%s\n", remark.c_str());
  std::fputs(report->table().c_str(), stderr);
  return {};
}

}  // namespace

int main(int count, char** arguments) {
  if (count < 2) {
    std::fprintf(stderr, "usage: custom_pass PROGRAM [PIPELINE]\n");
    return 2;
  }
  const std::string pipeline = count > 2 ? arguments[2] : "divide-by-multiplying";
  const millrace::Status status = rewrite(arguments[1], pipeline);
  if (status.ok()) return 0;
  std::fprintf(stderr, "%s", status.to_string().c_str());
  return 3;
}
