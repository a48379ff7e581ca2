#include "ps/kill_points.h"

#include <algorithm>
#include <array>
#include <csignal>
#include <utility>

#include <fmt/ranges.h>
#include <llvm/ADT/StringRef.h>
#include <unistd.h>

#include "framework/base/errors.h"

namespace millrace::ps {
namespace {

// All kill points; docs/reliability.md describes where each one is.
constexpr std::array<std::string_view, 23> kNames = {
    "server/before-call",     "server/before-answer",    "server/in-barrier",
    "server/before-apply",    "server/after-apply",      "server/before-go-back",
    "server/after-go-back",   "snapshot/begin",          "snapshot/data-written",
    "snapshot/before-rename", "snapshot/after-rename",   "trainer/before-fetch",
    "trainer/after-fetch",    "trainer/before-send",     "trainer/after-send",
    "trainer/before-lookup",  "trainer/before-complete", "trainer/after-complete",
    "reshard/begin",          "reshard/data-written",    "reshard/before-rename",
    "reshard/after-rename",   "reshard/before-publish"};

class WatchedCalls final : public io::ForwardedFileCalls {
 public:
  WatchedCalls(std::shared_ptr<KillPoint> point, std::string_view of,
               std::shared_ptr<io::FileCalls> calls)
      : ForwardedFileCalls(std::move(calls)), point_(std::move(point)), of_(of) {}

  StatusOr<std::unique_ptr<io::WritableFile>> create(const std::string& path,
                                                     const io::NewFile& file) override {
    const bool is_manifest = path.find("manifest") != std::string::npos;
    reach(is_manifest ? "/data-written" : "/begin");
    return calls().create(path, file);
  }
  Status rename(const std::string& from, const std::string& to) override {
    reach("/before-rename");
    Status status = calls().rename(from, to);
    reach("/after-rename");
    return status;
  }

 private:
  void reach(const char* place) { point_->reach(of_ + place); }

  std::shared_ptr<KillPoint> point_;
  std::string of_;
};

}  // namespace

StatusOr<std::shared_ptr<KillPoint>> KillPoint::parse(std::string_view text) {
  const auto [name, number] = llvm::StringRef(text.data(), text.size()).split(':');
  int64_t count = 1;
  if (!number.empty() && (number.getAsInteger(10, count) || count < 1))
    return InvalidArgument("kill point '{}': '{}' is not a positive integer", text, number.str());
  if (std::find(kNames.begin(), kNames.end(), std::string_view(name.data(), name.size())) ==
      kNames.end())
    return InvalidArgument("kill point '{}': expected one of {}", name.str(),
                           fmt::join(kNames, ", "));
  return std::shared_ptr<KillPoint>(new KillPoint(name.str(), count));
}

void KillPoint::reach(std::string_view name) {
  if (name != name_ || left_.fetch_sub(1) != 1) return;
  ::kill(::getpid(), SIGKILL);
  ::pause();  // SIGKILL may take a moment to arrive; do nothing until it does
}

std::shared_ptr<io::FileCalls> file_calls_with(const std::shared_ptr<KillPoint>& point,
                                               std::string_view of,
                                               std::shared_ptr<io::FileCalls> calls) {
  if (point == nullptr) return calls;
  if (calls == nullptr) calls = io::system_file_calls();
  return std::make_shared<WatchedCalls>(point, of, std::move(calls));
}

}  // namespace millrace::ps
