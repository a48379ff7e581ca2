#include "transpiler/instrumentation.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <system_error>

#include "framework/base/errors.h"
#include "framework/base/text.h"

namespace millrace::transpiler {
namespace {

class PrintAfter final : public PassInstrumentation {
 public:
  PrintAfter(std::vector<std::string> passes, PrintFn print, SinkFn sink)
      : passes_(std::move(passes)), print_(std::move(print)), sink_(std::move(sink)) {}

  Status begin(const Pipeline& pipeline) override {
    for (const std::string& name : passes_) {
      if (llvm::any_of(pipeline.steps, [&](const PipelineStep& step) { return step.pass == name; }))
        continue;
      std::vector<std::string_view> known;
      for (const PipelineStep& step : pipeline.steps) known.push_back(step.pass);
      const std::string nearest = nearest_name(name, known);
      return InvalidArgument("cannot print after '{}': the pipeline '{}' has no such pass", name,
                             pipeline.to_string())
          .with_hint(nearest.empty() ? "" : "did you mean '" + nearest + "'?");
    }
    return Ok();
  }

  Status after(const PassEvent& event) override {
    if (!passes_.empty() && llvm::find(passes_, event.pass) == passes_.end()) return Ok();
    const std::string title =
        fmt::format("# after '{}' ({} of {}): {}", event.pass.str(), event.index + 1, event.count,
                    event.changed ? "changed" : "unchanged");
    sink_(title + "\n" + print_(event.program));
    if (event.startup != nullptr) sink_(title + ", startup program\n" + print_(*event.startup));
    return Ok();
  }

 private:
  std::vector<std::string> passes_;
  PrintFn print_;
  SinkFn sink_;
};

Status write_file(const std::filesystem::path& path, const std::string& text) {
  std::ofstream out(path, std::ios::binary | std::ios::trunc);
  out << text;
  out.close();
  if (out.fail()) return IoError("cannot write '{}'", printable(path.string()));
  return Ok();
}

class DumpToFolder final : public PassInstrumentation {
 public:
  DumpToFolder(std::string folder, PrintFn print)
      : folder_(std::move(folder)), print_(std::move(print)) {}

  Status begin(const Pipeline& pipeline) override {
    pipeline_ = pipeline.to_string();
    return Ok();
  }

  Status before(const PassEvent& event) override {
    if (event.index != 0) return Ok();
    std::error_code error;
    std::filesystem::create_directories(folder_, error);
    if (error) {
      return IoError("cannot create the folder '{}': {}", printable(folder_.string()),
                     error.message());
    }
    MILLRACE_RETURN_IF_ERROR(write_file(folder_ / "pipeline.txt", pipeline_ + "\n"));
    return dump(event, "000-input");
  }

  Status after(const PassEvent& event) override {
    return dump(event, fmt::format("{:03}-{}", event.index + 1, event.pass.str()));
  }

  void failed(const PassEvent& /*event*/, const Status& status) override {
    // The run already has an error, which matters more than an error of this file.
    (void)write_file(folder_ / "failed.txt", status.to_string() + "\n").ok();
  }

 private:
  Status dump(const PassEvent& event, const std::string& stem) {
    MILLRACE_RETURN_IF_ERROR(write_file(folder_ / (stem + ".prog"), print_(event.program)));
    if (event.startup == nullptr) return Ok();
    return write_file(folder_ / (stem + ".startup.prog"), print_(*event.startup));
  }

  std::filesystem::path folder_;
  std::string pipeline_;
  PrintFn print_;
};

}  // namespace

std::unique_ptr<PassInstrumentation> print_after(std::vector<std::string> passes, PrintFn print,
                                                 SinkFn sink) {
  return std::make_unique<PrintAfter>(std::move(passes), std::move(print), std::move(sink));
}

std::unique_ptr<PassInstrumentation> dump_to_folder(std::string folder, PrintFn print) {
  return std::make_unique<DumpToFolder>(std::move(folder), std::move(print));
}

}  // namespace millrace::transpiler
