// The words that belong to a recording, from the three layouts that speech corpora come in.
#pragma once

#include <map>
#include <string>
#include <unordered_set>
#include <vector>

#include "data/base/manifest.h"

namespace melete {

class Transcripts {
 public:
  // `files` is everything in the corpus, recordings and text alike.
  explicit Transcripts(const std::vector<std::string>& files);

  std::string text_for(const std::string& recording) const;  // empty when there is none
  const std::vector<SkippedFile>& skipped() const { return skipped_; }

 private:
  void read_ljspeech(const std::string& path);
  void read_librispeech(const std::string& path);

  std::unordered_set<std::string> text_files_;
  std::map<std::string, std::string> by_folder_and_id_;  // "folder/id" -> text
  std::vector<SkippedFile> skipped_;
};

}  // namespace melete
