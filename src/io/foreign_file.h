// Published weights as they are downloaded: a safetensors or torch file, or a folder with one and its
// config.json.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "io/tensors.h"

namespace melete {

struct ForeignFile {
  std::string path;  // of the weights
  TensorMap tensors;
  nlohmann::ordered_json config;       // config.json beside it; null when there is none
  nlohmann::ordered_json model, task;  // fairseq's settings inside the file; null when it has none
};

// A folder may hold model.safetensors, pytorch_model.bin or the index of several shards. A checkpoint of
// fairseq is its `model` part.
ForeignFile read_foreign(const std::string& file_or_folder);

// `cluster_centers_` of a k-means that scikit-learn fitted and joblib or pickle stored uncompressed:
// [clusters, dim] float32.
at::Tensor read_sklearn_centroids(const std::string& path);

}  // namespace melete
