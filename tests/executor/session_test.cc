#include "executor/session.h"

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "framework/base/file.h"
#include "framework/program.h"
#include "io/npz.h"
#include "tests/io/temp_folder.h"

namespace millrace {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// out = 2 x; kept = 3 x, persistable
std::unique_ptr<Program> two_outputs() {
  auto program = Program::create();
  Block& block = program->root();
  block.declare("x", VarSpec::tensor(DType::kFloat32, {-1, 2}));
  block.declare("out", VarSpec::tensor(DType::kFloat32, {-1, 2}));
  VarSpec kept = VarSpec::tensor(DType::kFloat32, {-1, 2});
  kept.persistable = true;
  block.declare("kept", kept);
  block.append_op("scale").set_input("X", "x").set_output("Out", "out").set_float("scale", 2);
  block.append_op("scale").set_input("X", "x").set_output("Out", "kept").set_float("scale", 3);
  return program;
}

Arrays feeds_of(std::vector<int64_t> dims, std::vector<float> values) {
  Arrays feeds;
  feeds["x"] = Array::of<float>(std::move(dims), values);
  return feeds;
}

Session opened() {
  auto session = Session::open(*two_outputs(), nullptr);
  EXPECT_TRUE(session.ok()) << session.status().to_string();
  return std::move(session).value();
}

TEST(Session, RunsAProgram) {
  Session session = opened();
  for (int i = 0; i < 2; ++i) {
    const auto results = session.run(feeds_of({1, 2}, {1, 2}), {"out"});
    ASSERT_TRUE(results.ok()) << results.status().to_string();
    const Array& out = results->at("out");
    EXPECT_THAT(out.dims, ElementsAre(1, 2));
    EXPECT_THAT(out.values<float>(), ElementsAre(2, 4));
  }
}

TEST(Session, HandsLodThrough) {
  Session session = opened();
  Arrays feeds = feeds_of({3, 2}, {1, 2, 3, 4, 5, 6});
  feeds["x"].lod = {{0, 1, 3}};
  const auto results = session.run(feeds, {"out"});
  ASSERT_TRUE(results.ok()) << results.status().to_string();
  EXPECT_THAT(results->at("out").lod, ElementsAre(ElementsAre(0, 1, 3)));
}

TEST(Session, GetsAndSetsPersistableVars) {
  Session session = opened();
  EXPECT_EQ(session.get("kept").status().code(), StatusCode::kInvalidArgument) << "no value yet";
  ASSERT_TRUE(session.run(feeds_of({1, 2}, {1, 2}), {"out"}).ok());
  EXPECT_THAT(session.get("kept")->values<float>(), ElementsAre(3, 6));
  ASSERT_TRUE(session.set("kept", Array::of<float>({1, 2}, std::vector<float>{7, 8})).ok());
  EXPECT_THAT(session.get("kept")->values<float>(), ElementsAre(7, 8));
  EXPECT_EQ(session.set("out", Array()).code(), StatusCode::kNotFound);
}

TEST(Session, RefusesFeedsThatTheProgramLacks) {
  Session session = opened();
  Arrays feeds = feeds_of({1, 2}, {1, 2});
  feeds["label"] = feeds["x"];
  EXPECT_EQ(session.run(feeds, {"out"}).status().to_string(),
            "error: 'label': feed: the program has no such var; it is fed x");
}

// An archive may be of a part of the program; what it lacks is never left without notice.
TEST(Session, NamesTheVarsThatAnArchiveLacks) {
  auto session = Session::open_model("tests/data/models/linear");
  ASSERT_TRUE(session.ok()) << session.status().to_string();
  std::map<std::string, Value> values;
  auto& b = values["b"].as<Tensor>();
  ASSERT_TRUE(b.resize(DType::kFloat32, {2}).ok());
  std::fill_n(b.data<float>(), 2, 5.0F);
  const testing::TempFolder folder;
  ASSERT_TRUE(write_file_atomically(folder / "b.npz", *io::npz_bytes(values), Replace::kNo).ok());
  const Arrays before{{"b", *session->get("b")}};
  EXPECT_THAT(session->load_params(folder / "b.npz").to_string(),
              HasSubstr("b.npz: expected all persistable vars of the program, found no w"));
  EXPECT_EQ(session->get("b")->bytes, before.at("b").bytes);
  std::vector<std::string> kept;
  ASSERT_TRUE(session->load_params(folder / "b.npz", &kept).ok());
  EXPECT_THAT(kept, ElementsAre("w"));
  EXPECT_THAT(session->get("b")->values<float>(), ElementsAre(5, 5));
}

// A parameter of another shape or type would be broadcast, or read as other numbers, without an
// error.
TEST(Session, RefusesToSetAVarToWhatItIsNotDeclaredAs) {
  Session session = opened();
  const std::vector<float> values{1, 2, 3, 4, 5, 6};
  const Status other_dims = session.set("kept", Array::of<float>({2, 3}, values));
  EXPECT_EQ(other_dims.code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(other_dims.location().var, "kept");
  EXPECT_THAT(other_dims.message(), HasSubstr("expected dims [-1, 2], found f32 [2, 3]"));
  const Status other_dtype =
      session.set("kept", Array::of<double>({1, 2}, std::vector<double>{1, 2}));
  EXPECT_EQ(other_dtype.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(other_dtype.message(), HasSubstr("expected dtype f32, found f64 [1, 2]"));
  Array bad_lod = Array::of<float>({3, 2}, values);
  bad_lod.lod = {{0, 2}};
  EXPECT_EQ(session.set("kept", bad_lod).location().var, "kept");
  EXPECT_EQ(session.get("kept").status().code(), StatusCode::kInvalidArgument) << "still no value";
  ASSERT_TRUE(session.set("kept", Array::of<float>({3, 2}, values)).ok());
  EXPECT_THAT(session.get("kept")->dims, ElementsAre(3, 2));
}

// Numpy and old programs disagree on how to write a single number.
TEST(Session, SetsANumberWithOrWithoutDims) {
  auto program = two_outputs();
  VarSpec rate = VarSpec::tensor(DType::kFloat32, {1});
  rate.persistable = true;
  program->root().declare("rate", rate);
  auto with_rate = Session::open(*program, nullptr);
  ASSERT_TRUE(with_rate.ok()) << with_rate.status().to_string();
  ASSERT_TRUE(with_rate->set("rate", Array::of<float>({}, std::vector<float>{0.5F})).ok());
  EXPECT_THAT(with_rate->get("rate")->dims, ElementsAre(1));
}

TEST(Session, RefusesAnArrayWhoseBytesDoNotFitItsDims) {
  Session session = opened();
  EXPECT_THAT(session.run(feeds_of({1, 3}, {1, 2}), {"out"}).status().message(),
              HasSubstr("array 'x': expected 12 bytes for f32 [1, 3], found 8"));
}

TEST(Session, RunsTheStartupProgramOnce) {
  auto startup = Program::create();
  VarSpec kept = VarSpec::tensor(DType::kFloat32, {2});
  kept.persistable = true;
  startup->root().declare("kept", kept);
  startup->root().append_op("scale").set_input("X", "kept").set_output("Out", "kept");
  const auto session = Session::open(*two_outputs(), startup.get());
  EXPECT_THAT(session.status().to_string(), HasSubstr("in the startup program"));
  EXPECT_THAT(session.status().to_string(), HasSubstr("X[0] 'kept': the input holds no value"));
}

TEST(Session, NamesAFolderThatIsNoModel) {
  EXPECT_EQ(Session::open_model("tests/data/no_such_model").status().code(), StatusCode::kNotFound);
}

TEST(Session, ReadsAModelFolder) {
  const auto session = Session::open_model("tests/data/models/linear");
  ASSERT_TRUE(session.ok()) << session.status().to_string();
  EXPECT_EQ(session->inputs().size(), 1U);
  EXPECT_EQ(session->outputs().size(), 1U);
}

// out = x * factor + offsets, for an op type that no build has
CustomOp shift() {
  return {"shift", [](OpCall& call) -> Status {
            MILLRACE_ASSIGN_OR_RETURN(const ArrayView x, call.input("X"));
            MILLRACE_ASSIGN_OR_RETURN(
                const auto out,
                call.output_values<float>("Out", x.dtype, {x.dims.begin(), x.dims.end()}));
            const double factor = call.number("factor").value_or(1);
            const std::vector<double> offsets =
                call.numbers("offsets").value_or(std::vector<double>{});
            for (size_t i = 0; i < out.size(); ++i) {
              out[i] = static_cast<float>(x.values<float>()[i] * factor +
                                          (offsets.empty() ? 0 : offsets[i % offsets.size()]));
            }
            return call.set_lod("Out", {x.lod.begin(), x.lod.end()});
          }};
}

std::unique_ptr<Program> with_shift() {
  auto program = Program::create();
  Block& block = program->root();
  for (const char* const name : {"x", "shifted", "out"})
    block.declare(name, VarSpec::tensor(DType::kFloat32, {-1, 2}));
  block.append_op("shift")
      .set_input("X", "x")
      .set_output("Out", "shifted")
      .set_float("factor", 2)
      .set_attr("offsets", AttrValue::of_floats({10, 20}));
  block.append_op("scale").set_input("X", "shifted").set_output("Out", "out").set_float("scale", 2);
  return program;
}

TEST(Session, RunsOpsOfTheUser) {
  auto session = Session::open(*with_shift(), nullptr, {.custom_ops = {shift()}});
  ASSERT_TRUE(session.ok()) << session.status().to_string();
  for (int64_t rows = 1; rows < 4; ++rows) {
    Arrays feeds = feeds_of({rows, 2}, std::vector<float>(static_cast<size_t>(rows) * 2, 1));
    feeds["x"].lod = {{0, rows}};
    const auto results = session->run(feeds, {"out"});
    ASSERT_TRUE(results.ok()) << results.status().to_string();
    const Array& out = results->at("out");
    EXPECT_THAT(out.dims, ElementsAre(rows, 2));
    EXPECT_FLOAT_EQ(out.values<float>()[0], 24);
    EXPECT_FLOAT_EQ(out.values<float>().back(), 44);
    EXPECT_THAT(out.lod, ElementsAre(ElementsAre(0, rows)));
  }
}

TEST(Session, NamesThePlaceWhereAnOpOfTheUserFails) {
  const CustomOp failing{"shift", [](OpCall& call) { return call.input("Y").status(); }};
  auto session = Session::open(*with_shift(), nullptr, {.custom_ops = {failing}});
  ASSERT_TRUE(session.ok()) << session.status().to_string();
  const auto results = session->run(feeds_of({1, 2}, {1, 2}), {"out"});
  EXPECT_EQ(results.status().code(), StatusCode::kExecution);
  EXPECT_THAT(results.status().to_string(), HasSubstr("the op has no input Y[0]"));
  EXPECT_THAT(results.status().to_string(), HasSubstr("op 0 (shift)"));
}

TEST(Session, RefusesOpsOfTheUserThatCannotBe) {
  const auto open_with = [](const CustomOp& custom) {
    return Session::open(*with_shift(), nullptr, {.custom_ops = {custom}}).status();
  };
  CustomOp known = shift();
  known.type = "relu";
  EXPECT_THAT(open_with(known).to_string(), HasSubstr("an op 'relu' already exists"));
  EXPECT_THAT(open_with({"shift", nullptr}).to_string(), HasSubstr("needs a type and a function"));
}

TEST(Session, RunsOnADevice) {
  for (const char* const device : {"cpu", "gpu:emulated"}) {
    SCOPED_TRACE(device);
    auto session = Session::open(*two_outputs(), nullptr, {.device = device});
    ASSERT_TRUE(session.ok()) << session.status().to_string();
    const auto results = session->run(feeds_of({1, 2}, {1, 2}), {"out"});
    ASSERT_TRUE(results.ok()) << results.status().to_string();
    EXPECT_THAT(results->at("out").values<float>(), ElementsAre(2, 4));
    EXPECT_THAT(session->get("kept")->values<float>(), ElementsAre(3, 6));
  }
}

TEST(Session, DevicesThatAreNotThereAreRefused) {
  const auto refusal = [](const SessionOptions& options) {
    return Session::open(*two_outputs(), nullptr, options).status();
  };
  EXPECT_EQ(refusal({.device = "tpu"}).message(), "device: expected cpu or gpu:N, found 'tpu'");
  EXPECT_EQ(refusal({.device = "gpu:-1"}).code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(refusal({.device = "gpu:0,1"}).message(),
              HasSubstr("several GPUs are for a ParallelExecutor only"));
  EXPECT_EQ(refusal({.device = "gpu:4711"}).code(), StatusCode::kUnimplemented);
  EXPECT_THAT(refusal({.tf32_products = true}).message(), HasSubstr("expected a GPU"));
  EXPECT_THAT(refusal({.bf16_products = true, .device = "gpu:emulated"}).message(),
              HasSubstr("does not round"));
  EXPECT_EQ(refusal({.device = "gpu:emulated", .debug_memory = true}).code(),
            StatusCode::kUnimplemented);
  EXPECT_EQ(refusal({.device = "gpu:emulated", .devices = 2}).code(), StatusCode::kUnimplemented);
}

TEST(Session, OptionsOutOfRangeAreRefused) {
  const auto refusal = [](const SessionOptions& options) {
    const Status status = Session::open(*two_outputs(), nullptr, options).status();
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
    return status.message();
  };
  EXPECT_EQ(refusal({.threads = 0}), "options.threads: expected at least 1, found 0");
  EXPECT_EQ(refusal({.devices = 0}), "options.devices: expected at least 1, found 0");
  EXPECT_EQ(refusal({.loss = "out"}), "options.loss 'out' has no effect on one device");
}

}  // namespace
}  // namespace millrace
