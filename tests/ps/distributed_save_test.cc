// A job saves the same as a single process: slices are joined in one file, the chief's local vars
// are fetched again, requests to servers stay below their folders. Saved values are loaded slice by
// slice.
#include "ps/saving/distributed_save.h"

#include <algorithm>
#include <filesystem>

#include <gmock/gmock.h>

#include "executor/inference_model.h"
#include "executor/standard_runtime.h"
#include "io/params.h"
#include "io/params_manifest.h"
#include "ps/saving/distributed_load.h"
#include "tests/io/checkpoint/states.h"
#include "tests/io/temp_folder.h"
#include "tests/ps/server_fixture.h"

namespace millrace::ps {
namespace {

namespace fs = std::filesystem;

using ::millrace::testing::bytes_of;
using ::millrace::testing::counting;
using ::millrace::testing::outcome;
using ::millrace::testing::TempFolder;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using transpiler::DistributedVar;
using transpiler::VarFacts;
using Floats = std::vector<float>;

// Server n holds rows of w ([3, 2]: two rows on server 1, one on server 0), of its velocity, the
// whole beta power, and a table.
std::string server_text(int server) {
  const int rows = server == 1 ? 2 : 1;
  return fmt::format(R"(# millrace program 1

block 0 {{
  persist w.block{0}: f32({1}, 2)
  persist w_velocity_0: f32({1}, 2)
  persist beta: f32(1)
  persist table: f32(2)
  persist steps: i64(1)
  persist g: f32({1}, 2)

  listen_and_serv X=g {{
      optimize_blocks: [^1], endpoint: "s:{0}", pserver_id: {0}, Fanin: 1, distributed_mode: 1,
      grad_to_block_id: ["g:1"], sparse_grad_to_param: strings[]
  }}
}}

block 1 parent=0 {{
  scale X=g -> Out=g {{scale: 1.0, op_role: 0}}
}}
)",
                     server, rows);
}

VarFacts facts_distributed_save(const std::string& name, std::vector<int64_t> shape) {
  VarFacts var;
  var.name = name;
  var.shape = std::move(shape);
  var.persistable = true;
  return var;
}

// The slices are in another order than in the file.
transpiler::SlicesFile slices_of_job() {
  transpiler::SlicesFile slices;
  slices.properties.is_distributed = true;
  slices.properties.endpoints = {"s:0", "s:1"};
  slices.properties.distributed_lookup_table = "table";
  for (const int64_t server : {0, 1}) {
    DistributedVar var;
    var.origin = facts_distributed_save("w", {3, 2});
    var.slice =
        facts_distributed_save("w.block" + std::to_string(server), {server == 1 ? 2 : 1, 2});
    var.is_slice = true;
    var.block_id = 1 - server;
    var.offset = server == 1 ? 0 : 4;
    var.vtype = "Param";
    var.endpoint = "s:" + std::to_string(server);
    slices.overview.add_distributed_var(var);
    var.origin.name = var.slice.name = "w_velocity_0";
    var.vtype = "Optimizer";
    slices.overview.add_distributed_var(var);
    DistributedVar beta;
    beta.origin = beta.slice = facts_distributed_save("beta", {1});
    beta.vtype = "Optimizer";
    beta.endpoint = var.endpoint;
    slices.overview.add_distributed_var(beta);
  }
  return slices;
}

constexpr const char* kTrainer = R"(# millrace program 1

block 0 {
  persist w: f32(3, 2)
  persist w_velocity_0: f32(3, 2)
  persist beta: f32(1)
  persist scale_of: f32(1)
  persist table: f32(2)
  var x: f32(-1, 3)
  var h: f32(-1, 2)
  var y: f32(-1, 2)

  mul X=x Y=w -> Out=h {x_num_col_dims: 1, y_num_col_dims: 1}
  elementwise_mul X=h Y=scale_of -> Out=y {axis: -1}
}
)";

class DistributedSave : public ::testing::Test {
 protected:
  void SetUp() override {
    for (int n = 0; n < 2; ++n) {
      ServerOptions options;
      options.files_root = disk_.path();
      const Floats w = n == 1 ? Floats{0, 1, 2, 3} : Floats{4, 5};
      const Floats velocity = n == 1 ? Floats{10, 11, 12, 13} : Floats{14, 15};
      servers_.push_back(std::make_unique<TestServer>(
          way_, server_text(n),
          std::map<std::string, Floats>{{"w.block" + std::to_string(n), w},
                                        {"w_velocity_0", velocity},
                                        {"beta", {0.5}},
                                        {"table", {1, 2}},
                                        {"g", Floats(w.size(), 0)}},
          options));
    }
    auto program = read_program_bytes(kTrainer, "trainer", {});
    ASSERT_EQ(outcome(program), "ok");
    program_ = *std::move(program);
    // The trainer's copy of w is outdated.
    scope_.local("w") = counting({3, 2}, 100);
    scope_.local("scale_of") = counting({1}, 2);
    trainer_.link = std::make_shared<TrainerLink>(
        std::make_shared<Client>(way_, ClientOptions{.job = "", .trainer = 0}));
    trainer_.slices = &slices_;
    trainer_.program = program_.get();
    trainer_.scope = &scope_;
    save_.root = disk_.path();
    save_.folder = "model";
  }
  void TearDown() override {
    EXPECT_EQ(outcome(trainer_.link->client().complete(false)), "ok");
    for (const auto& server : servers_) EXPECT_EQ(outcome(server->end(true)), "ok");
  }
  [[nodiscard]] std::vector<std::string> files() const {
    std::vector<std::string> names;
    for (const auto& entry : fs::recursive_directory_iterator(disk_ / "model"))
      if (entry.is_regular_file())
        names.push_back(fs::relative(entry.path(), disk_ / "model").string());
    std::sort(names.begin(), names.end());
    return names;
  }
  // The file that a single process writes.
  [[nodiscard]] std::string file_of(const Value& value) const {
    EXPECT_EQ(outcome(io::save_param(disk_ / "alone", {"v", &value}, {.replace = Replace::kYes})),
              "ok");
    return bytes_of(disk_ / "alone");
  }

  std::shared_ptr<InprocTransport> way_ = std::make_shared<InprocTransport>();
  std::vector<std::unique_ptr<TestServer>> servers_;
  transpiler::SlicesFile slices_ = slices_of_job();
  std::unique_ptr<Program> program_;
  Scope scope_;
  SavingTrainer trainer_;
  DistributedSaveOptions save_;
  TempFolder disk_;
};

TEST_F(DistributedSave, FilesAreThoseOfASingleProcess) {
  ASSERT_EQ(outcome(save_distributed_persistables(trainer_, save_)), "ok");
  EXPECT_THAT(files(), ElementsAre("__lookup_table__/table_0", "__lookup_table__/table_1", "beta",
                                   "scale_of", "w", "w_velocity_0"));
  EXPECT_EQ(bytes_of(disk_ / "model/w"), file_of(counting({3, 2})));
  EXPECT_EQ(bytes_of(disk_ / "model/w_velocity_0"), file_of(counting({3, 2}, 10)));
  EXPECT_EQ(bytes_of(disk_ / "model/beta"), file_of(counting({1}, 0.5)));
  EXPECT_EQ(bytes_of(disk_ / "model/scale_of"), file_of(counting({1}, 2)));
  // The manifest in the folder lists all files, including those that servers wrote on their disks.
  const auto manifest = io::parse_params_manifest(bytes_of(disk_ / "model.manifest.json"));
  ASSERT_EQ(outcome(manifest), "ok");
  std::vector<std::string> names;
  for (const auto& file : manifest->files) names.push_back(file.name);
  EXPECT_THAT(names, ElementsAre("beta", "scale_of", "w", "w_velocity_0"));
  ASSERT_EQ(manifest->tables.size(), 2);
  for (size_t n = 0; n < 2; ++n) {
    const io::ParamsManifest::TablePart& part = manifest->tables[n];
    EXPECT_EQ(part.endpoint, "s:" + std::to_string(n));
    EXPECT_EQ(part.file, "model/__lookup_table__/table_" + std::to_string(n));
    EXPECT_EQ(part.checksum.text(), io::checksum_of(bytes_of(disk_ / part.file)).text());
  }
}

TEST_F(DistributedSave, OnlyTheChiefWrites) {
  trainer_.trainer = 1;
  ASSERT_EQ(outcome(save_distributed_persistables(trainer_, save_)), "ok");
  ASSERT_EQ(outcome(save_fleet_inference_model(trainer_, {program_.get(), {"x"}, {"y"}}, save_)),
            "ok");
  EXPECT_FALSE(fs::exists(disk_ / "model"));
}

TEST_F(DistributedSave, WhatCannotBeSavedIsSaid) {
  *scope_.find("scale_of") = Value();
  EXPECT_THAT(outcome(save_distributed_persistables(trainer_, save_)),
              HasSubstr("'scale_of': the var has no value to save"));
  *scope_.find("scale_of") = counting({1}, 2);
  save_.folder = "../model";
  EXPECT_THAT(outcome(save_distributed_persistables(trainer_, save_)),
              HasSubstr("leads out of the folder"));
  save_.folder = "/model";
  EXPECT_THAT(outcome(save_distributed_persistables(trainer_, save_)),
              HasSubstr("it is an absolute path"));
  fs::create_directories(disk_ / "model");
  fs::create_directory_symlink("/tmp", disk_ / "model/__lookup_table__");
  save_.folder = "model";
  EXPECT_THAT(outcome(save_distributed_persistables(trainer_, save_)),
              HasSubstr("a symbolic link leads out of the folder"));
  slices_.properties.is_distributed = false;
  EXPECT_THAT(outcome(save_distributed_persistables(trainer_, save_)),
              HasSubstr("the program is not distributed"));
}

TEST_F(DistributedSave, SlicesThatDoNotMakeUpTheVarAreRefused) {
  const auto run = [&](const std::string& attrs) {
    auto program = read_program_bytes(
        "# millrace program 1\n\nblock 0 {\n  recv_save {\n      " + attrs + "\n  }\n}\n", "save",
        {});
    EXPECT_EQ(outcome(program), "ok");
    DistributedSaveOptions save = save_;
    save.folder = "other";
    save.replace = Replace::kYes;
    save.programs = {program->get()};
    return outcome(save_distributed_persistables(trainer_, save));
  };
  const std::string both =
      R"(endpoints: ["s:1", "s:0"], remote_varnames: ["w.block1", "w.block0"],
      slice_varnames: ["a", "b"], file_path: "other/z", )";
  EXPECT_EQ(run(both + R"(shape: [3l, 2l], slice_shapes: ["2,2", "1,2"])"), "ok");
  EXPECT_EQ(bytes_of(disk_ / "other/z"), file_of(counting({3, 2})));
  EXPECT_THAT(run(both + R"(shape: [4l, 2l], slice_shapes: ["2,2", "1,2"])"),
              HasSubstr("the slices of 'other/z' have 6 elements, expected 8"));
  EXPECT_THAT(run(both + R"(shape: [3l, 2l], slice_shapes: ["1,2", "2,2"])"),
              HasSubstr("slice 'w.block1' of the server at s:1: expected 2 elements"));
  EXPECT_THAT(run(both + R"(shape: [3l, 2l], slice_shapes: ["2,x", "1,2"])"),
              HasSubstr("'2,x' is not a shape"));
  EXPECT_THAT(run(both + R"(shape: [3l, 2l], slice_shapes: ["2,2", "1,2"], overwrite: false)"),
              HasSubstr("exists already"));
  EXPECT_THAT(run(R"(endpoints: ["s:1"], remote_varnames: ["nothing"], slice_varnames: ["a"],
      file_path: "other/y", shape: [1l], slice_shapes: ["1"])"),
              HasSubstr("nothing"));
  EXPECT_THAT(run(R"(endpoints: ["s:1"], remote_varnames: ["beta"], slice_varnames: ["a"],
      file_path: "../y", shape: [1l], slice_shapes: ["1"])"),
              HasSubstr("leads out of the folder"));
}

// Row r of a sparse table is row r / n of the slice of server r % n.
TEST_F(DistributedSave, RowsOfSparseTablesAreInterleaved) {
  const auto run = [&](const std::string& rest) {
    auto program = read_program_bytes(
        "# millrace program 1\n\nblock 0 {\n  recv_save {\n      endpoints: [\"s:1\", \"s:0\"], "
        "remote_varnames: [\"w.block1\", \"w.block0\"], slice_varnames: [\"a\", \"b\"], "
        "slice_shapes: [\"22\", \"12\"], is_sparse: true, file_path: \"other/rows\", " +
            rest + "\n  }\n}\n",
        "save", {});
    EXPECT_EQ(outcome(program), "ok");
    DistributedSaveOptions save = save_;
    save.folder = "other";
    save.replace = Replace::kYes;
    save.programs = {program->get()};
    return outcome(save_distributed_persistables(trainer_, save));
  };
  ASSERT_EQ(run("shape: [3l, 2l], pserver_num: 2"), "ok");
  Value rows = counting({3, 2});
  std::ranges::copy(Floats{0, 1, 4, 5, 2, 3}, rows.as<Tensor>().data<float>());
  EXPECT_EQ(bytes_of(disk_ / "other/rows"), file_of(rows));
  EXPECT_THAT(run("shape: [4l, 2l], pserver_num: 2"),
              HasSubstr("slice 'w.block0' of the server at s:0: expected shape [2, 2], found f32 "
                        "[1, 2]"));
  EXPECT_THAT(run("shape: [3l, 2l], pserver_num: 3"), HasSubstr("expected 'pserver_num' 3"));
  EXPECT_THAT(run("shape: [3l, 2l]"), HasSubstr("expected 'pserver_num' 1"));
}

TEST_F(DistributedSave, AnInferenceModelHasWhatItReadsAndRunsWithoutServers) {
  const FleetModel model{program_.get(), {"x"}, {"y"}};
  ASSERT_EQ(outcome(save_fleet_inference_model(trainer_, model, save_)), "ok");
  EXPECT_THAT(files(), ElementsAre("__model__", "scale_of", "w"));
  EXPECT_EQ(bytes_of(disk_ / "model/w"), file_of(counting({3, 2})));
  Scope scope;
  const auto loaded = executor::load_inference_model(disk_ / "model", scope);
  ASSERT_EQ(outcome(loaded), "ok");
  const auto runtime = executor::standard_runtime();
  const auto prepared = executor::Executor(runtime).prepare(*loaded->program, scope);
  ASSERT_EQ(outcome(prepared), "ok");
  std::vector<Value> results(1);
  executor::NamedValues feeds;
  feeds["x"] = counting({1, 3}, 1);
  ASSERT_EQ(outcome((*prepared)->run(feeds, {"y"}, results)), "ok");
  EXPECT_THAT(numbers_in(results[0]), ElementsAre(2 * (4 + 12), 2 * (1 + 6 + 15)));
  EXPECT_EQ(save_fleet_inference_model(trainer_, model, save_).code(), StatusCode::kUsage);
}

// ---- loading

TEST_F(DistributedSave, ServersLoadTheirSlicesOfWhatWasSaved) {
  ASSERT_EQ(outcome(save_distributed_persistables(trainer_, save_)), "ok");
  // These servers hold the table as dense; loading its rows by row id is tested below.
  slices_.properties.distributed_lookup_table.clear();
  for (const int server : {0, 1}) {
    const auto program = read_program_bytes(server_text(server), "server", {});
    ASSERT_EQ(outcome(program), "ok");
    Scope scope;
    ASSERT_EQ(outcome(load_server_persistables(slices_, **program, disk_ / "model/", scope, {})),
              "ok");
    const std::string slice = "w.block" + std::to_string(server);
    EXPECT_EQ(numbers_in(*scope.find(slice)), server == 1 ? Floats({0, 1, 2, 3}) : Floats({4, 5}));
    EXPECT_EQ(numbers_in(*scope.find("w_velocity_0")),
              server == 1 ? Floats({10, 11, 12, 13}) : Floats({14, 15}));
    EXPECT_EQ(numbers_in(*scope.find("beta")), Floats({0.5}));
    EXPECT_EQ(scope.find("steps"), nullptr);
  }
  const std::string bytes = bytes_of(disk_ / "model/w");
  ::millrace::testing::put_file(disk_ / "model/w", bytes.substr(0, bytes.size() - 4));
  Scope scope;
  const auto program = read_program_bytes(server_text(0), "server", {});
  EXPECT_THAT(outcome(load_server_persistables(slices_, **program, disk_ / "model", scope, {})),
              HasSubstr("model/w: expected 50 bytes as its manifest says, found 46"));
  fs::remove(disk_ / "model.manifest.json");
  EXPECT_THAT(outcome(load_server_persistables(slices_, **program, disk_ / "model", scope, {})),
              HasSubstr("cut off"));
  fs::remove(disk_ / "model/w");
  EXPECT_THAT(outcome(load_server_persistables(slices_, **program, disk_ / "model", scope, {})),
              HasSubstr("model/w"));
}

// Rows (id mod 2) that two servers saved, loaded for one of three.
TEST(DistributedLoad, TablesOfAnyNumberOfServers) {
  const TempFolder disk;
  fs::create_directories(disk / "model/__lookup_table__");
  const auto part_path = [&](int part) {
    return disk / ("model/__lookup_table__/table_" + std::to_string(part));
  };
  const auto write = [&](int part, std::vector<int64_t> numbers) {
    Value value;
    auto& rows = value.as<SelectedRows>();
    rows.height = 7;
    rows.rows = std::move(numbers);
    EXPECT_TRUE(
        rows.value.resize(DType::kFloat32, {static_cast<int64_t>(rows.rows.size()), 2}).ok());
    for (size_t i = 0; i < rows.rows.size(); ++i)
      for (size_t k = 0; k < 2; ++k)
        rows.value.data<float>()[i * 2 + k] =
            static_cast<float>(rows.rows[i] * 2) + static_cast<float>(k);
    EXPECT_EQ(
        outcome(io::save_param(part_path(part), {"table", &value}, {.replace = Replace::kYes})),
        "ok");
  };
  transpiler::SlicesFile slices;
  slices.properties.is_distributed = true;
  slices.properties.endpoints = {"s:0", "s:1", "s:2"};
  slices.properties.distributed_lookup_table = "table";
  const auto program = read_program_bytes(server_text(1), "server", {});
  ASSERT_EQ(outcome(program), "ok");
  Scope scope;
  const auto load = [&] {
    return outcome(load_server_persistables(slices, **program, disk / "model", scope, {}));
  };
  write(0, {0, 2, 4, 6});
  write(1, {1, 3, 5});
  ASSERT_EQ(load(), "ok");
  const auto& rows = *scope.find("table")->get_if<SelectedRows>();
  EXPECT_EQ(rows.height, 7);
  EXPECT_THAT(rows.rows, ElementsAre(4, 1));
  EXPECT_THAT(rows.value.values<float>(), ElementsAre(8, 9, 2, 3));
  write(1, {1, 3, 4});
  EXPECT_THAT(load(), HasSubstr("row 4 occurs twice"));
  write(1, {3, 5});
  EXPECT_THAT(
      load(),
      HasSubstr("expected 2 rows for server 1 of 3, found 1: files of other servers are missing"));
  fs::remove_all(disk / "model/__lookup_table__");
  EXPECT_THAT(load(), HasSubstr("model/table"));
  const Value whole = counting({7, 2});
  ASSERT_EQ(outcome(io::save_param(disk / "model/table", {"table", &whole})), "ok");
  ASSERT_EQ(load(), "ok");
  EXPECT_THAT(scope.find("table")->get_if<SelectedRows>()->rows, ElementsAre(1, 4));
}

}  // namespace
}  // namespace millrace::ps
