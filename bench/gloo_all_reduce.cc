// All-reduce of f32 between processes of one machine, by direct calls of Gloo: the peer of
// all_reduce --engine gloo.
//   gloo_all_reduce [--ranks 2] [--kib 1,64,...] [--check]
// Prints a JSON line per size, with the keys of all_reduce.

#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <gloo/allreduce.h>
#include <gloo/barrier.h>
#include <gloo/math.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/file_store.h>
#include <gloo/transport/tcp/device.h>

#include "bench/ranks.h"

namespace {

using millrace::bench::AllReduceOptions;

void all_reduce(const std::shared_ptr<gloo::Context>& context, std::vector<float>& data,
                uint32_t tag) {
  gloo::AllreduceOptions options(context);
  options.setOutput(data.data(), data.size());
  options.setReduceFunction(
      static_cast<void (*)(void*, const void*, const void*, size_t)>(&gloo::sum<float>));
  options.setTag(tag);
  gloo::allreduce(options);
}

void measure(const std::shared_ptr<gloo::Context>& context, const AllReduceOptions& options) {
  uint32_t tag = 0;
  for (const int64_t kib : options.kib) {
    const std::vector<double> rounds = millrace::bench::time_all_reduce(
        options, kib, context->size,
        [&](std::vector<float>& data) { all_reduce(context, data, tag++); },
        [&] {
          gloo::BarrierOptions barrier(context);
          barrier.setTag(tag++);
          gloo::barrier(barrier);
        });
    if (context->rank != 0) continue;
    fmt::print(
        "{{\"name\": \"gloo_alone\", \"kib\": {}, \"ranks\": {}, \"us_median\": {:.2f}, "
        "\"us_min\": {:.2f}, \"runs\": {}}}\n",
        kib, context->size, rounds[rounds.size() / 2], rounds.front(), rounds.size());
    std::fflush(stdout);
  }
}

int run_rank(const AllReduceOptions& options, int rank, const std::string& folder) {
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

}  // namespace

int main(int argc, char** argv) {
  AllReduceOptions options;
  CLI::App app("time of all-reduce by Gloo");
  app.add_option("--ranks", options.ranks, "number of processes");
  app.add_option("--kib", options.kib, "sizes in KiB")->delimiter(',');
  app.add_flag("--check", options.check, "only check the results");
  CLI11_PARSE(app, argc, argv);
  return millrace::bench::run_ranks(options.ranks, [&](int rank, const std::string& folder) {
    return run_rank(options, rank, folder);
  });
}
