// report.html: to scale, complete, escaped, without external resources.

#include "transpiler/distribute/report_html.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/transpiler/overview.h"

namespace millrace::transpiler {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

std::string small_report() {
  const auto cost = estimate_cost(cost_input(small_properties(), small_overview(), 2));
  EXPECT_TRUE(cost.ok());
  return report_html(small_properties(), small_overview(), &*cost);
}

TEST(ReportHtmlTest, SaysWhatServersHoldAndWhatAStepCosts) {
  const std::string page = small_report();
  EXPECT_THAT(page, HasSubstr("</style></head><body><main>\n<h1>Distribution report</h1>"));
  EXPECT_THAT(page, HasSubstr("svg .mean{stroke:"));
  EXPECT_THAT(page, HasSubstr("<b>2</b><span>servers</span>"));
  EXPECT_THAT(page, HasSubstr("<b>2</b><span>trainers</span>"));
  EXPECT_THAT(page, HasSubstr("<b>80 B</b><span>held in total</span>"));
  EXPECT_THAT(page,
              HasSubstr("<td>w_velocity_0</td><td class=\"l\">Optimizer</td><td>f32</td>"
                        "<td>4 × 2</td><td>32 B</td><td>2</td><td class=\"l\">h:1, h:2</td>"));
  EXPECT_THAT(page, HasSubstr("<tr><td>h:1</td><td>4</td>"));
}

// The overview does not list distributed tables; the cost model does.
TEST(ReportHtmlTest, BytesOfDistributedTablesCount) {
  CostInput input;
  input.endpoints = {"h:1", "h:2"};
  input.slices.push_back({.name = "w.block1", .server = 0, .bytes = 100});
  input.slices.push_back({.name = "table", .server = 1, .rows = 50, .bytes = 200});
  const auto cost = estimate_cost(input);
  ASSERT_TRUE(cost.ok());
  const std::string page = report_html(small_properties(), small_overview(), &*cost);
  EXPECT_THAT(page, HasSubstr("<b>300 B</b><span>held in total</span>"));
  EXPECT_THAT(page, HasSubstr("<b>1.33</b><span>max / mean of bytes held</span>"));
}

TEST(ReportHtmlTest, HeightsAreBytes) {
  const std::string picture = slices_svg(small_properties(), small_overview());
  // the first server is fullest: 44 bytes on 320 units, so 16 bytes are 116.36
  EXPECT_THAT(picture, HasSubstr("height=\"116.36\""));
  EXPECT_THAT(picture,
              HasSubstr("<title>w.block1\nParam [2 x 2], 16 B\nslice 1 of w, from element 4"));
  EXPECT_THAT(picture, HasSubstr("<title>mean 40 B</title>"));
}

// Labels are next to what they name: the scale ends 6 units left of the drawing, at 64, each number
// 4 units below its line; names begin 4 units to the right of the left edge of their slice.
TEST(ReportHtmlTest, LabelsAreNextToWhatTheyName) {
  const std::string picture = slices_svg(small_properties(), small_overview());
  EXPECT_THAT(picture, HasSubstr("y1=\"334.0\" y2=\"334.0\"/><text class=\"axis\" x=\"58\" "
                                 "y=\"338.0\" text-anchor=\"end\">0 B</text>"));
  EXPECT_THAT(picture,
              HasSubstr("y1=\"14.0\" y2=\"14.0\"/><text class=\"axis\" x=\"58\" y=\"18.0\" "
                        "text-anchor=\"end\">44 B</text>"));
  // two columns of 340 units with gaps of 10
  EXPECT_THAT(picture, HasSubstr("<rect x=\"69.0\" y=\"217.64\" width=\"330.0\""));
  EXPECT_THAT(picture, HasSubstr("<text x=\"73.0\" y=\"279.32\">w.block1</text>"));
}

// A character is about 6.2 units wide: 52 of them fit into a column of 330, less a margin of 6.
TEST(ReportHtmlTest, LongNamesAreCutToTheColumn) {
  for (const size_t length : {52U, 53U}) {
    VarsDistributed overview;
    const std::string name(length, 'n');
    overview.add_distributed_var(whole_var(float_var(name, {1000}), "Param", "h:1"));
    const std::string label = length == 52 ? name : std::string(51, 'n') + "…";
    EXPECT_THAT(slices_svg(small_properties(), overview), HasSubstr(">" + label + "</text>"));
  }
}

// 1040 units for all columns: gaps of 10 up to 51 servers (20.4 each), of 1 from 52 servers on.
TEST(ReportHtmlTest, GapsBetweenManyServersAreThin) {
  for (const int count : {51, 52}) {
    ProgramProperties properties = small_properties();
    properties.endpoints.clear();
    for (int i = 0; i < count; ++i) properties.endpoints.push_back("h:" + std::to_string(i + 1));
    EXPECT_THAT(slices_svg(properties, small_overview()),
                HasSubstr(count == 51 ? "width=\"10.4\"" : "width=\"19.0\""));
  }
}

TEST(ReportHtmlTest, SmallSlicesAreDrawnTogether) {
  VarsDistributed overview = small_overview();
  overview.add_distributed_var(whole_var(float_var("big", {1000, 1000}), "Param", "h:2"));
  const std::string picture = slices_svg(small_properties(), overview);
  EXPECT_THAT(picture, HasSubstr("<title>3 small slices, 36 B</title>"));
  EXPECT_THAT(picture, HasSubstr("<title>4 small slices, 44 B</title>"));
}

TEST(ReportHtmlTest, NamesCannotBreakThePage) {
  VarsDistributed overview;
  const VarFacts evil = float_var("</title><script>alert('x')</script>\"&\x01", {1000});
  overview.add_distributed_var(whole_var(evil, "Param", "h:1"));
  const std::string page = report_html(small_properties(), overview, nullptr);
  EXPECT_THAT(page, Not(HasSubstr("<script>alert")));
  EXPECT_THAT(page, HasSubstr("&lt;/title&gt;&lt;script&gt;alert(&#39;x&#39;)&lt;/script&gt;"
                              "&quot;&amp;\\x01"));
}

TEST(ReportHtmlTest, NothingComesFromElsewhere) {
  const std::string page = small_report();
  for (const char* word : {"http:", "https:", "src=", "@import", "url("}) {
    EXPECT_THAT(page, Not(HasSubstr(word)));
  }
}

TEST(ReportHtmlTest, ModesWithoutServersSaySo) {
  const std::string page = report_html(ProgramProperties{}, VarsDistributed{}, nullptr);
  EXPECT_THAT(page, HasSubstr("every trainer holds all of them"));
  EXPECT_THAT(page, Not(HasSubstr("<svg")));
}

TEST(ReportHtmlTest, AThousandServersStayOnePage) {
  ProgramProperties properties = small_properties();
  properties.endpoints.clear();
  VarsDistributed overview;
  for (int i = 0; i < 1000; ++i) {
    properties.endpoints.push_back("h" + std::to_string(i) + ":1");
    DistributedVar var =
        whole_var(float_var("w" + std::to_string(i), {100}), "Param", properties.endpoints.back());
    overview.add_distributed_var(var);
  }
  const std::string page = report_html(properties, overview, nullptr);
  EXPECT_LT(page.size(), 1'000'000u);
  EXPECT_THAT(page, HasSubstr("width=\"6072\""));
}

}  // namespace
}  // namespace millrace::transpiler
