#include "tools/common/switch.h"

namespace millrace::tools {

CLI::Option* add_switch(CLI::App& app, const std::string& name, bool& value,
                        const std::string& doc) {
  const auto set = [&value](const CLI::results_t& results) {
    return CLI::detail::lexical_cast(results.at(0), value);
  };
  return app
      .add_option(name, set, doc)
      // CLI11 passes "true" for an option without a value only if the option was first declared to
      // expect none; otherwise it passes the default.
      ->expected(0)
      ->expected(0, 1)
      ->type_name("[BOOLEAN]")
      ->default_str(value ? "true" : "false");
}

}  // namespace millrace::tools
