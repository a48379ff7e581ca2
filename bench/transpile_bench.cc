// Times import, verification, transpilation of all roles and export, and prints one JSON line per
// case. The peer in the same run is protobuf: parsing and serializing the same bytes with the
// generated classes.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <sys/resource.h>

#include "bench/fc_net.h"
#include "framework/base/file.h"
#include "framework/export.h"
#include "framework/import.h"
#include "ops/verify.h"
#include "proto/program.pb.h"
#include "transpiler/distribute/transpilation.h"

namespace {

using namespace millrace;  // NOLINT(google-build-using-namespace): a program, not a header
using Clock = std::chrono::steady_clock;

double ms_since(Clock::time_point begin) {
  return std::chrono::duration<double, std::milli>(Clock::now() - begin).count();
}

struct Options {
  std::string main_path;
  std::string startup_path;
  int64_t generate = 0;
  std::vector<int> servers = {2, 16, 64, 256};
  int trainers = 2;
  int runs = 5;
  bool check = false;
  std::vector<std::string> save;
};

struct Times {
  double import_ms = 0, verify_ms = 0, transpile_ms = 0, export_ms = 0, protobuf_ms = 0;
  size_t ops = 0, bytes_in = 0, bytes_out = 0;
  [[nodiscard]] double total() const { return import_ms + verify_ms + transpile_ms + export_ms; }
};

struct Inputs {
  std::shared_ptr<const std::string> main;
  std::shared_ptr<const std::string> startup;
};

StatusOr<Inputs> inputs(const Options& options) {
  constexpr int64_t kMaxBytes = int64_t{1} << 31U;
  constexpr int64_t kOpsPerLayer = 8;
  if (options.generate > 0) {
    const bench::FcNet net =
        bench::fc_net(std::max<int64_t>(1, options.generate / kOpsPerLayer), 256);
    return Inputs{std::make_shared<const std::string>(export_program(*net.main)),
                  std::make_shared<const std::string>(export_program(*net.startup))};
  }
  MILLRACE_ASSIGN_OR_RETURN(std::string main, read_file(options.main_path, kMaxBytes));
  MILLRACE_ASSIGN_OR_RETURN(std::string startup, read_file(options.startup_path, kMaxBytes));
  return Inputs{std::make_shared<const std::string>(std::move(main)),
                std::make_shared<const std::string>(std::move(startup))};
}

double protobuf_ms(const std::string& bytes) {
  const Clock::time_point begin = Clock::now();
  proto::ProgramDesc message;
  if (!message.ParseFromString(bytes)) return -1;
  const std::string out = message.SerializeAsString();
  return out.empty() ? -1 : ms_since(begin);
}

// Transpiles for every role and exports; adds to the times.
Status transpile_all(const Program& main, const Program& startup, int servers, int trainers,
                     const ops::OpRegistry& registry, bool check, Times& times) {
  transpiler::TranspileArguments arguments;
  arguments.trainers = std::to_string(trainers);
  arguments.pservers.clear();
  for (int i = 0; i < servers; ++i)
    arguments.pservers += fmt::format("{}127.0.0.1:{}", i == 0 ? "" : ",", 6000 + i);
  std::vector<transpiler::RolePrograms> roles;
  Clock::time_point begin = Clock::now();
  for (int trainer = 0; trainer < trainers; ++trainer) {
    arguments.trainer_id = trainer;
    MILLRACE_ASSIGN_OR_RETURN(
        const auto plan,
        transpiler::Transpilation::create("distribute", main, startup, {}, arguments, registry));
    MILLRACE_ASSIGN_OR_RETURN(transpiler::RolePrograms role, plan->trainer());
    roles.push_back(std::move(role));
    for (size_t s = 0; trainer == 0 && s < plan->server_count(); ++s) {
      MILLRACE_ASSIGN_OR_RETURN(transpiler::RolePrograms server, plan->pserver(s));
      roles.push_back(std::move(server));
    }
  }
  times.transpile_ms += ms_since(begin);
  begin = Clock::now();
  for (const transpiler::RolePrograms& role : roles) {
    times.bytes_out += export_program(*role.main).size() + export_program(*role.startup).size();
  }
  times.export_ms += ms_since(begin);
  for (const transpiler::RolePrograms& role : roles) {
    if (check) MILLRACE_RETURN_IF_ERROR(ops::check_program(registry, *role.main));
    if (check) MILLRACE_RETURN_IF_ERROR(ops::check_program(registry, *role.startup));
  }
  return Ok();
}

StatusOr<Times> run_once(const Inputs& in, int servers, const Options& options,
                         const ops::OpRegistry& registry) {
  Times times;
  times.bytes_in = in.main->size() + in.startup->size();
  times.protobuf_ms = protobuf_ms(*in.main) + protobuf_ms(*in.startup);
  Clock::time_point begin = Clock::now();
  MILLRACE_ASSIGN_OR_RETURN(const auto main, import_program(in.main, "main"));
  MILLRACE_ASSIGN_OR_RETURN(const auto startup, import_program(in.startup, "startup"));
  times.import_ms = ms_since(begin);
  times.ops = main->root().op_count();
  begin = Clock::now();
  MILLRACE_RETURN_IF_ERROR(ops::check_program(registry, *main));
  MILLRACE_RETURN_IF_ERROR(ops::check_program(registry, *startup));
  times.verify_ms = ms_since(begin);
  if (servers > 0) {
    MILLRACE_RETURN_IF_ERROR(
        transpile_all(*main, *startup, servers, options.trainers, registry, options.check, times));
  }
  return times;
}

long peak_rss_mib() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return usage.ru_maxrss / 1024;
}

Status run(const Options& options) {
  MILLRACE_ASSIGN_OR_RETURN(const Inputs in, inputs(options));
  if (options.save.size() == 2) {
    MILLRACE_RETURN_IF_ERROR(write_file_atomically(options.save[0], *in.main, Replace::kYes));
    return write_file_atomically(options.save[1], *in.startup, Replace::kYes);
  }
  const std::unique_ptr<ops::OpRegistry> registry = ops::standard_registry();
  const std::string name =
      options.generate > 0 ? fmt::format("fc_{}", options.generate) : options.main_path;
  for (const int servers : options.servers) {
    std::vector<Times> all;
    for (int i = 0; i < options.runs; ++i) {
      MILLRACE_ASSIGN_OR_RETURN(Times times, run_once(in, servers, options, *registry));
      all.push_back(times);
    }
    std::sort(all.begin(), all.end(),
              [](const Times& a, const Times& b) { return a.total() < b.total(); });
    const Times& median = all[all.size() / 2];
    fmt::print(
        "{{\"name\":\"transpile\",\"program\":\"{}\",\"ops\":{},\"servers\":{},\"trainers\":{},"
        "\"runs\":{},\"unit\":\"ms\","
        "\"median\":{:.2f},\"p95\":{:.2f},\"import\":{:.2f},\"verify\":{:.2f},\"transpile\":{:.2f},"
        "\"export\":{:.2f},"
        "\"protobuf_parse_serialize\":{:.2f},\"bytes_in\":{},\"bytes_out\":{},\"peak_rss_mib\":{}}}"
        "\n",
        name, median.ops, servers, options.trainers, options.runs, median.total(),
        all.back().total(), median.import_ms, median.verify_ms, median.transpile_ms,
        median.export_ms, median.protobuf_ms, median.bytes_in, median.bytes_out, peak_rss_mib());
    std::fflush(stdout);
  }
  return Ok();
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("times import, verification, transpilation and export");
  Options options;
  app.add_option("main", options.main_path, "main program");
  app.add_option("startup", options.startup_path, "startup program");
  app.add_option("--generate", options.generate, "generate a program of about this many ops");
  app.add_option("--servers", options.servers, "numbers of servers; 0: only import and verify")
      ->delimiter(',');
  app.add_option("--trainers", options.trainers);
  app.add_option("--runs", options.runs);
  app.add_option("--save", options.save, "write the generated main and startup program, then exit")
      ->expected(2);
  app.add_flag("--check", options.check, "verify the output; for tests");
  CLI11_PARSE(app, argc, argv);
  const Status status = run(options);
  if (!status.ok()) std::fprintf(stderr, "%s\n", status.to_string().c_str());
  return status.ok() ? 0 : 1;
}
