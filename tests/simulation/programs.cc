#include "tests/simulation/programs.h"

#include <algorithm>
#include <filesystem>
#include <fstream>

#include <fmt/format.h>

#include "framework/program_file.h"
#include "frontend/layers.h"
#include "frontend/network.h"
#include "jobs/ps/job_folder.h"
#include "transpiler/distribute_transpiler.h"

namespace millrace::simulation {
namespace {

constexpr int kWideRows = 128;
constexpr int kNarrowRows = 2;

Status build(millrace::Network& net) {
  const VarRef wide = net.data("x_wide", {kWideRows, kColumns});
  const VarRef narrow = net.data("x_narrow", {kNarrowRows, kColumns});
  const auto product = [&](const std::string& name, const VarRef& x, int rows) {
    const VarRef param =
        net.parameter({rows, kColumns}, {.name = name, .initializer = init::Constant{0.0}});
    return layers::reduce_sum(layers::elementwise_mul(x, param));
  };
  VarRef loss = product("wide", wide, kWideRows);
  for (int i = 0; i < 3; ++i)
    loss = layers::elementwise_add(loss, product(fmt::format("narrow_{}", i), narrow, kNarrowRows));
  return net.minimize(loss, {.method = Sgd{}, .learning_rate = 1.0}).status();
}

transpiler::DistributeTranspilerConfig config_of(const Case& job) {
  transpiler::DistributeTranspilerConfig config;
  config.wait_port = false;
  config.sync_mode = job.mode == Mode::kSync;
  config.runtime_split_send_recv = job.mode != Mode::kSync && job.mode != Mode::kGeo;
  config.half_async = job.mode == Mode::kHalfAsync;
  config.geo_sgd_mode = job.mode == Mode::kGeo;
  config.geo_sgd_need_push_nums = 2;
  return config;
}

Status put(const std::string& path, const Program& program) {
  std::filesystem::create_directories(std::filesystem::path(path).parent_path());
  return save_program(program, path, true);
}

Status put_server(const transpiler::DistributeTranspiler& plan, const jobs::JobFolder& folder,
                  int server) {
  MILLRACE_ASSIGN_OR_RETURN(const auto programs, plan.get_pserver_programs(endpoint_of(server)));
  MILLRACE_RETURN_IF_ERROR(put(folder.program("pserver", server), *programs.first));
  return put(folder.startup("pserver", server), *programs.second);
}

}  // namespace

std::string endpoint_of(int server) {
  return fmt::format("127.0.0.1:{}", 7000 + server);
}

Status write_programs(const Case& job, const std::string& folder) {
  const jobs::JobFolder files{folder, job.trainers, job.servers};
  millrace::Network net(1);
  MILLRACE_RETURN_IF_ERROR(build(net));
  std::string servers;
  for (int i = 0; i < job.servers; ++i) servers += (i == 0 ? "" : ",") + endpoint_of(i);
  for (int t = 0; t < job.trainers; ++t) {
    transpiler::DistributeTranspiler plan(config_of(job),
                                          job.mode == Mode::kGeo ? "geo" : "distribute");
    transpiler::TranspileArguments arguments;
    arguments.trainer_id = t;
    arguments.pservers = servers;
    arguments.trainers = std::to_string(job.trainers);
    arguments.sync_mode = job.mode == Mode::kSync;
    MILLRACE_RETURN_IF_ERROR(plan.transpile(net.main(), net.startup(), arguments));
    MILLRACE_ASSIGN_OR_RETURN(const auto program, plan.get_trainer_program(false));
    MILLRACE_ASSIGN_OR_RETURN(const auto startup, plan.get_trainer_startup_program());
    MILLRACE_RETURN_IF_ERROR(put(files.program("trainer", t), *program));
    MILLRACE_RETURN_IF_ERROR(put(files.startup("trainer", t), *startup));
    if (t > 0) continue;
    for (int i = 0; i < job.servers; ++i) MILLRACE_RETURN_IF_ERROR(put_server(plan, files, i));
    std::ofstream(files.slices()) << plan.slices_json();
  }
  return Ok();
}

StatusOr<executor::NamedValues> feeds_of(const Case& job, int trainer, int64_t step) {
  executor::NamedValues feeds;
  for (const auto& [name, rows] :
       {std::pair("x_wide", kWideRows), std::pair("x_narrow", kNarrowRows)}) {
    auto& tensor = feeds[name].as<Tensor>();
    MILLRACE_RETURN_IF_ERROR(tensor.resize(DType::kFloat32, {rows, kColumns}));
    std::fill_n(tensor.data<float>(), rows * kColumns, 0.0F);
    for (int row = 0; row < rows; ++row)
      tensor.data<float>()[row * kColumns + trainer * job.steps + step] = kUpdate;
  }
  return feeds;
}

}  // namespace millrace::simulation
