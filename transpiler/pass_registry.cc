#include "transpiler/pass_registry.h"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <cstdlib>

#include "framework/base/errors.h"
#include "framework/base/registered_twice.h"
#include "framework/base/text.h"

namespace millrace::transpiler {
namespace pass_registry {
namespace {

// `found` as written in the pipeline, for messages.
std::string found_text(const PipelineOption& option) {
  const std::string text = PipelineStep{"", {option}}.to_string();
  return text.substr(option.name.size() + 2, text.size() - option.name.size() - 3);
}

std::string expected_text(const OptionDef& def) {
  if (!def.choices.empty()) return fmt::format("one of {}", fmt::join(def.choices, ", "));
  std::string out = option_type_name(def.type).str();
  if (std::isfinite(def.min)) out += fmt::format(" >= {}", def.min);
  if (std::isfinite(def.max)) out += fmt::format(" <= {}", def.max);
  return out;
}

std::optional<OptionValue> number_of(const std::string& text, const OptionDef& def) {
  if (def.type == OptionType::kInt) {
    int64_t value = 0;
    if (llvm::StringRef(text).getAsInteger(10, value)) return std::nullopt;
    if (static_cast<double>(value) < def.min || static_cast<double>(value) > def.max)
      return std::nullopt;
    return value;
  }
  double value = 0;
  if (llvm::StringRef(text).getAsDouble(value) || !(value >= def.min && value <= def.max))
    return std::nullopt;
  return value;
}

// The value in the declared type; nullopt if it has another type or is out of bounds.
std::optional<OptionValue> value_of(const PipelineOption& option, const OptionDef& def) {
  const auto* const list = std::get_if<std::vector<std::string>>(&option.value);
  if (def.type == OptionType::kStrings) {
    // one value is accepted as a list of one
    return list != nullptr ? *list : std::vector{std::get<std::string>(option.value)};
  }
  if (list != nullptr) return std::nullopt;
  const std::string& text = std::get<std::string>(option.value);
  switch (def.type) {
    case OptionType::kBool:
      if (text == "true" || text == "1") return true;
      if (text == "false" || text == "0") return false;
      return std::nullopt;
    case OptionType::kInt:
    case OptionType::kFloat:
      return number_of(text, def);
    default:
      if (!def.choices.empty() && llvm::find(def.choices, text) == def.choices.end())
        return std::nullopt;
      return text;
  }
}

// A hint with the nearest of the names, or none.
std::string did_you_mean(llvm::StringRef word, const std::vector<std::string_view>& names) {
  const std::string nearest = nearest_name(std::string_view(word.data(), word.size()), names);
  return nearest.empty() ? std::string() : "did you mean '" + nearest + "'?";
}

std::string_view view(llvm::StringRef text) {
  return {text.data(), text.size()};
}

StatusOr<PassOptions> check_options(const PassInfo& info, const PipelineStep& step) {
  PassOptions options;
  for (const OptionDef& def : info.options()) {
    if (def.fallback) options.set(def.name, *def.fallback, false);
  }
  for (const PipelineOption& option : step.options) {
    const auto* const def =
        llvm::find_if(info.options(), [&](const OptionDef& d) { return d.name == option.name; });
    if (def == info.options().end()) {
      std::vector<std::string_view> names;
      for (const OptionDef& d : info.options()) names.push_back(view(d.name));
      const std::string known = names.empty()
                                    ? "it takes none"
                                    : fmt::format("expected one of {}", fmt::join(names, ", "));
      return InvalidArgument("pass '{}' has no option '{}' ({})", step.pass, option.name, known)
          .with_hint(did_you_mean(option.name, names));
    }
    std::optional<OptionValue> value = value_of(option, *def);
    if (!value) {
      return InvalidArgument("option '{}' of pass '{}' has a bad value (expected {}, found {})",
                             option.name, step.pass, expected_text(*def), found_text(option));
    }
    options.set(option.name, *std::move(value), true);
  }
  for (const OptionDef& def : info.options()) {
    if (def.fallback || options.given(def.name)) continue;
    return InvalidArgument("pass '{}' needs the option '{}': {}", step.pass, view(def.name),
                           view(def.doc));
  }
  return options;
}

}  // namespace
}  // namespace pass_registry

PassInfo& PassInfo::add(llvm::StringRef name, OptionType type, OptionValue fallback,
                        llvm::StringRef doc) {
  OptionDef& def = options_.emplace_back();
  def.name = name;
  def.type = type;
  def.fallback = std::move(fallback);
  def.doc = doc;
  return *this;
}

PassInfo& PassInfo::flag(llvm::StringRef name, bool fallback, llvm::StringRef doc) {
  return add(name, OptionType::kBool, fallback, doc);
}
PassInfo& PassInfo::integer(llvm::StringRef name, int64_t fallback, llvm::StringRef doc) {
  return add(name, OptionType::kInt, fallback, doc);
}
PassInfo& PassInfo::real(llvm::StringRef name, double fallback, llvm::StringRef doc) {
  return add(name, OptionType::kFloat, fallback, doc);
}
PassInfo& PassInfo::string(llvm::StringRef name, llvm::StringRef fallback, llvm::StringRef doc) {
  return add(name, OptionType::kString, fallback.str(), doc);
}
PassInfo& PassInfo::strings(llvm::StringRef name, llvm::StringRef doc) {
  return add(name, OptionType::kStrings, std::vector<std::string>{}, doc);
}

PassInfo& PassInfo::required() {
  options_.back().fallback.reset();
  return *this;
}
PassInfo& PassInfo::range(double min, double max) {
  options_.back().min = min;
  options_.back().max = max;
  return *this;
}
PassInfo& PassInfo::one_of(std::initializer_list<llvm::StringRef> choices) {
  options_.back().choices = choices;
  return *this;
}
PassInfo& PassInfo::factory(PassFactory make) {
  factory_ = std::move(make);
  return *this;
}

void PassRegistry::add(PassInfo info) {
  if (find(info.name()) != nullptr) abort_registered_twice("pass", info.name());
  if (info.factory() == nullptr) std::abort();
  auto added = std::make_unique<PassInfo>(std::move(info));
  const auto where = llvm::lower_bound(
      passes_, added, [](const auto& a, const auto& b) { return a->name() < b->name(); });
  passes_.insert(where, std::move(added));
}

const PassInfo* PassRegistry::find(llvm::StringRef name) const {
  const auto it = llvm::find_if(passes_, [&](const auto& pass) { return pass->name() == name; });
  return it == passes_.end() ? nullptr : it->get();
}

std::vector<const PassInfo*> PassRegistry::passes() const {
  std::vector<const PassInfo*> out;
  for (const auto& pass : passes_) out.push_back(pass.get());
  return out;
}

StatusOr<std::unique_ptr<Pass>> PassRegistry::make(const PipelineStep& step) const {
  using namespace pass_registry;
  const PassInfo* const info = find(step.pass);
  if (info == nullptr) {
    std::vector<std::string_view> names;
    for (const auto& pass : passes_) names.push_back(view(pass->name()));
    return InvalidArgument("there is no pass '{}'", step.pass)
        .with_hint(did_you_mean(step.pass, names));
  }
  MILLRACE_ASSIGN_OR_RETURN(const PassOptions options, check_options(*info, step));
  StatusOr<std::unique_ptr<Pass>> pass = info->factory()(options);
  if (!pass.ok()) return std::move(pass).status().with_note("in pass '" + step.to_string() + "'");
  assert((*pass)->name() == info->name() && "a pass is registered under its own name");
  return pass;
}

}  // namespace millrace::transpiler
