// All-reduce of f32 between processes of one machine by Gloo alone, as its own users call it: what
// all_reduce --engine gloo is compared with.
//   gloo_all_reduce [--ranks 2] [--kib 1,64,...] [--check]
// A JSON line a size, with the keys of all_reduce.

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <gloo/allreduce.h>
#include <gloo/barrier.h>
#include <gloo/math.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/file_store.h>
#include <gloo/transport/tcp/device.h>
#include <sys/wait.h>
#include <unistd.h>

namespace {

using Clock = std::chrono::steady_clock;

struct Options {
  int ranks = 2;
  std::vector<int64_t> kib = {1, 4, 16, 64, 256, 1024, 4096, 16384, 65536};
  bool check = false;
};

void all_reduce(const std::shared_ptr<gloo::Context>& context, std::vector<float>& data,
                uint32_t& tag) {
  gloo::AllreduceOptions options(context);
  options.setOutput(data.data(), data.size());
  options.setReduceFunction(
      static_cast<void (*)(void*, const void*, const void*, size_t)>(&gloo::sum<float>));
  options.setTag(tag++);
  gloo::allreduce(options);
}

// Medians over rounds of as many calls as take a moment, as in all_reduce.
void measure(const std::shared_ptr<gloo::Context>& context, const Options& options) {
  uint32_t tag = 0;
  for (const int64_t kib : options.kib) {
    std::vector<float> data(static_cast<size_t>(kib * 256), 1.0F);
    all_reduce(context, data, tag);
    if (data.front() != static_cast<float>(context->size) || data.back() != data.front()) {
      std::fprintf(stderr, "wrong sum\n");
      std::exit(1);
    }
    const int64_t calls = options.check ? 1 : std::clamp<int64_t>(65536 / kib, 4, 4000);
    std::vector<double> rounds;
    for (int round = 0; round < (options.check ? 1 : 9); ++round) {
      std::fill(data.begin(), data.end(), 1e-30F);
      gloo::BarrierOptions barrier(context);
      barrier.setTag(tag++);
      gloo::barrier(barrier);
      const auto start = Clock::now();
      for (int64_t i = 0; i < calls; ++i) all_reduce(context, data, tag);
      const std::chrono::duration<double, std::micro> took = Clock::now() - start;
      rounds.push_back(took.count() / static_cast<double>(calls));
    }
    if (context->rank != 0) continue;
    std::sort(rounds.begin(), rounds.end());
    fmt::print(
        "{{\"name\": \"gloo_alone\", \"kib\": {}, \"ranks\": {}, \"us_median\": {:.2f}, "
        "\"us_min\": {:.2f}, \"runs\": {}}}\n",
        kib, context->size, rounds[rounds.size() / 2], rounds.front(), rounds.size());
    std::fflush(stdout);
  }
}

int run_rank(const Options& options, int rank, const std::string& folder) {
  try {
    gloo::transport::tcp::attr attributes;
    attributes.hostname = "127.0.0.1";
    gloo::rendezvous::FileStore store(folder);
    auto context = std::make_shared<gloo::rendezvous::Context>(rank, options.ranks);
    std::shared_ptr<gloo::transport::Device> device =
        gloo::transport::tcp::CreateDevice(attributes);
    context->connectFullMesh(store, device);
    measure(context, options);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "rank %d: %s\n", rank, error.what());
    return 1;
  }
  return 0;
}

int run(const Options& options) {
  std::string folder = "/tmp/millrace_gloo_XXXXXX";
  if (mkdtemp(folder.data()) == nullptr) return 1;
  for (int rank = 1; rank < options.ranks; ++rank) {
    if (fork() == 0) _exit(run_rank(options, rank, folder));
  }
  int code = run_rank(options, 0, folder);
  for (int rank = 1; rank < options.ranks; ++rank) {
    int status = 0;
    wait(&status);
    if (status != 0) code = 1;
  }
  return code;
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  CLI::App app("all-reduce by Gloo alone");
  app.add_option("--ranks", options.ranks, "processes");
  app.add_option("--kib", options.kib, "sizes")->delimiter(',');
  app.add_flag("--check", options.check, "results only");
  CLI11_PARSE(app, argc, argv);
  return run(options);
}
