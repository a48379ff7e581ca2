// Which differences diff_programs() ignores and which it reports. The verdicts over real programs
// are compared
// with an independent implementation in tests/conformance/diff_verdicts.py.

#include "framework/diff/diff.h"

#include <gmock/gmock.h>

#include "framework/diff/align.h"
#include "framework/diff/report.h"
#include "framework/text_form/parse.h"

namespace millrace {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

std::unique_ptr<Program> block(const std::string& body) {
  StatusOr<std::unique_ptr<Program>> program =
      parse_program("# millrace program 1\nblock 0 {\n" + body + "\n}\n", "t");
  EXPECT_TRUE(program.ok()) << program.status().to_string();
  return program.ok() ? std::move(program).value() : Program::create();
}

std::vector<std::string> differences(const std::string& a, const std::string& b,
                                     const DiffOptions& options = {}) {
  std::vector<std::string> out;
  for (const Difference& difference : diff_programs(*block(a), *block(b), options))
    out.push_back(difference.to_string());
  return out;
}

TEST(Diff, OrderOfVarsAttributesAndSlotsIsFree) {
  EXPECT_THAT(differences("var a: f32(1)\nvar b: f32(2)\no X=a Y=b {i: 1, j: 2}",
                          "var b: f32(2)\nvar a: f32(1)\no Y=b X=a {j: 2, i: 1}"),
              IsEmpty());
}

TEST(Diff, AbsentEqualsEmptyAndDefault) {
  EXPECT_THAT(differences("o X=a", "o X=a Y=[] {i: 0, s: \"\", l: strings[]}"), IsEmpty());
  EXPECT_THAT(differences("scale X=a", "scale X=a {scale: 1.0, bias_after_scale: true}"),
              IsEmpty());
  EXPECT_THAT(differences("o", "o {b: ^0}"),
              ElementsAre("block 0 op 0 (o): attr b: only in the second: ^0"));
  EXPECT_THAT(differences("scale", "scale {scale: 2.0}"), ::testing::SizeIs(1));
  EXPECT_THAT(differences("o", "o {i: 0}", {.strict_attrs = true}), ::testing::SizeIs(1));
}

TEST(Diff, NumbersOfOtherWidthAreEqual) {
  EXPECT_THAT(differences("o {i: 5, l: [1, 2], e: ints[]}", "o {i: 5l, l: [1l, 2l], e: floats[]}"),
              IsEmpty());
  EXPECT_THAT(differences("o {i: 5}", "o {i: 5l}", {.strict_types = true}),
              ElementsAre("block 0 op 0 (o): attr i: 5 -> 5l"));
  EXPECT_THAT(differences("o {i: 5}", "o {i: 5.0}"), ::testing::SizeIs(1));
  EXPECT_THAT(differences("o {f: 0.0}", "o {f: -0.0}"), IsEmpty());
}

TEST(Diff, ControlVarsAreNamedAfterTheirWriter) {
  EXPECT_THAT(differences("send X=g -> Out=__control_var@0\nbarrier X=__control_var@0",
                          "send X=g -> Out=__control_var@7\nbarrier X=__control_var@7"),
              IsEmpty());
  EXPECT_THAT(differences("send X=g -> Out=__control_var@0\nbarrier X=__control_var@0",
                          "send X=g -> Out=__control_var@7\nbarrier X=other"),
              ::testing::SizeIs(1));
}

TEST(Diff, NeverLooksAtDebugFacts) {
  EXPECT_THAT(differences("var x: f32(1) stop_gradient\no {op_callstack: [\"f\"]}",
                          "var x: f32(1) lod=0 !persistable\no {with_quant_attr: true}"),
              IsEmpty());
  EXPECT_THAT(differences("var x: f32(1) stop_gradient", "var x: f32(1)", {.strict_vars = true}),
              ElementsAre("block 0 var x: f32(1) stop_gradient -> f32(1)"));
}

TEST(Diff, ReportsOldAndNew) {
  EXPECT_THAT(differences("param w: f32(2, 3)\nvar gone: raw\nmul X=a -> Out=b {axis: 1}",
                          "param w: f32(2, 4)\nmul X=c -> Out=b {axis: 2}"),
              ElementsAre("block 0 var gone: only in the first: raw",
                          "block 0 var w: f32(2, 3) persistable is_parameter -> f32(2, 4) "
                          "persistable is_parameter",
                          "block 0 op 0 (mul): input X: [a] -> [c]",
                          "block 0 op 0 (mul): attr axis: 1 -> 2"));
}

TEST(Diff, OneMoreOpIsOneDifference) {
  EXPECT_THAT(differences("a -> Out=x\nb X=x -> Out=y\nc X=y",
                          "a -> Out=x\nnew -> Out=n\n"
                          "b X=x -> Out=y {k: 3}\nc X=y"),
              ElementsAre("block 0 op 1 (new): op: only in the second: new -> Out=[n]",
                          "block 0 op 1 -> 2 (b): attr k: only in the second: 3"));
}

TEST(Diff, IgnoredAttributesAndRenamedVars) {
  EXPECT_THAT(
      differences("o X=a {k: 1}", "o X=b {k: 2}", {.ignore_attrs = {"k"}, .rename = {{"a", "b"}}}),
      IsEmpty());
}

TEST(Diff, AnyOrderKeepsConflictingAccesses) {
  const std::string abc = "r X=w -> Out=a\nr X=w -> Out=b\nset -> Out=w";
  EXPECT_THAT(differences(abc, "r X=w -> Out=b\nr X=w -> Out=a\nset -> Out=w", {.any_order = true}),
              IsEmpty());
  EXPECT_THAT(differences(abc, "r X=w -> Out=b\nset -> Out=w\nr X=w -> Out=a", {.any_order = true}),
              ElementsAre(HasSubstr("op 0 -> 2 (r): history")));
}

TEST(Diff, SemanticFreesNamesOfComputedVars) {
  const std::string a = "persist w: f32(1)\nvar t: f32(1)\nm X=x Y=w -> Out=t\nn X=t -> Out=w";
  const std::string b = "persist w: f32(1)\nvar u: f32(1)\nm X=x Y=w -> Out=u\nn X=u -> Out=w";
  EXPECT_THAT(differences(a, b, {.semantic = true}), IsEmpty());
  EXPECT_THAT(differences(a, b), ::testing::Not(IsEmpty()));
  const std::string other = "persist w: f32(1)\nvar u: f32(1)\nm X=w Y=x -> Out=u\nn X=u -> Out=w";
  EXPECT_THAT(differences(a, other, {.semantic = true}), ::testing::Not(IsEmpty()));
}

TEST(Diff, SemanticLooksIntoSubBlocks) {
  const auto program = [](const std::string& name, const std::string& type) {
    return parse_program("# millrace program 1\nblock 0 {\n a X=x -> Out=" + name +
                             "\n while C=" + name + " {sub_block: ^1}\n}\nblock 1 parent=0 {\n " +
                             type + " X=" + name + "\n}\n",
                         "t");
  };
  const DiffOptions options{.semantic = true};
  EXPECT_THAT(diff_programs(**program("p", "k"), **program("q", "k"), options), IsEmpty());
  EXPECT_THAT(diff_programs(**program("p", "k"), **program("q", "l"), options),
              ::testing::Not(IsEmpty()));
}

TEST(Diff, AlignmentsAreCommonSubsequences) {
  EXPECT_THAT(diff::align({1, 2, 3}, {1, 9, 3}), ElementsAre(std::pair(0, 0), std::pair(2, 2)));
  std::vector<uint64_t> a(6000);
  std::vector<uint64_t> b;
  for (size_t i = 0; i < a.size(); ++i) a[i] = i;
  for (const uint64_t key : a) {
    if (key % 7 != 3) b.push_back(key);
    if (key % 11 == 5) b.push_back(key + 100000);
  }
  // Above the limit of the table: both ends differ, so nothing is trimmed.
  a.insert(a.begin(), 777777);
  a.push_back(888888);
  const auto pairs = diff::align(a, b);
  EXPECT_EQ(pairs.size(), 6000U - 857U);
  for (size_t i = 0; i < pairs.size(); ++i) {
    EXPECT_EQ(a[pairs[i].first], b[pairs[i].second]);
    if (i > 0) {
      EXPECT_LT(pairs[i - 1].first, pairs[i].first);
      EXPECT_LT(pairs[i - 1].second, pairs[i].second);
    }
  }
}

TEST(Diff, ReportsEscapeNames) {
  const DiffReport report{"a<b>", "b", {{0, 1, 1, "o\x1b", "attr \"<script>\"", "1", "2"}}, 0};
  EXPECT_THAT(diff_text(report), HasSubstr("(o\\x1b): attr"));
  EXPECT_THAT(diff_json(report), HasSubstr(R"("op_type": "o\u001b")"));
  EXPECT_THAT(diff_html(report), HasSubstr("attr &quot;&lt;script&gt;&quot;"));
  EXPECT_THAT(diff_html(report), HasSubstr("a&lt;b&gt;"));
  EXPECT_THAT(diff_text({"a", "b", std::vector<Difference>(5), 2}), HasSubstr("... 3 more"));
}

}  // namespace
}  // namespace millrace
