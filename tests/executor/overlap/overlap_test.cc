#include <random>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "executor/executor.h"
#include "executor/standard_runtime.h"
#include "tests/executor/values.h"

// Programs whose steps run concurrently compute the same bits as on one thread.

namespace millrace::executor {
namespace {

// Ops with this many elements are worth running concurrently, and do not fit into caches.
constexpr int64_t kOverlapColumns = 512;
constexpr int64_t kOverlapRows = 700;

Value filled_overlap(int64_t rows, float first) {
  Value made;
  auto& tensor = made.as<Tensor>();
  EXPECT_TRUE(tensor.resize(DType::kFloat32, {rows, kOverlapColumns}).ok());
  for (int64_t i = 0; i < tensor.numel(); ++i)
    tensor.data<float>()[i] = first + 0.001F * static_cast<float>(i % 97);
  return made;
}

// Sums, products and unary functions of a fed var, stored vars and earlier results; some in place,
// some written back to stored vars.
class RandomProgram {
 public:
  explicit RandomProgram(uint32_t seed) : random_(seed) {
    declare("x", false);
    for (const char* const name : {"p", "q"}) declare(name, true);
    for (size_t i = 0; i < 12 + random_() % 14; ++i) add_op(i);
  }

  std::unique_ptr<Program> program = Program::create();
  std::vector<std::string> results;

 private:
  void declare(const std::string& name, bool persistable) {
    VarSpec spec = VarSpec::tensor(DType::kFloat32, {-1, kOverlapColumns});
    spec.persistable = persistable;
    program->root().declare(name, spec);
    names_.push_back(name);
  }
  const std::string& any() { return names_[random_() % names_.size()]; }
  std::string out(size_t i) {
    const size_t kind = random_() % 6;
    if (kind == 0) return random_() % 2 == 0 ? "p" : "q";
    if (kind == 1 && !results.empty()) return results[random_() % results.size()];
    declare(fmt::format("t{}", i), false);
    results.push_back(names_.back());
    return results.back();
  }
  void add_op(size_t i) {
    Block& block = program->root();
    const std::string x = any();
    const std::string y = any();
    const std::string to = out(i);
    switch (random_() % 4) {
      case 0:
        block.append_op("elementwise_add")
            .set_input("X", x)
            .set_input("Y", y)
            .set_output("Out", to);
        break;
      case 1:
        block.append_op("elementwise_max")
            .set_input("X", x)
            .set_input("Y", y)
            .set_output("Out", to);
        break;
      case 2:
        block.append_op("relu").set_input("X", x).set_output("Out", to);
        break;
      default:
        block.append_op("scale").set_input("X", x).set_output("Out", to).set_float("scale", 0.5F);
    }
  }

  std::mt19937 random_;
  std::vector<std::string> names_;
};

// Fetched and stored values after each run, and the plan.
struct Ran {
  std::vector<std::vector<float>> values;
  std::string plan;
};

Ran run_overlap(const Program& program, const std::vector<std::string>& fetches, int threads,
                const std::vector<int64_t>& rows, bool inter_op = true) {
  Ran ran;
  Scope scope;
  // no fused ops, so that there are ops to run concurrently
  auto prepared =
      Executor(standard_runtime(), {.threads = threads, .optimize = false, .inter_op = inter_op})
          .prepare(program, scope);
  EXPECT_TRUE(prepared.ok()) << prepared.status().to_string();
  int64_t before = -1;
  for (const int64_t count : rows) {
    if (count != before) {
      scope.local("p") = filled_overlap(count, 1);
      scope.local("q") = filled_overlap(count, -0.02F);
      before = count;
    }
    NamedValues feeds;
    feeds["x"] = filled_overlap(count, -0.05F);
    std::vector<Value> results;
    const Status status = prepared.value()->run(feeds, fetches, results);
    EXPECT_TRUE(status.ok()) << status.to_string();
    for (const Value& result : results) ran.values.push_back(floats(result));
    for (const char* const name : {"p", "q"}) ran.values.push_back(floats(scope.local(name)));
  }
  ran.plan = prepared.value()->plan_text();
  return ran;
}

TEST(Overlap, RandomProgramsGiveTheSameBits) {
  const std::vector<int64_t> rows(5, kOverlapRows);
  int with_groups = 0;
  for (uint32_t seed = 0; seed < 24; ++seed) {
    const RandomProgram made(seed);
    const std::vector<std::string> fetches{made.results.back()};
    const Ran expected = run_overlap(*made.program, fetches, 1, rows);
    const Ran found = run_overlap(*made.program, fetches, 2, rows);
    EXPECT_EQ(found.values, expected.values) << "seed " << seed << "\n" << found.plan;
    with_groups += found.plan.find("[side by side") == std::string::npos ? 0 : 1;
  }
  EXPECT_GT(with_groups, 12);
}

TEST(Overlap, ShapesMayChange) {
  std::vector<int64_t> rows;
  for (const int64_t count : {700, 300, 700, 300, 900, 500}) rows.insert(rows.end(), 3, count);
  for (int64_t count = 800; count < 812; ++count) rows.push_back(count);
  for (uint32_t seed = 0; seed < 4; ++seed) {
    const RandomProgram made(seed);
    const std::vector<std::string> fetches{made.results.front()};
    EXPECT_EQ(run_overlap(*made.program, fetches, 2, rows).values,
              run_overlap(*made.program, fetches, 1, rows).values)
        << "seed " << seed;
  }
}

// Two branches over x; the second has a step that fails if `rows` are not as expected.
std::unique_ptr<Program> branches() {
  auto program = Program::create();
  Block& block = program->root();
  for (const char* const name : {"x", "a", "b", "c", "d", "y"})
    block.declare(name, VarSpec::tensor(DType::kFloat32, {-1, kOverlapColumns}));
  block.declare("ids", VarSpec::tensor(DType::kInt64, {-1}));
  block.append_op("relu").set_input("X", "x").set_output("Out", "a");
  block.append_op("scale").set_input("X", "a").set_output("Out", "b");
  block.append_op("scale").set_input("X", "x").set_output("Out", "c");
  block.append_op("gather").set_input("X", "c").set_input("Index", "ids").set_output("Out", "d");
  block.append_op("elementwise_add").set_input("X", "b").set_input("Y", "d").set_output("Out", "y");
  return program;
}

TEST(Overlap, IsShownInThePlanAndCanBeSwitchedOff) {
  const auto program = branches();
  for (const bool inter_op : {true, false}) {
    Scope scope;
    auto prepared =
        Executor(standard_runtime(), {.threads = 2, .optimize = false, .inter_op = inter_op})
            .prepare(*program, scope);
    ASSERT_TRUE(prepared.ok());
    NamedValues feeds;
    feeds["x"] = filled_overlap(kOverlapRows, 0);
    auto& ids = feeds["ids"].as<Tensor>();
    ASSERT_TRUE(ids.resize(DType::kInt64, {kOverlapRows}).ok());
    for (int64_t i = 0; i < kOverlapRows; ++i) ids.data<int64_t>()[i] = kOverlapRows - 1 - i;
    std::vector<Value> results;
    for (int i = 0; i < 3; ++i) ASSERT_TRUE(prepared.value()->run(feeds, {"y"}, results).ok());
    const std::string plan = prepared.value()->plan_text();
    EXPECT_EQ(
        plan.find("0  relu                         [side by side 0]  a: f32") != std::string::npos,
        inter_op)
        << plan;

    // an error names its op in both cases, and the program can run again
    ids.data<int64_t>()[7] = kOverlapRows;
    const Status status = prepared.value()->run(feeds, {"y"}, results);
    EXPECT_EQ(status.location().op, 3) << status.to_string();
    EXPECT_EQ(status.location().op_type, "gather");
    ids.data<int64_t>()[7] = 0;
    EXPECT_TRUE(prepared.value()->run(feeds, {"y"}, results).ok());
    EXPECT_EQ(floats(results[0]).size(), static_cast<size_t>(kOverlapRows * kOverlapColumns));
  }
}

}  // namespace
}  // namespace millrace::executor
