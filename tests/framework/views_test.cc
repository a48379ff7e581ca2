// Views of programs for users and other programs: their content, and that names cannot inject
// markup.

#include <gmock/gmock.h>

#include "framework/base/html.h"
#include "framework/base/json_writer.h"
#include "framework/text_form/parse.h"
#include "framework/views/graph.h"
#include "framework/views/html.h"
#include "framework/views/json.h"
#include "framework/views/summary.h"

namespace millrace {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

std::unique_ptr<Program> program(const std::string& body) {
  StatusOr<std::unique_ptr<Program>> parsed =
      parse_program("# millrace program 1\nblock 0 {\n" + body + "\n}\n", "t");
  EXPECT_TRUE(parsed.ok()) << parsed.status().to_string();
  return parsed.ok() ? std::move(parsed).value() : Program::create();
}

constexpr const char* kNet =
    "param w: f32(784, 200)\nvar x: f32(-1, 784)\n"
    "mul X=x Y=w -> Out=a {k: 1}\nrelu X=a -> Out=b\nadd X=a Y=b -> Out=c";
constexpr const char* kHostile =
    "var \"</script><img src=x onerror=alert(1)>\\x1b[2J\": f32(1)\n"
    "\"<b>\\\"op\\\\\" X=\"</script><img src=x onerror=alert(1)>\\x1b[2J\" -> Out=\"q\\\"; node\"";

TEST(Summary, CountsAndSizes) {
  const ProgramSummary sizes = summarize(*program(kNet));
  EXPECT_EQ(sizes.ops, 3U);
  EXPECT_EQ(sizes.parameters, 1U);
  EXPECT_EQ(sizes.parameter_bytes, 784U * 200U * 4U);
  const ProgramSummary huge = summarize(
      *program("param a: f64(4000000000, 4000000000)\nparam b: f64(4000000000, 4000000000)\n"
               "param c: f32(-1)\nparam d: f32(-7)"));
  EXPECT_EQ(huge.parameter_bytes, UINT64_MAX);
  EXPECT_EQ(bytes_text(627200), "612.5 KiB");
  EXPECT_EQ(version_text(1006001), "1.6.1");
}

TEST(Graph, LayersFollowTheDataFlow) {
  BlockGraph graph = block_graph(program(kNet)->root());
  ASSERT_EQ(graph.nodes.size(), 4U);  // x, mul, relu, add
  ASSERT_EQ(graph.edges.size(), 4U);
  lay_out(graph);
  for (const BlockGraph::Edge& edge : graph.edges)
    EXPECT_LT(graph.nodes[edge.from].y, graph.nodes[edge.to].y);
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    for (size_t j = i + 1; j < graph.nodes.size(); ++j) {
      const BlockGraph::Node& a = graph.nodes[i];
      const BlockGraph::Node& b = graph.nodes[j];
      const bool apart = a.layer != b.layer || std::abs(a.x - b.x) >= (a.width + b.width) / 2;
      EXPECT_TRUE(apart) << i << " and " << j << " overlap";
    }
  }
  EXPECT_EQ(block_graph(program(kNet)->root(), true).nodes.size(), 5U);  // and w
}

// Otherwise a training program's constants and weight decays make a first layer far wider than the
// rest.
TEST(Graph, OpsWithoutInputsStandAboveTheirFirstReader) {
  BlockGraph graph = block_graph(
      program("fill -> Out=k\nrelu X=x -> Out=a\nrelu X=a -> Out=b\nadd X=b Y=k -> Out=c\n"
              "increment X=k -> Out=d\nprint -> Out=e")
          ->root());
  lay_out(graph);
  const auto layer = [&](int64_t op) {
    for (const BlockGraph::Node& node : graph.nodes)
      if (node.op == op) return node.layer;
    return -1;
  };
  EXPECT_EQ(layer(0), layer(4) - 1);
  EXPECT_EQ(layer(4), 1);
  graph = block_graph(program("fill -> Out=k\nrelu X=x -> Out=a\nadd X=a Y=k -> Out=c")->root());
  lay_out(graph);
  EXPECT_EQ(layer(0), 1);
  EXPECT_EQ(layer(2), 2);
}

TEST(Html, OpsShowTheTypesOfWhatTheyWrite) {
  const std::string page =
      html_view(*program("var x: f32(-1, 4)\nvar y: f32(-1, 4)\nrelu X=x Unused=[] -> Out=y"), "f");
  EXPECT_THAT(page, HasSubstr("<td><b>X</b> x</td><td><b>Out</b> y <span class=\"d\">f32(-1, 4)"
                              "</span></td>"));
  EXPECT_THAT(page, Not(HasSubstr("Unused")));
}

TEST(Views, AreDeterministic) {
  EXPECT_EQ(svg_view(*program(kNet)), svg_view(*program(kNet)));
  EXPECT_EQ(dot_view(*program(kNet)), dot_view(*program(kNet)));
  EXPECT_EQ(html_view(*program(kNet), "f"), html_view(*program(kNet), "f"));
}

TEST(Views, EscapeNames) {
  const std::unique_ptr<Program> hostile = program(kHostile);
  const std::string html = html_view(*hostile, "<title>");
  for (const std::string& page : {html, svg_view(*hostile)}) {
    EXPECT_THAT(page, Not(HasSubstr("<img")));
    EXPECT_THAT(page, Not(HasSubstr("\x1b")));
    EXPECT_THAT(page, HasSubstr("&lt;img"));
  }
  EXPECT_THAT(html, HasSubstr("default-src 'none'"));
  EXPECT_THAT(html, Not(HasSubstr("http://127")));
  EXPECT_THAT(dot_view(*hostile), HasSubstr(R"(label="<b>\"op\\")"));
  EXPECT_THAT(dot_view(*hostile), Not(HasSubstr("\x1b")));
  EXPECT_THAT(json_view(*hostile, "f"), HasSubstr(R"("type": "<b>\"op\\")"));
  EXPECT_THAT(json_view(*hostile, "f"), HasSubstr(R"(\u001b[2J)"));
}

TEST(Views, LeaveOutAttributesWhereAsked) {
  EXPECT_THAT(json_view(*program(kNet), "f"),
              HasSubstr(R"("name": "k", "kind": "int", "value": 1)"));
  EXPECT_THAT(json_view(*program(kNet), "f", {.attrs = false, .callstack = true}),
              Not(HasSubstr("attrs")));
}

TEST(Json, StringsAndNumbers) {
  EXPECT_EQ(json_string("a\"\\\n\x7f"), R"("a\"\\\u000a\u007f")");
  EXPECT_EQ(json_string("\xc3\xa9"), "\"\xc3\xa9\"");
  EXPECT_EQ(json_string("\xff"), R"("\\xff")");
  JsonWriter out(0);
  out.begin_array().value(0.1F).value(1.0 / 0.0).value(true).null().value(int64_t{-5}).end_array();
  EXPECT_EQ(out.take(), "[0.1, \"inf\", true, null, -5]\n");
  EXPECT_EQ(html_escaped("<a href='x'>&\"\x01"), "&lt;a href=&#39;x&#39;&gt;&amp;&quot;\\x01");
}

}  // namespace
}  // namespace millrace
