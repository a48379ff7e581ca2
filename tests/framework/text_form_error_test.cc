// Texts that are not a program are refused with line, column, and what was expected and found.

#include <chrono>

#include <gmock/gmock.h>

#include "framework/text_form/parse.h"

namespace millrace {
namespace {

using ::testing::HasSubstr;

std::string error_of(const std::string& text) {
  const StatusOr<std::unique_ptr<Program>> program = parse_program(text, "t.prog");
  return program.ok() ? "no error" : program.status().to_string();
}

std::string in_block(const std::string& line) {
  return error_of("# millrace program 1\nblock 0 {\n  " + line + "\n}\n");
}

TEST(TextFormError, NamesPlaceExpectedAndFound) {
  EXPECT_EQ(in_block("var x f32(2)"),
            "error: t.prog: block 0, 'x': line 3, column 9: expected ':' after the var name, found "
            "'f32'");
  EXPECT_EQ(in_block("mul X=a {axis 1}"),
            "error: t.prog: block 0, op 0 (mul), attr axis: line 3, column 17: expected ':' after "
            "the attribute, found '1'");
}

TEST(TextFormError, Structure) {
  EXPECT_THAT(error_of("#\n"), HasSubstr("line 2, column 1: expected 'block 0 {', found the end"));
  EXPECT_THAT(error_of("#\nblock 1 {\n}\n"), HasSubstr("expected block index 0, found '1'"));
  EXPECT_THAT(error_of("#\nblock 0 {\n}\nblock 1 {\n}\n"), HasSubstr("expected parent=N"));
  EXPECT_THAT(error_of("#\nblock 0 {\n"), HasSubstr("found the end of the text"));
  EXPECT_THAT(error_of("#\nblock 0 {\n}\nversion 1\n"), HasSubstr("expected 'block' or the end"));
  EXPECT_THAT(error_of("#\nversion 1\nversion 1\n"), HasSubstr("expected one 'version'"));
  EXPECT_THAT(error_of("#\nversion x\n"), HasSubstr("expected a version number or 'absent'"));
  EXPECT_THAT(error_of("#\nblock 0 color=3 {\n}\n"), HasSubstr("expected parent, idx, forward"));
  EXPECT_THAT(error_of("# millrace program 2\n"), HasSubstr("version 2 of the text form"));
}

TEST(TextFormError, Vars) {
  EXPECT_THAT(in_block("var x: f33(2)"), HasSubstr("expected a var type such as f32(784, 200)"));
  EXPECT_THAT(in_block("var x: f32 2"), HasSubstr("expected '(' and the dims, found '2'"));
  EXPECT_THAT(in_block("var x: f32(2"), HasSubstr("expected ',' or ')'"));
  EXPECT_THAT(in_block("var x: f32(99999999999999999999)"), HasSubstr("expected a dim"));
  EXPECT_THAT(in_block("var x: raw as lod_tensor"), HasSubstr("expected an element type"));
  EXPECT_THAT(in_block("var x: raw as heap f32()"), HasSubstr("expected a tensor form"));
  EXPECT_THAT(in_block("var x: f32() sticky"), HasSubstr("expected persistable, need_check_feed"));
  EXPECT_THAT(in_block("var x: f32() !lod=1"), HasSubstr("expected persistable"));
  EXPECT_THAT(in_block("var x: f32() wire=\"0\""), HasSubstr("an even number of hex digits"));
}

TEST(TextFormError, OpsAndValues) {
  EXPECT_THAT(in_block("mul X=a -> Out=b -> Out=c"), HasSubstr("'->' may occur only once"));
  EXPECT_THAT(in_block("mul X"), HasSubstr("expected '=' after the slot"));
  EXPECT_THAT(in_block("mul X="), HasSubstr("expected a var name or []"));
  EXPECT_THAT(in_block("mul !X=a"), HasSubstr("expected a slot, target"));
  EXPECT_THAT(in_block("o {a: []}"), HasSubstr("an empty list needs its kind, for example ints[]"));
  EXPECT_THAT(in_block("o {a: [1, 2l]}"),
              HasSubstr("elements of a list must be of one kind: '2l' is long, but the first is "
                        "int"));
  EXPECT_THAT(in_block("o {a: 5000000000}"), HasSubstr("expected an attribute value"));
  EXPECT_THAT(in_block("o {a: 1e}"), HasSubstr("expected an attribute value"));
  EXPECT_THAT(in_block("o {a: 0x12}"), HasSubstr("expected an attribute value"));
  EXPECT_THAT(in_block("o {a: ints[1]}"), HasSubstr("only empty lists name their kind"));
  EXPECT_THAT(in_block("o {a: int}"), HasSubstr("expected '?'"));
  EXPECT_THAT(in_block("o {a: scalar(scalar(1l))}"), HasSubstr("expected the value of a scalar"));
  EXPECT_THAT(in_block("o {a: scalar(1)}"), HasSubstr("expected a bool, a long or"));
  EXPECT_THAT(in_block("o {a: \"x"), HasSubstr("expected a closing quote"));
  EXPECT_THAT(in_block("o {a: \"\\q\"}"), HasSubstr("expected one of the escapes"));
  EXPECT_THAT(in_block("o {a: 1 b: 2}"), HasSubstr("expected ',' or '}'"));
  EXPECT_THAT(in_block("o\x1b[2J"), HasSubstr("unexpected character '\\x1b'"));
}

TEST(TextFormError, LimitIsKept) {
  const StatusOr<std::unique_ptr<Program>> program =
      parse_program("# millrace program 1\nblock 0 {\n}\n", "big", {.max_bytes = 10});
  ASSERT_FALSE(program.ok());
  EXPECT_EQ(program.status().code(), StatusCode::kResource);
}

// Nesting is bounded by the grammar, so the worst case is a long text.
TEST(TextFormError, HostileTextsTakeLinearTime) {
  const auto repeated = [](const std::string& head, const std::string& unit, int count) {
    std::string text = "#\nblock 0 {\n" + head;
    for (int i = 0; i < count; ++i) text += unit;
    return text;
  };
  const auto start = std::chrono::steady_clock::now();
  error_of(repeated("o ", "X=[] ", 200000));
  error_of(repeated("o X=a", ", a", 200000));
  error_of(repeated("o {a: ", "[", 200000));
  error_of(repeated("o {a: ", "scalar(", 200000));
  error_of(repeated("", "var x: f32(1)\n", 100000));
  error_of(repeated("", "o wire=\"1a016f\"\n", 20000));
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
  EXPECT_LT(took.count(), 10.0);  // quadratic behaviour takes minutes
}

}  // namespace
}  // namespace millrace
