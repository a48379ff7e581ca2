// Real programs survive every way of reading and writing them, and an edit changes only the edited
// elements.

#include <filesystem>
#include <fstream>

#include <gmock/gmock.h>

#include "framework/export.h"
#include "framework/read_program.h"
#include "framework/text_form/parse.h"
#include "framework/text_form/print.h"
#include "framework/wire.h"

namespace millrace {
namespace {

std::vector<std::string> small_programs() {
  std::vector<std::string> paths;
  for (const auto& entry : std::filesystem::directory_iterator("tests/data/programs"))
    if (entry.path().extension() == ".pb") paths.push_back(entry.path());
  std::sort(paths.begin(), paths.end());
  return paths;
}

std::string content(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

std::unique_ptr<Program> read(const std::string& path) {
  StatusOr<std::unique_ptr<Program>> program = read_program(path);
  EXPECT_TRUE(program.ok()) << program.status().to_string();
  return program.ok() ? std::move(program).value() : Program::create();
}

// The encoded elements (vars or ops) of all blocks, in order.
std::vector<std::string> elements(const std::string& bytes, uint32_t field) {
  std::vector<std::string> out;
  wire::Reader program(bytes);
  for (wire::Field block; program.next(block);) {
    if (block.number != wire::program_field::kBlocks) continue;
    wire::Reader members(block.bytes);
    for (wire::Field member; members.next(member);)
      if (member.number == field) out.push_back(member.bytes.str());
  }
  return out;
}

class RoundTrip : public ::testing::TestWithParam<std::string> {};

TEST_P(RoundTrip, BinaryGivesTheSameBytes) {
  const std::string bytes = content(GetParam());
  const std::unique_ptr<Program> program = read(GetParam());
  EXPECT_EQ(export_program(*program), bytes);
  EXPECT_EQ(export_program(*program->clone()), bytes);
}

TEST_P(RoundTrip, TextGivesTheSameElements) {
  const std::unique_ptr<Program> program = read(GetParam());
  const std::string text = print_program(*program);
  const StatusOr<std::unique_ptr<Program>> again = parse_program(text, "printed");
  ASSERT_TRUE(again.ok()) << again.status().to_string();
  EXPECT_EQ(print_program(**again), text);
  const std::string bytes = export_program(**again);
  // Only the order of top-level fields may differ: the text form does not keep it.
  program->touch();
  EXPECT_EQ(bytes, export_program(*program));
  const bool in_order = export_program(*program) == content(GetParam());
  EXPECT_EQ(in_order, GetParam().find("cartpole_policy") == std::string::npos);
}

TEST_P(RoundTrip, EditsTouchOnlyWhatIsEdited) {
  const std::string before = content(GetParam());
  const std::unique_ptr<Program> program = read(GetParam());
  Block& block = program->root();
  const size_t edited = block.op_count() / 2;
  block.op_vector()[edited]->set_int("edited", 1);
  block.append_op("added");
  const std::string after = export_program(*program);
  std::vector<std::string> ops_before = elements(before, wire::block_field::kOps);
  std::vector<std::string> ops_after = elements(after, wire::block_field::kOps);
  ASSERT_EQ(ops_after.size(), ops_before.size() + 1);
  EXPECT_NE(ops_after[edited], ops_before[edited]);
  ops_after.erase(ops_after.begin() + static_cast<ptrdiff_t>(block.op_count()) - 1);
  ops_before.erase(ops_before.begin() + static_cast<ptrdiff_t>(edited));
  ops_after.erase(ops_after.begin() + static_cast<ptrdiff_t>(edited));
  EXPECT_EQ(ops_after, ops_before);
  EXPECT_EQ(elements(after, wire::block_field::kVars), elements(before, wire::block_field::kVars));
}

TEST_P(RoundTrip, PrefixesAreRefusedOrReadBack) {
  const std::string bytes = content(GetParam());
  for (size_t size = 0; size < bytes.size(); size += 1 + bytes.size() / 200) {
    const StatusOr<std::unique_ptr<Program>> program =
        read_program_bytes(bytes.substr(0, size), "cut");
    if (program.ok()) {
      EXPECT_EQ(export_program(**program), bytes.substr(0, size));
    } else {
      EXPECT_EQ(program.status().location().file, "cut");
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Programs, RoundTrip, ::testing::ValuesIn(small_programs()),
                         [](const auto& instance) {
                           return std::filesystem::path(instance.param).stem().string();
                         });

TEST(RoundTripPrograms, AreThere) {
  EXPECT_EQ(small_programs().size(), 8U);
}

TEST(ImportLimits, LargerInputsAreRefused) {
  const StatusOr<std::unique_ptr<Program>> program =
      read_program("tests/data/programs/custom_gap.pb", {.max_bytes = 100});
  ASSERT_FALSE(program.ok());
  EXPECT_EQ(program.status().code(), StatusCode::kResource);
  EXPECT_EQ(program.status().location().file, "tests/data/programs/custom_gap.pb");
}

// Files that would make a careless reader slow: many slots, many unknown fields, many maps.
TEST(ImportLimits, HostileFilesTakeLinearTime) {
  const auto program_of = [](uint32_t field, const std::string& element) {
    std::string block;
    wire::put_int(block, 1, 0);
    wire::put_int(block, 2, -1);
    wire::put_bytes(block, field, element);
    std::string program;
    wire::put_bytes(program, 1, block);
    return program;
  };
  std::string slot;
  wire::put_bytes(slot, 1, "X");
  wire::put_bytes(slot, 2, "v");
  std::string op;
  for (int i = 0; i < 200000; ++i) wire::put_bytes(op, 1, slot);
  wire::put_bytes(op, 3, "o");
  std::string type;
  wire::put_int(type, 1, 7);
  std::string var;
  wire::put_bytes(var, 1, "v");
  wire::put_bytes(var, 2, type);
  for (int i = 0; i < 500000; ++i) wire::put_int(var, 9, 1);
  std::string maps = program_of(4, op);
  for (int i = 0; i < 200000; ++i) wire::put_bytes(maps, 5, std::string("\x0a\x00", 2));
  for (const std::string& bytes : {program_of(4, op), program_of(3, var), maps}) {
    const StatusOr<std::unique_ptr<Program>> program = read_program_bytes(bytes, "hostile");
    ASSERT_TRUE(program.ok()) << program.status().to_string();
    EXPECT_EQ(export_program(**program), bytes);
  }
}

}  // namespace
}  // namespace millrace
