// The programs that save and load a distributed program, op by op, and refused inputs.

#include "transpiler/distribute/io_programs.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "framework/persistable.h"
#include "tests/transpiler/overview.h"
#include "tests/transpiler/small_net.h"

namespace millrace::transpiler {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

const std::vector<std::string> kSaveAttrs = {"shape",           "slice_shapes", "slice_varnames",
                                             "remote_varnames", "endpoints",    "file_path"};

class IoProgramsTest : public ::testing::Test {
 protected:
  StatusOr<SavePrograms> save() {
    return make_save_programs(*trainer_, overview_, properties_, directory_);
  }
  StatusOr<std::unique_ptr<Program>> load() {
    return make_load_program(overview_, properties_, directory_);
  }

  std::unique_ptr<Program> trainer_ = std::move(small_net().main);
  VarsDistributed overview_ = small_overview();
  ProgramProperties properties_ = small_properties();
  std::string directory_ = "model";
};

TEST_F(IoProgramsTest, TheChiefFetchesWhatServersKeep) {
  const auto out = save();
  ASSERT_TRUE(out.ok()) << out.status().to_string();
  EXPECT_THAT(out->local_vars, ElementsAre("w", "b", "lr"));
  ASSERT_EQ(out->remote.size(), 1u);
  EXPECT_THAT(
      op_lines(out->remote[0]->root(), kSaveAttrs),
      ElementsAre("recv_save() #0 shape=[4,2] slice_shapes=[2,2,2,2] "
                  "slice_varnames=[w_velocity_0.slice.1,w_velocity_0.slice.0] "
                  "remote_varnames=[w_velocity_0,w_velocity_0] endpoints=[h:2,h:1] "
                  "file_path=model/w_velocity_0",
                  "recv_save() #0 shape=[1] slice_shapes=[1,1] "
                  "slice_varnames=[w_beta.slice.0,w_beta.slice.1] remote_varnames=[w_beta,w_beta] "
                  "endpoints=[h:1,h:2] file_path=model/w_beta"));
  const AttrValue* const shapes = out->remote[0]->root().front().find_attr("slice_shapes");
  EXPECT_THAT(shapes->strings(), ElementsAre("2,2", "2,2"));
}

// The servers are listed in another order than that of the slices.
TEST_F(IoProgramsTest, StateThatIsListedAsWholeIsJoinedAsItsParameter) {
  VarsDistributed overview;
  for (const int64_t block : {1, 0}) {
    DistributedVar var;
    var.origin.name = "w";
    var.origin.shape = {4, 2};
    var.slice.name = block == 0 ? "w.block0" : "w.block1";
    var.slice.shape = {2, 2};
    var.is_slice = true;
    var.block_id = block;
    var.offset = 4 * block;
    var.vtype = "Param";
    var.endpoint = block == 0 ? "h:2" : "h:1";
    DistributedVar mean = var;
    mean.origin.name = "w_mean";
    mean.slice = mean.origin;
    mean.is_slice = false;
    mean.offset = 0;
    mean.vtype = "Optimizer";
    mean.param = "w";
    overview.add_distributed_var(var);
    overview.add_distributed_var(mean);
  }
  overview_ = overview;
  const auto out = save();
  ASSERT_TRUE(out.ok()) << out.status().to_string();
  EXPECT_THAT(op_lines(out->remote[0]->root(), {"slice_varnames", "endpoints"}),
              ElementsAre("recv_save() #0 slice_varnames=[w_mean.slice.1,w_mean.slice.0] "
                          "endpoints=[h:2,h:1]"));
}

TEST_F(IoProgramsTest, TheOtherTrainersSaveOnlyTheirOwn) {
  properties_.is_chief = false;
  properties_.distributed_lookup_table = "w";
  const auto out = save();
  ASSERT_TRUE(out.ok());
  EXPECT_THAT(out->local_vars, ElementsAre("b", "lr"));
  EXPECT_THAT(out->remote, IsEmpty());
}

TEST_F(IoProgramsTest, ServersSaveADistributedTableThemselves) {
  properties_.distributed_lookup_table = "w";
  directory_ = "model/";
  const auto out = save();
  ASSERT_TRUE(out.ok());
  ASSERT_EQ(out->remote.size(), 2u);
  EXPECT_THAT(op_lines(out->remote[1]->root(), {"epmap", "dir", "lookup_table"}),
              ElementsAre("checkpoint_notify() #0 epmap=[h:1,h:2] dir=model/__lookup_table__ "
                          "lookup_table=w"));
}

TEST_F(IoProgramsTest, PrefetchedTablesAreFetchedToo) {
  VarsDistributed overview;
  DistributedVar table = overview_.vars()[0];
  table.vtype = "RemotePrefetch";
  DistributedVar other = overview_.vars()[3];
  other.vtype = "RemotePrefetch";
  overview.add_distributed_var(other);
  overview.add_distributed_var(table);
  overview_ = overview;
  const auto out = save();
  ASSERT_TRUE(out.ok()) << out.status().to_string();
  EXPECT_THAT(out->local_vars, ElementsAre("b", "lr"));
  EXPECT_THAT(op_lines(out->remote[0]->root(), {"slice_varnames", "endpoints"}),
              ElementsAre("recv_save() #0 slice_varnames=[w.block0.slice.0,w.block1.slice.1] "
                          "endpoints=[h:2,h:1]"));
}

TEST_F(IoProgramsTest, AServerLoadsItsSlicesByOffset) {
  const auto out = load();
  ASSERT_TRUE(out.ok()) << out.status().to_string();
  EXPECT_THAT(
      op_lines((*out)->root(), {"file_path", "seek", "shape"}),
      ElementsAre("load() -> Out=w.block0 #0 file_path=model/w seek=0 shape=[2,2]",
                  "load() -> Out=w_velocity_0 #0 file_path=model/w_velocity_0 seek=0 "
                  "shape=[2,2]",
                  "load() -> Out=w_beta #0 file_path=model/w_beta seek=-1", "delete_var() #0"));
  const Var* const slice = (*out)->root().find_var("w.block0");
  ASSERT_NE(slice, nullptr);
  EXPECT_TRUE(slice->persistable());
  EXPECT_THAT(slice->dims(), ElementsAre(2, 2));
}

TEST_F(IoProgramsTest, OnlyPersistableDataIsSaved) {
  Block& block = trainer_->root();
  for (const auto& [name, kind] :
       std::vector<std::pair<const char*, VarKind>>{{"feed", VarKind::kFeedMinibatch},
                                                    {"fetch", VarKind::kFetchList},
                                                    {"reader", VarKind::kReader},
                                                    {"raw", VarKind::kRaw}}) {
    VarSpec spec = VarSpec::shapeless(kind);
    spec.persistable = true;
    EXPECT_EQ(is_persistable(block.declare(name, spec)), kind == VarKind::kRaw) << name;
  }
  EXPECT_TRUE(is_persistable(*block.find_var("w")));
  EXPECT_FALSE(is_persistable(*block.find_var("w@GRAD")));
  const auto saved = locally_saved_vars(*trainer_, overview_, properties_);
  EXPECT_EQ(saved.size(), 3u);  // w, b, lr
}

TEST_F(IoProgramsTest, WhatIsNotDistributedIsRefused) {
  properties_.ps_endpoint.clear();
  EXPECT_EQ(load().status().message(),
            "cannot load persistable vars: current_endpoint was not set in transpile()");
  directory_.clear();
  EXPECT_EQ(save().status().message(), "cannot save persistable vars: the directory name is empty");
  properties_.is_distributed = false;
  EXPECT_EQ(save().status().message(),
            "cannot save persistable vars: the program is not distributed");
  EXPECT_EQ(load().status().message(),
            "cannot load persistable vars: the program is not distributed");
}

class BrokenSlicesTest : public IoProgramsTest {
 protected:
  /// Message of saving after `change` was made to the entry of the overview.
  std::string refusal(size_t entry, void (*change)(DistributedVar&)) {
    VarsDistributed broken;
    for (size_t i = 0; i < small_overview().vars().size(); ++i) {
      DistributedVar var = small_overview().vars()[i];
      if (i == entry) change(var);
      broken.add_distributed_var(var);
    }
    overview_ = broken;
    return save().status().message();
  }
};

TEST_F(BrokenSlicesTest, SlicesMustCoverTheVar) {
  EXPECT_EQ(refusal(1, [](DistributedVar& var) { var.block_id = 0; }),
            "cannot save \"w_velocity_0\": its 2 slices have block_id 0 twice or out of range");
  EXPECT_EQ(refusal(1, [](DistributedVar& var) { var.block_id = 2; }),
            "cannot save \"w_velocity_0\": its 2 slices have block_id 2 twice or out of range");
  EXPECT_EQ(refusal(1, [](DistributedVar& var) { var.offset = 6; }),
            "cannot save \"w_velocity_0\": slice 'w_velocity_0' on h:1 of 'w_velocity_0' begins at "
            "element 6, expected 4: a gap");
  EXPECT_EQ(
      refusal(1,
              [](DistributedVar& var) {
                var.slice.shape = {1, 2};
              }),
      "cannot save \"w_velocity_0\": the slices of 'w_velocity_0' have 6 elements, expected 8");
  EXPECT_EQ(refusal(1, [](DistributedVar& var) { var.endpoint.clear(); }),
            "cannot save \"w_velocity_0\": its slice \"w_velocity_0\" has no endpoint");
}

}  // namespace
}  // namespace millrace::transpiler
