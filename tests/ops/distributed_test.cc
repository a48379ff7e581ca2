#include <gtest/gtest.h>

#include "framework/op_attrs.h"
#include "framework/program.h"
#include "ops/infer_shapes.h"
#include "tests/ops/op_fixture.h"

namespace millrace::ops {
namespace {

using Strings = std::vector<std::string>;

const AttrValue kTwoServers = make_attr(Strings{"a:1", "b:2"});

TEST(Distributed, SlicesCoverTheVar) {
  const AttrList sections = {{"sections", make_attr(std::vector<int32_t>{4, 6})}};
  EXPECT_EQ(infer("split_byref", "X=f32[10,3]", "Out*2", sections), "Out=f32[4,3]+f32[6,3]");
  EXPECT_EQ(infer("split_byref", "X=f32[10]", "Out*2", {{"num", make_attr(2)}}),
            "Out=f32[5]+f32[5]");
  EXPECT_EQ(infer("split_byref", "X=f32[11,3]", "Out*2", sections),
            "attribute 'sections' has 10 rows in all, expected 11, dim 0 of 'X' [11, 3]");
  EXPECT_EQ(infer("split_byref", "X=f32[10,3]", "Out*3", sections),
            "attribute 'sections' has 2 sections, expected 3, one for each var of 'Out'");
  EXPECT_EQ(infer("split_byref", "X=f32[10]", "Out*2", {}),
            "attribute 'num' must be at least 1 where 'sections' is empty, found 0");
  EXPECT_EQ(infer("split_byref", "X=f32[10]", "Out*3", {{"num", make_attr(3)}}),
            "attribute 'num' is 3, which does not divide dim 0 of 'X' [10]");
  EXPECT_EQ(infer("split_selected_rows", "X=rows:f32[10,3]", "Out*2",
                  {{"height_sections", make_attr(std::vector<int64_t>{4, 6})}}),
            "Out=rows:f32[4,3]+rows:f32[6,3]");
  EXPECT_EQ(grad("split_selected_rows", "X", "Out*2"), "sum(X*2 -> Out)");
}

TEST(Distributed, IdsAndTables) {
  EXPECT_EQ(infer("split_ids", "Ids=i64[-1,1]@1+i64[-1,1]", "Out*2"), "Out=i64[-1,1]+i64[-1,1]");
  EXPECT_EQ(infer("split_ids", "Ids=rows:f32[90,4]", "Out*2"), "Out=rows:f32[90,4]+rows:f32[90,4]");
  EXPECT_EQ(
      infer("merge_ids", "Ids=i64[7,1]@1 Rows=i64[-1,1]+i64[-1,1] X=f32[-1,4]+f32[-1,4]", "Out"),
      "Out=f32[7,4]@1");
  EXPECT_EQ(infer("merge_ids", "Ids=i64[7,1] Rows=i64[-1,1]+i64[-1,1] X=f32[-1,4]", "Out"),
            "'X' has 1 vars, expected 2, one for each var of 'Rows'");
  EXPECT_EQ(infer("lookup_sparse_table", "W=rows:f32[90,4] Ids=i64[-1,1]", "Out"), "Out=f32[-1,4]");
  EXPECT_EQ(infer("distributed_lookup_table", "Ids=i64[-1,1]@1+i64[5,1] W=f32[90,4]", "Outputs*2"),
            "Outputs=f32[-1,4]@1+f32[5,4]");
  EXPECT_EQ(infer("distributed_lookup_table", "Ids=i64[5,2] W=f32[90,4]", "Outputs",
                  {{"lookup_table_version", make_attr("lookup_table_v2")}}),
            "Outputs=f32[5,2,4]");
  EXPECT_EQ(infer("lookup_sparse_table_fuse_adam", "Beta1Pow=f32[1] Beta2Pow=f32[1]",
                  "Beta1PowOut Beta2PowOut"),
            "Beta1PowOut=f32[1] Beta2PowOut=f32[1]");
  EXPECT_EQ(infer("fake_init", "", "Out", {{"shape", make_attr(std::vector<int64_t>{90, 4})}}),
            "Out=?");
  EXPECT_EQ(infer("ref_by_trainer_id", "X=f32[3]+f32[3] TrainerId=i64[1]", "Out"), "Out=f32[3]");
}

TEST(Distributed, EndpointsMatchVars) {
  EXPECT_EQ(infer("send", "X=f32[2]+f32[2]", "Out", {{"epmap", kTwoServers}}), "Out=?");
  EXPECT_EQ(infer("send", "X=i64[1]", "Out", {{"epmap", kTwoServers}}), "Out=?");
  EXPECT_EQ(infer("send", "X=f32[2]+f32[2]+f32[2]", "Out", {{"epmap", kTwoServers}}),
            "attribute 'epmap' has 2 endpoints, expected 3, one for each var of 'X'");
  EXPECT_EQ(infer("recv", "X=f32[2]", "Out*3", {{"epmap", kTwoServers}}),
            "attribute 'epmap' has 2 endpoints, expected 3, one for each var of 'Out'");
  EXPECT_EQ(infer("prefetch", "X=i64[-1,1]+i64[-1,1]", "Out", {{"epmap", kTwoServers}}),
            "'Out' has 1 vars, expected 2, one for each var of 'X'");
  EXPECT_EQ(infer("recv_save", "", "",
                  {{"slice_varnames", make_attr(Strings{"w.slice.0"})},
                   {"remote_varnames", make_attr(Strings{"w.block0"})},
                   {"slice_shapes", make_attr(Strings{"4,3", "6,3"})},
                   {"endpoints", make_attr(Strings{"a:1"})}}),
            "attribute 'slice_shapes' has 2 entries, expected 1 as in 'slice_varnames'");
}

TEST(Distributed, BlocksOfAServerExist) {
  const auto listen = [](const char* entry, int lr_block) {
    return infer("listen_and_serv", "", "",
                 {{"grad_to_block_id", make_attr(Strings{entry})},
                  {"lr_decay_block_id", make_attr(lr_block)}});
  };
  EXPECT_EQ(listen("w@GRAD:0", -1), "");
  EXPECT_EQ(listen("w@GRAD:1", -1),
            "attribute 'grad_to_block_id' has the entry 'w@GRAD:1', expected name:block with a "
            "block in [0, 1)");
  EXPECT_EQ(listen("w@GRAD", -1),
            "attribute 'grad_to_block_id' has the entry 'w@GRAD', expected name:block with a "
            "block in [0, 1)");
  EXPECT_EQ(listen("w@GRAD:0", 7),
            "attribute 'lr_decay_block_id' is 7, expected -1 or a block in [0, 1)");
}

TEST(Collective, Shapes) {
  const AttrList two = {{"nranks", make_attr(2)}};
  EXPECT_EQ(infer("c_allreduce_sum", "X=f32[4,3]", "Out"), "Out=f32[4,3]");
  EXPECT_EQ(infer("c_broadcast", "X=f32[4,3]", "Out"), "Out=f32[4,3]");
  EXPECT_EQ(infer("c_allgather", "X=f32[4,3]", "Out", two), "Out=f32[8,3]");
  EXPECT_EQ(infer("c_allgather", "X=f32[-1,3]", "Out", two), "Out=f32[-1,3]");
  EXPECT_EQ(infer("c_reducescatter", "X=f32[4,3]", "Out", two), "Out=f32[2,3]");
  EXPECT_EQ(infer("c_reducescatter", "X=f32[5,3]", "Out", two),
            "dim 0 of 'X' [5, 3] is not a multiple of attribute 'nranks' 2");
  EXPECT_EQ(infer("c_allreduce_xsum", "X=f32[4]+f32[3]", "Out*2"), "Out=f32[4]+f32[3]");
  EXPECT_EQ(infer("coalesce_tensor", "Input=f32[4]+f32[3,2]", "Output*2 FusedOutput"),
            "Output=f32[4]+f32[3,2] FusedOutput=f32[-1]");
  EXPECT_EQ(infer("c_sync_comm_stream", "X=f32[4]+f32[3]", "Out*2"), "Out=f32[4]+f32[3]");
}

TEST(Distributed, CapabilitiesAndEffects) {
  const auto registry = standard_registry();
  for (const char* const type : {"send", "recv", "send_barrier", "fetch_barrier", "listen_and_serv",
                                 "prefetch", "c_allreduce_sum", "c_comm_init", "gen_nccl_id"}) {
    EXPECT_EQ(registry->find(type)->capability(), Capability::kNetwork) << type;
    EXPECT_TRUE(registry->find(type)->has_side_effects()) << type;
  }
  for (const char* const type : {"save", "load", "save_combine", "load_combine", "recv_save",
                                 "checkpoint_notify", "sparse_tensor_load"}) {
    EXPECT_EQ(registry->find(type)->capability(), Capability::kFile) << type;
    EXPECT_TRUE(registry->find(type)->has_side_effects()) << type;
  }
  for (const char* const type : {"py_func", "run_program"}) {
    EXPECT_EQ(registry->find(type)->capability(), Capability::kHostCode) << type;
    EXPECT_FALSE(registry->find(type)->unsupported_reason().empty()) << type;
  }
  for (const char* const type : {"gap", "io_copy", "layout"})
    EXPECT_TRUE(registry->find(type)->has_open_slots()) << type;
}

TEST(Files, PartsNeedAShape) {
  EXPECT_EQ(infer("load", "", "Out", {{"file_path", make_attr("m/w")}}), "Out=?");
  EXPECT_EQ(infer("load", "", "Out", {{"file_path", make_attr("m/w")}, {"seek", make_attr(6)}}),
            "attribute 'shape' is [], expected positive dims because 'seek' is 6");
}

}  // namespace
}  // namespace millrace::ops
