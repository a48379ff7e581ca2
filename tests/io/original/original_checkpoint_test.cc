// Checkpoints that the original wrote are read by a reader that knows their few names and opcodes;
// anything else in such a file is refused, and no code is executed.
#include "io/original/original_checkpoint.h"

#include <fstream>

#include <gmock/gmock.h>

#include "io/original/pickle.h"
#include "tests/io/checkpoint/states.h"
#include "tests/io/temp_folder.h"

namespace millrace::io {
namespace {

using testing::counting;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::outcome;
using testing::same_bits;
using testing::TempFolder;

constexpr const char* kSample = "tests/data/checkpoint_original";

const OriginalTensor& tensor(const OriginalCheckpoint& checkpoint, const std::string& name) {
  const auto found = std::ranges::find(checkpoint.tensors(), name, &OriginalTensor::name);
  EXPECT_NE(found, checkpoint.tensors().end()) << name;
  return *found;
}

TEST(OriginalCheckpoint, ReadsTheSample) {
  const auto checkpoint = OriginalCheckpoint::open(kSample);
  ASSERT_EQ(outcome(checkpoint), "ok");
  ASSERT_EQ(checkpoint->tensors().size(), 5);
  for (const char* name : {"w_row", "w_col"}) {
    const OriginalTensor& facts = tensor(*checkpoint, name);
    EXPECT_EQ(facts.chunks.size(), 2);
    EXPECT_TRUE(same_bits(*checkpoint->load(facts), *counting({4, 8}).get_if<Tensor>()));
  }
  EXPECT_TRUE(same_bits(*checkpoint->load(tensor(*checkpoint, "b_rep")),
                        *counting({8}, 100).get_if<Tensor>()));
  const auto plain = checkpoint->load(tensor(*checkpoint, "plain"));
  EXPECT_THAT(plain->values<int64_t>(), ElementsAre(0, 1, 2, 3, 4, 5));
  EXPECT_THAT(plain->dims(), ElementsAre(3, 2));
  const auto scalar = checkpoint->load(tensor(*checkpoint, "scalar"));
  EXPECT_EQ(scalar->rank(), 0);
  EXPECT_EQ(scalar->values<float>()[0], 3.5F);
}

class ChangedSample : public ::testing::Test {
 protected:
  void SetUp() override {
    for (const char* name : {"0.metadata", "0_0.distcp", "1_0.distcp"})
      testing::put_file(folder_ / name, testing::bytes_of(std::string(kSample) + "/" + name));
  }
  // Replaces text by text of equal length.
  void change(const std::string& file, const std::string& from, const std::string& to) {
    std::string bytes = testing::bytes_of(folder_ / file);
    const size_t at = bytes.find(from);
    ASSERT_NE(at, std::string::npos);
    bytes.replace(at, from.size(), to);
    testing::put_file(folder_ / file, bytes);
  }
  std::string opened() { return outcome(OriginalCheckpoint::open(folder_.path())); }

  TempFolder folder_;
};

TEST_F(ChangedSample, OtherNamesAreRefused) {
  change("0_0.distcp", "_reconstruct", "_Reconstruct");
  EXPECT_THAT(opened(), ::testing::AllOf(HasSubstr("numpy._core.multiarray._Reconstruct"),
                                         HasSubstr("nothing in it was executed")));
}

TEST_F(ChangedSample, OtherPlacesAreRefused) {
  change("0.metadata", "1_0.distcp", "/_0.distcp");
  EXPECT_THAT(opened(), HasSubstr("expected the name of a data file"));
}

TEST_F(ChangedSample, MissingFilesAreNamed) {
  std::filesystem::remove(folder_ / "1_0.distcp");
  EXPECT_THAT(opened(), HasSubstr("1_0.distcp"));
}

TEST_F(ChangedSample, SeveralSavesAreNotMixed) {
  testing::put_file(folder_ / "1.metadata", testing::bytes_of(folder_ / "0.metadata"));
  EXPECT_THAT(opened(), HasSubstr("expected one save, found 0.metadata, 1.metadata"));
  EXPECT_EQ(outcome(OriginalCheckpoint::open(folder_.path(), 1)), "ok");
  EXPECT_THAT(outcome(OriginalCheckpoint::open(folder_.path(), 7)), HasSubstr("no 7.metadata"));
}

TEST_F(ChangedSample, EveryCutIsRefused) {
  for (const char* name : {"0.metadata", "0_0.distcp", "1_0.distcp"}) {
    const std::string whole = testing::bytes_of(folder_ / name);
    for (size_t size = 0; size < whole.size(); ++size) {
      std::ofstream(folder_ / name, std::ios::binary) << whole.substr(0, size);
      EXPECT_NE(opened(), "ok") << name << " cut to " << size;
    }
    testing::put_file(folder_ / name, whole);
  }
}

// A slice that is missing or duplicated leaves a gap or an overlap.
TEST_F(ChangedSample, PartsMustMakeUpTheTensor) {
  // The offset of the second slice of w_row, (2, 0), becomes (1, 0).
  change("0.metadata", std::string("h\x0DK\x02K\x00\x86\x94h\x0F", 10),
         std::string("h\x0DK\x01K\x00\x86\x94h\x0F", 10));
  EXPECT_THAT(opened(), HasSubstr("w_row"));
}

std::string read_text(const std::string& bytes) {
  const TempFolder folder;
  testing::put_file(folder / "p", bytes);
  const auto file = system_file_calls()->open(folder / "p");
  return outcome(read_pickle(**file));
}

TEST(Pickle, RefusesWhatItDoesNotKnow) {
  const auto p = [](const std::string& body) { return read_text("\x80\x04" + body); };
  EXPECT_EQ(p("N."), "ok");
  EXPECT_THAT(read_text("\x80\x02N."), HasSubstr("protocol 4"));
  EXPECT_THAT(read_text(""), HasSubstr("cut off"));
  // GLOBAL, INST, OBJ, PERSID, EXT1 and others are not implemented.
  for (const char* opcode : {"cos\nsystem\n", "ios\nsystem\n", "o", "P0\n", "Q", "\x82\x01"})
    EXPECT_THAT(p(opcode), HasSubstr("opcode")) << opcode;
  EXPECT_THAT(p("\x8C\x02os\x8C\x06system\x93."), HasSubstr("\"os.system\""));
  EXPECT_THAT(p("\x93."), HasSubstr("too few values"));
  EXPECT_THAT(p("NN."), HasSubstr("left on the stack"));
  EXPECT_THAT(p("(N."), HasSubstr("left on the stack"));
  EXPECT_THAT(p("t."), HasSubstr("no mark"));
  EXPECT_THAT(p("h\x01."), HasSubstr("missing memo entry"));
  EXPECT_THAT(p("NNa."), HasSubstr("not a list"));
  EXPECT_THAT(p("N)R."), HasSubstr("not a known name"));
  EXPECT_THAT(p("NNb."), HasSubstr("takes none"));
  EXPECT_THAT(p("B\xFF\xFF\xFF\x7Fx."), HasSubstr("expected 2147483647 more bytes"));
  EXPECT_THAT(p("N.x"), HasSubstr("found 1 more bytes"));
  // A list that contains itself is harmless, because references are not followed.
  EXPECT_EQ(p("]\x94h" + std::string(1, '\0') + "a."), "ok");
  EXPECT_EQ(p(std::string("\x8A\x02\x00\xFF.", 5)), "ok");
}

TEST(Pickle, LimitsValues) {
  std::string body = "\x80\x04](";
  for (int i = 0; i < 3000; ++i) body += "N";
  const TempFolder folder;
  testing::put_file(folder / "p", body + "e.");
  const auto file = system_file_calls()->open(folder / "p");
  EXPECT_EQ(outcome(read_pickle(**file)), "ok");
  EXPECT_EQ(read_pickle(**file, {.max_values = 1000}).status().code(), StatusCode::kResource);
}

}  // namespace
}  // namespace millrace::io
