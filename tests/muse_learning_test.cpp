// Muse learns: the tiny recipes, trained for some minutes on synthesized shapes, put the colour and the shape
// that are asked for into pictures, which is told from their pixels. Large shapes only: a small one has 8
// pixels, and in tokens of 4 x 4 a square of that size looks like a circle (docs/muse.md has both figures).
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "base/temporary_folder.h"
#include "cli/app.h"
#include "core/engine.h"
#include "data/base/synth_pictures.h"
#include "expected_figures.h"
#include "io/base/atomic_file.h"
#include "io/base/picture_file.h"

namespace melete {
namespace muse_learning_test {

using testing::TemporaryFolder;

constexpr int64_t kPictures = 96;

// Words of the command line, as a person would give them.
void melete(const std::vector<std::string>& words) {
  ASSERT_EQ(run_program(words), 0) << words[0] << " " << words[1];
}

// Captions of large shapes that another seed made.
std::vector<std::string> asked_for() {
  std::vector<std::string> captions;
  for (int64_t i = 0; static_cast<int64_t>(captions.size()) < kPictures; ++i) {
    const std::string caption = synth_picture(99, i, 32).caption;
    if (caption.find("large") != std::string::npos) captions.push_back(caption);
  }
  return captions;
}

TEST(MuseLearning, PutsTheAskedColourAndShapeIntoThePicture) {
  set_threads(1);
  TemporaryFolder folder;
  const std::string recipes = MELETE_SOURCE_DIR "/recipes/muse/", shapes = folder / "shapes";
  const std::string vqgan = folder / "vqgan", maskgit = folder / "maskgit", tokens = folder / "tokens";
  synth_pictures({shapes, 2000, 0, 32});
  melete({"train", "vqgan", "--config", recipes + "vqgan_tiny.toml", "--data", shapes, "--out", vqgan,
          "--threads", "1"});
  expect_on_track(vqgan);
  melete({"images", "encode", shapes, "--from", vqgan, "-o", tokens, "--threads", "1"});
  melete({"train", "maskgit", "--config", recipes + "maskgit_tiny.toml", "--data", tokens, "--vqgan-from",
          vqgan, "--out", maskgit, "--train.steps", "1000", "--threads", "1"});

  const std::vector<std::string> captions = asked_for();
  write_file_atomically(folder / "captions.txt", fmt::format("{}\n", fmt::join(captions, "\n")));
  melete({"generate", "muse", "--from", maskgit, "--texts", folder / "captions.txt", "--no-grid", "-o",
          folder / "made/picture.png", "--steps", "10", "--guidance", "2"});
  ShapesRight right;
  for (int64_t i = 0; i < kPictures; ++i)
    right.add(read_picture(folder / fmt::format("made/picture_{}.png", i)).image,
              captions[static_cast<size_t>(i)]);
  std::printf("of %d pictures: colour right in %d (chance 1 in 6), shape in %d (chance 1 in 4)\n",
              static_cast<int>(right.pictures), static_cast<int>(right.colour),
              static_cast<int>(right.shape));
  EXPECT_GE(right.colour, kPictures * 2 / 3);
  EXPECT_GE(right.shape, kPictures / 2);  // guessing right so often: one in ten million
}

}  // namespace muse_learning_test
}  // namespace melete
