#include "data/picture_dataset.h"

#include <algorithm>

#include "core/base/error.h"
#include "core/base/random.h"
#include "io/base/picture_file.h"

namespace melete {

namespace {

// Failures are judged against at least this many files, so that one bad file met first does not stop a run.
constexpr int64_t kFewestPicturesToJudge = 50;
// Random replacements before going through all files in order.
constexpr int64_t kRandomPictures = 8;

}  // namespace

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
    : entries_(std::move(entries)), config_(std::move(config)), on_problem_(std::move(on_problem)) {
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
  require(index >= 0 && index < size(), "[data] expected an index in 0..{}, got {}", size() - 1, index);
  const auto slot = static_cast<uint64_t>(index);
  for (int64_t attempt = 0; attempt <= kRandomPictures + size(); ++attempt) {
    Rng rng(random_key(seed, "picture", {epoch, slot, static_cast<uint64_t>(attempt)}));
    int64_t file = index;
    if (attempt > 0) file = rng.integer(0, size());
    if (attempt > kRandomPictures) file = (index + attempt - kRandomPictures) % size();
    PictureChances chances;
    chances.mirrored = rng.uniform() < 0.5 && config_.prepare.flip;
    chances.left = rng.uniform();
    chances.top = rng.uniform();
    try {
      Item item = read(file, chances);
      note_tried(file);
      return item;
    } catch (const Error& error) {
      note_failure(file, error.what());
    }
  }
  fail("[data] expected a readable picture, got none in {} files", size());
}

void PictureDataset::note_tried(int64_t index) {
  const std::lock_guard lock(mutex_);
  tried_.insert(index);
}

void PictureDataset::tell(int64_t index, const std::string& message) {
  if (!on_problem_) return;
  const std::lock_guard lock(callback_mutex_);
  on_problem_(entries_[static_cast<size_t>(index)].path, message);
}

void PictureDataset::note_damage(int64_t index) {
  bool first_time = false;
  {
    const std::lock_guard lock(mutex_);
    first_time = damaged_.insert(index).second;
  }
  if (first_time) tell(index, "damaged, and used as far as it goes");
}

void PictureDataset::note_failure(int64_t index, const std::string& message) {
  bool first_time = false;
  int64_t failed = 0, tried = 0;
  {
    const std::lock_guard lock(mutex_);
    tried_.insert(index);
    first_time = failed_.insert(index).second;
    failed = static_cast<int64_t>(failed_.size());
    tried = static_cast<int64_t>(tried_.size());
  }
  if (first_time) tell(index, "skipped: " + message);
  const int64_t judged = std::max(tried, std::min(size(), kFewestPicturesToJudge));
  require(static_cast<double>(failed) <= config_.max_failed_share * static_cast<double>(judged),
          "[data] expected at most {:g} % unreadable pictures (data.max_failed_share), got {} of {} tried, "
          "the last: {}",
          config_.max_failed_share * 100, failed, tried, message);
}

int64_t PictureDataset::failed_files() const {
  const std::lock_guard lock(mutex_);
  return static_cast<int64_t>(failed_.size());
}

int64_t PictureDataset::damaged_files() const {
  const std::lock_guard lock(mutex_);
  return static_cast<int64_t>(damaged_.size());
}

}  // namespace melete
