#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "framework/program.h"

namespace millrace {
namespace {

using ::testing::ElementsAre;

TEST(RetainBlocks, RenumbersParentsForwardBlocksAndAttributes) {
  const auto program = Program::create();
  program->add_block(0);
  program->add_block(0);
  program->add_block(2).set_forward_block(2);
  program->root().append_op("a").set_attr("sub_block", AttrValue::of_block(3));
  program->root().append_op("b").set_attr("blocks", AttrValue::of_blocks({2, 3}));
  program->block(3).append_op("c").set_attr("sub_block", AttrValue::of_block(1));

  program->retain_blocks({true, false, true, true});

  ASSERT_EQ(program->block_count(), 3U);
  EXPECT_EQ(program->block(2).index(), 2);
  EXPECT_EQ(program->block(2).stated_index(), 2);
  EXPECT_EQ(program->block(2).parent(), 1);
  EXPECT_EQ(program->block(2).forward_block(), 1);
  EXPECT_EQ(program->root().front().find_attr("sub_block")->integer(), 2);
  EXPECT_THAT(program->root().back().find_attr("blocks")->ints(), ElementsAre(1, 2));
  // a reference to a block that was removed
  EXPECT_EQ(program->block(2).front().find_attr("sub_block")->integer(), -1);
}

TEST(RetainBlocks, KeepingAllIsNoEdit) {
  const auto program = Program::create();
  program->add_block(0);
  program->set_source(std::make_shared<const std::string>("bytes"));
  program->retain_blocks({true, true});
  EXPECT_EQ(program->block_count(), 2U);
  EXPECT_NE(program->pristine_bytes(), nullptr);
}

}  // namespace
}  // namespace millrace
