#include "tools/common/tool.h"

#include <algorithm>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <new>
#include <system_error>
#include <thread>

#include "framework/base/errors.h"
#include "framework/base/json_writer.h"
#include "framework/base/text.h"
#include "framework/base/version.h"
#include "framework/tensor/limit.h"
#include "tools/common/flag_names.h"
#include "tools/common/help.h"
#include "tools/common/json_config.h"
#include "tools/common/numbers.h"
#include "tools/common/pages.h"
#include "tools/common/switch.h"
#include "tools/common/time_limit.h"

namespace millrace::tools {
namespace {

constexpr int64_t kDefaultMaxModelBytes = (int64_t{1} << 31U) - 1;

Status print(std::FILE* stream, std::string_view text) {
  const size_t done = std::fwrite(text.data(), 1, text.size(), stream);
  if (done == text.size() && std::fflush(stream) == 0) return Ok();
  return IoError("cannot write to standard output");
}

// Returns "--trainer-id=3" for "--trainer_id=3" if only the former is an option: scripts of the
// original use underscores.
std::string with_dashes(const CLI::App& app, std::string argument) {
  if (argument.rfind("--", 0) != 0) return argument;
  const size_t end = std::min(argument.find('='), argument.size());
  const std::string name = argument.substr(0, end);
  std::string dashed = name;
  std::replace(dashed.begin(), dashed.end(), '_', '-');
  if (app.get_option_no_throw(name) != nullptr || app.get_option_no_throw(dashed) == nullptr)
    return argument;
  return dashed + argument.substr(end);
}

Status unexpected(const std::exception& error) {
  return Internal("unexpected exception: {}", error.what())
      .with_hint("this is a bug in millrace; please report it with the command and its input");
}

}  // namespace

Tool::Tool(ToolInfo info) : info_(std::move(info)) {
  common_.max_model_bytes = kDefaultMaxModelBytes;
  app_.name(info_.name);
  app_.option_defaults()->always_capture_default();
  app_.get_formatter()->column_width(0);
  app_.set_help_flag();
  add_common_options();
  app_.option_defaults()->group("Options");
}

void Tool::add_common_options() {
  app_.option_defaults()->group("Common");
  app_.add_flag("--help,-h", want_help_, "show this help")->configurable(false);
  app_.add_flag("--help-all", want_help_all_, "show this help with the rare options")
      ->configurable(false);
  app_.add_flag("--version", want_version_, "show the version; with --json as JSON")
      ->configurable(false);
  app_.add_flag("--json", common_.json, "one JSON document on stdout");
  app_.add_flag("-q,--quiet", common_.quiet, "log errors only");
  app_.add_flag("-v,--verbose", common_.verbose, "log more; may be repeated")
      ->default_str("")
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
  app_.add_option("-o,--output", common_.output, "path of the result; - is stdout")
      ->type_name("FILE");
  app_.add_flag("--force", common_.force, "replace existing outputs");
  app_.set_config("--config", "",
                  "JSON file with flags, keys with _ for -; the command line overrides it")
      ->type_name("FILE.json")
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeLast)
      ->group("Common");
  app_.config_formatter(std::make_shared<JsonConfig>(app_, config_keys_));
  app_.add_option("--threads", common_.threads, "worker threads; 0: one per core")
      ->type_name("N")
      ->check(whole_number(0, 4096));
  rare(app_.add_option("--seed", common_.seed, "seed of all random numbers")
           ->type_name("N")
           ->check(whole_number<uint64_t>()));
  rare(app_.add_option("--max-model-bytes", common_.max_model_bytes,
                       "refuse program files above this size")
           ->type_name("N")
           ->check(whole_number<int64_t>(0)));
  rare(app_.add_option("--max-tensor-bytes", common_.max_tensor_bytes,
                       "refuse larger tensors; 0: three quarters of the memory")
           ->type_name("N")
           ->check(whole_number<int64_t>(0)));
  rare(app_.add_option("--timeout", common_.timeout, "end with an error after this time; 0: never")
           ->type_name("SECONDS")
           ->check(real_number(0.0, 1e9)));
  rare(app_.add_option("--log-format", common_.log_format, "text or json")
           ->type_name("FORMAT")
           ->check(CLI::IsMember({"text", "json"}).description("")));
  rare(
      app_.add_flag("--print-config", print_config_, "print each setting and its source, then exit")
          ->configurable(false));
  rare(app_.add_flag("--bash-completion", want_bash_completion_,
                     "print a completion script for bash, then exit")
           ->configurable(false));
  rare(app_.add_flag("--zsh-completion", want_zsh_completion_,
                     "print a completion script for zsh, then exit")
           ->configurable(false));
  rare(app_.add_flag("--manual", want_manual_, "print the page for man(1), then exit")
           ->configurable(false));
}

CLI::Option* Tool::rare(CLI::Option* option) {
  rare_.insert(option);
  return option;
}

std::string Tool::help(bool all) const {
  return help_text(info_, app_,
                   [&](const CLI::Option& option) { return !all && rare_.count(&option) != 0; });
}

std::string Tool::version() const {
  const VersionInfo facts = version_info();
  if (!common_.json) {
    return fmt::format("{} {} (commit {}, {}, {})\n", info_.name, facts.version, facts.commit,
                       facts.build_type, facts.compiler);
  }
  JsonWriter out;
  out.begin_object();
  out.key("schema").begin_object().member("name", "millrace.version").member("version", 1);
  out.end_object().member("tool", info_.name).member("version", facts.version);
  out.member("commit", facts.commit).member("build_type", facts.build_type);
  return out.member("compiler", facts.compiler).end_object().take();
}

bool Tool::on_command_line(const CLI::Option& option) const {
  const auto is = [](const std::string& argument, const std::string& name) {
    return argument == name || argument.rfind(name + "=", 0) == 0;
  };
  const auto end = std::find(arguments_.begin(), arguments_.end(), "--");  // then come no options
  return std::any_of(arguments_.begin(), end, [&](const std::string& argument) {
    for (const std::string& name : option.get_lnames())
      if (is(argument, "--" + name)) return true;
    for (const std::string& name : option.get_snames())
      if (argument.size() > 1 && argument[0] == '-' && argument[1] == name[0]) return true;
    return false;
  });
}

bool Tool::given(const std::string& flag) const {
  return app_.get_option(flag)->count() > 0;
}

StatusOr<std::string> Tool::output_form(const std::string& format) const {
  if (!common_.json || format == "json") return format;
  if (!given("--format")) return std::string("json");
  return Status(StatusCode::kUsage,
                fmt::format("--json and --format {}: expected only one of them", format));
}

bool Tool::differs(const std::string& flag) const {
  const CLI::Option* const option = app_.get_option(flag);
  if (option->count() == 0) return false;
  std::string value;
  for (const std::string& result : option->results()) value += (value.empty() ? "" : ",") + result;
  const std::string fallback = option->get_default_str();
  return value != fallback && !(is_flag(*option) && value == "false");
}

std::string Tool::effective_config() const {
  JsonWriter out;
  out.begin_object();
  out.key("schema").begin_object().member("name", "millrace.config").member("version", 1);
  out.end_object().key("settings").begin_object();
  for (const CLI::Option* option : app_.get_options()) {
    if (option->get_lnames().empty() || !option->get_configurable()) continue;
    std::string key = option->get_lnames().front();
    const bool from_file = config_keys_.count(key) != 0;
    std::replace(key.begin(), key.end(), '-', '_');
    std::string value;
    for (const std::string& result : option->results())
      value += (value.empty() ? "" : ",") + result;
    if (option->count() == 0) value = option->get_default_str();
    out.key(key).begin_object().member("value", value);
    const char* const from_default = option->count() == 0 ? "default" : "command line";
    out.member("source", from_file && !on_command_line(*option) ? "configuration" : from_default);
    out.end_object();
  }
  return out.end_object().end_object().take();
}

Status Tool::parse_error(const CLI::ParseError& error) {
  std::string message = error.what();
  std::string hint = fmt::format("see {} --help", info_.name);
  const std::vector<std::string> names = long_names(app_);
  if (dynamic_cast<const CLI::ExtrasError*>(&error) != nullptr) {
    const std::vector<std::string> extras = app_.remaining();
    const std::string first = extras.empty() ? std::string() : extras.front();
    message = fmt::format(
        "{} '{}'", first.rfind('-', 0) == 0 ? "unknown option" : "unexpected argument", first);
    const std::string name = first.substr(0, first.find('='));
    const std::vector<std::string_view> views(names.begin(), names.end());
    if (name.rfind("--", 0) == 0) {
      const std::string nearest = nearest_name(name.substr(2), views);
      if (!nearest.empty()) hint = fmt::format("did you mean '--{}'?", nearest);
    }
  }
  // "Could not convert: --sync-mode = 2"
  constexpr std::string_view kConversion = "Could not convert: ";
  if (const size_t equals = message.find(" = ");
      message.starts_with(kConversion) && equals != std::string::npos) {
    const std::string flag = message.substr(kConversion.size(), equals - kConversion.size());
    const CLI::Option* const option = app_.get_option_no_throw(flag);
    if (option != nullptr) {
      message = fmt::format("{}: expected {}, found '{}'", flag,
                            is_switch(*option) ? "true or false" : option->get_type_name(),
                            message.substr(equals + 3));
    }
  }
  // An invalid value in the configuration file is bad input, not wrong usage.
  for (const std::string& name : names) {
    const CLI::Option* const option = app_.get_option_no_throw("--" + name);
    const bool named = message.find("--" + name + ":") != std::string::npos ||
                       message.find("--" + name + " ") != std::string::npos;
    if (named && config_keys_.count(name) != 0 && !on_command_line(*option))
      return InvalidArgument("configuration: {}", message).with_hint(std::move(hint));
  }
  return Status(StatusCode::kUsage, std::move(message)).with_hint(std::move(hint));
}

Status Tool::parse(int argc, const char* const* argv) {
  // After "--" the arguments belong to the command that launch starts.
  bool ours = true;
  for (int i = 1; i < argc; ++i) {
    ours = ours && std::string_view(argv[i]) != "--";
    arguments_.push_back(ours ? with_dashes(app_, argv[i]) : argv[i]);
  }
  // --json and -q also apply to errors in the command line.
  common_.json = on_command_line(*app_.get_option("--json"));
  // These work without the required options.
  const std::pair<const char*, bool*> alone[] = {
      {"--help", &want_help_},       {"--help-all", &want_help_all_},
      {"--version", &want_version_}, {"--bash-completion", &want_bash_completion_},
      {"--manual", &want_manual_},   {"--zsh-completion", &want_zsh_completion_}};
  bool any = false;
  for (const auto& [flag, want] : alone) {
    *want = on_command_line(*app_.get_option(flag));
    any = any || *want;
  }
  if (any) return Ok();
  try {
    std::vector<std::string> reversed(arguments_.rbegin(), arguments_.rend());
    app_.parse(reversed);
  } catch (const ConfigFailure& failure) {
    return Status(failure.status).in_file(app_.get_config_ptr()->as<std::string>());
  } catch (const CLI::FileError&) {
    return NotFound("cannot open").in_file(app_.get_config_ptr()->as<std::string>());
  } catch (const CLI::ParseError& error) {
    return parse_error(error);
  }
  if (common_.threads == 0)
    common_.threads = static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
  set_max_tensor_bytes(common_.max_tensor_bytes);
  return Ok();
}

StatusOr<int> Tool::run_body(int argc, const char* const* argv,
                             const std::function<StatusOr<int>()>& body) {
  try {
    MILLRACE_RETURN_IF_ERROR(parse(argc, argv));
    std::string text;
    if (want_help_ || want_help_all_) {
      text = help(want_help_all_);
    } else if (want_version_) {
      text = version();
    } else if (want_manual_) {
      text = manual_page(info_, app_, std::string(version_info().version));
    } else if (want_bash_completion_) {
      text = bash_completion(info_, app_);
    } else if (want_zsh_completion_) {
      text = zsh_completion(info_, app_);
    } else if (print_config_) {
      text = effective_config();
    } else {
      for (const std::string& flag : info_.unread) {
        if (given(flag))
          log(LogLevel::kWarning, fmt::format("{} has no effect on {}", flag, info_.name));
      }
      const Status late(StatusCode::kResource,
                        fmt::format("{} took longer than {} s, the limit given by --timeout",
                                    info_.name, common_.timeout));
      const TimeLimit limit(common_.timeout, late.to_string() + "\n",
                            common_.json ? error_json(late) : "", exit_code(late.code()));
      return body();
    }
    MILLRACE_RETURN_IF_ERROR(print(stdout, text));
    return kDone;
  } catch (const std::bad_alloc&) {
    return Status(StatusCode::kResource, "out of memory");
  } catch (const std::filesystem::filesystem_error& error) {
    return IoError("cannot access: {}", error.code().message()).in_file(error.path1().string());
  } catch (const std::system_error& error) {
    // a thread that cannot be started
    if (error.code() == std::errc::resource_unavailable_try_again)
      return Status(StatusCode::kResource, fmt::format("no more threads: {}", error.what()));
    return unexpected(error);
  } catch (const std::exception& error) {
    return unexpected(error);
  }
}

int Tool::run(int argc, const char* const* argv, const std::function<StatusOr<int>()>& body) {
  const StatusOr<int> result = run_body(argc, argv, body);
  if (result.ok()) return result.value();
  report(result.status());
  if (common_.json) static_cast<void>(print(stdout, error_json(with_flags(result.status()))));
  return exit_code(result.status().code());
}

Status Tool::write_file(const std::string& path, std::string_view bytes, Flush flush) {
  if (path.empty() || path == "-") return print(stdout, bytes);
  return write_file_atomically(path, bytes, common_.force ? Replace::kYes : Replace::kNo, flush);
}

void Tool::log(LogLevel level, std::string_view text) const {
  if (common_.quiet && level != LogLevel::kError) return;
  if (level == LogLevel::kDebug && common_.verbose == 0) return;
  const std::string line = log_line(std::chrono::system_clock::now(), level, info_.name, text,
                                    common_.log_format == "json");
  static_cast<void>(print(stderr, line));
}

LogSink Tool::log_sink() const {
  return [this](LogLevel level, std::string_view text) { log(level, text); };
}

void Tool::report(const Status& status) const {
  static_cast<void>(print(stderr, with_flags(status).to_string() + "\n"));
}

}  // namespace millrace::tools
