// A folder of joint embeddings that can be searched: embeddings.safetensors and embeddings.npy with one row
// an item, items.jsonl with a line a row. While it is made its rows are in parts/, so that what was done
// before a kill is not done again.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "io/tensors.h"

namespace melete::musiclm {

// What a row stands for: a recording (its text only goes along), or a text.
struct EmbeddedItem {
  std::string path;    // empty for a text
  std::string text;    // may be empty for a recording
  int64_t frames = 0;  // of the recording: another number is another recording
};

struct Embeddings {
  std::string identity;  // of the model that made them
  std::string side;      // "audio" or "text"
  at::Tensor vectors;    // [items, dim] float32, unit vectors
  std::vector<EmbeddedItem> items;
};

// A finished folder as a search sees it: the vectors stay in the file's mapping, and only the items that are
// asked for are read. An Error where the folder is unfinished or damaged.
class OpenedEmbeddings {
 public:
  explicit OpenedEmbeddings(const std::string& folder);

  const std::string& identity() const { return identity_; }
  const std::string& side() const { return side_; }
  const at::Tensor& vectors() const { return vectors_; }  // [items, dim]
  int64_t size() const { return vectors_.size(0); }
  EmbeddedItem item(int64_t row) const;

 private:
  std::string folder_, identity_, side_, lines_;
  at::Tensor vectors_;
  std::vector<size_t> begin_;  // of each line
};

// All of it.
Embeddings read_embeddings(const std::string& folder);

// The writer's side: what is there already, parts, and the end.
class EmbeddingFolder {
 public:
  // A folder of another model or side is refused.
  EmbeddingFolder(std::string folder, std::string identity, std::string side);

  // Rows of an earlier run, finished or not.
  const Embeddings& before() const { return before_; }
  void add_part(const at::Tensor& vectors, const std::vector<EmbeddedItem>& items);
  // Writes the whole and removes the parts.
  void finish(const Embeddings& whole);

 private:
  std::string part_path(int64_t number) const;

  std::string folder_;
  Embeddings before_;
  int64_t parts_ = 0;
};

}  // namespace melete::musiclm
