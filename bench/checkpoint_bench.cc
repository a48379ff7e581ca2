// Saving, loading and resharding, compared with bare system calls with the same bytes in the same
// folder and run: one line of JSON for each, with the ratio of the speeds.
//
//   checkpoint_bench --folder DIR [--mib 1024] [--tensors 64] [--files 1] [--runs 5] [--check]

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <deque>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/resource.h>
#include <unistd.h>

#include "io/checkpoint/async_save.h"
#include "io/checkpoint/checkpoint.h"
#include "io/checkpoint/reshard.h"
#include "io/checkpoint/save.h"

namespace millrace {
namespace {

namespace fs = std::filesystem;

struct Options {
  std::string folder;
  int64_t mib = 1024;
  int tensors = 64;
  int files = 1;
  int runs = 5;
  bool check = false;
};

struct Sample {
  double wall = 0;
  double processor = 0;
};

double processor_seconds() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_usec) * 1e-6;
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

int64_t peak_kib() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  return usage.ru_maxrss;
}

bool good(const Status& status) {
  if (status.ok()) return true;
  std::fprintf(stderr, "%s\n", status.to_string().c_str());
  return false;
}

Sample timed(const std::function<bool()>& body, bool& ok) {
  const double processor = processor_seconds();
  const auto begin = std::chrono::steady_clock::now();
  ok = body() && ok;
  return {std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count(),
          processor_seconds() - processor};
}

Sample median(std::vector<Sample> samples) {
  std::ranges::sort(samples, {}, &Sample::wall);
  return samples[samples.size() / 2];
}

class Bench {
 public:
  explicit Bench(Options options) : options_(std::move(options)) {
    const int64_t elements = (options_.mib << 18U) / options_.tensors;
    for (int i = 0; i < options_.tensors; ++i) {
      Value& value = values_.emplace_back();
      ok_ = good(value.as<Tensor>().resize(DType::kFloat32, {elements / 64, 64})) && ok_;
      auto* const data = value.as<Tensor>().data<float>();
      for (int64_t k = 0; k < value.as<Tensor>().numel(); ++k)
        data[k] = static_cast<float>(k * (i + 1));
      state_.add("t" + std::to_string(i), value);
      bytes_ += static_cast<uint64_t>(value.as<Tensor>().bytes());
    }
  }

  bool run() {
    for (const bool sync : {false, true}) {
      compare(
          sync ? "save, fsync" : "save", [&] { return raw_write(sync); },
          [&] { return save(sync); }, [&] { remove_written(); });
    }
    ok_ = raw_write(false) && ok_;
    for (const int threads : {0, 1}) {
      const std::string which = threads == 0 ? "" : ", 1 thread";
      compare(
          "load, page cache" + which, [&] { return raw_read(); }, [&] { return load(threads); });
      compare(
          "load, cold" + which, [&] { return raw_read(); }, [&] { return load(threads); },
          [&] { forget_pages(); });
    }
    compare(
        "reshard 1 to 3", [&] { return raw_copy(); }, [&] { return reshard(); },
        [&] {
          fs::remove(path("raw2"));
          fs::remove_all(path("c3"));
        });
    async();
    for (const char* const name : {"raw", "raw2", "c", "c3"}) fs::remove_all(path(name));
    return ok_;
  }

 private:
  [[nodiscard]] std::string path(const std::string& name) const {
    return options_.folder + "/checkpoint_bench." + name;
  }

  /// \param before  called before each of both, not timed
  void compare(
      const std::string& name, const std::function<bool()>& bare, const std::function<bool()>& ours,
      const std::function<void()>& before = [] {}) {
    std::vector<Sample> left;
    std::vector<Sample> right;
    const int64_t peak_before = peak_kib();
    // Alternates, and each goes first in half of the runs, so that the after-effects of one do not
    // always hit the other.
    for (int i = 0; i < options_.runs; ++i) {
      for (const bool bare_now : {i % 2 == 0, i % 2 != 0}) {
        before();
        settle();
        (bare_now ? left : right).push_back(timed(bare_now ? bare : ours, ok_));
      }
    }
    const Sample a = median(left);
    const Sample b = median(right);
    const Sample best_a = std::ranges::min(left, {}, &Sample::wall);
    const Sample best_b = std::ranges::min(right, {}, &Sample::wall);
    const double gib = static_cast<double>(bytes_) / static_cast<double>(1U << 30U);
    fmt::print(
        "{{\"name\": \"{}\", \"bytes\": {}, \"tensors\": {}, \"files\": {}, \"runs\": {}, "
        "\"median_s\": {:.4f}, "
        "\"bare_s\": {:.4f}, \"speed_ratio\": {:.3f}, \"best_ratio\": {:.3f}, "
        "\"processor_s_per_gib\": {:.3f}, "
        "\"bare_processor_s_per_gib\": {:.3f}, \"more_peak_mib\": {:.1f}}}\n",
        name, bytes_, options_.tensors, options_.files, options_.runs, b.wall, a.wall,
        a.wall / b.wall, best_a.wall / best_b.wall, b.processor / gib, a.processor / gib,
        static_cast<double>(peak_kib() - peak_before) / 1024);
    std::fflush(stdout);
  }

  // Writes back dirty pages of earlier work, so that this is not part of a timed run.
  void settle() {
    const int fd = ::open(options_.folder.c_str(), O_RDONLY | O_DIRECTORY);
    ok_ = fd >= 0 && ::syncfs(fd) == 0 && ok_;
    ::close(fd);
  }

  // Removes the old output: freeing its pages is not part of a save.
  void remove_written() {
    fs::remove(path("raw"));
    fs::remove_all(path("c"));
  }

  bool raw_write(bool sync) {
    const int fd = ::open(path("raw").c_str(), O_WRONLY | O_CREAT | O_EXCL, 0666);
    bool fine = fd >= 0;
    for (const Value& value : values_) {
      const Tensor& tensor = *value.get_if<Tensor>();
      for (int64_t at = 0; fine && at < tensor.bytes();) {
        const ssize_t done =
            ::write(fd, tensor.raw() + at, static_cast<size_t>(tensor.bytes() - at));
        fine = done > 0;
        at += done;
      }
    }
    if (sync) fine = ::fsync(fd) == 0 && fine;
    return ::close(fd) == 0 && fine;
  }

  bool save(bool sync) {
    io::CheckpointSaveOptions options;
    options.sync = sync;
    if (options_.files > 1) options.max_file_bytes = bytes_ / static_cast<uint64_t>(options_.files);
    return good(io::save_state_dict(state_, path("c"), options));
  }

  // Drops the files from the page cache; a file system in memory keeps them.
  void forget_pages() {
    std::vector<std::string> files = {path("raw")};
    for (const auto& entry : fs::directory_iterator(path("c"))) files.push_back(entry.path());
    for (const std::string& file : files) {
      const int fd = ::open(file.c_str(), O_RDONLY);
      ok_ =
          fd >= 0 && ::fsync(fd) == 0 && ::posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED) == 0 && ok_;
      ::close(fd);
    }
  }

  bool raw_read() {
    const int fd = ::open(path("raw").c_str(), O_RDONLY);
    bool fine = fd >= 0;
    for (Value& value : values_) {
      auto& tensor = value.as<Tensor>();
      for (int64_t at = 0; fine && at < tensor.bytes();) {
        const ssize_t done =
            ::read(fd, tensor.raw() + at, static_cast<size_t>(tensor.bytes() - at));
        fine = done > 0;
        at += done;
      }
    }
    return ::close(fd) == 0 && fine;
  }

  /// \param threads  0: the default number of loading
  bool load(int threads) {
    auto checkpoint = io::Checkpoint::open(path("c"), {.threads = threads});
    if (!good(checkpoint.ok() ? Ok() : checkpoint.status())) return false;
    std::deque<std::string> names;
    std::vector<io::Checkpoint::BoxRead> reads;
    for (size_t i = 0; i < values_.size(); ++i) {
      auto& tensor = values_[i].as<Tensor>();
      names.push_back("t" + std::to_string(i));
      reads.push_back({names.back(),
                       io::Box::whole(tensor.dims()),
                       {tensor.raw(), static_cast<size_t>(tensor.bytes())}});
    }
    return good(checkpoint->read_boxes(reads));
  }

  bool raw_copy() {
    const int from = ::open(path("raw").c_str(), O_RDONLY);
    const int to = ::open(path("raw2").c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0666);
    std::vector<char> buffer(1U << 20U);
    bool fine = from >= 0 && to >= 0;
    while (fine) {
      const ssize_t got = ::read(from, buffer.data(), buffer.size());
      if (got == 0) break;
      fine = got > 0 && ::write(to, buffer.data(), static_cast<size_t>(got)) == got;
    }
    ::close(from);
    return ::close(to) == 0 && fine;
  }

  bool reshard() {
    auto checkpoint = io::Checkpoint::open(path("c"));
    if (!good(checkpoint.ok() ? Ok() : checkpoint.status())) return false;
    io::ReshardOptions options;
    options.ranks = 3;
    options.split_whole = true;
    options.max_memory_bytes = 8U << 20U;
    options.save.sync = false;
    return good(io::reshard_checkpoint(*checkpoint, path("c3"), options));
  }

  // Time that a step waits until its values are copied; the first time includes the allocation of
  // memory.
  void async() {
    io::AsyncSaver saver;
    std::vector<double> waits;
    for (int i = 0; i < 3; ++i) {
      fs::remove_all(path("c"));
      const Sample start = timed(
          [&] {
            return good(saver.start(state_, [&](const io::LocalState& state) {
              return io::save_state_dict(state, path("c"));
            }));
          },
          ok_);
      waits.push_back(start.wall);
      ok_ = good(saver.wait()) && ok_;
    }
    fmt::print(
        "{{\"name\": \"async start\", \"bytes\": {}, \"first_s\": {:.4f}, \"later_s\": {:.4f}}}\n",
        bytes_, waits[0], std::min(waits[1], waits[2]));
  }

  Options options_;
  std::deque<Value> values_;
  io::LocalState state_;
  uint64_t bytes_ = 0;
  bool ok_ = true;
};

}  // namespace
}  // namespace millrace

int main(int argc, char** argv) {
  millrace::Options options;
  CLI::App app("saving and loading checkpoints compared with bare system calls");
  app.add_option("--folder", options.folder, "folder for the files")->required();
  app.add_option("--mib", options.mib, "MiB of all tensors")->check(CLI::Range(1, 1 << 20));
  app.add_option("--tensors", options.tensors, "number of tensors")->check(CLI::Range(1, 4096));
  app.add_option("--files", options.files, "number of files per save; tensors are not split")
      ->check(CLI::Range(1, 4096));
  app.add_option("--runs", options.runs, "runs of each; the median counts")
      ->check(CLI::Range(1, 100));
  app.add_flag("--check", options.check, "one small run that only checks that everything works");
  CLI11_PARSE(app, argc, argv);
  if (options.check) {
    options.mib = 4;
    options.runs = 1;
    options.tensors = 3;
  }
  return millrace::Bench(options).run() ? 0 : 1;
}
