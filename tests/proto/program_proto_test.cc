// The wire schema must know every field of real programs, and its generated parser must agree with
// the IR's reader and writer.

#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>

#include <gtest/gtest.h>

#include "framework/export.h"
#include "framework/import.h"
#include "proto/program.pb.h"

namespace millrace {
namespace {

constexpr const char* kPrograms[] = {
    "tests/data/resnet50_train/main_program",         "tests/data/resnet50_train/startup_program",
    "tests/fuzz/seeds/program/conditional_blocks.pb", "tests/fuzz/seeds/program/fit_a_line_2018.pb",
    "tests/fuzz/seeds/program/versioned.pb",
};

class ProgramProtoTest : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    std::ifstream in(GetParam(), std::ios::binary);
    bytes_ = std::make_shared<const std::string>((std::istreambuf_iterator<char>(in)),
                                                 std::istreambuf_iterator<char>());
    ASSERT_FALSE(bytes_->empty()) << "cannot read " << GetParam();
    ASSERT_TRUE(desc_.ParseFromString(*bytes_));
  }

  std::shared_ptr<const std::string> bytes_;
  proto::ProgramDesc desc_;
};

TEST_P(ProgramProtoTest, SerializesToTheSameBytes) {
  EXPECT_EQ(desc_.SerializeAsString(), *bytes_);
}

TEST_P(ProgramProtoTest, KnowsEveryField) {
  proto::ProgramDesc without = desc_;
  without.DiscardUnknownFields();
  EXPECT_EQ(without.ByteSizeLong(), desc_.ByteSizeLong());
}

TEST_P(ProgramProtoTest, AgreesWithTheReader) {
  const auto program = import_program(bytes_, GetParam());
  ASSERT_TRUE(program.ok()) << program.status().to_string();
  ASSERT_EQ((*program)->block_count(), static_cast<size_t>(desc_.blocks_size()));
  for (int i = 0; i < desc_.blocks_size(); ++i) {
    const Block& block = (*program)->block(i);
    EXPECT_EQ(block.op_count(), static_cast<size_t>(desc_.blocks(i).ops_size())) << "block " << i;
    EXPECT_EQ(block.var_count(), static_cast<size_t>(desc_.blocks(i).vars_size())) << "block " << i;
  }
}

TEST_P(ProgramProtoTest, AgreesWithTheCanonicalWriter) {
  const auto program = import_program(bytes_, GetParam());
  ASSERT_TRUE(program.ok()) << program.status().to_string();
  EXPECT_EQ(export_program(**program, {.canonical = true}), desc_.SerializeAsString());
}

INSTANTIATE_TEST_SUITE_P(Programs, ProgramProtoTest, ::testing::ValuesIn(kPrograms),
                         [](const auto& test) {
                           return std::filesystem::path(test.param).stem().string();
                         });

TEST(ProgramProto, RefusesAnOpWithoutType) {
  proto::ProgramDesc desc;
  auto* block = desc.add_blocks();
  block->set_idx(0);
  block->set_parent_idx(-1);
  EXPECT_TRUE(desc.IsInitialized());
  block->add_ops();
  EXPECT_FALSE(desc.IsInitialized());
  EXPECT_EQ(desc.InitializationErrorString(), "blocks[0].ops[0].type");
}

}  // namespace
}  // namespace millrace
