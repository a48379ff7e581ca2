// parse_program(print_program(p)) keeps every fact of a program.

#include <bit>
#include <limits>

#include <gmock/gmock.h>

#include "framework/export.h"
#include "framework/import.h"
#include "framework/read_program.h"
#include "framework/text_form/parse.h"
#include "framework/text_form/print.h"
#include "framework/text_form/value.h"
#include "framework/wire.h"

namespace millrace {
namespace {

using ::testing::HasSubstr;

std::unique_ptr<Program> parse(const std::string& text) {
  StatusOr<std::unique_ptr<Program>> program = parse_program(text, "t.prog");
  EXPECT_TRUE(program.ok()) << program.status().to_string() << "\n" << text;
  return program.ok() ? std::move(program).value() : Program::create();
}

std::unique_ptr<Program> import(const std::string& bytes) {
  StatusOr<std::unique_ptr<Program>> program =
      import_program(std::make_shared<const std::string>(bytes), "t.pb");
  EXPECT_TRUE(program.ok()) << program.status().to_string();
  return program.ok() ? std::move(program).value() : Program::create();
}

// The text, after checking that it reads back to the same bytes and the same text.
std::string round_trip(const Program& program) {
  const std::string text = print_program(program);
  const std::unique_ptr<Program> again = parse(text);
  EXPECT_EQ(export_program(*again), export_program(program)) << text;
  EXPECT_EQ(print_program(*again), text);
  return text;
}

std::string value_round_trip(const AttrValue& value) {
  const std::unique_ptr<Program> program = Program::create();
  program->root().append_op("op").set_attr("a", value);
  const std::unique_ptr<Program> again = parse(round_trip(*program));
  const AttrValue* const found = again->root().front().find_attr("a");
  EXPECT_TRUE(found != nullptr && *found == value) << print_value(value);
  return print_value(value);
}

TEST(TextForm, LooksAsDocumented) {
  const std::unique_ptr<Program> program = Program::create();
  Block& block = program->root();
  VarSpec weight = VarSpec::tensor(DType::kFloat32, {784, 200});
  weight.persistable = weight.is_parameter = true;
  block.declare("fc_0.w_0", weight);
  VarSpec x = VarSpec::tensor(DType::kFloat32, {-1, 784});
  x.lod_level = 1;
  x.stop_gradient = false;
  block.declare("x", x);
  block.declare("feed", VarSpec::shapeless(VarKind::kFeedMinibatch));
  block.append_op("mul")
      .set_input("X", "x")
      .set_input("Y", "fc_0.w_0")
      .set_output("Out", "y")
      .set_int("x_num_col_dims", 1);
  block.append_op("split_byref")
      .set_input("X", "g")
      .set_output("Out", std::vector<std::string>{"g.block0", "g.block1"});
  EXPECT_EQ(round_trip(*program), R"(# millrace program 1

block 0 {
  param fc_0.w_0: f32(784, 200)
  var x: f32(-1, 784) lod=1 !stop_gradient
  var feed: feed_minibatch

  mul X=x Y=fc_0.w_0 -> Out=y {x_num_col_dims: 1}
  split_byref X=g -> Out=g.block0, g.block1
}
)");
}

TEST(TextForm, ValuesOfEveryKind) {
  EXPECT_EQ(value_round_trip(AttrValue::of_int(-5)), "-5");
  EXPECT_EQ(value_round_trip(AttrValue::of_long(1LL << 40)), "1099511627776l");
  EXPECT_EQ(value_round_trip(AttrValue::of_bool(true)), "true");
  EXPECT_EQ(value_round_trip(AttrValue::of_block(2)), "^2");
  EXPECT_EQ(value_round_trip(AttrValue::of_string("a\"\\\n\x01\xff")), R"("a\"\\\n\x01\xff")");
  EXPECT_EQ(value_round_trip(AttrValue::of_var("odd name")), "%\"odd name\"");
  EXPECT_EQ(value_round_trip(AttrValue::of_ints({1, -2})), "[1, -2]");
  EXPECT_EQ(value_round_trip(AttrValue::of_longs({7})), "[7l]");
  EXPECT_EQ(value_round_trip(AttrValue::of_blocks({1, 3})), "[^1, ^3]");
  EXPECT_EQ(value_round_trip(AttrValue::of_bools({1, 0})), "[true, false]");
  EXPECT_EQ(value_round_trip(AttrValue::of_strings({"", "b"})), R"(["", "b"])");
  EXPECT_EQ(value_round_trip(AttrValue::of_vars({"x", "y"})), "[%x, %y]");
  EXPECT_EQ(value_round_trip(AttrValue::of_scalar({Scalar::Type::kLong, false, 5, 0, 0})),
            "scalar(5l)");
  EXPECT_EQ(value_round_trip(AttrValue::of_scalars(
                {{Scalar::Type::kBool, true, 0, 0, 0}, {Scalar::Type::kComplex, false, 0, 1, -2}})),
            "[scalar(true), scalar(1.0d, -2.0d)]");
}

TEST(TextForm, EmptyListsKeepTheirKind) {
  EXPECT_EQ(value_round_trip(AttrValue::of_ints({})), "ints[]");
  EXPECT_EQ(value_round_trip(AttrValue::of_longs({})), "longs[]");
  EXPECT_EQ(value_round_trip(AttrValue::of_floats({})), "floats[]");
  EXPECT_EQ(value_round_trip(AttrValue::of_float64s({})), "float64s[]");
  EXPECT_EQ(value_round_trip(AttrValue::of_strings({})), "strings[]");
  EXPECT_EQ(value_round_trip(AttrValue::of_vars({})), "vars[]");
  EXPECT_EQ(value_round_trip(AttrValue::of_bools({})), "bools[]");
  EXPECT_EQ(value_round_trip(AttrValue::of_blocks({})), "blocks[]");
  EXPECT_EQ(value_round_trip(AttrValue::of_scalars({})), "scalars[]");
}

TEST(TextForm, FloatsKeepEveryBit) {
  EXPECT_EQ(value_round_trip(AttrValue::of_float(1.0F)), "1.0");
  EXPECT_EQ(value_round_trip(AttrValue::of_float(0.1F)), "0.1");
  EXPECT_EQ(value_round_trip(AttrValue::of_float(-0.0F)), "-0.0");
  EXPECT_EQ(value_round_trip(AttrValue::of_float64(0.1)), "0.1d");
  EXPECT_EQ(value_round_trip(AttrValue::of_float(1e30F)), "1e+30");
  for (const float v : {std::numeric_limits<float>::infinity(), -0.0F, 1.17549435e-38F, 1e-45F,
                        std::numeric_limits<float>::max(), std::bit_cast<float>(0x7fc01234U),
                        std::bit_cast<float>(0xffc00001U), std::bit_cast<float>(0x7f800001U)}) {
    value_round_trip(AttrValue::of_float(v));
    value_round_trip(AttrValue::of_floats({1.0F, v, -v}));
  }
  for (const double v : {-std::numeric_limits<double>::infinity(), 5e-324, 1e300, 1.0 / 3,
                         std::bit_cast<double>(0x7ff8000000000001ULL)}) {
    value_round_trip(AttrValue::of_float64(v));
    value_round_trip(AttrValue::of_float64s({v, 2.0}));
  }
}

TEST(TextForm, KeepsWhatAFileStatesWithoutNeed) {
  const std::unique_ptr<Program> program = Program::create();
  Block& block = program->root();
  program->set_version(true, std::nullopt);
  program->set_op_versions(true, {{"adam", 1}, {"odd name", -1}});
  program->set_unknown(std::make_shared<const std::string>("\x10\x05"));
  block.set_stated_index(7);
  block.set_forward_block(0);
  block.set_unknown(std::make_shared<const std::string>("\x30\x05"));
  VarSpec spec = VarSpec::tensor(static_cast<DType>(77), {});
  spec.lod_level = 0;
  spec.persistable = spec.need_check_feed = spec.is_parameter = spec.stop_gradient = false;
  spec.extra = std::make_shared<const std::string>("\x40\x01");
  spec.type_extra = std::make_shared<const std::string>("\x2a\x00", 2);
  block.declare("all false", spec);
  VarSpec odd = VarSpec::tensor(DType::kInt64, {3});
  odd.kind = VarKind::kSelectedRows;
  odd.is_parameter = true;
  block.declare("form", odd);
  odd.kind = static_cast<VarKind>(99);
  block.add_declaration("form", odd);
  block.declare("kind", VarSpec::shapeless(static_cast<VarKind>(98)));
  Op& op = block.append_op("var");
  op.add_slot(false, "X", {});
  op.add_slot(false, "wire", {"x"});
  op.add_slot(false, "X", {"b", "@EMPTY@", ""});
  op.set_is_target(false);
  op.set_unknown(std::make_shared<const std::string>("\x30\x01"));
  op.set_int("twice", 1);
  Attr attr{program->names().intern("twice"), AttrValue::of_float(0), true,
            std::make_shared<const std::string>("\x18\x01")};
  op.add_attr(attr);
  program->add_block(5);
  const std::string text = round_trip(*program);
  for (const char* part :
       {"version absent\n", "  \"odd name\" -1\n", "unknown=\"1005\"\n", "block 0 idx=7 forward=0",
        "var \"all false\": ?77() lod=0 !persistable !need_check_feed !is_parameter !stop_gradient",
        "var form: selected_rows as lod_tensor i64(3) is_parameter\n", "var form: ?99 i64(3)",
        "var kind: ?98\n", "\"var\" X=[] \"wire\"=x X=b, @EMPTY@, \"\" {twice: 1, twice: float? ",
        "!target unknown=\"3001\"", "block 1 parent=5 {"})
    EXPECT_THAT(text, HasSubstr(part));
}

// A var whose fields are not in the order of their numbers.
std::string odd_var() {
  std::string type;
  wire::put_int(type, 1, 7);
  std::string var;
  wire::put_int(var, 3, 1);
  wire::put_bytes(var, 1, "v");
  wire::put_bytes(var, 2, type);
  return var;
}

std::string program_with(uint32_t field, const std::string& element) {
  std::string block;
  wire::put_int(block, 1, 0);
  wire::put_int(block, 2, -1);
  wire::put_bytes(block, field, element);
  std::string program;
  wire::put_bytes(program, 1, block);
  return program;
}

TEST(TextForm, UnusualEncodingsKeepTheirBytes) {
  std::string ints;
  wire::put_varint(ints, 300);
  std::string attr;
  wire::put_bytes(attr, 1, "packed");
  wire::put_int(attr, 2, 3);
  wire::put_bytes(attr, 6, ints);
  std::string op;
  wire::put_bytes(op, 3, "o");
  wire::put_bytes(op, 4, attr);
  const std::unique_ptr<Program> with_op = import(program_with(4, op));
  EXPECT_THAT(round_trip(*with_op), HasSubstr("o {packed: [300]} wire=\"1a016f"));
  const std::unique_ptr<Program> with_var = import(program_with(3, odd_var()));
  EXPECT_THAT(round_trip(*with_var), HasSubstr("persist v: lod_tensor wire=\"1801"));
}

TEST(TextForm, EditedLinesLoseTheirWireBytes) {
  std::string text = print_program(*import(program_with(3, odd_var())));
  text.replace(text.find("persist v"), 9, "persist w");
  const std::unique_ptr<Program> edited = parse(text);
  EXPECT_EQ(edited->root().vars().begin()->name(), "w");
  EXPECT_EQ(edited->root().vars().begin()->wire(), "");
  EXPECT_THAT(print_program(*edited), Not(HasSubstr("wire")));
}

TEST(TextForm, LongOpsFillLinesOfTheirOwn) {
  const std::unique_ptr<Program> program = Program::create();
  Op& op = program->root().append_op("o");
  for (int i = 0; i < 12; ++i) op.set_int("attribute_" + std::to_string(i), i);
  const std::string text = round_trip(*program);
  EXPECT_THAT(text, HasSubstr("  o {\n      attribute_0: 0, attribute_1: 1,"));
  EXPECT_THAT(text, HasSubstr("attribute_11: 11\n  }\n"));
}

TEST(TextForm, ViewsSayWhatTheyLeaveOut) {
  const std::unique_ptr<Program> program = Program::create();
  program->root().append_op("o").set_int("a", 1).set_strings("op_callstack", {"File"});
  const std::string no_stack = print_program(*program, {.attrs = true, .callstack = false});
  EXPECT_THAT(no_stack, HasSubstr("# millrace program 1, without op_callstack\n"));
  EXPECT_THAT(no_stack, HasSubstr("  o {a: 1}\n"));
  const std::string bare = print_program(*program, {.attrs = false, .callstack = true});
  EXPECT_THAT(bare, HasSubstr("# millrace program 1, without attributes\n"));
  EXPECT_THAT(bare, HasSubstr("  o\n"));
}

TEST(TextForm, CommentsBlankLinesAndBreaksAreFree) {
  const std::unique_ptr<Program> program = parse(
      "# a test\n\nblock 0 { # here\n  op A=x,\n    y -> # outputs\n  B=z {\n a:\n [1,\n 2]\n,\n}\n"
      "  # no ops follow\n}");
  EXPECT_EQ(print_op(program->root().front()), "op A=x, y -> B=z {a: [1, 2]}");
}

TEST(ReadProgram, TellsTextFromBinary) {
  const std::unique_ptr<Program> program = Program::create();
  program->root().append_op("o");
  for (const std::string& bytes : {print_program(*program), export_program(*program)}) {
    const StatusOr<std::unique_ptr<Program>> read = read_program_bytes(bytes, "p");
    ASSERT_TRUE(read.ok()) << read.status().to_string();
    EXPECT_EQ(export_program(*read.value()), export_program(*program));
  }
}

}  // namespace
}  // namespace millrace
