// Saving with the fleet classes: the state of each optimizer by its names, sparse tables with the
// rows of all servers, other vars by the exclusion rules, and every refusal. With live servers the
// files equal those of a save by the transpiler's programs.
#include <filesystem>

#include <gmock/gmock.h>

#include "executor/standard_runtime.h"
#include "fleet/saving/fleet_saver.h"
#include "framework/op_attrs.h"
#include "io/params.h"
#include "tests/io/checkpoint/states.h"
#include "tests/io/temp_folder.h"
#include "tests/ps/server_fixture.h"

namespace millrace::fleet {
namespace {

namespace fs = std::filesystem;
using testing::bytes_of;
using testing::counting;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::outcome;
using Floats = std::vector<float>;

std::unique_ptr<Program> program_of_saving(const std::string& text) {
  auto program = read_program_bytes("# millrace program 1\n\nblock 0 {\n" + text + "}\n", "p", {});
  EXPECT_EQ(outcome(program), "ok");
  return program.ok() ? *std::move(program) : Program::create();
}

// w by adam on one server, emb (7 rows) by adagrad on two.
constexpr const char* kOrigin = R"(
  persist w: f32(3, 2)
  persist w_moment1_0: f32(3, 2)
  persist w_moment2_0: f32(3, 2)
  persist w_beta1_pow_acc_0: f32(1)
  persist w_beta2_pow_acc_0: f32(1)
  persist emb: f32(7, 2)
  persist emb_moment_0: f32(7, 2)
  persist scale_of: f32(1)
  persist learning_rate_0: f32(1)
  persist w@GRAD.trainer_1: f32(3, 2)
  var w@GRAD: f32(3, 2)
  var emb@GRAD: f32(7, 2)
  var x: f32(-1, 3)
  var h: f32(-1, 2)
  var y: f32(-1, 2)

  mul X=x Y=w -> Out=h {x_num_col_dims: 1, y_num_col_dims: 1}
  elementwise_mul X=h Y=scale_of -> Out=y {axis: -1}
  adam Param=w Grad=w@GRAD LearningRate=learning_rate_0 Moment1=w_moment1_0 Moment2=w_moment2_0 Beta1Pow=w_beta1_pow_acc_0 Beta2Pow=w_beta2_pow_acc_0 -> ParamOut=w Moment1Out=w_moment1_0 Moment2Out=w_moment2_0 {op_role: 2}
  adagrad Param=emb Grad=emb@GRAD LearningRate=learning_rate_0 Moment=emb_moment_0 -> ParamOut=emb MomentOut=emb_moment_0 {op_role: 2}
)";

ps::CommContext context(const std::string& name, std::vector<std::string> pieces,
                        std::vector<std::string> endpoints, std::vector<int64_t> sections = {}) {
  ps::CommContext made;
  made.var_name = name;
  made.split_varnames = std::move(pieces);
  made.split_endpoints = std::move(endpoints);
  made.sections = std::move(sections);
  made.origin_varnames = {name};
  return made;
}

FleetContexts contexts_of_job() {
  FleetContexts contexts;
  contexts.dense["w"] = context("w", {"w"}, {"s:0"});
  contexts.sparse["emb"] = context("emb", {"emb.block0", "emb.block1"}, {"s:0", "s:1"}, {4, 3});
  return contexts;
}

FleetSaveRequest request_of(const Program& origin) {
  FleetSaveRequest request;
  request.origin = &origin;
  request.contexts = contexts_of_job();
  request.directory = "model";
  request.worker = 1;
  request.servers = 2;
  return request;
}

std::vector<std::string> strings(const Op& op, const char* name) {
  return get_attr_or(op, name, std::vector<std::string>());
}

TEST(FleetSavePrograms, KnowsWhatOptimizersKeep) {
  using Names = std::vector<std::string>;
  const std::map<std::string, std::pair<Names, Names>> table = {
      {"sgd", {{}, {}}},
      {"adam", {{"p_moment1_0", "p_moment2_0"}, {"p_beta1_pow_acc_0", "p_beta2_pow_acc_0"}}},
      {"adagrad", {{"p_moment_0"}, {}}},
      {"adamax", {{"p_moment_0", "p_inf_norm_0"}, {"p_beta1_pow_acc_0"}}},
      {"momentum", {{"p_velocity_0"}, {}}},
      {"lars_momentum", {{"p_velocity_0"}, {}}},
      {"rmsprop", {{"p_momentum_0", "p_mean_square_0", "p_mean_grad_0"}, {}}},
      {"decayed_adagrad", {{"p_moment_0"}, {}}},
      {"ftrl", {{"p_squared_0", "p_linear_0"}, {}}}};
  for (const auto& [type, names] : table) {
    const auto state = optimizer_state(type, "p");
    ASSERT_EQ(outcome(state), "ok");
    EXPECT_EQ(state->shaped, names.first) << type;
    EXPECT_EQ(state->scalar, names.second) << type;
  }
  EXPECT_THAT(outcome(optimizer_state("lamb", "p")),
              HasSubstr("optimizer 'lamb': expected one of sgd, adam, adagrad"));
}

TEST(FleetSavePrograms, AsksServersForWhatTheyHave) {
  const auto origin = program_of_saving(kOrigin);
  const auto plan = make_fleet_save_programs(request_of(*origin));
  ASSERT_EQ(outcome(plan), "ok");
  EXPECT_THAT(plan->received, ElementsAre("w", "w_moment1_0", "w_moment2_0", "w_beta1_pow_acc_0",
                                          "w_beta2_pow_acc_0", "emb", "emb_moment_0"));
  EXPECT_EQ(plan->distributed, nullptr);
  const Op& whole = plan->dense->root().front();
  EXPECT_EQ(get_attr_or<int32_t>(whole, "trainer_id", 0), 1);
  EXPECT_THAT(strings(whole, "slice_shapes"), ElementsAre("3,2"));
  EXPECT_FALSE(get_attr_or<bool>(whole, "is_sparse", true));
  EXPECT_EQ(get_attr_or(whole, "file_path", std::string()), "model/w");
  const Op& state = plan->sparse->root().back();
  EXPECT_THAT(strings(state, "slice_shapes"), ElementsAre("4,2", "3,2"));
  EXPECT_THAT(strings(state, "slice_varnames"),
              ElementsAre("emb_moment_0.block0", "emb_moment_0.block1"));
  EXPECT_THAT(strings(state, "remote_varnames"), ElementsAre("emb_moment_0", "emb_moment_0"));
  EXPECT_TRUE(get_attr_or<bool>(state, "is_sparse", false));
  EXPECT_EQ(get_attr_or<int32_t>(state, "pserver_num", 0), 2);
}

TEST(FleetSavePrograms, ServersWriteDistributedTablesThemselves) {
  const auto origin = program_of_saving(kOrigin);
  FleetSaveRequest request = request_of(*origin);
  request.contexts = {};
  request.contexts.distributed["emb"] = contexts_of_job().sparse["emb"];
  request.mode = 1;
  for (const FleetForm form : {FleetForm::kRuntime, FleetForm::kTranspiler}) {
    request.form = form;
    const auto plan = make_fleet_save_programs(request);
    ASSERT_EQ(outcome(plan), "ok");
    EXPECT_THAT(plan->received, IsEmpty());
    EXPECT_THAT(plan->tables, ElementsAre("emb"));
    const Op& notify = plan->distributed->root().front();
    EXPECT_EQ(get_attr_or(notify, "dirname", std::string()), "model");
    EXPECT_EQ(notify.has_attr("mode"), form == FleetForm::kRuntime);
    EXPECT_EQ(notify.has_attr("is_slice"), form == FleetForm::kTranspiler);
  }
}

TEST(FleetSavePrograms, RefusesWhatItCannotSave) {
  const auto origin = program_of_saving(kOrigin);
  const auto refusal = [&](const auto& change) {
    FleetSaveRequest request = request_of(*origin);
    change(request);
    return outcome(make_fleet_save_programs(request));
  };
  EXPECT_THAT(refusal([](FleetSaveRequest& r) {
                r.contexts.dense["w"].origin_varnames = {"w", "b"};
              }),
              HasSubstr("'w': the context has 2 vars"));
  EXPECT_THAT(refusal([](FleetSaveRequest& r) {
                r.contexts.dense["w"] = context("w", {"w", "w"}, {"s:0", "s:1"});
              }),
              HasSubstr("'w': a dense parameter on 2 servers"));
  EXPECT_THAT(refusal([](FleetSaveRequest& r) {
                r.contexts.dense["scale_of"] = context("scale_of", {"scale_of"}, {"s:0"});
              }),
              HasSubstr("'scale_of': no op of the origin program updates"));
  EXPECT_THAT(refusal([](FleetSaveRequest& r) { r.contexts.sparse["emb"].sections = {}; }),
              HasSubstr("'emb': found 0 numbers of rows for 2 slices"));
  EXPECT_THAT(refusal([](FleetSaveRequest& r) { r.directory.clear(); }),
              HasSubstr("the directory name is empty"));
}

TEST(FleetSavePrograms, LeavesOutWhatIsNoState) {
  const auto origin = program_of_saving(kOrigin);
  std::vector<std::string> names;
  for (const Var* const var : remaining_vars(*origin, {"w", "emb"}))
    names.push_back(var->name().str());
  EXPECT_THAT(names, ElementsAre("emb_moment_0", "scale_of", "w_beta1_pow_acc_0",
                                 "w_beta2_pow_acc_0", "w_moment1_0", "w_moment2_0"));
  EXPECT_EQ(base_var_name("w@GRAD.block0.trainer_1").str(), "w@GRAD");
}

// One server with w, its moments and powers.
constexpr const char* kServer = R"(# millrace program 1

block 0 {
  persist w: f32(3, 2)
  persist w_moment1_0: f32(3, 2)
  persist w_moment2_0: f32(3, 2)
  persist w_beta1_pow_acc_0: f32(1)
  persist w_beta2_pow_acc_0: f32(1)
  persist g: f32(3, 2)

  listen_and_serv X=g {
      optimize_blocks: [^1], endpoint: "s:0", pserver_id: 0, Fanin: 1, distributed_mode: 1,
      grad_to_block_id: ["g:1"], sparse_grad_to_param: strings[]
  }
}

block 1 parent=0 {
  scale X=g -> Out=g {scale: 1.0, op_role: 0}
}
)";

class FleetSaving : public ::testing::Test {
 protected:
  void SetUp() override {
    ps::ServerOptions options;
    options.files_root = disk_.path();
    server_ = std::make_unique<ps::TestServer>(
        way_, kServer,
        std::map<std::string, Floats>{{"w", {0, 1, 2, 3, 4, 5}},
                                      {"w_moment1_0", {10, 11, 12, 13, 14, 15}},
                                      {"w_moment2_0", {20, 21, 22, 23, 24, 25}},
                                      {"w_beta1_pow_acc_0", {0.5}},
                                      {"w_beta2_pow_acc_0", {0.25}},
                                      {"g", Floats(6, 0)}},
        options);
    origin_ = program_of_saving(kOrigin);
    trainer_program_ = program_of_saving(
        "  persist w: f32(3, 2)\n  persist scale_of: f32(1)\n  persist learning_rate_0: f32(1)\n");
    scope_.local("w") = counting({3, 2}, 100);  // an outdated copy
    scope_.local("scale_of") = counting({1}, 2);
    scope_.local("learning_rate_0") = counting({1}, 7);
    slices_.properties.is_distributed = true;
    slices_.properties.endpoints = {"s:0"};
    for (const auto& [name, dims] :
         std::map<std::string, std::vector<int64_t>>{{"w", {3, 2}},
                                                     {"w_moment1_0", {3, 2}},
                                                     {"w_moment2_0", {3, 2}},
                                                     {"w_beta1_pow_acc_0", {1}},
                                                     {"w_beta2_pow_acc_0", {1}}}) {
      transpiler::DistributedVar var;
      var.origin.name = name;
      var.origin.shape = dims;
      var.origin.persistable = true;
      var.slice = var.origin;
      var.vtype = name == "w" ? "Param" : "Optimizer";
      var.endpoint = "s:0";
      slices_.overview.add_distributed_var(var);
    }
    job_.trainer.link = std::make_shared<ps::TrainerLink>(
        std::make_shared<ps::Client>(way_, ps::ClientOptions{.job = "", .trainer = 0}));
    job_.trainer.slices = &slices_;
    job_.trainer.program = trainer_program_.get();
    job_.trainer.scope = &scope_;
    job_.origin = origin_.get();
    job_.contexts.dense = contexts_of_job().dense;
  }
  void TearDown() override {
    EXPECT_EQ(outcome(job_.trainer.link->client().complete(false)), "ok");
    EXPECT_EQ(outcome(server_->end(true)), "ok");
  }
  [[nodiscard]] FleetSaveTarget to(const std::string& folder) const {
    return {disk_.path(), folder, Replace::kNo, 0};
  }

  std::shared_ptr<ps::InprocTransport> way_ = std::make_shared<ps::InprocTransport>();
  std::unique_ptr<ps::TestServer> server_;
  std::unique_ptr<Program> origin_;
  std::unique_ptr<Program> trainer_program_;
  transpiler::SlicesFile slices_;
  Scope scope_;
  testing::TempFolder disk_;
  executor::Executor executor_{executor::standard_runtime(""), {}};
  SavedJob job_;
};

TEST_F(FleetSaving, FilesAreThoseOfTheTranspilersPrograms) {
  job_.form = FleetClass::kTranspiler;
  ASSERT_EQ(outcome(FleetSaver(job_).save_persistables(&executor_, to("by_programs"))), "ok");
  for (const FleetClass form : {FleetClass::kContexts, FleetClass::kRuntime}) {
    job_.form = form;
    int received = 0;
    job_.receive = [&] {
      ++received;
      return Ok();
    };
    const std::string folder = form == FleetClass::kRuntime ? "runtime" : "contexts";
    ASSERT_EQ(
        outcome(FleetSaver(job_).save_persistables(&executor_, to(folder), trainer_program_.get())),
        "ok");
    EXPECT_EQ(received, 1);
    std::vector<std::string> names;
    for (const auto& entry : fs::directory_iterator(disk_ / folder)) {
      names.push_back(entry.path().filename());
      EXPECT_EQ(bytes_of(entry.path()), bytes_of(disk_ / "by_programs/" + names.back()))
          << names.back();
    }
    std::ranges::sort(names);
    EXPECT_THAT(names, ElementsAre("scale_of", "w", "w_beta1_pow_acc_0", "w_beta2_pow_acc_0",
                                   "w_moment1_0", "w_moment2_0"));
    EXPECT_TRUE(fs::exists(disk_ / folder + ".manifest.json"));
  }
}

TEST_F(FleetSaving, InferenceModelsHaveWhatTheyRead) {
  for (const FleetClass form :
       {FleetClass::kTranspiler, FleetClass::kContexts, FleetClass::kRuntime}) {
    job_.form = form;
    const std::string folder = "model" + std::to_string(static_cast<int>(form));
    ASSERT_EQ(outcome(FleetSaver(job_).save_inference_model(&executor_, to(folder), {"x"}, {"y"})),
              "ok");
    std::vector<std::string> names;
    for (const auto& entry : fs::directory_iterator(disk_ / folder))
      names.push_back(entry.path().filename());
    std::ranges::sort(names);
    EXPECT_THAT(names, ElementsAre("__model__", "scale_of", "w"));
  }
  // a program that is given explicitly is saved as by a single process, with the values of the
  // trainer
  job_.form = FleetClass::kRuntime;
  ASSERT_EQ(outcome(FleetSaver(job_).save_inference_model(&executor_, to("named"), {"x"}, {"y"},
                                                          origin_.get())),
            "ok");
  EXPECT_NE(bytes_of(disk_ / "named/w"), bytes_of(disk_ / "model3/w"));
}

TEST_F(FleetSaving, RefusesWhatTheOriginalRefuses) {
  const executor::ParallelExecutor* const parallel = nullptr;
  const executor::Executor* const none = nullptr;
  const executor::PreparedProgram* const compiled = nullptr;
  const auto model = [&](const SavingExecutor& executor, const SavedProgram& program) {
    return outcome(
        FleetSaver(job_).save_inference_model(executor, to("no"), {"x"}, {"y"}, program));
  };
  for (const FleetClass form :
       {FleetClass::kTranspiler, FleetClass::kContexts, FleetClass::kRuntime}) {
    job_.form = form;
    const FleetSaver saver(job_);
    EXPECT_THAT(outcome(saver.save_persistables(parallel, to("no"))),
                HasSubstr("fleet.save_persistables(): expected an Executor, found a Parallel"));
    EXPECT_THAT(outcome(saver.save_persistables(none, to("no"))), HasSubstr("found none"));
    EXPECT_THAT(outcome(saver.save_persistables(&executor_, to("no"), compiled)),
                HasSubstr("expected a Program, found a CompiledProgram"));
    EXPECT_THAT(model(parallel, {}), HasSubstr("fleet.save_inference_model(): expected an Exec"));
    EXPECT_THAT(model(&executor_, compiled), HasSubstr("found a CompiledProgram"));
  }
  job_.form = FleetClass::kTranspiler;
  EXPECT_THAT(outcome(FleetSaver(job_).save_persistables(&executor_, to("no"), origin_.get())),
              HasSubstr("expected a distributed program, found a local one"));
  slices_.properties.is_distributed = false;
  EXPECT_THAT(outcome(FleetSaver(job_).save_persistables(&executor_, to("no"))),
              HasSubstr("found a local one"));
  EXPECT_FALSE(fs::exists(disk_ / "no"));
}

TEST_F(FleetSaving, TheOldestClassSavesAsOneProcess) {
  job_.form = FleetClass::kOldest;
  ASSERT_EQ(outcome(FleetSaver(job_).save_persistables(&executor_, to("old"))), "ok");
  const Value* const held = scope_.find("w");
  ASSERT_EQ(outcome(io::save_param(disk_ / "alone", {"w", held})), "ok");
  EXPECT_EQ(bytes_of(disk_ / "old/w"), bytes_of(disk_ / "alone"));
}

}  // namespace
}  // namespace millrace::fleet
