// From a file or a run folder to a model behind its role; the file alone is enough. A file of another kind is
// refused with what it is. A process that keeps models (run/kept_models.h) gives the same one again. Declared
// here, so that every room can ask; which kinds there are, pretrained/open.cpp and systems/open.cpp know.
// `device`: where it computes (roles/placed.h).
#pragma once

#include <memory>
#include <string>

#include "roles/audio_features.h"
#include "roles/codec.h"
#include "roles/joint_embedding.h"
#include "roles/semantic_tokenizer.h"
#include "roles/text_encoder.h"
#include "run/load_weights.h"

namespace melete {

// What `melete train kmeans` and `melete import hubert | vq-wav2vec` write.
std::shared_ptr<const SemanticTokenizer> open_semantic_tokenizer(const std::string& path,
                                                                 at::Device device = at::kCPU);
// What `melete import t5` writes.
std::shared_ptr<const TextEncoder> open_text_encoder(const std::string& path, at::Device device = at::kCPU);
// A run or checkpoint of a codec that was trained here, what `melete import encodec` writes, or EnCodec's
// weights as they are downloaded.
std::shared_ptr<const Codec> open_codec(const std::string& path, Weights weights = Weights::best,
                                        at::Device device = at::kCPU);
struct OpenedCodec {
  std::shared_ptr<const Codec> codec;
  std::string path;           // of the checkpoint
  std::string name;           // for people: "codec step 12000"
  int64_t step = 0;           // of its training
  bool trained_here = false;  // by melete: then the same architecture can be had untrained
  bool averaged = false;      // its weights are
};
OpenedCodec open_codec_with_its_name(const std::string& path, Weights weights = Weights::best,
                                     at::Device device = at::kCPU);
// A codec's latents, mel frames with a vocoder.
std::shared_ptr<const AudioFeatures> open_audio_features(const std::string& run_or_checkpoint,
                                                         at::Device device = at::kCPU);
std::shared_ptr<const JointEmbedding> open_joint_embedding(const std::string& run_or_checkpoint,
                                                           at::Device device = at::kCPU);

}  // namespace melete
