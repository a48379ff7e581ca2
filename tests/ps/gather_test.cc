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

TEST(OffsetBesideParam, FollowsTheParameterOfItsName) {
  const std::vector<DistributedVar> a{slice("fc", 0, "one"), slice("fc", 2, "two")};
  const std::vector<DistributedVar> b{slice("fc_b", 0, "two"), slice("fc_b", 2, "one")};
  std::vector<OriginSlices> origins(2);
  origins[0] = {a[0].origin, "Param", {&a[0], &a[1]}};
  origins[1] = {b[0].origin, "Param", {&b[0], &b[1]}};
  const VarFacts mean_a = facts_gather("fc_mean_grad_0", {4});
  const VarFacts mean_b = facts_gather("fc_b_mean_grad_0", {4});
  EXPECT_EQ(offset_beside_param(origins, mean_a, "one", 2), 0);
  EXPECT_EQ(offset_beside_param(origins, mean_a, "two", 2), 2);
  EXPECT_EQ(offset_beside_param(origins, mean_b, "one", 2), 2);
  EXPECT_EQ(offset_beside_param(origins, mean_b, "two", 2), 0);
  EXPECT_LT(offset_beside_param(origins, mean_b, "three", 2), 0);
  EXPECT_LT(offset_beside_param(origins, mean_b, "one", 3), 0);
  EXPECT_LT(offset_beside_param(origins, facts_gather("other_mean_grad_0", {4}), "one", 2), 0);
}

TEST(OffsetBesideParam, LoadingUsesTheSliceOfItsParameter) {
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
  program->root().declare("fc_b_mean_grad_0", VarSpec::tensor(DType::kFloat32, {2}));
  std::map<std::string, Value> whole;
  auto& values = whole["fc_b_mean_grad_0"].as<Tensor>();
  ASSERT_TRUE(values.resize(DType::kFloat32, {4}).ok());
  for (int i = 0; i < 4; ++i) values.data<float>()[i] = static_cast<float>(i);
  Scope scope;
  const Status status = load_slices(slices, *program, whole, scope);
  ASSERT_TRUE(status.ok()) << status.to_string();
  const auto* const loaded = scope.find("fc_b_mean_grad_0")->get_if<Tensor>();
  ASSERT_EQ(loaded->numel(), 2);
  EXPECT_EQ(loaded->data<float>()[0], 2);
  EXPECT_EQ(loaded->data<float>()[1], 3);
}

TEST(SliceBesideParam, IsTheOnlyOnePossible) {
  const std::vector<DistributedVar> a{slice("fc", 0, "one"), slice("fc", 2, "two")};
  const std::vector<DistributedVar> b{slice("fc_b", 0, "two"), slice("fc_b", 2, "one")};
  std::vector<OriginSlices> origins(1);
  origins[0] = {a[0].origin, "Param", {&a[0], &a[1]}};
  const VarFacts named = facts_gather("fc_mean_grad_0", {4});
  const VarFacts unnamed = facts_gather("other_mean_grad_0", {4});
  EXPECT_EQ(*slice_beside_param(origins, named, "two"), &a[1]);
  EXPECT_EQ(*slice_beside_param(origins, named, "three"), nullptr);
  EXPECT_EQ(*slice_beside_param(origins, unnamed, "one"), &a[0]);
  EXPECT_EQ(*slice_beside_param(origins, facts_gather("other_mean_grad_0", {5}), "one"), nullptr);
  origins.push_back({b[0].origin, "Param", {&b[0], &b[1]}});
  EXPECT_EQ(*slice_beside_param(origins, named, "two"), &a[1]);
  // the two parameters of that shape are split in different ways
  const auto either = slice_beside_param(origins, unnamed, "one");
  EXPECT_EQ(either.status().code(), StatusCode::kInvalidData);
  EXPECT_NE(either.status().message().find("'other_mean_grad_0' on one"), std::string::npos);
}

}  // namespace
}  // namespace millrace::ps
