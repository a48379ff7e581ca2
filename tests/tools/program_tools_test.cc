// inspect-program and diff-program as processes: streams, exit codes and files.

#include "tests/tools/program_tools.h"

#include <algorithm>
#include <filesystem>
#include <fstream>

#include <gmock/gmock.h>
#include <nlohmann/json.hpp>

namespace millrace::tools {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

constexpr const char* kTrainer = "tests/data/programs/dist_table_trainer.pb";
constexpr const char* kProgramToolsServer = "tests/data/programs/dist_table_pserver.pb";

TEST_F(ProgramTools, TextReadsBack) {
  const ToolEnd text = run(std::string("inspect-program ") + kTrainer);
  EXPECT_EQ(text.code, 0);
  EXPECT_THAT(text.out, StartsWith("# millrace program 1\n"));
  const std::string file = write("t.prog", text.out);
  EXPECT_EQ(run("inspect-program " + file).out, text.out);
  EXPECT_EQ(run("inspect-program - < " + file).out, text.out);
  const ToolEnd same = run("diff-program " + file + " " + kTrainer);
  EXPECT_EQ(same.code, 0) << same.out;
  EXPECT_EQ(same.out, "");
}

TEST_F(ProgramTools, EveryFormatWritesItsDocument) {
  const auto format = [&](const std::string& name) {
    return run(std::string("inspect-program ") + kProgramToolsServer + " --format " + name).out;
  };
  EXPECT_THAT(format("dot"), StartsWith("digraph program {"));
  EXPECT_THAT(format("svg"), StartsWith("<svg xmlns=\"http://www.w3.org/2000/svg\""));
  EXPECT_THAT(format("html"), StartsWith("<!DOCTYPE html>"));
  EXPECT_THAT(format("summary"), HasSubstr("listen_and_serv"));
  const json document = json::parse(format("json"));
  EXPECT_EQ(document["schema"]["name"], "millrace.program");
  EXPECT_EQ(document["blocks"].size(), document["summary"]["blocks"]);
  EXPECT_EQ(json::parse(run(std::string("inspect-program --json ") + kProgramToolsServer).out),
            document);
}

TEST_F(ProgramTools, SelectionShowsAPart) {
  const ToolEnd part = run(std::string("inspect-program --ops send --no-attrs ") + kTrainer);
  EXPECT_THAT(part.out, StartsWith("# millrace program 1, without attributes, a part"));
  EXPECT_THAT(part.out, HasSubstr("  send X="));
  EXPECT_THAT(part.out, ::testing::Not(HasSubstr("  sgd ")));
  EXPECT_EQ(run(std::string("inspect-program --block 99 ") + kTrainer).code, 3);
}

TEST_F(ProgramTools, VerifyListsFindings) {
  const std::string good = write("good.prog",
                                 "# millrace program 1\nblock 0 {\n  var x: f32(2)\n"
                                 "  var y: f32(2)\n  scale X=x -> Out=y\n}\n");
  EXPECT_EQ(run("inspect-program -q --verify " + good).code, 0);
  const std::string bad = write("bad.prog",
                                "# millrace program 1\nblock 0 {\n  var x: f32(2)\n"
                                "  scale X=x -> Out=gone\n  scael X=x -> Out=x\n}\n");
  const ToolEnd findings = run("inspect-program --verify " + bad);
  EXPECT_EQ(findings.code, 3);
  EXPECT_THAT(findings.out, HasSubstr("gone"));
  EXPECT_THAT(findings.out, HasSubstr("scael"));
  const json document = json::parse(run("inspect-program --json --verify " + bad).out);
  EXPECT_EQ(document["ok"], false);
  EXPECT_GE(document["findings"].size(), 2U);
}

TEST_F(ProgramTools, InspectListsParameters) {
  const std::string model = "tests/data/models/linear/";
  const ToolEnd text = run("inspect-program " + model + "__model__ --params " + model + "params");
  EXPECT_EQ(text.code, 0) << text.out;
  EXPECT_EQ(text.out,
            "var  dtype  dims    bytes  min  max  mean  nan\n"
            "b    f32    [2]         8   -1    1     0    0\n"
            "w    f32    [3, 2]     24    0    5   2.5    0\n"
            "2 vars, 32 bytes\n");
  const json list = json::parse(
      run("inspect-program --json --vars w " + model + "__model__ --params " + model + "params")
          .out);
  ASSERT_EQ(list["params"].size(), 1U);
  EXPECT_EQ(list["params"][0]["dims"], json({3, 2}));
  EXPECT_EQ(list["params"][0]["mean"], 2.5);
  EXPECT_THAT(run("inspect-program --vars x " + model + "__model__ --params " + model + "params"),
              ::testing::Field(&ToolEnd::code, 3));
  // one file of a folder, and the folder
  const std::string separate = "tests/data/models/fit_a_line_2018/";
  EXPECT_THAT(
      run("inspect-program " + separate + "__model__ --params " + separate + "fc_0.w_0").out,
      HasSubstr("1 var, 52 bytes"));
  EXPECT_THAT(run("inspect-program " + separate + "__model__ --params " + separate).out,
              HasSubstr("2 vars, 56 bytes"));
  const ToolEnd cut = run("inspect-program " + model +
                          "__model__ --params tests/data/params_malformed/ex_par_cut.bin");
  EXPECT_EQ(cut.code, 3);
  EXPECT_THAT(cut.out, HasSubstr("ex_par_cut.bin, 'w': data of f32 [3, 2] at byte 58"));
}

TEST_F(ProgramTools, ErrorsNameTheFile) {
  const ToolEnd absent = run("inspect-program " + path("no"));
  EXPECT_EQ(absent.code, 3);
  EXPECT_THAT(absent.out, HasSubstr("error: " + path("no") + ": cannot open"));
  EXPECT_EQ(run("inspect-program " + folder_.string()).code, 3);
  EXPECT_EQ(run("inspect-program").code, 2);
  const ToolEnd params = run("inspect-program --params " + path("p") + " " + kTrainer);
  EXPECT_EQ(params.code, 3);
  EXPECT_THAT(params.out, HasSubstr("error: " + path("p") + ": cannot open"));
  const ToolEnd large = run(std::string("inspect-program --max-model-bytes 10 ") + kTrainer);
  EXPECT_EQ(large.code, 6);
  const std::string text = write("e.prog", "# millrace program 1\nblock 0 {\n  var x f32(2)\n}\n");
  EXPECT_THAT(run("inspect-program " + text).out, HasSubstr("e.prog: block 0, 'x': line 3"));
}

TEST_F(ProgramTools, OutputsAreNotOverwritten) {
  const std::string command = std::string("inspect-program ") + kTrainer + " -o " + path("o");
  EXPECT_EQ(run(command).code, 0);
  EXPECT_EQ(run(command).code, 2);
  EXPECT_EQ(run(command + " --force").code, 0);
}

TEST_F(ProgramTools, TheNameOfTheOutputSaysItsForm) {
  const std::string text = write("a.prog", "# millrace program 1\nblock 0 {\n  var x: f32(2)\n}\n");
  const std::string convert = "transpile-program --passes '' --program " + text;
  const auto written = [&](const std::string& name, const std::string& more = "") {
    const ToolEnd result = run(convert + " " + more + " -o " + path(name));
    EXPECT_EQ(result.code, 0) << result.out;
    std::ifstream file(path(name));
    return std::string(std::istreambuf_iterator<char>(file), {}).substr(0, 10);
  };
  const std::string as_text = "# millrace";
  EXPECT_NE(written("x.pb"), as_text);
  EXPECT_NE(written("__model__"), as_text);
  EXPECT_NE(written("x.pdmodel"), as_text);
  EXPECT_EQ(written("x.prog"), as_text);
  EXPECT_EQ(written("x.txt"), as_text);
  EXPECT_EQ(written("y.pb", "--format text"), as_text);
  EXPECT_NE(written("y.prog", "--format pb"), as_text);
  EXPECT_THAT(run(convert).out, StartsWith(as_text));
  EXPECT_THAT(run("transpile-program --help").out, HasSubstr("text for *.prog and *.txt;"));
}

TEST_F(ProgramTools, CommonFlagsThatAToolDoesNotReadAreTold) {
  const std::string a = write("a.prog", "# millrace program 1\nblock 0 {\n}\n");
  EXPECT_THAT(run("diff-program --seed 3 " + a + " " + a).out,
              HasSubstr("--seed has no effect on diff-program"));
  EXPECT_THAT(run("diff-program " + a + " " + a).out, Not(HasSubstr("no effect")));
}

TEST_F(ProgramTools, DiffSaysWhere) {
  const std::string a = write("a.prog", "# millrace program 1\nblock 0 {\n  o X=x {k: 1}\n}\n");
  const std::string b = write("b.prog", "# millrace program 1\nblock 0 {\n  o X=y {k: 2}\n}\n");
  const ToolEnd text = run("diff-program " + a + " " + b);
  EXPECT_EQ(text.code, 1);
  EXPECT_EQ(text.out, "block 0 op 0 (o): input X: [x] -> [y]\nblock 0 op 0 (o): attr k: 1 -> 2\n");
  const std::string map = write("map.json", R"({"x": "y"})");
  EXPECT_EQ(run("diff-program --ignore k --rename " + map + " " + a + " " + b).code, 0);
  const ToolEnd as_json = run("diff-program --json " + a + " " + b);
  EXPECT_EQ(as_json.code, 1);
  EXPECT_EQ(json::parse(as_json.out)["differences"][1]["what"], "attr k");
  EXPECT_THAT(run("diff-program --format html " + a + " " + b).out, StartsWith("<!DOCTYPE html>"));
  EXPECT_EQ(run("diff-program --ignore-var '(' " + a + " " + b).code, 2);
  EXPECT_EQ(run("diff-program --rename " + a + " " + a + " " + b).code, 3);
  EXPECT_EQ(run("diff-program - - < " + a).code, 2);
}

// x (8 rows) and w are read by mul; a is dead after relu, b at the end. Block 1 keeps nothing live.
constexpr const char* kCosts =
    "# millrace program 1\nblock 0 {\n  param w: f32(4, 16)\n  var x: f32(-1, 4)\n"
    "  var a: f32(-1, 16)\n  var b: f32(-1, 16)\n  var c: f32(-1, 16)\n"
    "  mul X=x Y=w -> Out=a\n  relu X=a -> Out=b\n  relu X=b -> Out=c\n}\n";

TEST_F(ProgramTools, CostsOfOneRun) {
  const std::string file = write("costs.prog", kCosts);
  const ToolEnd all = run("inspect-program --flops --memory --shapes 8 --json " + file);
  ASSERT_EQ(all.code, 0) << all.out;
  const json costs = json::parse(all.out);
  EXPECT_EQ(costs["schema"]["name"], "millrace.costs");
  EXPECT_EQ(costs["unknown_dims"], 8);
  EXPECT_EQ(costs["flops"], 2 * 8 * 4 * 16 + 2 * 8 * 16);
  EXPECT_EQ(costs["types"][0],
            json::parse(R"({"type": "mul", "ops": 1, "flops": 1024, "bytes_written": 512})"));
  EXPECT_EQ(costs["stored_bytes"], 4 * 16 * 4);
  EXPECT_EQ(costs["temporary_bytes"], 8 * 4 * 4 + 3 * 512);
  EXPECT_EQ(costs["peak_bytes"], 1024);
  EXPECT_EQ(costs["peak_op"], 1);
  EXPECT_EQ(costs["largest"][0]["var"], "a");
  const ToolEnd text = run("inspect-program --memory " + file);
  EXPECT_THAT(text.out, HasSubstr("unknown dims count as 1"));
  EXPECT_THAT(text.out, HasSubstr("stored             256 B\n"));
  EXPECT_THAT(text.out, ::testing::Not(HasSubstr("work")));
  EXPECT_THAT(run("inspect-program --shapes 8 " + file).out, HasSubstr("var a: f32(8, 16)"));
  EXPECT_EQ(run("inspect-program --shapes 0 " + file).code, 2);
  EXPECT_EQ(run("inspect-program --flops --block 7 " + file).code, 3);
}

TEST_F(ProgramTools, KindsOfOutputExcludeEachOther) {
  const std::string inspect = std::string("inspect-program ") + kTrainer + " ";
  const ToolEnd both = run(inspect + "--verify --params tests/data/params");
  EXPECT_EQ(both.code, 2) << "a status of 0 would say that the program verifies";
  EXPECT_THAT(both.out, HasSubstr("expected only one of --params and --verify"));
  EXPECT_EQ(run(inspect + "--lint --memory").code, 2);
  const ToolEnd drawn = run(inspect + "--flops --format csv");
  EXPECT_EQ(drawn.code, 2);
  EXPECT_THAT(drawn.out, HasSubstr("--format csv: expected text or json with --flops"));
  const ToolEnd forms = run(inspect + "--json --format html");
  EXPECT_EQ(forms.code, 2);
  EXPECT_THAT(forms.out, HasSubstr("--json and --format html: expected only one of them"));
  EXPECT_THAT(run(inspect + "--format csv --no-attrs").out,
              HasSubstr("--no-attrs has no effect: --format csv does not read it"));
  const ToolEnd part = run(inspect + "--verify --block 0");
  EXPECT_EQ(part.code, 0);
  EXPECT_THAT(part.out, HasSubstr("--block has no effect: --verify does not read it"));
  EXPECT_THAT(run(inspect + "--flops --memory --block 0 --shapes 2").out,
              Not(HasSubstr("has no effect")));
}

TEST_F(ProgramTools, WhatAFormOfTheProgramLeavesOutIsSaid) {
  const std::string inspect = std::string("inspect-program ") + kTrainer + " ";
  for (const char* const drawn : {"summary --shapes 2", "svg --shapes 2", "csv --no-attrs",
                                  "dot --no-callstack", "html --no-attrs"})
    EXPECT_THAT(run(inspect + "--format " + drawn).out, HasSubstr("has no effect: --format "));
  for (const char* const read :
       {"csv --shapes 2", "html --shapes 2", "json --no-attrs", "text --shapes 2"})
    EXPECT_THAT(run(inspect + "--format " + read).out, Not(HasSubstr("has no effect")));
  const std::string pair = std::string(kTrainer) + " " + kTrainer;
  for (const std::string& tool :
       {inspect, "diff-program " + pair + " ", std::string("migrate . ")}) {
    const ToolEnd two = run(tool + "--json --format html");
    EXPECT_EQ(two.code, 2);
    EXPECT_THAT(two.out, HasSubstr("--json and --format html: expected only one of them"));
  }
  EXPECT_EQ(run(inspect + "--json --format json").code, 0);
  const ToolEnd devices = run(inspect + "--devices");
  EXPECT_EQ(devices.code, 2);
  EXPECT_THAT(devices.out, HasSubstr("--devices: expected no PROGRAM"));
}

TEST_F(ProgramTools, AJobReportIsAPageOrATrace) {
  const ToolEnd both = run("job-report --transpiled job --traces " + write("trace.json", "{}"));
  EXPECT_EQ(both.code, 2);
  EXPECT_THAT(both.out, HasSubstr("expected only one of them"));
}

TEST_F(ProgramTools, AReportOfAFleetJobNamesTheServerFileThatIsWrong) {
  const std::string stats =
      write("stats.json", R"({"schema": "millrace.trainer_stats", "trainer": 0,
      "loss_name": "l", "steps": 1, "examples": 2, "losses": [0.5],
      "seconds": {"all": 1, "compute": 1, "send": 0, "wait": 0}})");
  std::filesystem::create_directories(path("job/pserver_0"));
  const std::string report = "job-report --transpiled " + path("job") + " " + stats;
  const auto said = [&](const std::string& runtime, const std::string& description) {
    write("job/pserver_0/runtime.json", runtime);
    write("job/pserver_0/ps_desc.txt", description);
    const ToolEnd result = run(report);
    EXPECT_EQ(result.code, 3);
    return result.out;
  };
  EXPECT_THAT(said("{}", ""), HasSubstr("runtime.json"));
  EXPECT_THAT(said(R"({"endpoints": ["a:1"]})", "x"), HasSubstr("pserver_0/ps_desc.txt"));
  EXPECT_THAT(said(R"({"endpoints": ["a:1", "b:1"]})", ""), HasSubstr("pserver_1/ps_desc.txt"));
  write("job/pserver_0/ps_desc.txt", "");
  write("job/pserver_0/runtime.json", R"({"endpoints": ["a:1"]})");
  EXPECT_THAT(run(report + " " + stats).out, HasSubstr("statistics of trainer 0 are given twice"));
}

TEST_F(ProgramTools, PassesThatChangeTheStartupProgramSaySo) {
  const std::string net =
      "--program tests/data/frontend/mlp.main.pb --startup "
      "tests/data/frontend/mlp.startup.pb -o " +
      path("out.pb") + " --force ";
  const std::string passes = "transpile-program " + net + "--passes ";
  EXPECT_THAT(run(passes + "'minimize{loss=mean_0.tmp_0}'").out,
              HasSubstr("have changed the startup program, too, which is not written"));
  EXPECT_THAT(run(passes + "canonicalize").out, Not(HasSubstr("startup program")));
}

TEST_F(ProgramTools, CsvHasALineAnOp) {
  const std::string file = write("csv.prog", kCosts);
  EXPECT_EQ(run("inspect-program --format csv --shapes 8 --ops mul " + file).out,
            "block,op,type,inputs,outputs,dims,flops,bytes_written\n0,0,mul,x w,a,8x16,1024,512\n");
  const std::string odd =
      write("odd.prog", "# millrace program 1\nblock 0 {\n  \"o,\\\"p\" X=x -> Out=y\n}\n");
  EXPECT_THAT(run("inspect-program --format csv " + odd).out,
              HasSubstr("\n0,0,\"o,\"\"p\",x,y,?,0,0\n"));
}

// Scripts of the original pass the bare flag.
TEST_F(ProgramTools, SwitchesOfTranspileAreOnWithoutAValue) {
  const ToolEnd defaults = run("transpile-program --program p --print-config");
  ASSERT_EQ(defaults.code, 0) << defaults.out;
  const json settings = json::parse(defaults.out)["settings"];
  size_t switches = 0;
  for (const auto& [key, setting] : settings.items()) {
    if (setting["value"] != "true" && setting["value"] != "false") continue;
    if (key == "no_slice_var_up") continue;
    std::string flag = "--" + key;
    std::replace(flag.begin(), flag.end(), '_', '-');
    for (const std::string& text : {flag, flag + "=true", flag + " true"}) {
      const ToolEnd on = run("transpile-program " + text + " --program p --print-config");
      ASSERT_EQ(on.code, 0) << on.out;
      EXPECT_EQ(json::parse(on.out)["settings"][key]["value"], "true") << text;
    }
    ++switches;
  }
  EXPECT_GE(switches, 15U);
}

TEST_F(ProgramTools, CasesOfABatchRunOnOneDevice) {
  const ToolEnd several = run("run-program --batch /dev/null --devices cpu:2");
  EXPECT_EQ(several.code, 2) << several.out;
  EXPECT_THAT(several.out, HasSubstr("--devices cpu:2: the cases of --batch run on one device"));
  EXPECT_EQ(run("run-program --batch /dev/null --devices cpu:1").code, 0);
}

constexpr const char* kWithoutY =
    "run-program --program tests/data/frontend/fit_a_line.main.pb "
    "--startup tests/data/frontend/fit_a_line.startup.pb --seed 3 --feed x=4x13xf32=random:1 ";
constexpr const char* kFeedY = "--feed y=4x1xf32=random:2 ";
const std::string& forward_step() {
  static const std::string kWords = std::string(kWithoutY) + kFeedY;
  return kWords;
}

TEST_F(ProgramTools, APlanReplacesOnlyThePrintedResults) {
  const std::string forward = std::string(kWithoutY) + "--fetch mean_0.tmp_0 ";
  const std::string step = forward + kFeedY;
  ASSERT_EQ(run(step + "-q -o " + path("right.npz")).code, 0);
  const std::string check = "--print-plan --check-against " + path("right.npz");
  const std::string planned = step + check;
  const ToolEnd right = run(planned + " -o " + path("again.npz") + " --save-persistables " +
                            path("p.npz") + " --save-params " + path("params/"));
  EXPECT_EQ(right.code, 0) << right.out;
  EXPECT_THAT(right.out, HasSubstr("mean_0.tmp_0: largest difference 0 "));
  for (const char* const name : {"again.npz", "p.npz", "params/fc_0.w_0"})
    EXPECT_TRUE(std::filesystem::exists(path(name))) << name;
  EXPECT_THAT(run(planned).out, Not(HasSubstr("\nmean_0.tmp_0: f32")));
  EXPECT_EQ(run(forward + "--feed y=4x1xf32=random:3 " + check).code, 1) << "the loss differs";
  const ToolEnd both = run(planned + " -o -");
  EXPECT_EQ(both.code, 2);
  EXPECT_THAT(both.out, HasSubstr("--print-plan and -o - both write to stdout"));
}

TEST_F(ProgramTools, GradientsAreChecked) {
  const std::string step = forward_step() + "--loss mean_0.tmp_0 --check-gradients";
  const ToolEnd table = run(step);
  EXPECT_EQ(table.code, 0) << table.out;
  EXPECT_THAT(table.out, HasSubstr("fc_0.w_0       6/13"));
  const ToolEnd one = run(step + " fc_0.b_0 --json --check-samples 0");
  EXPECT_EQ(one.code, 0) << one.out;
  const json report = json::parse(one.out, nullptr, false);
  ASSERT_TRUE(report.is_object()) << one.out;
  EXPECT_EQ(report["parameters"].size(), 1U);
  EXPECT_EQ(report["parameters"][0]["name"], "fc_0.b_0");
  EXPECT_EQ(report["parameters"][0]["checked"], 1);
  EXPECT_EQ(report["ok"], true);
}

TEST_F(ProgramTools, WrongGradientsEndWithOne) {
  // steps so large that differences are not derivatives
  const ToolEnd wrong =
      run("run-program --program tests/data/frontend/mlp.main.pb "
          "--startup tests/data/frontend/mlp.startup.pb --seed 3 --feed img=4x64xf32=random:1 "
          "--feed label=4x1xi64=random:2 --loss mean_0.tmp_0 --check-gradients "
          "--check-epsilon 1000");
  EXPECT_EQ(wrong.code, 1) << wrong.out;
  EXPECT_THAT(wrong.out, HasSubstr("  WRONG\n"));
}

TEST_F(ProgramTools, GradientsAreCheckedInFloat32AsLooselyAsIsWanted) {
  const std::string step = forward_step() + "--loss mean_0.tmp_0 --check-gradients";
  const ToolEnd rough = run(step + " --check-dtype f32");
  EXPECT_EQ(rough.code, 0) << rough.out;
  EXPECT_NE(rough.out, run(step).out) << "float64 has other digits";
  const std::string wrong =
      "run-program --program tests/data/frontend/mlp.main.pb "
      "--startup tests/data/frontend/mlp.startup.pb --seed 3 --feed img=4x64xf32=random:1 "
      "--feed label=4x1xi64=random:2 --loss mean_0.tmp_0 --check-gradients --check-epsilon 1000";
  EXPECT_EQ(run(wrong + " --check-tolerance 1e-5").code, 1);
  EXPECT_EQ(run(wrong + " --check-tolerance 1e9").code, 0);
}

TEST_F(ProgramTools, OptionsThatDoNotGoWithCheckingGradientsAreRefused) {
  const ToolEnd without = run(forward_step() + "--check-samples 3");
  EXPECT_EQ(without.code, 2);
  EXPECT_THAT(without.out, HasSubstr("--check-samples needs --check-gradients"));
  const ToolEnd fetch = run(forward_step() + "--check-gradients --fetch x");
  EXPECT_EQ(fetch.code, 2);
  EXPECT_THAT(fetch.out, HasSubstr("--fetch has no effect with --check-gradients"));
  const ToolEnd no_loss = run(forward_step() + "--check-gradients");
  EXPECT_EQ(no_loss.code, 2);
  EXPECT_THAT(no_loss.out, HasSubstr("the program has no gradients; name the loss with --loss"));
}

}  // namespace
}  // namespace millrace::tools
