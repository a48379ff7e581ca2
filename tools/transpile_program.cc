#include "tools/common/tool.h"
#include "tools/transpile/check_fields.h"
#include "tools/transpile/distribute.h"
#include "tools/transpile/downpour.h"
#include "tools/transpile/fields.h"
#include "tools/transpile/fleet.h"
#include "tools/transpile/minimize.h"
#include "tools/transpile/run_passes.h"
#include "tools/transpile/tune_allocator.h"
#include "tools/verbs.h"

int millrace::tools::transpile_program(int argc, char** argv) {
  tune_allocator();
  Tool tool(
      {.name = "transpile-program",
       .purpose = std::string(kTranspileProgramPurpose),
       .examples = {"transpile-program --program main.pb --startup startup.pb \\\n"
                    "      --pservers 10.0.0.1:6174,10.0.0.2:6174 --trainers 4 -o OUT/",
                    "transpile-program --program __model__ --passes remove-dead-ops -o small.pb",
                    "transpile-program --program __model__ --passes '' --format text"},
       .exit_codes = {{0, "done"}},
       .notes = {},
       .unread = {"--seed"}});
  TranspileOptions options;
  add_transpile_options(tool, options);
  return tool.run(argc, argv, [&]() -> millrace::StatusOr<int> {
    MILLRACE_RETURN_IF_ERROR(check_fields(tool, options));
    if (tool.given("--downpour")) return write_downpour(tool, options);
    if (tool.given("--fleet")) return write_fleet(tool, options);
    if (tool.given("--minimize")) return minimize(tool, options);
    return tool.given("--passes") ? run_passes(tool, options) : distribute(tool, options);
  });
}
