// Rows per second that a sparse table returns and accepts in one process, and the memory of a row.
//
//   ps_table_bench [--rows N] [--dim D] [--slots S] [--batch B] [--runs R] [--threads T]
//                  [--rule adagrad|naive|adam] [--partitions P] [--power P] [--servers S] [--grpc]
//                  [--check]
//
// One run is one batch: slots x batch ids from `rows` keys, uniform, or with --power P in
// proportion to u to the power of P, so that small ones are frequent; duplicates are kept, as the
// original counts them. Prints one line of JSON each for creating, pulling and pushing rows; with
// --servers also for a client that reaches that many servers in this process, through memory or
// (--grpc) over the loopback interface.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "ps/table/client_caller.h"
#include "ps/table/keyed_random.h"
#include "ps/table/sparse_table.h"
#include "ps/table/table_client.h"
#include "ps/table/table_handler.h"
#include "ps/transport/grpc.h"
#include "ps/transport/inproc.h"

namespace {

using namespace millrace::ps;
using Clock = std::chrono::steady_clock;

struct Setup {
  int64_t rows = 1'000'000;
  int dim = 16;
  int slots = 26;
  int batch = 512;
  int runs = 200;
  int threads = 1;
  int partitions = 16;
  double power = 1;
  int servers = 0;
  bool grpc = false;
  std::string rule = "adagrad";
  bool check = false;
};

[[noreturn]] void fail(const millrace::Status& status) {
  fmt::print(stderr, "{}\n", status.to_string());
  std::exit(1);
}
void must(const millrace::Status& status) {
  if (!status.ok()) fail(status);
}

std::vector<int64_t> draw_ids(const Setup& setup, uint64_t seed) {
  KeyedRandom random(seed, 0);
  std::vector<int64_t> ids(static_cast<size_t>(setup.slots) * static_cast<size_t>(setup.batch));
  for (int64_t& id : ids)
    id = static_cast<int64_t>(std::pow(random.uniform(), setup.power) *
                              static_cast<double>(setup.rows));
  return ids;
}

void report(const Setup& setup, const char* what, double rows, std::vector<double> seconds) {
  std::sort(seconds.begin(), seconds.end());
  const double median = seconds[seconds.size() / 2];
  const double p95 = seconds[seconds.size() * 95 / 100];
  fmt::print(
      R"({{"bench": "ps_table", "what": "{}", "rows": {}, "dim": {}, "rule": "{}", "threads": {}, )"
      R"("unit": "rows/s", "median": {:.0f}, "p95_slow": {:.0f}, "runs": {}}})"
      "\n",
      what, setup.rows, setup.dim, setup.rule, setup.threads, rows / median, rows / p95,
      seconds.size());
}

// Times body(run) on every thread; sums the rows of all threads.
template <typename Body>
void measure(const Setup& setup, const char* what, double rows, Body&& body) {
  std::vector<double> seconds;
  for (int run = 0; run < setup.runs; ++run) {
    const auto start = Clock::now();
    std::vector<std::thread> others;
    for (int t = 1; t < setup.threads; ++t) others.emplace_back([&, t] { body(run, t); });
    body(run, 0);
    for (std::thread& other : others) other.join();
    seconds.push_back(std::chrono::duration<double>(Clock::now() - start).count());
  }
  report(setup, what, rows * setup.threads, std::move(seconds));
}

SparseTableOptions table_options(const Setup& setup) {
  SparseTableOptions options;
  options.partitions = setup.partitions;
  options.accessor.embedx_dim = setup.dim;
  options.accessor.initializer = {Initializer::Kind::kUniform, 0, -0.01F, 0.01F};
  using Kind = SparseRuleOptions::Kind;
  options.accessor.embedx_rule.kind = setup.rule == "naive"  ? Kind::kNaive
                                      : setup.rule == "adam" ? Kind::kAdam
                                                             : Kind::kAdagrad;
  return options;
}

void fill(SparseTable& table, const Setup& setup) {
  std::vector<int64_t> ids;
  std::vector<float> grads(65536 * static_cast<size_t>(setup.dim), 0.01F);
  const auto start = Clock::now();
  for (int64_t begin = 0; begin < setup.rows; begin += 65536) {
    ids.clear();
    for (int64_t id = begin; id < std::min(setup.rows, begin + 65536); ++id) ids.push_back(id);
    must(table.push(ids, grads.data()));
  }
  const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
  report(setup, "make", static_cast<double>(setup.rows), {seconds});
}

// Every row of a naive table must be its start minus rate x its pushes.
void check(const Setup& setup) {
  Setup small = setup;
  small.rule = "naive";
  small.rows = 5000;
  auto made = SparseTable::create(table_options(small));
  if (!made.ok()) fail(made.status());
  SparseTable& table = **made;
  const auto dim = static_cast<size_t>(small.dim);
  std::vector<int64_t> keys(static_cast<size_t>(small.rows));
  for (size_t i = 0; i < keys.size(); ++i) keys[i] = static_cast<int64_t>(i);
  std::vector<float> before(keys.size() * dim);
  std::vector<float> after(before.size());
  must(table.pull(keys, before.data()));
  std::vector<int> pushes(keys.size());
  const std::vector<int64_t> ids = draw_ids(small, 1);
  const std::vector<float> grads(ids.size() * dim, 1);
  for (const int64_t id : ids) ++pushes[static_cast<size_t>(id)];
  must(table.push(ids, grads.data()));
  must(table.pull(keys, after.data()));
  for (size_t i = 0; i < after.size(); ++i) {
    const double expected = before[i] - 0.05 * pushes[i / dim];
    if (std::abs(after[i] - expected) > 1e-5)
      fail({millrace::StatusCode::kInternal,
            fmt::format("element {} is {}, expected {}", i, after[i], expected)});
  }
  fmt::print("checked {} rows\n", keys.size());
}

void run(const Setup& setup) {
  auto made = SparseTable::create(table_options(setup));
  if (!made.ok()) fail(made.status());
  SparseTable& table = **made;
  fill(table, setup);
  std::vector<std::vector<int64_t>> batches;
  for (int i = 0; i < setup.threads * 16; ++i)
    batches.push_back(draw_ids(setup, static_cast<uint64_t>(i)));
  const auto count = static_cast<double>(batches[0].size());
  const auto floats = batches[0].size() * static_cast<size_t>(setup.dim);
  std::vector<std::vector<float>> buffers(static_cast<size_t>(setup.threads),
                                          std::vector<float>(floats, 0.01F));
  const auto batch_of = [&](int at, int t) -> const std::vector<int64_t>& {
    return batches[static_cast<size_t>(at + t * 16) % batches.size()];
  };
  measure(setup, "pull", count, [&](int at, int t) {
    must(table.pull(batch_of(at, t), buffers[static_cast<size_t>(t)].data()));
  });
  measure(setup, "push", count, [&](int at, int t) {
    must(table.push(batch_of(at, t), buffers[static_cast<size_t>(t)].data()));
  });
  const int64_t values = table.accessor().row_floats() * int64_t{4};
  fmt::print(
      R"({{"bench": "ps_table", "what": "memory", "rows": {}, "unit": "bytes/row", "total": {:.2f}, )"
      R"("values_and_state": {}, "overhead": {:.2f}}})"
      "\n",
      table.size(), static_cast<double>(table.memory_bytes()) / static_cast<double>(table.size()),
      values,
      static_cast<double>(table.memory_bytes()) / static_cast<double>(table.size()) -
          static_cast<double>(values));
}

std::shared_ptr<Transport> make_transport(const Setup& setup) {
  if (!setup.grpc) return std::make_shared<InprocTransport>();
  auto made = make_grpc_transport({});
  if (!made.ok()) fail(made.status());
  return std::move(*made);
}

// The path of a trainer: ids are grouped by server, one call per server, rows are put back in
// order.
void run_clients(const Setup& setup) {
  const auto transport = make_transport(setup);
  std::vector<std::unique_ptr<TableHandler>> handlers;
  std::vector<std::unique_ptr<Listener>> listeners;
  std::vector<std::string> endpoints;
  SparseLayout layout{0, 1000, setup.dim, setup.dim, 0, {}};
  for (int s = 0; s < setup.servers; ++s) {
    handlers.push_back(std::make_unique<TableHandler>(setup.threads));
    auto table = SparseTable::create(table_options(setup));
    if (!table.ok()) fail(table.status());
    must(handlers.back()->add(0, std::move(*table)));
    auto listener =
        transport->listen(setup.grpc ? "127.0.0.1:0" : fmt::format("s:{}", s), *handlers.back());
    if (!listener.ok()) fail(listener.status());
    endpoints.push_back((*listener)->endpoint());
    listeners.push_back(std::move(*listener));
  }
  std::vector<std::unique_ptr<TableClient>> clients;
  for (int t = 0; t < setup.threads; ++t) {
    ClientOptions options;
    options.trainer = t;
    clients.push_back(std::make_unique<TableClient>(
        std::make_shared<ClientCaller>(std::make_shared<Client>(transport, options), endpoints)));
  }
  const auto dim = static_cast<size_t>(setup.dim);
  std::vector<float> grads(size_t{65536} * dim, 0.01F);
  for (int64_t begin = 0; begin < setup.rows; begin += 65536) {
    std::vector<int64_t> ids;
    for (int64_t id = begin; id < std::min(setup.rows, begin + 65536); ++id) ids.push_back(id);
    must(clients[0]->push_sparse(layout, ids, {grads.data(), ids.size() * dim}));
  }
  const std::string way = setup.grpc ? "grpc" : "memory";
  const auto count = static_cast<size_t>(setup.slots) * static_cast<size_t>(setup.batch);
  std::vector<std::vector<float>> buffers(clients.size(), std::vector<float>(count * dim, 0.01F));
  const auto step = [&](int at, int t, bool pull, bool push) {
    const std::vector<int64_t> ids = draw_ids(setup, static_cast<uint64_t>(at * 64 + t));
    auto& buffer = buffers[static_cast<size_t>(t)];
    auto& client = *clients[static_cast<size_t>(t)];
    if (pull) must(client.pull_sparse(layout, ids, buffer));
    if (push) must(client.push_sparse(layout, ids, buffer));
  };
  const auto rows = static_cast<double>(count);
  measure(setup, fmt::format("client pull, {} servers by {}", setup.servers, way).c_str(), rows,
          [&](int at, int t) { step(at, t, true, false); });
  measure(setup, fmt::format("client pull then push, {} servers by {}", setup.servers, way).c_str(),
          rows, [&](int at, int t) { step(at, t, true, true); });
}

}  // namespace

int main(int argc, char** argv) {
  Setup setup;
  CLI::App app{"rows per second of a sparse table in one process"};
  app.add_option("--rows", setup.rows, "number of keys in the table")->check(CLI::PositiveNumber);
  app.add_option("--dim", setup.dim, "weights per row")->check(CLI::PositiveNumber);
  app.add_option("--slots", setup.slots, "ids per example")->check(CLI::PositiveNumber);
  app.add_option("--batch", setup.batch, "examples per batch")->check(CLI::PositiveNumber);
  app.add_option("--runs", setup.runs, "number of batches")->check(CLI::PositiveNumber);
  app.add_option("--threads", setup.threads, "number of concurrent callers")
      ->check(CLI::PositiveNumber);
  app.add_option("--partitions", setup.partitions, "partitions of the table");
  app.add_option("--power", setup.power, "1: uniform ids; above: small ids are frequent")
      ->check(CLI::PositiveNumber);
  app.add_option("--rule", setup.rule, "adagrad, naive or adam")
      ->check(CLI::IsMember({"adagrad", "naive", "adam"}));
  app.add_option("--servers", setup.servers, "number of servers of the client measurements");
  app.add_flag("--grpc", setup.grpc, "connect over the loopback interface");
  app.add_flag("--check", setup.check, "only check the results");
  CLI11_PARSE(app, argc, argv);
  if (setup.check) {
    check(setup);
  } else {
    run(setup);
    if (setup.servers > 0) run_clients(setup);
  }
  return 0;
}
