// Pictures -> training items: column "picture" [channels, height, width] float32 in [0, 1], words "text" and
// "path".
#pragma once

#include <cstdint>
#include <functional>
#include <mutex>
#include <string>
#include <unordered_set>
#include <vector>

#include "config/schema.h"
#include "data/base/manifest.h"
#include "data/dataset.h"
#include "data/pictures.h"
#include "data/unreadable_files.h"

namespace melete {

struct PicturesConfig : LoaderConfig {
  PicturePreparation prepare;
  std::string captions = "auto";        // of a folder, see Captions
  std::string caption_column = "text";  // of a list
  bool quick_jpeg = false;
};
void describe(Schema& schema, PicturesConfig& config);

class PictureDataset : public Dataset {
 public:
  // Called once for every file that cannot be read, or not whole, from whichever thread met it.
  using OnProblem = std::function<void(const std::string& path, const std::string& message)>;

  // Of each entry path and text count.
  PictureDataset(std::vector<ManifestEntry> entries, PicturesConfig config, OnProblem on_problem = {});

  int64_t size() const override { return static_cast<int64_t>(entries_.size()); }
  const std::vector<ManifestEntry>& entries() const { return entries_; }

  // Throws an Error when the file is no picture. One that ends too early is shown as far as it goes, named
  // once, and counted.
  Item read(int64_t index, const PictureChances& chances);

  // A file that cannot be read is replaced by another one, itself a function of the three; an Error comes
  // when too many of the files tried have failed. Thread safe.
  Item draw(uint64_t seed, uint64_t epoch, int64_t index) override;

  int64_t failed_files() const { return unreadable_.failed(); }

 private:
  void note_damage(int64_t index);
  void tell(int64_t index, const std::string& message);

  std::vector<ManifestEntry> entries_;
  PicturesConfig config_;
  OnProblem on_problem_;
  UnreadableFiles unreadable_;
  std::mutex mutex_, callback_mutex_;
  std::unordered_set<int64_t> damaged_;
};

}  // namespace melete
