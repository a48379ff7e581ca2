#include "tools/common/switch.h"

namespace millrace::tools {
namespace {

constexpr const char* kSwitchType = "[BOOLEAN]";

}  // namespace

bool is_switch(const CLI::Option& option) {
  return option.get_type_name() == kSwitchType;
}

CLI::Option* add_switch(CLI::App& app, const std::string& name, bool& value,
                        const std::string& doc) {
  // Not CLI11's conversion, which reads 2 as true, -3 as false, and {} as the default.
  const auto set = [&value](const CLI::results_t& results) {
    const std::string word = CLI::detail::to_lower(results.at(0));
    value = word == "true" || word == "on" || word == "yes" || word == "1";
    return value || word == "false" || word == "off" || word == "no" || word == "0";
  };
  return app
      .add_option(name, set, doc)
      // CLI11 passes "true" for an option without a value only if the option was first declared to
      // expect none; otherwise it passes the default.
      ->expected(0)
      ->expected(0, 1)
      ->type_name(kSwitchType)
      ->default_str(value ? "true" : "false");
}

}  // namespace millrace::tools
