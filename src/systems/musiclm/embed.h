// All recordings or texts of a collection into a folder of embeddings, in batches.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "data/base/manifest.h"
#include "roles/joint_embedding.h"
#include "systems/musiclm/embedding_folder.h"

namespace melete::musiclm {

struct EmbedOptions {
  int64_t batch = 8;        // items that are embedded at once
  int64_t save_every = 64;  // items between two parts: what a kill can cost
  std::function<void(int64_t done, int64_t of)> progress;
  std::function<void(const std::string& path, const std::string& message)> on_failure;
};

struct EmbedResult {
  int64_t made = 0, already = 0, failed = 0;
  double seconds_of_sound = 0;  // that were embedded now
};

// Both go on where an earlier call left off, and embed only what is new when the collection has grown.
EmbedResult embed_recordings(const JointEmbedding& embedding, const std::vector<ManifestEntry>& entries,
                             const std::string& folder, const EmbedOptions& options);
EmbedResult embed_texts(const JointEmbedding& embedding, const std::vector<EmbeddedItem>& texts,
                        const std::string& folder, const EmbedOptions& options);

// Recordings as they are on disk, whole: [recordings, dim]. An Error where one cannot be read.
at::Tensor embed_files(const JointEmbedding& embedding, const std::vector<std::string>& paths,
                       int64_t batch = 8);

}  // namespace melete::musiclm
