// checkpoint as a process: every command, streams, exit codes, and files that equal those of the
// original, byte by byte.

#include <filesystem>
#include <fstream>
#include <iterator>

#include <gmock/gmock.h>
#include <nlohmann/json.hpp>
#include <unistd.h>

#include "tests/support/run_tool.h"

namespace millrace::tools {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr const char* kSeparate = "tests/data/models/fit_a_line_2018";
constexpr const char* kCombined = "tests/data/models/linear/params";
constexpr const char* kCombinedProgram = "tests/data/models/linear/__model__";
constexpr const char* kOriginal = "tests/data/checkpoint_original";

class CheckpointTool : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = std::filesystem::temp_directory_path() /
              ("millrace_checkpoint_tool_" + std::to_string(::getpid()));
    std::filesystem::create_directories(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  [[nodiscard]] std::string path(const std::string& name) const { return folder_ / name; }

  static ToolEnd run(const std::string& arguments) { return run_tool("checkpoint " + arguments); }
  static void succeed(const std::string& arguments) {
    const ToolEnd result = run(arguments);
    EXPECT_EQ(result.code, 0) << arguments << "\n" << result.out;
  }
  static std::string bytes(const std::string& path) {
    std::ifstream in(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
  }
  static void put(const std::string& path, const std::string& bytes) {
    std::ofstream(path, std::ios::binary | std::ios::trunc) << bytes;
  }
  // A checkpoint of two vars in <folder>/ck/step-<step>.
  void make_checkpoint(int step) const {
    succeed(std::string("convert ") + kSeparate + " --to checkpoint -q --step " +
            std::to_string(step) + " -o " + path("ck/step-" + std::to_string(step)));
  }

  std::filesystem::path folder_;
};

TEST_F(CheckpointTool, ConvertsThereAndBack) {
  const std::string program = std::string(" --program ") + kCombinedProgram;
  const std::string combined = kCombined + program;
  succeed("convert " + combined + " --to safetensors -o " + path("a.safetensors"));
  succeed("convert " + path("a.safetensors") + " --to npz -o " + path("a.npz"));
  succeed("convert " + path("a.npz") + " --to fluid-separate -o " + path("sep"));
  succeed("convert " + path("sep") + " --to checkpoint -o " + path("c"));
  succeed("convert " + path("c") + " --to fluid-combined -o " + path("back"));
  EXPECT_EQ(bytes(path("back")), bytes(kCombined));
  succeed(std::string("convert ") + kSeparate + " --to checkpoint -o " + path("d"));
  succeed("convert " + path("d") + " --to fluid-separate -o " + path("again"));
  for (const char* name : {"/fc_0.b_0", "/fc_0.w_0"})
    EXPECT_EQ(bytes(path("again") + name), bytes(std::string(kSeparate) + name));
}

TEST_F(CheckpointTool, KeepsLodAndRows) {
  const std::string folder = path("vars");
  std::filesystem::create_directories(folder);
  std::filesystem::copy("tests/data/params/lod2", folder + "/lod2");
  succeed("convert " + folder + " --to safetensors -o " + path("l.safetensors"));
  succeed("convert " + path("l.safetensors") + " --to fluid-separate -o " + path("lod"));
  EXPECT_EQ(bytes(path("lod/lod2")), bytes("tests/data/params/lod2"));
}

TEST_F(CheckpointTool, ListsShowsAndRemoves) {
  for (const int step : {1, 2, 10}) make_checkpoint(step);
  std::filesystem::create_directories(path("ck/step-5"));
  const ToolEnd list = run("list --json " + path("ck"));
  EXPECT_EQ(list.code, 0);
  const json rows = json::parse(list.out)["checkpoints"];
  ASSERT_EQ(rows.size(), 4);
  EXPECT_EQ(rows[3]["step"], 10);
  EXPECT_EQ(rows[3]["tensors"], 2);
  EXPECT_FALSE(rows[2]["complete"]);
  EXPECT_THAT(run("list " + path("ck")).out, HasSubstr("complete"));
  const ToolEnd show = run("show " + path("ck") + " fc_0.w_0");
  EXPECT_THAT(show.out, AllOf(HasSubstr("[13, 1]"), HasSubstr("1.94002"),
                              HasSubstr("slice at [0, 0] of shape [13, 1]")));
  const ToolEnd unknown = run("show " + path("ck") + " fc_0.w_1");
  EXPECT_EQ(unknown.code, 3);
  EXPECT_THAT(unknown.out, HasSubstr("did you mean 'fc_0.w_0'?"));
  const json shown = json::parse(run("show -q --json --step 2 " + path("ck")).out);
  EXPECT_EQ(shown["step"], 2);
  EXPECT_EQ(json::parse(run("show -q --json --step 2 " + path("ck/step-2")).out)["step"], 2);
  const ToolEnd other = run("show --step 7 " + path("ck/step-2"));
  EXPECT_EQ(other.code, 3);
  EXPECT_THAT(other.out, HasSubstr("--step: expected a checkpoint of step 7, found one of step 2"));
  EXPECT_EQ(shown["tensors"][1]["parts"][0]["shape"], json({13, 1}));
  EXPECT_THAT(run("gc " + path("ck") + " --keep 1 --dry-run").out,
              HasSubstr("would remove step 5, incomplete"));
  succeed("gc " + path("ck") + " --keep 1");
  EXPECT_EQ(json::parse(run("list --json " + path("ck")).out)["checkpoints"].size(), 1);
}

TEST_F(CheckpointTool, VerifiesAndFallsBack) {
  make_checkpoint(1);
  make_checkpoint(2);
  succeed("verify " + path("ck"));
  succeed("verify " + path("ck") + " --program " + kSeparate + "/__model__");
  const ToolEnd other = run("verify " + path("ck") + " --program " + kCombinedProgram);
  EXPECT_EQ(other.code, 1);
  EXPECT_THAT(other.out, HasSubstr("'w': the program has this variable, the checkpoint does not"));
  const std::string file = path("ck/step-2/data-0-0.safetensors");
  std::string content = bytes(file);
  content.back() = static_cast<char>(content.back() ^ 1);
  put(file, content);
  const ToolEnd flipped = run("verify -q --json " + path("ck"));
  EXPECT_EQ(flipped.code, 1);
  const json report = json::parse(flipped.out.substr(flipped.out.find("{\n")));
  EXPECT_FALSE(report["ok"]);
  EXPECT_EQ(report["findings"].size(), 2);
  EXPECT_THAT(run("verify " + path("ck")).out,
              AllOf(HasSubstr("data-0-0.safetensors, 'fc_0.w_0'"), HasSubstr("expected checksum")));
  const ToolEnd good = run("show --last-good " + path("ck"));
  EXPECT_EQ(good.code, 0);
  EXPECT_THAT(good.out, AllOf(HasSubstr("skipped"), HasSubstr("step 1,")));
  EXPECT_EQ(run("verify " + path("nothing")).code, 3);
  put(path("cut.safetensors"), content.substr(0, 100));
  EXPECT_EQ(run("verify " + path("cut.safetensors")).code, 1);
}

TEST_F(CheckpointTool, ReadsTheOriginalsOnlyToConvert) {
  EXPECT_EQ(run(std::string("show ") + kOriginal).code, 2);
  succeed(std::string("convert ") + kOriginal + " --to checkpoint -o " + path("c"));
  EXPECT_THAT(run("show " + path("c")).out,
              AllOf(HasSubstr("w_row   f32    [4, 8]"), HasSubstr("plain   i64    [3, 2]")));
  for (const char* axis : {"0", "1"}) {
    succeed("reshard " + path("c") + " --pservers a:1,b:1,c:1 --cut-whole --force --axis " + axis +
            " --max-memory 40 -o " + path("c3"));
    succeed("verify " + path("c3"));
    succeed("diff " + path("c") + " " + path("c3"));
  }
  EXPECT_TRUE(std::filesystem::exists(path("c3/manifest.json")));
}

TEST_F(CheckpointTool, OptionsOfOtherCommandsAreRefused) {
  make_checkpoint(1);
  make_checkpoint(2);
  for (const char* const words :
       {"reshard --vars fc_0.b_0 --ranks 2 -o ", "convert --to npz --ranks 2 -o "}) {
    const ToolEnd refused = run(words + path("out") + " " + path("ck"));
    EXPECT_EQ(refused.code, 2) << words;
    EXPECT_THAT(refused.out, HasSubstr("does not read it, only"));
  }
  EXPECT_THAT(run("gc --step 1 --keep 1 " + path("ck")).out,
              HasSubstr("--step: gc does not read it, only show, verify"));
  EXPECT_TRUE(std::filesystem::exists(path("ck/step-1"))) << "nothing was removed";
  EXPECT_EQ(run("verify --dry-run " + path("ck")).code, 2);
  EXPECT_EQ(run("verify --last-good " + path("ck")).code, 2);
  EXPECT_EQ(run("show --last-good --step 1 " + path("ck")).code, 2);
  EXPECT_EQ(run("verify --slices slices.json " + path("ck")).code, 2);
  EXPECT_EQ(run("list --from checkpoint " + path("ck")).code, 2);
}

// Inputs that do not read an option.
TEST_F(CheckpointTool, OptionsThatAnInputDoesNotReadAreRefused) {
  make_checkpoint(1);
  make_checkpoint(2);
  succeed("convert " + path("ck") + " --to npz -q -o " + path("a.npz"));
  for (const char* const words :
       {"--step 1", "--last-good", "--slices s.json", "--program p", "--beside d"}) {
    const ToolEnd refused = run(std::string("show ") + words + " " + path("a.npz"));
    EXPECT_EQ(refused.code, 2) << words << refused.out;
    EXPECT_THAT(refused.out, HasSubstr(std::string(words).substr(0, std::string(words).find(' ')) +
                                       " has no effect: it is for "));
  }
  EXPECT_EQ(run("convert --unique-id 3 --to npz -o " + path("b.npz") + " " + path("ck")).code, 2);
  EXPECT_EQ(run("verify --step 1 " + path("a.npz")).code, 2);
  // one of two inputs reads it
  EXPECT_EQ(run("diff --step 1 " + path("ck") + " " + path("a.npz")).code, 0);
  EXPECT_THAT(run("verify --step 1 " + path("ck/step-2")).out,
              HasSubstr("--step: expected a checkpoint of step 1, found one of step 2"));
  succeed("show -q --last-good " + path("ck/step-2"));
  std::string content = bytes(path("ck/step-2/data-0-0.safetensors"));
  content.back() = static_cast<char>(content.back() ^ 1);
  put(path("ck/step-2/data-0-0.safetensors"), content);
  EXPECT_EQ(run("convert --last-good " + path("ck/step-2") + " --to npz -o " + path("c.npz")).code,
            3);
}

TEST_F(CheckpointTool, ConvertKeepsTheStep) {
  make_checkpoint(3);
  succeed("convert " + path("ck") + " --to checkpoint -q -o " + path("same"));
  EXPECT_EQ(json::parse(run("show -q --json " + path("same")).out)["step"], 3);
  succeed("convert " + path("ck/step-3") + " --to npz -q -o " + path("a.npz"));
  succeed("convert --step 9 " + path("a.npz") + " --to checkpoint -q -o " + path("nine"));
  EXPECT_EQ(json::parse(run("show -q --json " + path("nine")).out)["step"], 9);
}

TEST_F(CheckpointTool, ComparesWithTolerance) {
  make_checkpoint(1);
  succeed("convert " + path("ck/step-1") + " --to fluid-separate -o " + path("sep"));
  std::string content = bytes(path("sep/fc_0.b_0"));
  content[content.size() - 4] = static_cast<char>(content[content.size() - 4] ^ 1);  // one ulp
  put(path("sep/fc_0.b_0"), content);
  const ToolEnd differ = run("diff " + path("ck") + " " + path("sep"));
  EXPECT_EQ(differ.code, 1);
  EXPECT_THAT(differ.out, HasSubstr("fc_0.b_0: 1 elements differ"));
  succeed("diff --rtol 1e-6 " + path("ck") + " " + path("sep"));
  const ToolEnd none = run("diff --vars 'gc_*' " + path("ck") + " " + path("sep"));
  EXPECT_EQ(none.code, 3) << "nothing was compared";
  EXPECT_THAT(none.out, HasSubstr("no variable to compare"));
  const json report = json::parse(run("diff -q --json " + path("ck") + " " + path("sep")).out);
  EXPECT_EQ(report["differences"][0]["at"], 0);
  EXPECT_THAT(
      run(std::string("diff ") + path("ck") + " " + kCombined + " --program " + kCombinedProgram)
          .out,
      AllOf(HasSubstr("w: only in B"), HasSubstr("fc_0.w_0: only in A")));
}

TEST_F(CheckpointTool, ExportsAModel) {
  make_checkpoint(1);
  succeed("export " + path("ck") + " --model-dir " + kSeparate + " -o " + path("m"));
  for (const char* name : {"/fc_0.b_0", "/fc_0.w_0", "/__model__"})
    EXPECT_EQ(bytes(path("m") + name), bytes(std::string(kSeparate) + name));
  succeed("export " + path("ck") + " --model-dir " + kSeparate +
          " --params-filename __params__ -o " + path("m1"));
  EXPECT_EQ(bytes(path("m1/__params__")), bytes(std::string(kSeparate) + "/fc_0.b_0") +
                                              bytes(std::string(kSeparate) + "/fc_0.w_0"));
  const ToolEnd missing = run(std::string("export ") + path("ck") +
                              " --model-dir tests/data/models/linear -o " + path("m2"));
  EXPECT_EQ(missing.code, 3);
  EXPECT_THAT(missing.out, HasSubstr("'b': no input has the var"));
}

TEST_F(CheckpointTool, ExportsNoVariableThatTwoInputsHaveWithDifferentValues) {
  make_checkpoint(1);
  succeed("convert " + path("ck") + " --to fluid-separate -o " + path("same"));
  succeed("convert " + path("ck") + " --to npz -o " + path("one.npz") + " --vars fc_0.w_0");
  const std::string model = std::string(" --model-dir ") + kSeparate + " -o ";
  succeed("export " + path("one.npz") + " " + path("ck") + " " + path("same") + model + path("m"));
  std::string content = bytes(path("same/fc_0.b_0"));
  content.back() = static_cast<char>(content.back() ^ 1);
  put(path("same/fc_0.b_0"), content);
  for (const char* const dry : {"", " --dry-run"}) {
    const ToolEnd differ = run("export " + path("one.npz") + " " + path("ck") + " " + path("same") +
                               model + path("m2") + dry);
    EXPECT_EQ(differ.code, 3);
    EXPECT_THAT(differ.out, HasSubstr("'fc_0.b_0': inputs 2 and 3 have different values"));
  }
}

// A training run that stops and continues ends with the same bits as one that never stopped.
TEST_F(CheckpointTool, RunsGoOnExactly) {
  std::ofstream data(path("d.csv"));
  for (int i = 0; i < 40; ++i) {
    for (int k = 0; k < 14; ++k) data << (k == 0 ? "" : ",") << (i * 31 + k * 17) % 23 * 0.05;
    data << "\n";
  }
  data.close();
  const std::string train =
      "run-program --program tests/data/fit_a_line/main.pb --startup "
      "tests/data/fit_a_line/startup.pb --columns x=0:12,y=13 --batch-size 10 --seed 3 -q --data " +
      path("d.csv");
  const std::string save = " --save-every 3 --checkpoint-dir " + path("ck");
  const auto trained = [&](const std::string& rest) {
    const ToolEnd result = run_tool(train + rest);
    EXPECT_EQ(result.code, 0) << result.out;
  };
  trained(" --epochs 4 --save-persistables " + path("whole.npz"));
  trained(" --epochs 2 --resume auto" + save);
  put(path("ck/step-6/data-0-0.safetensors"), "damaged");
  trained(" --epochs 4 --resume auto --save-persistables " + path("again.npz") + save);
  succeed("diff " + path("whole.npz") + " " + path("again.npz"));
  const json rows = json::parse(run("list --json " + path("ck")).out)["checkpoints"];
  ASSERT_EQ(rows.size(), 5);
  EXPECT_EQ(rows[4]["step"], 15);
  succeed("verify " + path("ck"));
  trained(" --epochs 4 --resume " + path("ck/step-12") + " --save-persistables " +
          path("last.npz"));
  succeed("diff " + path("whole.npz") + " " + path("last.npz"));
  // What another run would save there is older than these, so it would be removed at once.
  const ToolEnd fresh = run_tool(train + save);
  EXPECT_EQ(fresh.code, 3);
  EXPECT_THAT(fresh.out, HasSubstr("--checkpoint-dir: expected no checkpoints before a run that "
                                   "starts from the beginning, found one of step 15"));
  std::string loud = train;
  loud.erase(loud.find(" -q"), 3);
  EXPECT_THAT(run_tool(loud + " --epochs 4 --resume " + path("ck/step-12") + save).out,
              HasSubstr("has a checkpoint of step 15, from which a run would continue by itself"));
  EXPECT_THAT(run_tool(loud + " --resume auto --checkpoint-dir " + path("none")).out,
              HasSubstr("none has no complete checkpoint: the run starts from the beginning"));
  EXPECT_EQ(run_tool(train + " --resume " + path("none")).code, 3);
  EXPECT_EQ(run_tool(train + " --resume auto").code, 2);
  EXPECT_EQ(run_tool(train + " --save-every 2").code, 2);
  // A failing disk does not stop training unless the user asks for it.
  put(path("file"), "x");
  const std::string nowhere = " --save-every 3 --checkpoint-dir " + path("file");
  trained(nowhere);
  EXPECT_EQ(run_tool(train + nowhere + " --fail-on-save-error").code, 3);
}

// A folder of snapshots of servers: the contents of each, and whether all are intact.
TEST_F(CheckpointTool, SnapshotsOfServersAreListedAndVerified) {
  for (const char* server : {"server-0", "server-1"})
    succeed(std::string("convert ") + kSeparate + " --to checkpoint -o " +
            path(std::string("snap/") + server + "/step-3") + " -q");
  const json rows = json::parse(run("list --json " + path("snap")).out)["checkpoints"];
  ASSERT_EQ(rows.size(), 2);
  EXPECT_EQ(rows[1]["server"], 1);
  EXPECT_EQ(rows[1]["step"], 3);
  EXPECT_THAT(run("list " + path("snap")).out, HasSubstr("server"));
  succeed("verify " + path("snap"));
  put(path("snap/server-1/step-3/data-0-0.safetensors"), "damaged");
  const ToolEnd bad = run("verify " + path("snap"));
  EXPECT_EQ(bad.code, 1);
  EXPECT_THAT(bad.out, HasSubstr("server-1/step-3"));
}

// Dropout continues with the numbers that the stopped run would have drawn next, on every device.
TEST_F(CheckpointTool, RandomNumbersGoOnExactly) {
  put(path("main.txt"), R"(# millrace program 1

block 0 {
  persist total: f32(4)
  var x: f32(-1, 4)
  var d: f32(-1, 4)
  var m: u8(-1, 4)
  var s: f32(4)

  dropout X=x -> Out=d Mask=m {dropout_prob: 0.5, seed: 0, fix_seed: false}
  reduce_sum X=d -> Out=s {dim: [0], keep_dim: false, reduce_all: false}
  elementwise_add X=total Y=s -> Out=total {axis: -1}
}
)");
  put(path("startup.txt"), R"(# millrace program 1

block 0 {
  persist total: f32(4)

  fill_constant -> Out=total {shape: [4l], value: 0.0, dtype: 5}
}
)");
  std::ofstream data(path("d.csv"));
  for (int i = 0; i < 80; ++i) data << i << "," << i * 3 + 1 << "," << i * 5 % 7 << ",1\n";
  data.close();
  for (const std::string devices : {"cpu:1", "cpu:2"}) {
    const auto trained = [&](const std::string& rest, int seed = 5, std::string on = "") {
      const ToolEnd result = run_tool(
          "run-program --program " + path("main.txt") + " --startup " + path("startup.txt") +
          " --columns x=0:3 --batch-size 8 --data " + path("d.csv") + " --fetch s --force -o " +
          path("o.npz") + " --checkpoint-dir " + path(devices) + " --devices " +
          (on.empty() ? devices : on) + " --seed " + std::to_string(seed) + rest);
      EXPECT_EQ(result.code, 0) << result.out;
      return result.out;
    };
    const std::string again = " --save-persistables " + path("again.npz");
    const std::string compare = "diff " + path("whole.npz") + " " + path("again.npz");
    trained(" --shuffle false --epochs 2 --save-persistables " + path("whole.npz"));
    trained(" --shuffle false --epochs 1 --save-every 5");
    trained(" --shuffle false --epochs 2 --resume auto" + again);
    succeed(compare);
    // Another seed has no effect: the checkpoint contains the positions of the random numbers.
    trained(" --shuffle false --epochs 2 --resume auto" + again, 6);
    succeed(compare);
    trained(" --shuffle false --epochs 2" + again, 6);
    EXPECT_EQ(run(compare).code, 1);
    EXPECT_THAT(trained(" --epochs 2 --resume auto", 5, devices == "cpu:1" ? "cpu:2" : "cpu:1"),
                HasSubstr("random numbers restart"));
  }
}

// Commands that write report it in one JSON document; with --dry-run they report what they would
// do, and write nothing.
TEST_F(CheckpointTool, ReportsAndDryRuns) {
  make_checkpoint(1);
  const std::string model = std::string("export ") + path("ck") + " --model-dir " + kSeparate;
  const std::vector<std::pair<std::string, std::string>> commands = {
      {"convert " + path("ck") + " --to safetensors", path("o.safetensors")},
      {"convert " + path("ck") + " --to npz", path("o.npz")},
      {"convert " + path("ck") + " --to fluid-combined", path("o.params")},
      {"convert " + path("ck") + " --to fluid-separate", path("o.sep")},
      {"convert " + path("ck") + " --to checkpoint", path("o.c")},
      {"reshard " + path("ck") + " --ranks 3", path("o.c3")},
      {model, path("o.model")},
      {model + " --params-filename __params__", path("o.one")}};
  for (const auto& [command, output] : commands) {
    const std::string whole = command + " -o " + output;
    const ToolEnd dry = run(whole + " --dry-run");
    EXPECT_EQ(dry.code, 0) << dry.out;
    EXPECT_THAT(dry.out, AllOf(HasSubstr("would write " + output), HasSubstr("2 vars"))) << command;
    EXPECT_TRUE(json::parse(run(whole + " --dry-run -q --json").out)["dry_run"]);
    EXPECT_FALSE(std::filesystem::exists(output)) << command;
    const ToolEnd real = run(whole + " -q --json");
    ASSERT_EQ(real.code, 0) << real.out;
    const json report = json::parse(real.out);
    EXPECT_EQ(report["schema"]["version"], 1);
    EXPECT_EQ(report["output"], output);
    EXPECT_EQ(report["vars"], 2);
    EXPECT_TRUE(std::filesystem::exists(output)) << command;
    // Both refuse existing outputs.
    EXPECT_EQ(run(whole + " --dry-run").code, 2) << command;
    EXPECT_EQ(run(whole).code, 2) << command;
    EXPECT_EQ(run(whole + " --force").code, 0) << command;
  }
  EXPECT_EQ(run("convert " + path("ck") + " --to npz --json -o -").code, 2);
}

// 2^53 and 2^53 + 1 are the same double.
TEST_F(CheckpointTool, ComparesWholeNumbersExactly) {
  for (const char last : {'\0', '\1'}) {
    std::string bytes(4 + 8 + 4, '\0');  // version, no LoD, version
    const std::string desc("\x08\x03\x10\x01", 4);
    bytes += std::string("\x04\0\0\0", 4) + desc;
    std::string value(8, '\0');
    value[6] = 0x20;
    value[0] = last;
    const std::string folder = path(last == 0 ? "even" : "odd");
    std::filesystem::create_directories(folder);
    put(folder + "/n", bytes + value);
  }
  succeed("diff " + path("odd") + " " + path("odd"));
  const ToolEnd differ = run("diff " + path("even") + " " + path("odd"));
  EXPECT_EQ(differ.code, 1);
  EXPECT_THAT(differ.out, HasSubstr("n: 1 elements differ"));
}

TEST_F(CheckpointTool, GarbageOfServers) {
  for (const char* server : {"server-0", "server-1"})
    for (const char* step : {"1", "2", "3"})
      succeed(std::string("convert ") + kSeparate + " --to checkpoint -o " +
              path(std::string("snap/") + server + "/step-" + step) + " -q");
  EXPECT_THAT(run("gc " + path("snap") + " --keep 2 --dry-run").out,
              AllOf(HasSubstr("server-0/step-1"), HasSubstr("server-1/step-1")));
  const json report = json::parse(run("gc -q --json " + path("snap") + " --keep 1").out);
  EXPECT_EQ(report["removed"].size(), 4);
  EXPECT_EQ(json::parse(run("list --json " + path("snap")).out)["checkpoints"].size(), 2);
}

TEST_F(CheckpointTool, RefusesWrongUse) {
  const ToolEnd unknown = run("verfy x");
  EXPECT_EQ(unknown.code, 2);
  EXPECT_THAT(unknown.out, HasSubstr("did you mean 'verify'?"));
  EXPECT_EQ(run("diff a").code, 2);
  EXPECT_EQ(run("convert " + std::string(kSeparate)).code, 2);
  EXPECT_EQ(run("convert " + std::string(kCombined) + " --to npz -o " + path("x")).code, 2);
  make_checkpoint(1);
  EXPECT_EQ(run("reshard " + path("ck") + " -o " + path("y")).code, 2);
  EXPECT_EQ(run("reshard " + path("ck") + " --ranks 2 -o " + path("ck/step-1")).code, 2);
  EXPECT_EQ(run("gc " + path("ck") + " --keep 0").code, 2);
  EXPECT_EQ(run("show " + path("ck") + " fc_0.w_0 --vars fc_0.b_0").code, 2);
  const ToolEnd none = run("show " + path("ck") + " --vars 'gc_*'");
  EXPECT_EQ(none.code, 3);
  EXPECT_THAT(none.out, HasSubstr("no variable matches --vars \"gc_*\""));
  EXPECT_EQ(run("list " + path("nothing")).code, 3);
}

}  // namespace
}  // namespace millrace::tools
