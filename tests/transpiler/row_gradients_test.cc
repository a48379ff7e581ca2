// Gradients of embeddings that a worker of a fleet job computes again, because ops change them.

#include "transpiler/fleet/row_gradients.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "framework/read_program.h"

namespace millrace::transpiler {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr const char* kRowGradientVars = R"(# millrace program 1

block 0 {
  persist emb: f32(100, 4)
  var ids: i64(-1, 1)
  var more: i64(-1, 1)
  var show: f32(1)
  var a: f32(-1, 4)
  var b: f32(-1, 4)
  var a@GRAD: f32(-1, 4)
  var b@GRAD: f32(-1, 4)
  var emb@GRAD: selected_rows f32(100, 4)
  var emb@GRAD@0: selected_rows f32(100, 4)
  var emb@GRAD@1: selected_rows f32(100, 4)
  var clipped: selected_rows f32(100, 4)
  distributed_lookup_table Ids=ids, more W=emb -> Outputs=a, b {table_id: 0, padding_idx: 5l}
)";
constexpr const char* kGradients = "  assign X=a -> Out=a@GRAD\n  assign X=b -> Out=b@GRAD\n";
constexpr const char* kSum = "  sum X=emb@GRAD@0, emb@GRAD@1 -> Out=emb@GRAD\n";
constexpr const char* kClip = "  clip_by_norm X=emb@GRAD -> Out=clipped {max_norm: 0.5}\n";

std::string push_of(const std::string& attrs = "", const std::string& grads = "") {
  return "  distributed_push_sparse Ids=ids, more Shows=show Clicks=show" + grads +
         " -> Outputs=a@GRAD, b@GRAD {table_id: 0, padding_idx: 5l" + attrs + "}\n";
}

struct Restored {
  std::unique_ptr<Program> program;
  Status status;

  explicit Restored(const std::string& ops) {
    auto read = read_program_bytes(kRowGradientVars + ops + "}\n", "test", {});
    EXPECT_TRUE(read.ok()) << read.status().to_string();
    program = *std::move(read);
    status = restore_row_gradients(*program);
  }
  [[nodiscard]] std::vector<std::string> types() const {
    std::vector<std::string> out;
    for (const Op& op : program->root().ops()) out.push_back(op.type().str());
    return out;
  }
};

TEST(RowGradients, OfEachLookupGoIntoTheirSum) {
  const Restored restored(kGradients + std::string(kSum) + kClip + push_of("", " Grads=clipped"));
  ASSERT_TRUE(restored.status.ok()) << restored.status.to_string();
  EXPECT_THAT(restored.types(),
              ElementsAre("distributed_lookup_table", "assign", "assign", "lookup_table_grad",
                          "lookup_table_grad", "sum", "clip_by_norm", "distributed_push_sparse"));
  Block& block = restored.program->root();
  const Op& second = *block.first_writer("emb@GRAD@1");
  EXPECT_EQ(second.first_input("Ids"), "more");
  EXPECT_EQ(second.first_input("Out@GRAD"), "b@GRAD");
  EXPECT_EQ(second.find_attr("padding_idx")->integer(), 5);
  EXPECT_EQ(block.back().first_input("Grads"), "clipped");
  EXPECT_TRUE(block.back().output("Outputs").empty());
}

TEST(RowGradients, ThatNoOpNeedsAreNotComputed) {
  const Restored restored(kGradients + std::string(kSum) + push_of());
  ASSERT_TRUE(restored.status.ok()) << restored.status.to_string();
  EXPECT_THAT(restored.types(), ElementsAre("distributed_lookup_table", "assign", "assign",
                                            "distributed_push_sparse"));
}

TEST(RowGradients, ThatCannotBeComputedAreRefused) {
  const std::string sum = kSum;
  const std::string clip = kClip;
  const std::pair<std::string, const char*> cases[] = {
      {sum + clip + kGradients + push_of("", " Grads=clipped"),
       "'sum' needs the gradient of a table before 'a@GRAD' is computed"},
      {kGradients + sum + clip + push_of(", use_cvm_op: true", " Grads=clipped"),
       "'sum' changes the gradient of 'emb', which begins with shows and clicks (op cvm)"},
      {kGradients + clip + push_of("", " Grads=clipped"),
       "'emb' has 2 lookups on servers, but its gradient has 1 terms"},
      {kGradients + push_of("", " Grads=clipped"),
       "'clipped' is to be pushed, but is not computed from the gradient of a lookup"},
      {kGradients + std::string("  clip_by_norm X=emb@GRAD@1 -> Out=clipped {max_norm: 0.5}\n") +
           push_of(),
       "'clip_by_norm' needs the gradient 'emb@GRAD@1' of a table, which is only on servers"}};
  for (const auto& [ops, message] : cases) {
    const Restored restored(ops);
    EXPECT_EQ(restored.status.code(), StatusCode::kUnimplemented) << message;
    EXPECT_THAT(restored.status.message(), HasSubstr(message));
  }
}

}  // namespace
}  // namespace millrace::transpiler
