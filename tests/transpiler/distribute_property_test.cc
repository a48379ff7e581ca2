// Over random programs and configurations: every output verifies, every element of a parameter is
// in exactly one slice, and every gradient is sent once.
#include <map>
#include <random>
#include <set>

#include <gtest/gtest.h>

#include "framework/export.h"
#include "framework/names.h"
#include "ops/verify.h"
#include "transpiler/distribute/pserver_mode.h"
#include "transpiler/distribute/transpilation.h"
#include "transpiler/roles.h"

namespace millrace::transpiler {
namespace {

constexpr int kCases = 150;

struct RandomJob {
  std::unique_ptr<Program> main = Program::create();
  std::unique_ptr<Program> startup = Program::create();
  DistributeTranspilerConfig config;
  TranspileArguments arguments;
  std::vector<std::string> params;
};

class Generator {
 public:
  explicit Generator(uint32_t seed) : random_(seed) {}

  RandomJob job() {
    RandomJob out;
    declare(out, "x", {-1, 8}, false);
    declare(out, "lr", {1}, true);
    initialize(out, "lr", {1});
    const int count = pick(1, 8);
    for (int i = 0; i < count; ++i) param(out, "p" + std::to_string(i));
    for (const std::string& name : out.params) update(out, name);
    configure(out);
    return out;
  }

 private:
  int pick(int low, int high) { return std::uniform_int_distribution<int>(low, high)(random_); }
  bool coin() { return pick(0, 1) == 1; }

  static void declare(RandomJob& job, const std::string& name, llvm::ArrayRef<int64_t> dims,
                      bool persistable) {
    VarSpec spec = VarSpec::tensor(DType::kFloat32, dims);
    if (persistable) spec.persistable = true;
    job.main->root().declare(name, spec);
    if (persistable) job.startup->root().declare(name, spec);
  }

  static void initialize(RandomJob& job, const std::string& name, std::vector<int64_t> dims) {
    job.startup->root()
        .append_op("fill_constant")
        .set_output("Out", llvm::StringRef(name))
        .set_attr("shape", AttrValue::of_longs(std::move(dims)))
        .set_int("dtype", 5)
        .set_float("value", 0);
  }

  void param(RandomJob& job, const std::string& name) {
    std::vector<int64_t> dims = {pick(1, 400)};
    if (coin()) dims.push_back(pick(1, 300));
    if (coin() && dims.size() == 2) dims.push_back(pick(1, 5));
    declare(job, name, dims, true);
    declare(job, names::grad(name), dims, false);
    initialize(job, name, dims);
    // An op that writes the gradient.
    job.main->root()
        .append_op("fill_constant")
        .set_output("Out", llvm::StringRef(names::grad(name)))
        .set_attr("shape", AttrValue::of_longs(dims))
        .set_int("dtype", 5)
        .set_float("value", 1)
        .set_int("op_role", role::kBackward)
        .set_strings("op_role_var", {name, names::grad(name)});
    job.params.push_back(name);
  }

  void update(RandomJob& job, const std::string& name) {
    const std::string grad = names::grad(name);
    const std::vector<std::string> pair = {name, grad};
    Block& block = job.main->root();
    const Dims dims = block.find_var(name)->spec().dims;
    if (coin()) {
      const std::string decay = name + "_decay";
      declare(job, decay, dims, false);
      block.append_op("scale")
          .set_input("X", name)
          .set_output("Out", decay)
          .set_int("op_role", 2)
          .set_strings("op_role_var", pair);
      block.append_op("sum")
          .set_input("X", {llvm::StringRef(grad), llvm::StringRef(decay)})
          .set_output("Out", grad)
          .set_int("op_role", 2)
          .set_strings("op_role_var", pair);
    }
    const bool momentum = coin();
    Op& op = block.append_op(momentum ? "momentum" : "sgd");
    op.set_input("Param", name)
        .set_input("Grad", grad)
        .set_input("LearningRate", "lr")
        .set_output("ParamOut", name);
    op.set_int("op_role", 2).set_strings("op_role_var", pair);
    if (!momentum) return;
    const std::string velocity = name + "_velocity_0";
    declare(job, velocity, dims, true);
    initialize(job, velocity, std::vector<int64_t>(dims.begin(), dims.end()));
    op.set_input("Velocity", velocity).set_output("VelocityOut", velocity).set_float("mu", 0.9F);
  }

  void configure(RandomJob& job) {
    static constexpr const char* kMethods[] = {"RoundRobin", "HashName", "Balanced"};
    job.config.wait_port = false;
    job.config.split_method = kMethods[pick(0, 2)];
    job.config.slice_var_up = pick(0, 3) != 0;
    job.config.min_block_size = 8192 * pick(1, 3);
    job.arguments.sync_mode = coin();
    if (!job.arguments.sync_mode && coin()) {
      job.config.sync_mode = false;
      job.config.runtime_split_send_recv = coin();
      job.config.half_async = coin();
      job.config.completely_not_async = coin();
    }
    job.config.enable_dc_asgd = !job.arguments.sync_mode && pick(0, 3) == 0;
    job.arguments.trainers = std::to_string(pick(1, 4));
    job.arguments.trainer_id = pick(0, std::stoi(job.arguments.trainers) - 1);
    job.arguments.random_seed = static_cast<uint32_t>(pick(0, 1000));
    job.arguments.pservers.clear();
    const int servers = pick(1, 6);
    for (int i = 0; i < servers; ++i) {
      job.arguments.pservers +=
          (i == 0 ? "" : ",") + std::string("127.0.0.1:") + std::to_string(6000 + i);
    }
  }

  std::mt19937 random_;
};

void expect_verifies(const ops::OpRegistry& registry, const RolePrograms& roles,
                     const std::string& what) {
  for (const Program* const program : {roles.main.get(), roles.startup.get()}) {
    const Status status = ops::check_program(registry, *program);
    EXPECT_TRUE(status.ok()) << what << ": " << status.to_string();
  }
}

// Number of elements of each parameter, summed over the overview.
void expect_covered(const RandomJob& job, const VarsDistributed& overview) {
  std::map<std::string, std::vector<std::pair<int64_t, int64_t>>> ranges;
  for (const DistributedVar& var : overview.vars()) {
    if (var.vtype != "Param") continue;
    EXPECT_FALSE(var.endpoint.empty()) << var.slice.name;
    ranges[var.origin.name].emplace_back(var.offset, *element_count(var.slice.shape));
  }
  for (const std::string& name : job.params) {
    auto& pieces = ranges[name];
    std::sort(pieces.begin(), pieces.end());
    int64_t end = 0;
    for (const auto& [offset, size] : pieces) {
      EXPECT_EQ(offset, end) << name;
      end += size;
    }
    EXPECT_EQ(end, *element_count(job.main->root().find_var(name)->dims())) << name;
  }
}

void expect_sent_once(const RandomJob& job, const Block& trainer) {
  std::multiset<std::string> sent;
  for (const Op& op : trainer.ops()) {
    if (op.type() == "send") sent.insert(role::vars(op)[0]);
  }
  EXPECT_EQ(sent, std::multiset<std::string>(job.params.begin(), job.params.end()));
}

// No pass may hide a change, and each must leave a valid program.
PassManagerOptions checked(const ops::OpRegistry& registry) {
  PassManagerOptions options;
  options.verify = [&registry](const Program& program) {
    return ops::check_program(registry, program);
  };
  return options;
}

TEST(DistributeProperties, HoldForRandomPrograms) {
  const auto registry = ops::standard_registry();
  for (int seed = 0; seed < kCases; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    const RandomJob job = Generator(static_cast<uint32_t>(seed)).job();
    const Status valid = ops::check_program(*registry, *job.main);
    ASSERT_TRUE(valid.ok()) << valid.to_string();
    const auto mode = PserverMode::transpile(*job.main, *job.startup, job.config, job.arguments,
                                             *registry, checked(*registry));
    ASSERT_TRUE(mode.ok()) << mode.status().to_string();
    const auto trainer = (*mode)->trainer();
    ASSERT_TRUE(trainer.ok()) << trainer.status().to_string();
    expect_verifies(*registry, *trainer, "trainer");
    expect_sent_once(job, trainer->main->root());
    expect_covered(job, (*mode)->job().overview);
    for (size_t s = 0; s < (*mode)->job().endpoints.size(); ++s) {
      const auto server = (*mode)->pserver(s);
      ASSERT_TRUE(server.ok()) << server.status().to_string();
      expect_verifies(*registry, *server, "pserver " + std::to_string(s));
      EXPECT_EQ(export_program(*server->main), export_program(*(*mode)->pserver(s)->main));
    }
  }
}

struct OtherMode {
  const char* transpiler;
  const char* mode = "pserver";
  const char* collective_mode = "";
};

TEST(DistributeProperties, PassesOfTheOtherModesLeaveValidPrograms) {
  constexpr int kPrograms = 20;
  const auto registry = ops::standard_registry();
  for (const OtherMode& other :
       {OtherMode{"geo"}, OtherMode{"federated"}, OtherMode{"distribute", "nccl2"},
        OtherMode{"distribute", "collective", "grad_allreduce"},
        OtherMode{"distribute", "collective", "local_sgd"},
        OtherMode{"distribute", "collective", "single_process_multi_thread"}}) {
    SCOPED_TRACE(std::string(other.transpiler) + " " + other.mode + " " + other.collective_mode);
    for (int seed = 0; seed < kPrograms; ++seed) {
      const RandomJob job = Generator(static_cast<uint32_t>(seed)).job();
      DistributeTranspilerConfig config;
      config.mode = other.mode;
      config.collective_mode = other.collective_mode;
      TranspileArguments arguments;
      arguments.pservers = "h:1";
      arguments.trainers = config.mode == "pserver" ? "2" : "h:1,h:2";
      arguments.current_endpoint = "h:1";
      const auto made = Transpilation::create(other.transpiler, *job.main, *job.startup, config,
                                              arguments, *registry, checked(*registry));
      ASSERT_TRUE(made.ok()) << "seed " << seed << ": " << made.status().to_string();
    }
  }
}

}  // namespace
}  // namespace millrace::transpiler
