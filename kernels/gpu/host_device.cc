#include "kernels/gpu/host_device.h"

#include <array>
#include <cstddef>
#include <cstring>
#include <functional>
#include <limits>
#include <map>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <sys/mman.h>

#include "kernels/gpu/functors/all.h"
#include "kernels/gpu/host_collectives.h"

namespace millrace::gpu {
namespace {

// A team of one thread.
struct OneThread {
  [[nodiscard]] static constexpr int64_t rank() { return 0; }
  [[nodiscard]] static constexpr int64_t size() { return 1; }
  static constexpr double sum(double x) { return x; }
  static constexpr double product(double x) { return x; }
  static constexpr float max(float x) { return x; }
};

using Loop = void (*)(const void* functor, int64_t count);

template <typename Functor>
void loop_each(const void* functor, int64_t count) {
  const auto& f = *static_cast<const Functor*>(functor);
  for (int64_t i = 0; i < count; ++i) f(i);
}
template <typename Functor>
void loop_rows(const void* functor, int64_t count) {
  const auto& f = *static_cast<const Functor*>(functor);
  for (int64_t i = 0; i < count; ++i) f(OneThread(), i);
}
template <typename... Functors>
constexpr std::array<Loop, sizeof...(Functors)> each_loops(FunctorList<Functors...> /*list*/) {
  return {&loop_each<Functors>...};
}
template <typename... Functors>
constexpr std::array<Loop, 2 * sizeof...(Functors)> row_loops(FunctorList<Functors...> /*list*/) {
  return {&loop_rows<Functors>..., &loop_rows<Functors>...};
}

constexpr int64_t kPage = 4096;

// An object that a functor was copied to.
using FunctorCopy = std::vector<std::max_align_t>;

FunctorCopy copy_functor(const void* data, size_t bytes) {
  FunctorCopy copy((bytes + sizeof(std::max_align_t) - 1) / sizeof(std::max_align_t));
  std::memcpy(copy.data(), data, bytes);
  return copy;
}

template <typename... Functors>
constexpr std::array<size_t, sizeof...(Functors)> sizes_of(FunctorList<Functors...> /*list*/) {
  return {sizeof(Functors)...};
}

using Work = std::function<void()>;

// Calls in the order in which they were made.
class HostRecording final : public Recording {
 public:
  HostRecording(std::vector<Work> work, std::function<void(const Work&)> run)
      : work_(std::move(work)), run_(std::move(run)) {}
  Status replay() override {
    run_([this] {
      for (const Work& one : work_) one();
    });
    return Ok();
  }

 private:
  std::vector<Work> work_;
  std::function<void(const Work&)> run_;  ///< of the device: while its memory can be accessed
};

class HostDevice final : public Device {
 public:
  explicit HostDevice(const DeviceOptions& options)
      : limit_(options.memory_limit > 0 ? options.memory_limit
                                        : std::numeric_limits<int64_t>::max()) {
    info_.name = "emulation in the memory of the process";
    info_.memory_bytes = options.memory_limit;
    info_.free_bytes = options.memory_limit;
  }
  ~HostDevice() override {
    for (const auto& [data, bytes] : pieces_) ::munmap(data, static_cast<size_t>(bytes));
  }

  [[nodiscard]] const DeviceInfo& info() const override { return info_; }

  StatusOr<std::byte*> allocate(int64_t bytes) override {
    MILLRACE_RETURN_IF_ERROR(cannot_record("allocates memory"));
    const int64_t rounded = (bytes + kPage - 1) / kPage * kPage;
    if (bytes > limit_ - used_)
      return Status(StatusCode::kResource, fmt::format("the device has {} bytes", limit_));
    void* const data = ::mmap(nullptr, static_cast<size_t>(rounded), PROT_READ | PROT_WRITE,
                              MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (data == MAP_FAILED)
      return Status(StatusCode::kResource,
                    fmt::format("the system cannot provide {} bytes", rounded));
    std::memset(data, 0xFF, static_cast<size_t>(rounded));  // NaN in every float format
    ::mprotect(data, static_cast<size_t>(rounded), PROT_NONE);
    pieces_[static_cast<std::byte*>(data)] = rounded;
    used_ += bytes;
    sizes_[static_cast<std::byte*>(data)] = bytes;
    return static_cast<std::byte*>(data);
  }

  void release(std::byte* data) override {
    if (recording_) {
      released_.push_back(data);
      return;
    }
    ::munmap(data, static_cast<size_t>(pieces_[data]));
    used_ -= sizes_[data];
    pieces_.erase(data);
    sizes_.erase(data);
  }

  Status copy_in(const std::byte* from, std::byte* to, int64_t bytes) override {
    MILLRACE_RETURN_IF_ERROR(cannot_record("copies to the device"));
    open_while([&] { std::memcpy(to, from, static_cast<size_t>(bytes)); });
    return Ok();
  }
  Status copy_out(const std::byte* from, std::byte* to, int64_t bytes) override {
    MILLRACE_RETURN_IF_ERROR(cannot_record("copies from the device"));
    open_while([&] { std::memcpy(to, from, static_cast<size_t>(bytes)); });
    return Ok();
  }
  Status copy(const std::byte* from, std::byte* to, int64_t bytes) override {
    return queue([=] { std::memcpy(to, from, static_cast<size_t>(bytes)); });
  }
  Status wait() override { return cannot_record("waits"); }

  Status launch_each(size_t functor, const void* data, int64_t count) override {
    static constexpr auto kLoops = each_loops(EachFunctors{});
    static constexpr auto kSizes = sizes_of(EachFunctors{});
    return queue([copy = copy_functor(data, kSizes[functor]), functor, count] {
      kLoops[functor](copy.data(), count);
    });
  }
  Status launch_rows(size_t functor, const void* data, int64_t rows) override {
    static constexpr auto kLoops = row_loops(RowFunctors{});
    static constexpr auto kSizes = sizes_of(RowFunctors{});
    return queue([copy = copy_functor(data, kSizes[functor % RowFunctors::kSize]), functor, rows] {
      kLoops[functor](copy.data(), rows);
    });
  }

  Status begin_recording() override {
    recording_ = true;
    not_recorded_ = Ok();
    return Ok();
  }
  StatusOr<std::unique_ptr<Recording>> end_recording() override {
    recording_ = false;
    for (std::byte* const data : std::exchange(released_, {})) release(data);
    std::vector<Work> work = std::exchange(recorded_, {});
    MILLRACE_RETURN_IF_ERROR(std::exchange(not_recorded_, Ok()));
    return std::unique_ptr<Recording>(std::make_unique<HostRecording>(
        std::move(work), [this](const Work& all) { open_while(all); }));
  }
  Status varies() override { return cannot_record("has arguments that vary"); }

  StatusOr<Collectives*> collectives() override { return collectives_.get(); }

 private:
  void open_while(const Work& work) {
    protect(PROT_READ | PROT_WRITE);
    work();
    protect(PROT_NONE);
  }
  Status queue(Work work) {
    if (recording_) {
      recorded_.push_back(std::move(work));
    } else {
      open_while(work);
    }
    return Ok();
  }
  // The error of a call that cannot be recorded, which also fails the recording.
  Status cannot_record(const char* what) {
    if (!recording_) return Ok();
    not_recorded_ = {StatusCode::kUnimplemented, fmt::format("an op {}", what)};
    return not_recorded_;
  }
  void protect(int rights) const {
    for (const auto& [data, bytes] : pieces_) ::mprotect(data, static_cast<size_t>(bytes), rights);
  }

  DeviceInfo info_;
  int64_t limit_;
  int64_t used_ = 0;
  std::map<std::byte*, int64_t> pieces_;  ///< rounded up to whole pages
  std::map<std::byte*, int64_t> sizes_;   ///< as requested
  bool recording_ = false;
  Status not_recorded_;               ///< why the recording has failed
  std::vector<Work> recorded_;        ///< since begin_recording()
  std::vector<std::byte*> released_;  ///< while recording
  std::unique_ptr<Collectives> collectives_ = make_host_collectives(*this);
};

}  // namespace

std::shared_ptr<Device> open_host_device(const DeviceOptions& options) {
  return std::make_shared<HostDevice>(options);
}

}  // namespace millrace::gpu
