#include "tools/common/json_config.h"

#include <algorithm>
#include <istream>
#include <iterator>

#include <nlohmann/json.hpp>

#include "framework/base/errors.h"
#include "framework/base/text.h"
#include "io/check_json.h"
#include "tools/common/help.h"
#include "tools/common/switch.h"

namespace millrace::tools {
namespace {

using OrderedJson = nlohmann::ordered_json;

std::string item_text(const OrderedJson& value) {
  return value.is_string() ? value.get<std::string>()
                           : value.dump(-1, ' ', false, OrderedJson::error_handler_t::replace);
}

std::vector<std::string> inputs_of(const OrderedJson& value, const CLI::Option& option) {
  if (!value.is_array()) return {item_text(value)};
  std::vector<std::string> items;
  for (const OrderedJson& element : value) items.push_back(item_text(element));
  if (option.get_items_expected_max() > 1) return items;
  // An option with one value gets a list joined to the form of the command line.
  std::string joined;
  for (const std::string& item : items) joined += (joined.empty() ? "" : ",") + item;
  return {joined};
}

Status unknown_field(const std::string& key, const std::string& name, const CLI::App& app) {
  if (app.get_option_no_throw("--" + name) != nullptr)
    return InvalidArgument("configuration: '{}' works only on the command line", key);
  const std::vector<std::string> names = long_names(app);
  const std::vector<std::string_view> views(names.begin(), names.end());
  std::string nearest = nearest_name(name, views);
  std::replace(nearest.begin(), nearest.end(), '-', '_');
  Status status = InvalidArgument("configuration: unknown field '{}'", key);
  if (nearest.empty()) return status;
  return std::move(status).with_hint(fmt::format("did you mean '{}'?", nearest));
}

[[noreturn]] void fail(Status status) {
  throw ConfigFailure{std::move(status)};
}

}  // namespace

std::vector<std::string> long_names(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::Option* option : app.get_options())
    names.insert(names.end(), option->get_lnames().begin(), option->get_lnames().end());
  return names;
}

std::string JsonConfig::to_config(const CLI::App* /*app*/, bool /*default_also*/,
                                  bool /*write_description*/, std::string /*prefix*/) const {
  return {};  // not used: Tool implements --print-config, with the source of each value
}

std::vector<CLI::ConfigItem> JsonConfig::from_config(std::istream& input) const {
  const std::string text((std::istreambuf_iterator<char>(input)), std::istreambuf_iterator<char>());
  if (const Status valid = io::check_json(text, io::JsonComments::kAllow); !valid.ok())
    fail(InvalidArgument("configuration: {}", valid.message()));
  const OrderedJson document = OrderedJson::parse(text, nullptr, false, true);
  if (!document.is_object())
    fail(InvalidArgument("configuration: expected a JSON object, found {}", document.type_name()));
  std::vector<CLI::ConfigItem> found;
  for (const auto& [key, value] : document.items()) {
    std::string name = key;
    std::replace(name.begin(), name.end(), '_', '-');
    const CLI::Option* const option = app_.get_option_no_throw("--" + name);
    if (option == nullptr || !option->get_configurable()) fail(unknown_field(key, name, app_));
    if (!keys_.insert(option->get_lnames().front()).second)
      fail(InvalidArgument("configuration: '{}' is given twice", key));
    if (value.is_null()) continue;
    const bool empty =
        value.empty() || (value.is_string() && value.get_ref<const std::string&>().empty());
    if ((is_switch(*option) || is_flag(*option)) && (empty || value.is_object())) {
      fail(InvalidArgument("configuration: '{}': expected true or false, found {}", key,
                           value.dump(-1, ' ', false, OrderedJson::error_handler_t::replace)));
    }
    CLI::ConfigItem item;
    item.name = name;
    item.inputs = inputs_of(value, *option);
    found.push_back(std::move(item));
  }
  return found;
}

}  // namespace millrace::tools
