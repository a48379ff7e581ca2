#include "ps/client/gather.h"

#include <gtest/gtest.h>

#include "ps/server/load_slices.h"

// State that slices.json lists as whole is where the slices of its parameter are, regardless of
// other vars of the same shape.

namespace millrace::ps {
namespace {

using transpiler::DistributedVar;
using transpiler::OriginSlices;
using transpiler::VarFacts;

VarFacts facts_gather(const std::string& name, std::vector<int64_t> shape) {
  VarFacts result;
  result.name = name;
  result.shape = std::move(shape);
  return result;
}

DistributedVar slice(const std::string& origin, int64_t offset, const std::string& endpoint) {
  DistributedVar var;
  var.origin = facts_gather(origin, {4});
  var.slice = facts_gather(origin + ".block", {2});
  var.is_slice = true;
  var.offset = offset;
  var.vtype = "Param";
  var.endpoint = endpoint;
  return var;
}

// State of four elements on a server, listed as whole.
DistributedVar state(const std::string& name, const std::string& endpoint, int64_t elements = 4) {
  DistributedVar var;
  var.origin = var.slice = facts_gather(name, {elements});
  var.endpoint = endpoint;
  return var;
}

TEST(OffsetBesideParam, FollowsTheParameterOfItsName) {
  const std::vector<DistributedVar> a{slice("fc", 0, "one"), slice("fc", 2, "two")};
  const std::vector<DistributedVar> b{slice("fc_b", 0, "two"), slice("fc_b", 2, "one")};
  std::vector<OriginSlices> origins(2);
  origins[0] = {a[0].origin, "Param", {&a[0], &a[1]}};
  origins[1] = {b[0].origin, "RemotePrefetch", {&b[0], &b[1]}};  // whose rows trainers fetch
  const auto offset = [&](const DistributedVar& of, int64_t elements) {
    return offset_beside_param(origins, of, elements);
  };
  EXPECT_EQ(offset(state("fc_mean_grad_0", "one"), 2), 0);
  EXPECT_EQ(offset(state("fc_mean_grad_0", "two"), 2), 2);
  EXPECT_EQ(offset(state("fc_b_mean_grad_0", "one"), 2), 2);
  EXPECT_EQ(offset(state("fc_b_mean_grad_0", "two"), 2), 0);
  EXPECT_LT(offset(state("fc_b_mean_grad_0", "three"), 2), 0);
  EXPECT_LT(offset(state("fc_b_mean_grad_0", "one"), 3), 0);
  EXPECT_LT(offset(state("other_mean_grad_0", "one"), 2), 0);
  // a known parameter counts more than the name
  DistributedVar known = state("fc_mean_grad_0", "one");
  known.param = "fc_b";
  EXPECT_EQ(offset(known, 2), 2);
  EXPECT_EQ(*slice_beside_param(origins, known), &b[1]);
  known.param = "";  // whole on every server
  EXPECT_LT(offset(known, 2), 0);
  EXPECT_EQ(*slice_beside_param(origins, known), nullptr);
}

// Elements of fc_b_mean_grad_0 that server "one" loads. \param param  of the update; null: the
// program does not show it
std::vector<float> loaded_mean(const char* param) {
  transpiler::SlicesFile slices;
  slices.overview.add_distributed_var(slice("fc", 0, "one"));
  slices.overview.add_distributed_var(slice("fc_b", 2, "one"));
  DistributedVar mean;
  mean.origin = mean.slice = facts_gather("fc_b_mean_grad_0", {4});
  mean.endpoint = "one";
  slices.overview.add_distributed_var(mean);
  slices.overview.add_distributed_var(slice("fc", 2, "two"));
  slices.overview.add_distributed_var(slice("fc_b", 0, "two"));
  const auto program = Program::create();
  program->root().append_op("listen_and_serv").set_string("endpoint", "one");
  if (param != nullptr)
    program->add_block(0)
        .append_op("rmsprop")
        .set_input("Param", llvm::StringRef(param))
        .set_input("MeanGrad", llvm::StringRef("fc_b_mean_grad_0"));
  program->root().declare("fc_b_mean_grad_0", VarSpec::tensor(DType::kFloat32, {2}));
  std::map<std::string, Value> whole;
  auto& values = whole["fc_b_mean_grad_0"].as<Tensor>();
  EXPECT_TRUE(values.resize(DType::kFloat32, {4}).ok());
  for (int i = 0; i < 4; ++i) values.data<float>()[i] = static_cast<float>(i);
  Scope scope;
  const Status status = load_slices(slices, *program, whole, scope);
  EXPECT_TRUE(status.ok()) << status.to_string();
  const auto loaded = scope.find("fc_b_mean_grad_0")->get_if<Tensor>()->values<float>();
  return {loaded.begin(), loaded.end()};
}

TEST(OffsetBesideParam, LoadingUsesTheSliceOfItsParameter) {
  EXPECT_EQ(loaded_mean(nullptr), (std::vector<float>{2, 3}));
  // what the program updates with the state counts more than the name
  EXPECT_EQ(loaded_mean("fc.block"), (std::vector<float>{0, 1}));
  EXPECT_EQ(loaded_mean("fc_b.block"), (std::vector<float>{2, 3}));
}

TEST(SlicesJson, HasTheParameterOfStateThatIsListedAsWhole) {
  transpiler::VarsDistributed overview;
  for (const char* const param : {"fc", "none", ""}) {
    DistributedVar var = state(std::string("mean_of_") + param, "one");
    if (param != std::string("none")) var.param = param;
    overview.add_distributed_var(var);
  }
  const std::string text = transpiler::slices_json({}, overview);
  const auto read = transpiler::parse_slices_json(text);
  ASSERT_TRUE(read.ok()) << read.status().to_string();
  EXPECT_EQ(read->overview.vars()[0].param, "fc");
  EXPECT_EQ(read->overview.vars()[1].param, std::nullopt);
  EXPECT_EQ(read->overview.vars()[2].param, "");
  EXPECT_EQ(transpiler::slices_json(read->properties, read->overview), text);
  const transpiler::VarsDistributed none;
  EXPECT_EQ(transpiler::slices_json({}, none).find("listed_whole"), std::string::npos);
}

TEST(SliceBesideParam, IsTheOnlyOnePossible) {
  const std::vector<DistributedVar> a{slice("fc", 0, "one"), slice("fc", 2, "two")};
  const std::vector<DistributedVar> b{slice("fc_b", 0, "two"), slice("fc_b", 2, "one")};
  std::vector<OriginSlices> origins(1);
  origins[0] = {a[0].origin, "Param", {&a[0], &a[1]}};
  const auto beside = [&](const char* name, const char* endpoint, int64_t elements = 4) {
    return *slice_beside_param(origins, state(name, endpoint, elements));
  };
  EXPECT_EQ(beside("fc_mean_grad_0", "two"), &a[1]);
  EXPECT_EQ(beside("fc_mean_grad_0", "three"), nullptr);
  EXPECT_EQ(beside("other_mean_grad_0", "one"), &a[0]);
  EXPECT_EQ(beside("other_mean_grad_0", "one", 5), nullptr);
  origins.push_back({b[0].origin, "Param", {&b[0], &b[1]}});
  EXPECT_EQ(beside("fc_mean_grad_0", "two"), &a[1]);
  // the two parameters of that shape are split in different ways
  const auto either = slice_beside_param(origins, state("other_mean_grad_0", "one"));
  EXPECT_EQ(either.status().code(), StatusCode::kInvalidData);
  EXPECT_NE(either.status().message().find("'other_mean_grad_0' on one"), std::string::npos);
}

}  // namespace
}  // namespace millrace::ps
