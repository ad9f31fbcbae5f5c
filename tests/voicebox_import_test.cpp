// voicebox-pytorch's package in and out again.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/temporary_folder.h"
#include "foreign_files.h"
#include "systems/foreign.h"
#include "systems/voicebox/load.h"

namespace melete {
namespace {

using namespace testing;
using ::testing::HasSubstr;
using Json = nlohmann::ordered_json;

std::string package() {
  return MELETE_SOURCE_DIR "/tests/golden/voicebox/checkpoints/voicebox.2.pt";
}

TEST(VoiceboxImport, ThePackageComesOutAsItWentIn) {
  TemporaryFolder folder;
  const ImportedCheckpoint imported = import_foreign("voicebox-pytorch", package());
  EXPECT_EQ(imported.kind, "voicebox");
  EXPECT_TRUE(imported.complete);
  EXPECT_EQ(imported.checkpoint.step(), 3);
  const auto& model = imported.checkpoint.meta.at("config").at("model");
  EXPECT_EQ(model.at("frame_dim"), 12);
  EXPECT_EQ(model.at("tokens"), 0);
  EXPECT_EQ(model.at("transformer").at("dim"), 24);
  EXPECT_EQ(model.at("transformer").at("heads"), 2);
  EXPECT_EQ(model.at("transformer").at("register_tokens"), 2);
  save_checkpoint(folder / "x.safetensors", imported.checkpoint);
  export_checkpoint(folder / "x.safetensors", folder / "y.pt", {ExportFor::training});
  EXPECT_EQ(content(package()), content(folder / "y.pt"));
}

// Without the tree that was imported, as a run of our own: the same tensors at the same places.
TEST(VoiceboxImport, ARunOfOursHasTheirNamesAndTheOrderOfTheirOptimiser) {
  TemporaryFolder folder;
  ImportedCheckpoint imported = import_foreign("voicebox-pytorch", package());
  imported.checkpoint.meta.erase("foreign");
  save_checkpoint(folder / "x.safetensors", imported.checkpoint);
  export_checkpoint(folder / "x.safetensors", folder / "y.pt", {ExportFor::training});
  const Json theirs = content(package()), ours = content(folder / "y.pt");
  const auto by_name = [](const Json& tree) {
    std::map<std::string, Json> entries;
    for (const auto& entry : tree.at("model").at("$ordered")) entries[entry[0]] = entry[1];
    return entries;
  };
  EXPECT_EQ(by_name(ours), by_name(theirs));
  EXPECT_EQ(ours.at("optim").at("state"), theirs.at("optim").at("state"));
  EXPECT_EQ(ours.at("optim").at("param_groups")[0].at("params"),
            theirs.at("optim").at("param_groups")[0].at("params"));
  for (const auto& [key, value] : theirs.at("scheduler").items())
    EXPECT_TRUE(ours.at("scheduler").contains(key)) << key;
}

TEST(VoiceboxImport, WhatIsWrongIsNamed) {
  EXPECT_THAT(error_of([] {
                import_foreign("voicebox-pytorch", package(), {{"dim", 25}});
              }),
              HasSubstr("dim = 25"));
  EXPECT_THAT(error_of([] {
                import_foreign("voicebox-pytorch", package(), {{"dims", 24}});
              }),
              HasSubstr("dims"));
  TemporaryFolder folder;
  EditableFile broken(package());
  broken.erase("model", "voicebox.to_pred.weight");
  broken.write(folder / "broken.pt");
  EXPECT_THAT(error_of([&] { import_foreign("voicebox-pytorch", folder / "broken.pt"); }),
              HasSubstr("to_pred"));
}

}  // namespace
}  // namespace melete
