#include "data/picture_dataset.h"

#include <algorithm>

#include "core/base/error.h"
#include "core/base/random.h"
#include "io/base/picture_file.h"

namespace melete {

void describe(Schema& s, PicturesConfig& c) {
  describe(s, c.prepare);
  s.option("captions", c.captions,
           "of a folder's pictures: from a .txt beside each, from the name of its folder, or the first of "
           "those that "
           "there is")
      .one_of({"auto", "text", "folder"});
  s.option("caption_column", c.caption_column, "of a list's pictures: the key that the caption stands under");
  s.option("quick_jpeg", c.quick_jpeg,
           "large JPEGs are decoded at a fraction of their size, never below twice what is needed; pixels "
           "differ a "
           "little");
  describe(s, static_cast<LoaderConfig&>(c));
}

PictureDataset::PictureDataset(std::vector<ManifestEntry> entries, PicturesConfig config,
                               OnProblem on_problem)
    : entries_(std::move(entries)),
      config_(std::move(config)),
      on_problem_(std::move(on_problem)),
      unreadable_(size(), config_.max_failed_share, "pictures", "",
                  [this](int64_t file, const std::string& message) { tell(file, "skipped: " + message); }) {
  require(!entries_.empty(), "[data] expected at least one picture, got none");
  require(config_.prepare.channels == 1 || config_.prepare.channels == 3,
          "[data.channels] expected 1 (grey) or 3 (colour), got {}", config_.prepare.channels);
}

Item PictureDataset::read(int64_t index, const PictureChances& chances) {
  const ManifestEntry& entry = entries_.at(static_cast<size_t>(index));
  PictureReading how;
  if (config_.quick_jpeg)
    how.shorter_side_at_least = static_cast<int>(2 * std::max(config_.prepare.height, config_.prepare.width));
  const Picture picture = read_picture(entry.path, how);
  if (picture.damaged) note_damage(index);
  Item item;
  item.add("picture", picture_tensor(prepare_picture(picture.image, config_.prepare, chances),
                                     config_.prepare.channels));
  item.words = {{"path", entry.path}, {"text", entry.text}};
  return item;
}

Item PictureDataset::draw(uint64_t seed, uint64_t epoch, int64_t index) {
  return unreadable_.draw(seed, "picture", epoch, index, [this](int64_t file, Rng& rng) {
    PictureChances chances;
    chances.mirrored = rng.uniform() < 0.5 && config_.prepare.flip;
    chances.left = rng.uniform();
    chances.top = rng.uniform();
    return read(file, chances);
  });
}

void PictureDataset::tell(int64_t index, const std::string& message) {
  if (!on_problem_) return;
  const std::lock_guard lock(callback_mutex_);
  on_problem_(entries_[static_cast<size_t>(index)].path, message);
}

void PictureDataset::note_damage(int64_t index) {
  size_t so_far = 0;
  {
    const std::lock_guard lock(mutex_);
    if (!damaged_.insert(index).second) return;
    so_far = damaged_.size();
  }
  tell(index, fmt::format("damaged, and used as far as it goes ({} so far, of {})", so_far, size()));
}

}  // namespace melete
