// Muse learns: the tiny recipes, trained for a minute and a half on synthesized shapes, put the colour that
// is asked for into pictures, which is told from their pixels. Shapes take longer: docs/muse.md has their
// figure.
#include <gtest/gtest.h>

#include <filesystem>

#include "base/temporary_folder.h"
#include "cli/app.h"
#include "core/engine.h"
#include "data/base/synth_pictures.h"
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

TEST(MuseLearning, PutsTheAskedColourIntoThePicture) {
  set_threads(1);
  TemporaryFolder folder;
  const std::string recipes = MELETE_SOURCE_DIR "/recipes/muse/", shapes = folder / "shapes";
  const std::string vqgan = folder / "vqgan", maskgit = folder / "maskgit", tokens = folder / "tokens";
  synth_pictures({shapes, 2000, 0, 32});
  melete({"train", "vqgan", "--config", recipes + "vqgan_tiny.toml", "--data", shapes, "--out", vqgan,
          "--train.steps", "1000", "--threads", "1"});
  melete({"images", "encode", shapes, "--from", vqgan, "-o", tokens, "--threads", "1"});
  melete({"train", "maskgit", "--config", recipes + "maskgit_tiny.toml", "--data", tokens, "--vqgan-from",
          vqgan, "--out", maskgit, "--train.steps", "500", "--threads", "1"});

  // Captions that another seed made.
  std::string captions;
  for (int64_t i = 0; i < kPictures; ++i) captions += synth_picture(99, i, 32).caption + "\n";
  write_file_atomically(folder / "captions.txt", captions);
  melete({"generate", "muse", "--from", maskgit, "--texts", folder / "captions.txt", "--no-grid", "-o",
          folder / "made/picture.png", "--steps", "10", "--guidance", "2"});
  ShapesRight right;
  for (int64_t i = 0; i < kPictures; ++i)
    right.add(read_picture(folder / fmt::format("made/picture_{}.png", i)).image,
              synth_picture(99, i, 32).caption);
  std::printf("of %d pictures: colour right in %d (chance 1 in 6), shape in %d (chance 1 in 4)\n",
              static_cast<int>(right.pictures), static_cast<int>(right.colour),
              static_cast<int>(right.shape));
  EXPECT_GE(right.colour, kPictures * 2 / 3);
}

}  // namespace muse_learning_test
}  // namespace melete
