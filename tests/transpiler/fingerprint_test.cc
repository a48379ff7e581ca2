#include "framework/fingerprint.h"

#include <gtest/gtest.h>

#include "framework/import.h"

namespace millrace {
namespace {

std::unique_ptr<Program> two_ops() {
  auto program = Program::create();
  program->root().declare("x", VarSpec::tensor(DType::kFloat32, {-1, 3}));
  program->root().append_op("a").set_output("Out", "x").set_int("k", 1);
  program->root().append_op("b").set_input("X", "x");
  return program;
}

TEST(Fingerprint, EqualProgramsAgree) {
  EXPECT_EQ(fingerprint(*two_ops()), fingerprint(*two_ops()));
  EXPECT_EQ(fingerprint(*two_ops()), fingerprint(*two_ops()->clone()));
}

TEST(Fingerprint, EveryKindOfEditCounts) {
  const uint64_t original = fingerprint(*two_ops());
  const auto differs = [&](auto edit) {
    const auto program = two_ops();
    edit(*program);
    return fingerprint(*program) != original;
  };
  EXPECT_TRUE(differs([](Program& p) { p.root().front().set_int("k", 2); }));
  EXPECT_TRUE(differs([](Program& p) { p.root().front().set_type("c"); }));
  EXPECT_TRUE(differs([](Program& p) { p.root().back().set_input("X", "y"); }));
  EXPECT_TRUE(differs([](Program& p) { p.root().erase(p.root().back()); }));
  EXPECT_TRUE(differs([](Program& p) { p.root().find_var("x")->set_persistable(true); }));
  EXPECT_TRUE(differs([](Program& p) { p.add_block(0); }));
  EXPECT_TRUE(differs([](Program& p) { p.set_version(true, 0); }));
}

TEST(Fingerprint, InternedNamesAndUndoneEditsDoNotCount) {
  const auto program = two_ops();
  Op& op = program->root().append_op("never");
  program->root().erase(op);
  EXPECT_EQ(fingerprint(*program), fingerprint(*two_ops()));
}

TEST(Fingerprint, OrderOfFieldsInTheFileDoesNotCount) {
  const auto read = [](const char* block) {
    auto bytes =
        std::make_shared<const std::string>(std::string("\x0a\x04", 2) + std::string(block, 4));
    return fingerprint(**import_program(bytes, "test"));
  };
  EXPECT_EQ(read("\x08\x00\x10\x05"), read("\x10\x05\x08\x00"));  // idx 0, parent 5
  EXPECT_NE(read("\x08\x00\x10\x05"), read("\x08\x00\x10\x06"));
}

}  // namespace
}  // namespace millrace
