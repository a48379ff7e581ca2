// Where trainers and servers of a job save: below the allowed folder, under one name.

#include <filesystem>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "jobs/ps/save_place.h"
#include "tests/tools/ctr_folder.h"

namespace millrace::tools {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

class FleetSavePlace : public CtrFolder {
 protected:
  void SetUp() override {
    CtrFolder::SetUp();
    fs::create_directories(at("allowed/inside"));
    fs::create_directory_symlink(at("allowed"), at("link"));
    fs::create_directory_symlink(at("."), at("allowed/out"));
  }

  // The name below the root that servers are given; empty: refused.
  [[nodiscard]] static std::string name_of(const std::string& path, const std::string& root) {
    const auto place = jobs::save_place(path, root);
    if (place.ok()) {
      EXPECT_EQ(place->root, root);
      return place->folder;
    }
    EXPECT_EQ(place.status().code(), StatusCode::kInvalidArgument);
    EXPECT_THAT(place.status().message(), HasSubstr("expected a folder below the allowed one"));
    return {};
  }
};

TEST_F(FleetSavePlace, IsTheSameFolderHoweverItIsWritten) {
  const std::string root = at("allowed");
  EXPECT_EQ(name_of(root + "/saved", root), "saved");
  EXPECT_EQ(name_of(root + "/saved/", root + "/"), "saved");
  EXPECT_EQ(name_of(root + "/./inside/../saved", root), "saved");
  EXPECT_EQ(name_of(root + "/inside/saved", at("link")), "inside/saved");
  EXPECT_EQ(name_of("saved", "."), "saved");
  EXPECT_EQ(name_of("./a/saved", "a"), "saved");
  EXPECT_EQ(name_of(fs::current_path().string() + "/a/saved", "./a"), "saved");
}

TEST_F(FleetSavePlace, OutsideOfTheAllowedFolderIsRefused) {
  const std::string root = at("allowed");
  for (const std::string& path :
       {std::string("saved"), at("saved"), root, root + "/../saved", root + "/out/saved"})
    EXPECT_EQ(name_of(path, root), "") << path;
  EXPECT_EQ(name_of("saved", "a"), "");
}

TEST_F(FleetSavePlace, WithoutAnAllowedFolderIsAnyFolder) {
  const auto place = jobs::save_place("a/saved", "");
  ASSERT_TRUE(place.ok());
  EXPECT_EQ(place->root + ":" + place->folder, "a:saved");
}

// Servers would save below the allowed folder, the trainer beside it.
TEST_F(FleetSavePlace, ARelativeNameOutsideEndsAJobBeforeItsFirstStep) {
  transpile("job", "sync", {"127.0.0.1:7200", "127.0.0.1:7201"});
  write_feeds(0, 2);
  const std::string name = "fleet_save_place_" + std::to_string(::getpid());
  for (const Words& flags : {Words{"--save-params", name}, Words{"--save-model", name}}) {
    const Ended ended = run("run-program", joined(cluster("job", 2, "out.npz"),
                                                  joined(flags, {"--allow-dir", at("allowed")})));
    EXPECT_EQ(ended.code, 3) << ended.output;
    EXPECT_THAT(ended.output, HasSubstr("for " + flags[0]));
    EXPECT_THAT(ended.output, HasSubstr("name it '" + at("allowed") + "/" + name));
    EXPECT_FALSE(fs::exists(name));
    EXPECT_FALSE(fs::exists(at("out.npz")));
  }
}

}  // namespace
}  // namespace millrace::tools
