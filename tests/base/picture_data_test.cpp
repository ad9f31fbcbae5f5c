// Collections of pictures: tables of captions, what `data check` finds, and what a shape's pixels tell.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "core/base/error.h"
#include "data/base/inspect_pictures.h"
#include "data/base/picture_resize.h"
#include "data/base/synth_pictures.h"
#include "io/base/picture_file.h"
#include "temporary_folder.h"

namespace melete {
namespace picture_data_test {

using ::testing::HasSubstr;
using testing::TemporaryFolder;
using testing::write_bytes;

TEST(PictureTable, HasQuotesCommasAndItsOwnColumns) {
  TemporaryFolder folder;
  write_png(folder / "a.png", synth_picture(1, 0, 16).image);
  write_bytes(folder / "list.csv",
              "id,path,label\r\n1,a.png,\"a \"\"red\"\"\ncar, parked\"\r\n\r\n2,sub/b.png,\r\n");
  const auto entries = load_pictures(folder / "list.csv", Captions::automatic, "label");
  ASSERT_EQ(entries.size(), 2u);
  EXPECT_EQ(entries[0].path, folder / "a.png");
  EXPECT_EQ(entries[0].text, "a \"red\" car, parked");
  EXPECT_EQ(entries[1].text, "");
  write_bytes(folder / "list.tsv", "path\ttext\na.png\ta cat\n");
  EXPECT_EQ(load_pictures(folder / "list.tsv", Captions::automatic)[0].text, "a cat");
  for (const char* broken : {"name,text\na.png,x\n", "path,text\na.png\n", "path,text\na.png,\"x\n", ""}) {
    write_bytes(folder / "bad.csv", broken);
    EXPECT_THROW(load_pictures(folder / "bad.csv", Captions::automatic), Error) << broken;
  }
}

TEST(PictureCheck, FindsWhatHurts) {
  TemporaryFolder folder;
  const Image good = synth_picture(1, 0, 64).image, other = synth_picture(1, 1, 64).image;
  write_png(folder / "a.png", good);
  write_png(folder / "b.png", other);
  write_bytes(folder / "c_copy.jpg", encode_jpeg(resize(good, 96, 96), 90));  // larger, and recompressed
  write_png(folder / "d_plain.png", Image(64, 64, 90));
  write_png(folder / "e_tiny.png", resize(good, 12, 12));
  write_bytes(folder / "f_text.png", "no picture at all");
  const std::string whole = encode_jpeg(other, 95);
  write_bytes(folder / "g_short.jpg", whole.substr(0, whole.size() * 2 / 3));
  const auto pictures = load_pictures(folder.path(), Captions::automatic);
  const PictureReport report = check_pictures(pictures);
  EXPECT_EQ(report.files, 7);
  std::map<std::string, std::string> found;
  for (const PictureFinding& finding : report.findings)
    found[std::filesystem::path(finding.path).stem().string()] = problem_name(finding.problem);
  const std::map<std::string, std::string> wanted = {{"c_copy", "duplicate"},
                                                     {"d_plain", "one colour"},
                                                     {"e_tiny", "tiny"},
                                                     {"f_text", "unreadable"},
                                                     {"g_short", "damaged"}};
  EXPECT_EQ(found, wanted) << report.table();
  EXPECT_THAT(report.table(), HasSubstr("7 pictures, 5 with problems"));
  PictureLimits lenient;
  lenient.duplicate_bits = -1;
  lenient.min_side = 1;
  EXPECT_EQ(check_pictures(pictures, lenient).findings.size(), 3u);

  const PictureStats stats = picture_stats(pictures);
  EXPECT_EQ(stats.unreadable, 1);
  EXPECT_EQ(stats.formats.at("png"), 4);
  EXPECT_THAT(stats.render(), HasSubstr("shorter side"));
  const auto skipped = write_picture_list(folder / "list.jsonl", pictures);
  ASSERT_EQ(skipped.size(), 1u);
  EXPECT_EQ(load_pictures(folder / "list.jsonl", Captions::automatic).size(), 6u);
}

// Who judges others must know the real thing.
TEST(SynthPictures, AreSeenAsWhatTheyAre) {
  for (const int side : {32, 64}) {
    ShapesRight right;
    for (int64_t i = 0; i < 300; ++i) {
      const SynthPicture made = synth_picture(7, i, side);
      right.add(made.image, made.caption);
    }
    EXPECT_EQ(right.colour, 300) << side;
    EXPECT_GE(right.shape, side == 32 ? 285 : 297) << side;
  }
  EXPECT_EQ(see_shape(Image(32, 32, 90)).shape, "");
  ShapesRight right;
  EXPECT_THROW(right.add(Image(32, 32), "a cat"), Error);
}

}  // namespace picture_data_test
}  // namespace melete
